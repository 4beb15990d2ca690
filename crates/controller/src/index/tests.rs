use std::sync::Arc;

use serde_json::{Value, json};

use super::received::Content;
use super::*;
use crate::index::binding_object::BindingText;

fn deployments() -> Source {
    Source::Templates(GroupKind::of("apps/v1", "Deployment"))
}

/// All events of each object, in order. Objects are independent of each other in a hub's watches.
fn histories() -> Vec<Vec<(Source, &'static str, Value)>> {
    let policy = |version: u64, name: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": "pp", "uid": "p", "generation": version,
                "resourceVersion": version.to_string()},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}]},
        })
    };
    let template = |version: u64, label: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "shop", "name": "web", "uid": "t", "generation": version,
                "resourceVersion": version.to_string(),
                "labels": {"policy.atoll.dev/workload-policy": label}},
            "spec": {"replicas": 2},
        })
    };
    let binding = |version: u64, clusters: Value, policy: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": "web-deployment", "uid": "b",
                "resourceVersion": version.to_string(),
                "annotations": {"policy.atoll.dev/name": policy, "policy.atoll.dev/namespace": "shop"}},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
                    "name": "web", "uid": "t"},
                "replicas": 2, "placement": {}, "clusters": clusters,
            },
        })
    };
    let cluster = |version: u64, region: &str| {
        json!({
            "metadata": {"name": "east", "uid": "c", "resourceVersion": version.to_string()},
            "spec": {"region": region},
        })
    };
    let spread = json!({
        "metadata": {"namespace": "shop", "name": "ws", "uid": "s"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "subsets": [{"name": "a"}]},
    });
    let workload_policy = json!({
        "metadata": {"namespace": "shop", "name": "wp", "uid": "w"},
        "spec": {"topologyKey": "region", "labelSelector": {}, "allocationPolicy": [
            {"name": "north", "replicas": 1}]},
    });
    let owned = json!({"metadata": {"namespace": "shop", "name": "web-1", "uid": "r",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
            "controller": true}]}});
    let node = json!({"metadata": {"name": "node-1", "uid": "n"}});
    let customization = |version: u64, cel: &str| {
        json!({
            "metadata": {"name": "web", "uid": "r", "generation": version,
                "resourceVersion": version.to_string()},
            "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"},
                "customizations": {"replicaResource": {"cel": cel}}},
        })
    };
    vec![
        vec![
            (Source::Customizations, "apply", customization(1, "1")),
            (Source::Customizations, "apply", customization(2, "2")),
        ],
        vec![
            (Source::PropagationPolicies, "apply", policy(1, "other")),
            (Source::PropagationPolicies, "apply", policy(2, "web")),
        ],
        vec![
            (deployments(), "apply", template(1, "old")),
            (deployments(), "apply", template(2, "wp")),
        ],
        vec![
            (
                Source::ResourceBindings,
                "apply",
                binding(1, json!([{"name": "east", "replicas": 2}]), "x"),
            ),
            (
                Source::ResourceBindings,
                "apply",
                binding(2, json!([{"name": "west", "replicas": 2}]), "pp"),
            ),
        ],
        vec![
            (Source::Clusters, "apply", cluster(1, "north")),
            (Source::Clusters, "apply", cluster(2, "south")),
        ],
        vec![
            (Source::WorkloadSpreads, "apply", spread.clone()),
            (Source::WorkloadSpreads, "delete", spread),
        ],
        vec![(Source::WorkloadPolicies, "apply", workload_policy)],
        vec![(Source::ReplicaSets, "apply", owned)],
        vec![(Source::Nodes, "apply", node.clone()), (Source::Nodes, "delete", node)],
    ]
}

fn play(index: &mut Index, (source, what, object): (Source, &str, Value)) {
    match what {
        "apply" => index.apply(&source, Arc::new(object)),
        _ => index.delete(&source, &object),
    };
}

/// A binding as a watch brings it.
fn unread(object: &Value) -> Received {
    serde_json::from_str::<BindingText>(&object.to_string()).unwrap().into()
}

/// A step of splitmix64, for seeded choices.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 31)
}

#[test]
fn events_in_any_order_give_the_same_tables() {
    let mut expected = Index::default();
    histories().into_iter().flatten().for_each(|event| play(&mut expected, event));
    for seed in 0..300_u64 {
        let mut state = seed;
        let mut histories: Vec<_> =
            histories().into_iter().map(|h| h.into_iter().peekable()).collect();
        let mut index = Index::default();
        while histories.iter_mut().any(|history| history.peek().is_some()) {
            let at = usize::try_from(random(&mut state) % 64).unwrap() % histories.len();
            if let Some(event) = histories[at].next() {
                play(&mut index, event);
            }
        }
        assert_eq!(index, expected, "seed {seed}");
    }
    // And the secondary indexes agree with the rows.
    let key = BindingKey::of(Some("shop"), "web-deployment");
    assert_eq!(expected.bindings_on(&"east".into()).count(), 0);
    assert_eq!(expected.bindings_on(&"west".into()).next().unwrap().key, key);
    assert_eq!(expected.template_for(&key).unwrap().name(), "web");
    let held = PolicyKey { namespace: Some("shop".into()), name: "pp".into() };
    assert_eq!(expected.bindings_of(&held).count(), 1);
    assert_eq!(expected.templates_with(&("shop".into(), "wp".into())).count(), 1);
    assert_eq!(expected.templates_with(&("shop".into(), "old".into())).count(), 0);
    assert!(expected.hub_runs_workloads().unwrap().contains("web-1"));
}

#[test]
fn a_list_is_the_whole_truth_and_touches_what_it_lacks() {
    let mut index = Index::default();
    let template = |name: &str| {
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"},
        }))
    };
    index.replace(&deployments(), vec![template("a"), template("b")]);
    let touched = index.replace(&deployments(), vec![template("b")]);
    let names: Vec<_> = touched.keys.iter().map(|key| key.name()).collect();
    assert_eq!(names, ["a-deployment"], "b did not change");
}

#[test]
fn rows_that_a_stream_makes_of_a_list_are_those_that_the_tables_would_make() {
    let newest = |source: &Source| {
        histories().into_iter().flatten().rfind(|(of, ..)| of == source).unwrap().2
    };
    for source in [deployments(), Source::ResourceBindings] {
        let objects = ["a", "b", "c", "d"].map(|name| {
            let mut object = newest(&source);
            object["metadata"]["name"] = json!(name);
            object["metadata"]["uid"] = json!(format!("uid-{name}"));
            object["metadata"]["annotations"]["weight"] = json!("heavy");
            match name {
                "b" => object["spec"]["replicas"] = json!(3),
                // A number that may change in its last bit when it is printed and parsed.
                "c" => object["status"] = json!({"observedGeneration": 2, "load": 0.1 + 0.2}),
                "d" => object["metadata"]["uid"] = Value::Null, // cannot be read
                _ => {}
            }
            Arc::new(object)
        });
        let (mut by_tables, mut by_stream) = (Index::default(), Index::default());
        let mut rows: Vec<Received> = Vec::new();
        for object in &objects {
            let mut row = match source {
                Source::ResourceBindings => unread(object),
                _ => Received::read(&source, object.clone(), &by_stream.recently_parsed()),
            };
            row.read_binding();
            if let Some(previous) = rows.last() {
                row.share(previous);
            }
            rows.push(row);
        }
        let is_row =
            |row: &Received| matches!(row.content, Content::Binding(_) | Content::Template(_));
        let are_rows = rows.iter().map(is_row);
        assert_eq!(are_rows.collect::<Vec<_>>(), [true, true, true, false]);
        let touched = by_tables.replace(&source, objects.to_vec());
        assert_eq!(by_stream.replace(&source, rows), touched);
        assert_eq!(by_stream, by_tables);
        assert_eq!((touched.keys.len(), touched.unreadable.len()), (3, 1));
    }
}

#[test]
fn bindings_of_a_policy_share_the_text_of_one_status_although_the_last_one_has_none_yet() {
    let binding = |name: &str, version: u64, status: Value| {
        let named = json!({"policy.atoll.dev/name": "pp", "policy.atoll.dev/namespace": "shop"});
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": format!("{name}-deployment"), "uid": name,
                "resourceVersion": version.to_string(), "annotations": named},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
                "name": name}},
            "status": status,
        }))
    };
    let status = |name: &str| {
        json!({"aggregatedStatus": [{
            "clusterName": "east", "applied": true, "health": "Healthy",
            "status": {"message": format!("Deployment {name} has minimum availability.")},
        }]})
    };
    let mut index = Index::default();
    for name in ["a", "b", "c"] {
        index.apply(&Source::ResourceBindings, binding(name, 1, json!({})));
    }
    for name in ["a", "b"] {
        index.apply(&Source::ResourceBindings, binding(name, 2, status(name)));
    }
    let status_of = |name: &str| {
        let key = BindingKey::of(Some("shop"), &format!("{name}-deployment"));
        &index.binding(&key).unwrap().status
    };
    assert!(status_of("b").has_root_of(status_of("a")));
    assert_eq!(serde_json::to_value(status_of("b").read()).unwrap(), status("b"));
}

#[test]
fn all_tables_share_the_text_of_a_key_and_of_a_members_name_whatever_arrives_first() {
    let template = Arc::new(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "a", "uid": "t", "resourceVersion": "1"},
    }));
    let binding = Arc::new(json!({
        "metadata": {"namespace": "shop", "name": "a-deployment", "uid": "b", "resourceVersion": "2"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
            "name": "a"}},
        "status": {"aggregatedStatus": [{"clusterName": "east", "applied": true, "health": "Healthy"}]},
    }));
    let templates = Source::Templates(GroupKind::of("apps/v1", "Deployment"));
    let cluster = Arc::new(json!({"metadata": {"name": "east"}, "spec": {}}));
    for template_first in [true, false] {
        let mut index = Index::default();
        index.apply(&Source::Clusters, cluster.clone());
        let mut arrivals = vec![(&templates, &template), (&Source::ResourceBindings, &binding)];
        if !template_first {
            arrivals.reverse();
        }
        let touched: Vec<_> = arrivals
            .into_iter()
            .map(|(source, object)| index.apply(source, object.clone()).keys)
            .collect();
        let row = index.binding(&BindingKey::of(Some("shop"), "a-deployment"));
        let row = row.unwrap();
        for key in touched.iter().flatten().chain(index.by.bindings_by_uid.values()) {
            assert!(std::ptr::eq(key.name(), row.key.name()), "{template_first}");
        }
        let (known, template) = index.templates.rows.first_key_value().unwrap();
        for key in [known, &template.key] {
            assert!(std::ptr::eq(key.name(), row.template.name()), "{template_first}");
        }
        let name = |name: &ClusterName| name.as_str().as_ptr();
        let (known, _) = index.clusters().next().unwrap();
        assert_eq!(row.status.members().iter().map(name).collect::<Vec<_>>(), [name(known)]);
    }
}

#[test]
fn a_source_that_cannot_be_read_freezes_its_kind_and_keeps_its_rows() {
    let mut index = Index::default();
    let kind = GroupKind::of("apps/v1", "Deployment");
    assert!(index.frozen(kind.borrowed()).is_some(), "not listed yet");
    let object = Arc::new(json!({
        "metadata": {"namespace": "shop", "name": "a", "uid": "a", "resourceVersion": "1"},
    }));
    index.replace(&deployments(), vec![object.clone()]);
    assert_eq!(index.frozen(kind.borrowed()), None);
    let touched = index.unreadable(&deployments(), "forbidden".to_owned());
    assert_eq!(index.frozen(kind.borrowed()).as_deref(), Some("forbidden"));
    assert_eq!(touched.keys.len(), 1);
    assert_eq!(index.templates_of(&kind).count(), 1);
    assert_eq!(index.replace(&deployments(), vec![object]).keys.len(), 1, "readable again");
    assert_eq!(index.frozen(kind.borrowed()), None);
}

#[test]
fn an_object_that_cannot_be_read_leaves_the_one_before_in_force() {
    let mut index = Index::default();
    let cluster = |region: Value| {
        Arc::new(json!({
            "metadata": {"name": "east", "uid": "c"}, "spec": {"region": region},
        }))
    };
    index.apply(&Source::Clusters, cluster(json!("north")));
    let touched = index.apply(&Source::Clusters, cluster(json!(7)));
    assert_eq!(touched.unreadable.len(), 1);
    assert_eq!(index.cluster("east").unwrap().spec.region.as_deref(), Some("north"));
}

#[test]
fn our_own_answer_is_newer_than_what_the_watch_brings_late() {
    let mut index = Index::default();
    let binding = |version: &str, replicas: i64, uid: &str| {
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": "b", "uid": uid, "resourceVersion": version},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "b"},
                "replicas": replicas},
        }))
    };
    let replicas = |index: &Index| index.bindings().next().unwrap().spec.replicas;
    index.apply(&Source::ResourceBindings, binding("9", 9, "u"));
    let touched = index.apply(&Source::ResourceBindings, binding("8", 8, "u"));
    assert_eq!((replicas(&index), touched), (Some(9), Touched::default()));
    index.delete(&Source::ResourceBindings, &binding("7", 7, "before"));
    assert_eq!(replicas(&index), Some(9), "another binding of that name ended");
    index.delete(&Source::ResourceBindings, &binding("10", 9, "u"));
    assert_eq!(index.bindings().count(), 0);
}

#[test]
fn an_event_of_a_binding_is_read_only_if_the_tables_lack_its_version() {
    let mut index = Index::default();
    let binding = |version: &str, replicas: Value| {
        json!({
            "metadata": {"namespace": "shop", "name": "b", "uid": "u", "resourceVersion": version},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "b"},
                "replicas": replicas},
        })
    };
    let replicas = |index: &Index| index.bindings().next().unwrap().spec.replicas;
    index.apply(&Source::ResourceBindings, Arc::new(binding("9", json!(9))));
    for version in ["8", "9"] {
        // If it was read, it would be an error.
        let event = unread(&binding(version, json!("x")));
        let touched = index.apply(&Source::ResourceBindings, event);
        assert_eq!((replicas(&index), touched), (Some(9), Touched::default()), "{version}");
    }
    let touched = index.apply(&Source::ResourceBindings, unread(&binding("10", json!("x"))));
    assert_eq!((replicas(&index), touched.unreadable.len()), (Some(9), 1));
    let touched = index.apply(&Source::ResourceBindings, unread(&binding("11", json!(11))));
    assert_eq!((replicas(&index), touched.bindings.len()), (Some(11), 1));
}

#[test]
fn the_newest_served_version_of_a_kind_is_wanted() {
    let mut index = Index::default();
    for (name, version) in [("a", "v1beta1"), ("b", "v1"), ("c", "v2alpha1")] {
        index.apply(
            &Source::PropagationPolicies,
            Arc::new(json!({
                "metadata": {"namespace": "shop", "name": name, "uid": name},
                "spec": {"resourceSelectors": [
                    {"apiVersion": format!("example.io/{version}"), "kind": "Widget"}]},
            })),
        );
    }
    let wanted = index.wanted_kinds();
    let kind = GroupKind::of("example.io/v1", "Widget");
    assert_eq!(wanted.into_iter().collect::<Vec<_>>(), [(kind, "v1".to_owned())]);
}

#[test]
fn after_a_change_of_a_cluster_what_runs_on_it_is_told_from_what_may_choose_it() {
    let mut index = Index::default();
    let cluster = |zone: &str| {
        Arc::new(json!({
            "metadata": {"name": "m1", "resourceVersion": zone, "labels": {"zone": zone}}, "spec": {},
        }))
    };
    let binding = |name: &str, cluster: &str| {
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": format!("{name}-deployment"), "uid": name,
                "resourceVersion": "1"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
                "replicas": 1,
                "placement": {"rescheduleOn": ["ClusterChange"], "replicaScheduling": {"replicaSchedulingType": "Divided"}},
                "clusters": [{"name": cluster, "replicas": 1}],
            },
        }))
    };
    index.replace(&Source::Clusters, vec![cluster("east")]);
    let bindings = Source::of_binding(&BindingKey::new("shop", "here"));
    index.replace(&bindings, vec![binding("here", "m1"), binding("elsewhere", "m2")]);
    let touched = index.apply(&Source::Clusters, cluster("west"));
    let names = |keys: &std::collections::BTreeSet<BindingKey>| -> Vec<String> {
        keys.iter().map(|key| key.name().to_owned()).collect()
    };
    assert_eq!(names(&touched.keys), ["here-deployment"]);
    assert_eq!(names(&touched.clusters.following), ["elsewhere-deployment", "here-deployment"]);
}

/// The API server does not check the placement of a binding, which the controller copies from a policy.
#[test]
fn a_placement_that_no_policy_can_have_is_not_taken_from_a_binding() {
    let binding = |version: &str, constraints: usize| {
        let spread = json!({"spreadByField": "region", "minGroups": 1});
        let constraints: Vec<_> = std::iter::repeat_n(spread, constraints).collect();
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": "web-deployment", "uid": "b",
                "resourceVersion": version,
                "annotations": {"policy.atoll.dev/name": "pp", "policy.atoll.dev/namespace": "shop"}},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
                    "name": "web", "uid": "t"},
                "placement": {"spreadConstraints": constraints},
                "clusters": [{"name": "east", "replicas": 2}],
            },
        }))
    };
    let key = BindingKey::of(Some("shop"), "web-deployment");
    let mut index = Index::default();
    let held = |index: &Index| {
        let row = index.binding(&key).unwrap();
        assert_eq!(row.clusters().collect::<Vec<_>>(), ["east"]);
        row.spec.placement.as_ref().map(|placement| placement.spread_constraints.len())
    };
    index.apply(&Source::ResourceBindings, binding("1", 16));
    assert_eq!(held(&index), Some(16));
    // The rest of the binding counts: what runs on members stays.
    index.apply(&Source::ResourceBindings, binding("2", 17));
    assert_eq!(held(&index), None);
    index.apply(&Source::ResourceBindings, binding("3", 1));
    assert_eq!(held(&index), Some(1));
}
