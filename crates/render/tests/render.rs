//! Rendering: what members get of a template.

use atoll_api::workload_spread::WorkloadSpreadSpec;
use atoll_render::{Key, NodeRules, RenderError, Rendered, Share, namespace, render};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn nginx() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "nginx", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.io/keep"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-2"}],
            "managedFields": [{"manager": "kubectl"}], "selfLink": "/x",
            "labels": {"app": "nginx", "policy.atoll.dev/workload-policy": "spread"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "deployment.kubernetes.io/revision": "4",
                "team": "web"
            }
        },
        "spec": {
            "replicas": 9,
            "selector": {"matchLabels": {"app": "nginx"}},
            "template": {
                "metadata": {"creationTimestamp": null, "labels": {"app": "nginx"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:1.27"}]}
            }
        },
        "status": {"replicas": 9}
    })
}

fn share(replicas: impl Into<Option<i64>>) -> Share {
    Share {
        cluster: "member1".to_owned(),
        replicas: replicas.into(),
        claim: "b-1".to_owned(),
        ..Share::default()
    }
}

#[test]
fn the_ordinals_of_a_stateful_set_begin_above_those_of_the_clusters_before() {
    let mut set = nginx();
    set["kind"] = json!("StatefulSet");
    let start = |template: &Value, ordinals| {
        let share = Share { ordinals, ..share(2) };
        render(template, &share).unwrap().manifest["spec"]["ordinals"]["start"].clone()
    };
    assert_eq!(start(&set, None), Value::Null);
    assert_eq!(start(&set, Some(0)), Value::Null, "as the template has it");
    assert_eq!(start(&set, Some(4)), 4);
    set["spec"]["ordinals"] = json!({"start": 10});
    assert_eq!((start(&set, Some(0)), start(&set, Some(4))), (json!(10), json!(14)));
    assert_eq!(start(&nginx(), Some(4)), Value::Null, "Deployments have none");
    let negative = render(&set, &Share { ordinals: Some(-1), ..share(2) }).unwrap_err();
    assert!(negative.to_string().contains("ordinals is -1"), "{negative}");
}

/// The manifest as a user could have written it.
fn without_marks(rendered: &Rendered) -> Value {
    let mut manifest = rendered.manifest.clone();
    let metadata = manifest["metadata"].as_object_mut().expect("rendered");
    for field in ["labels", "annotations"] {
        if let Some(entries) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            entries.retain(|key, _| !key.starts_with("atoll.dev/"));
            if entries.is_empty() {
                metadata.remove(field);
            }
        }
    }
    manifest
}

#[test]
fn a_member_gets_the_users_object_with_its_share_and_the_marks() {
    let rendered = render(&nginx(), &Share { preserve: true, ..share(2) }).unwrap();
    assert_eq!(
        rendered.manifest,
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "nginx", "namespace": "shop",
                "labels": {"app": "nginx", "atoll.dev/managed-by": "atoll"},
                "annotations": {
                    "team": "web", "atoll.dev/claims": "b-1", "atoll.dev/preserve": "true",
                    "atoll.dev/hash": rendered.hash
                }
            },
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "nginx"}},
                "template": {
                    "metadata": {"labels": {"app": "nginx"}},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:1.27"}]}
                }
            }
        })
    );
    assert_eq!(rendered.key.to_string(), "Deployment.apps shop/nginx");
    assert_eq!(&*rendered.api_version, "apps/v1");
}

#[test]
fn of_the_users_keys_for_atoll_only_the_one_that_the_agent_reads_reaches_members() {
    let mut template = nginx();
    let retain = "resourcetemplate.atoll.dev/retain-replicas";
    for key in [retain, "resourcetemplate.atoll.dev/deletion-protected"] {
        template["metadata"]["labels"][key] = json!("true");
    }
    for key in [retain, "work.atoll.dev/conflict-resolution"] {
        template["metadata"]["annotations"][key] = json!("overwrite");
    }
    let metadata = &render(&template, &share(2)).unwrap().manifest["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"app": "nginx", "atoll.dev/managed-by": "atoll", retain: "true"})
    );
    let annotations = metadata["annotations"].as_object().unwrap();
    assert_eq!(annotations.keys().filter(|key| key.contains(".atoll.dev/")).count(), 0);
}

#[test]
fn a_kind_without_replicas_is_passed_on_as_it_is() {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"},
        "data": {"replicas": "x"}, "immutable": true});
    let rendered = render(&config, &share(None)).unwrap();
    assert_eq!(without_marks(&rendered), config);
    assert!(rendered.manifest["metadata"]["annotations"].get("atoll.dev/preserve").is_none());
}

#[test]
fn the_hash_is_stable_across_builds() {
    // A change of this value rolls out every object of every federation: raise RENDER_VERSION with it.
    assert_eq!(
        render(&nginx(), &share(2)).unwrap().hash,
        "25bd83e2aa3330236159ed8dca9c9e9647d5791ac95919a914a30f54069e3c3e"
    );
}

#[test]
fn addresses_of_the_hub_do_not_reach_members_but_headless_and_node_ports_do() {
    let service = |ip: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "d"},
        "spec": {"type": "NodePort", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "nodePort": 30001}]}})
    };
    let allocated = render(&service("10.0.0.7"), &share(None)).unwrap().manifest;
    // Node ports that the hub allocated are removed earlier, where its objects are read.
    let ports = json!([{"port": 80, "nodePort": 30001}]);
    assert_eq!(allocated["spec"], json!({"type": "NodePort", "ports": ports}));
    let headless = render(&service("None"), &share(None)).unwrap().manifest;
    assert_eq!(headless["spec"]["clusterIP"], "None");
}

#[test]
fn bad_templates_are_refused_by_field() {
    type Edit = fn(&mut Value);
    let refused = |edit: Edit| {
        let mut template = nginx();
        edit(&mut template);
        render(&template, &share(1)).unwrap_err().to_string()
    };
    let cases: [(Edit, &str); 8] = [
        (|t| t["metadata"]["name"] = json!(""), "metadata.name"),
        (|t| t["metadata"]["namespace"] = json!(7), "metadata.namespace"),
        (|t| t["apiVersion"] = Value::Null, "apiVersion"),
        (|t| t["metadata"]["labels"] = json!(["a"]), "metadata.labels"),
        (|t| t["metadata"]["labels"]["a"] = json!(1), r#"metadata.labels["a"]"#),
        (|t| t["metadata"]["annotations"]["atoll.dev/claims"] = json!("b-2"), "atoll.dev/claims"),
        (|t| t["metadata"]["labels"]["atoll.dev/managed-by"] = json!("atoll"), "managed-by"),
        (|t| t["spec"] = json!("none"), "spec"),
    ];
    for (edit, field) in cases {
        let error = refused(edit);
        assert!(error.contains(field), "{field}: {error}");
    }
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "spec": {}});
    let error = render(&config, &share(1)).unwrap_err().to_string();
    assert!(error.contains("ConfigMap c") && error.contains("spec.replicas"), "{error}");
    assert_eq!(
        render(&nginx(), &share(-1)),
        Err(RenderError::NegativeShare {
            cluster: "member1".to_owned(),
            field: "replicas",
            value: -1
        })
    );
}

#[test]
fn namespaces_get_the_hubs_labels_and_are_kept() {
    let hub = json!({"metadata": {"name": "shop", "labels": {
        "kubernetes.io/metadata.name": "shop", "pod-security.kubernetes.io/enforce": "baseline",
        "atoll.dev/managed-by": "atoll"
    }}});
    let rendered = namespace("shop", Some(&hub));
    assert_eq!(
        rendered.manifest["metadata"],
        json!({
            "name": "shop",
            "labels": {"pod-security.kubernetes.io/enforce": "baseline", "atoll.dev/managed-by": "atoll"},
            "annotations": {"atoll.dev/preserve": "true", "atoll.dev/hash": rendered.hash}
        })
    );
    assert_ne!(rendered.hash, namespace("shop", None).hash);
    assert_eq!(rendered.key, Key::new("", "Namespace", None, "shop"));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z \"\\\\é]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

fn template() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-z]{1,3}(/[a-z])?", "[a-z]{0,3}", 0..3);
    let spec = prop::collection::btree_map("[a-z]{1,4}", json_value(), 0..4);
    (labels.clone(), labels, spec, 0_i64..4, any::<bool>()).prop_map(
        |(labels, annotations, spec, generation, status)| {
            let mut template = json!({
                "apiVersion": "example.io/v1", "kind": "Thing",
                "metadata": {"name": "t", "namespace": "d", "labels": labels, "annotations": annotations,
                    "generation": generation, "uid": format!("u-{generation}")},
                "spec": Map::from_iter(spec)
            });
            template["spec"]["replicas"] = json!(generation);
            template["spec"]["template"] = json!({"spec": {"containers": [{"name": "c"}]}});
            if status {
                template["status"] = json!({"replicas": 1});
            }
            template
        },
    )
}

proptest! {
    #[test]
    fn rendering_again_what_was_rendered_changes_nothing(
        template in template(),
        replicas in prop::option::of(0_i64..5),
    ) {
        let once = render(&template, &share(replicas)).unwrap();
        let again = render(&without_marks(&once), &share(replicas)).unwrap();
        prop_assert_eq!(
            serde_json::to_vec(&once.manifest).unwrap(), serde_json::to_vec(&again.manifest).unwrap()
        );
        prop_assert_eq!(&once, &render(&template, &share(replicas)).unwrap());
    }

    #[test]
    fn the_hash_changes_exactly_with_the_manifest_without_marks(
        a in template(), b in template(),
        (x, y) in (0_i64..3, 0_i64..3),
        (claim, preserve) in ("[a-z]{1,3}", any::<bool>()),
    ) {
        let first = render(&a, &share(x)).unwrap();
        for (template, replicas) in [(&a, y), (&b, x), (&b, y)] {
            let other = Share { claim: claim.clone(), preserve, ..share(replicas) };
            let second = render(template, &other).unwrap();
            prop_assert_eq!(
                first.hash == second.hash, without_marks(&first) == without_marks(&second)
            );
        }
    }

    #[test]
    fn the_completions_of_a_divided_job_add_up(
        shares in prop::collection::vec(0_i64..7, 1..6),
        completions in 0_i64..50,
    ) {
        let parallelism: i64 = shares.iter().sum();
        prop_assume!(parallelism > 0);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "d"},
            "spec": {"parallelism": parallelism, "completions": completions}});
        let (mut before, mut sum) = (0, 0);
        for replicas in shares {
            let part = render(&job, &Share { before, ..share(replicas) }).unwrap().manifest;
            prop_assert_eq!(&part["spec"]["parallelism"], &json!(replicas));
            sum += part["spec"]["completions"].as_i64().unwrap();
            before += replicas;
        }
        prop_assert_eq!(sum, completions);
        // Duplicated: every cluster gets the whole Job.
        let whole = render(&job, &share(parallelism)).unwrap();
        prop_assert_eq!(without_marks(&whole), job);
    }
}

/// The node affinity and tolerations of the pods of a template in a subset.
fn on_nodes(template: &Value, subsets: Value, at: usize) -> Result<(Value, Value), RenderError> {
    #[allow(clippy::unwrap_used)]
    let spec: WorkloadSpreadSpec = serde_json::from_value(json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"}, "subsets": subsets,
    }))
    .unwrap();
    let nodes = NodeRules::of(&spec, at);
    let pod = render(template, &Share { nodes, ..share(2) })?.manifest["spec"]["template"]["spec"]
        .clone();
    Ok((pod["affinity"]["nodeAffinity"].clone(), pod["tolerations"].clone()))
}

fn node_term(key: &str, value: &str) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]})
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

#[test]
fn a_subset_with_clusters_of_its_own_selects_their_nodes_in_addition_to_the_template() {
    let subsets = json!([
        {"name": "a", "requiredClusterSelector": {"matchLabels": {"zone": "a"}}, "requiredNodeSelectorTerm": node_term("pool", "spot"),
            "preferredNodeSelectorTerms": [{"weight": 7, "preference": node_term("disk", "ssd")}],
            "tolerations": [{"key": "spot", "operator": "Exists"}]},
        {"name": "b", "requiredNodeSelectorTerm": node_term("pool", "other")},
        {"name": "c", "tolerations": [{"key": "only-for-clusters", "operator": "Exists"}]},
    ]);
    let (affinity, tolerations) = on_nodes(&nginx(), subsets.clone(), 0).unwrap();
    assert_eq!(affinity[REQUIRED]["nodeSelectorTerms"], json!([node_term("pool", "spot")]));
    assert_eq!(affinity[PREFERRED], json!([{"weight": 7, "preference": node_term("disk", "ssd")}]));
    assert_eq!(tolerations, json!([{"key": "spot", "operator": "Exists"}]));
    // The template's own alternatives hold, too.
    let mut template = nginx();
    let own = [node_term("arch", "amd64"), node_term("arch", "arm64")];
    template["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] =
        json!(own);
    let (affinity, _) = on_nodes(&template, subsets.clone(), 1).unwrap();
    let both = |arch: &str| {
        let arch = node_term("arch", arch)["matchExpressions"][0].clone();
        json!({"matchExpressions": [arch, node_term("pool", "other")["matchExpressions"][0]]})
    };
    assert_eq!(affinity[REQUIRED]["nodeSelectorTerms"], json!([both("amd64"), both("arm64")]));
    assert_eq!(on_nodes(&nginx(), subsets, 2).unwrap(), (Value::Null, Value::Null));
}

#[test]
fn subsets_that_share_clusters_use_the_nodes_of_all_and_prefer_those_of_earlier_ones() {
    let toleration = json!({"key": "eci", "operator": "Exists"});
    let subsets = json!([
        {"name": "ecs", "requiredNodeSelectorTerm": node_term("type", "ecs")},
        {"name": "spot", "requiredNodeSelectorTerm": node_term("type", "spot"), "tolerations": [toleration],
            "preferredNodeSelectorTerms": [{"weight": 9, "preference": node_term("disk", "ssd")}]},
        {"name": "eci", "requiredNodeSelectorTerm": node_term("type", "eci"), "tolerations": [toleration]},
    ]);
    let (affinity, tolerations) = on_nodes(&nginx(), subsets, 0).unwrap();
    let all = ["ecs", "spot", "eci"].map(|kind| node_term("type", kind));
    assert_eq!(affinity[REQUIRED]["nodeSelectorTerms"], json!(all));
    let spot_with_ssd = json!({"matchExpressions": [
        node_term("type", "spot")["matchExpressions"][0], node_term("disk", "ssd")["matchExpressions"][0]]});
    let preferred = json!([
        {"weight": 100, "preference": node_term("type", "ecs")},
        {"weight": 50, "preference": node_term("type", "spot")},
        {"weight": 9, "preference": spot_with_ssd},
    ]);
    assert_eq!(affinity[PREFERRED], preferred);
    assert_eq!(tolerations, json!([toleration]), "once, although two subsets have it");
}

#[test]
fn a_template_that_cannot_take_the_selectors_of_nodes_is_an_error_that_names_the_field() {
    let subsets = json!([{"name": "a", "requiredNodeSelectorTerm": node_term("pool", "spot"),
        "tolerations": [{"key": "spot", "operator": "Exists"}]}]);
    let mut template = nginx();
    template["spec"]["template"]["spec"]["tolerations"] = json!("all");
    let error = on_nodes(&template, subsets.clone(), 0).unwrap_err().to_string();
    assert!(error.contains("tolerations of the pod template must be a list"), "{error}");
    template["spec"]["template"]["spec"] = json!({"containers": [], "affinity": {"nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": vec![node_term("a", "b"); 300]}}}});
    let error = on_nodes(&template, subsets, 0).unwrap_err().to_string();
    assert!(error.contains("more than 256 combinations"), "{error}");
}

fn patched(patch: Value) -> Result<Rendered, RenderError> {
    render(&nginx(), &Share { patch: Some(patch), ..share(2) })
}

#[test]
fn a_subsets_patch_merges_into_the_pod_template_as_kubectl_would() {
    let patch = json!({
        "metadata": {"labels": {"zone": "ack"}},
        "spec": {
            "containers": [{"name": "nginx", "env": [{"name": "POOL", "value": "reserved"}]}],
            "tolerations": [{"key": "eci", "operator": "Exists"}],
        },
    });
    let rendered = patched(patch).unwrap();
    let template = &rendered.manifest["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], json!({"app": "nginx", "zone": "ack"}));
    // Containers merge by name: the image is still there.
    let container = json!({"name": "nginx", "image": "nginx:1.27",
        "env": [{"name": "POOL", "value": "reserved"}]});
    assert_eq!(template["spec"]["containers"], json!([container]));
    assert_eq!(template["spec"]["tolerations"][0]["key"], "eci");
    assert_eq!(rendered.manifest["spec"]["replicas"], 2);
    assert_ne!(rendered.hash, render(&nginx(), &share(2)).unwrap().hash);
}

#[test]
fn a_patch_may_not_touch_identity_and_says_which_field_does() {
    for (patch, field) in [
        (json!({"apiVersion": "v1"}), "apiVersion"),
        (json!({"$patch": "replace"}), "$patch"),
        (json!({"metadata": {"name": "other"}}), "metadata.name"),
        (json!({"metadata": {"namespace": "other"}}), "metadata.namespace"),
        (json!({"metadata": {"$patch": "delete"}}), "metadata.$patch"),
        (json!({"metadata": {"labels": {"$patch": "delete"}}}), "$patch"),
        (json!({"metadata": {"labels": {"atoll.dev/managed-by": "me"}}}), "atoll.dev/managed-by"),
        (json!({"metadata": {"labels": {"app": "other"}}}), "app"),
        (json!({"metadata": {"annotations": {"team": 7}}}), "team"),
        (json!(["spec"]), "object"),
    ] {
        let error = patched(patch.clone()).unwrap_err();
        assert!(matches!(&error, RenderError::Patch { cluster, .. } if cluster == "member1"));
        assert!(error.to_string().contains(field), "{patch}: {error}");
    }
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "shop"}, "data": {}});
    let patch = Some(json!({"metadata": {"labels": {"a": "b"}}}));
    let error = render(&config_map, &Share { patch, ..share(None) }).unwrap_err();
    assert!(error.to_string().contains("spec.template"), "{error}");
}
