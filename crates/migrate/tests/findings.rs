//! What is found in the way of a migration, from objects as a Karmada control plane has them.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use atoll_api::marks::START;
use atoll_convert::{Converter, Options, Purpose};
use atoll_migrate::check::{self, Finding, Severity};
use atoll_migrate::estate::{Binding, Estate, ObjectRef, Work};
use atoll_migrate::meaning::{BuiltIn, Meaning};
use atoll_migrate::{BEFORE, hub, members};
use serde_json::{Value, json};

fn converter() -> &'static Converter {
    static CONVERTER: LazyLock<Converter> =
        LazyLock::new(|| Converter::new(Options::new(Purpose::Hub)).unwrap());
    &CONVERTER
}

fn template(name: &str, namespace: &str, replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "web:1"}]}}}})
}

fn binding(name: &str, namespace: &str, policy: Value, clusters: &[(&str, i64)]) -> Value {
    let each = clusters.iter().map(|(name, replicas)| json!({"name": name, "replicas": replicas}));
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-deployment"), "namespace": namespace, "annotations": policy},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": name},
            "clusters": each.collect::<Vec<_>>()}})
}

fn of_cpp() -> Value {
    json!({"clusterpropagationpolicy.karmada.io/name": "all"})
}

fn work(cluster: &str, template: &Value, replicas: i64) -> Value {
    let mut manifest = template.clone();
    manifest["spec"]["replicas"] = json!(replicas);
    manifest["metadata"]["labels"]["karmada.io/managed"] = json!("true");
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": format!("karmada-es-{cluster}")},
        "spec": {"workload": {"manifests": [manifest]}}})
}

/// Namespaces `shop` and `other`, each with a Deployment of one ClusterPropagationPolicy on m1 and m2.
fn estate(namespace: Option<&str>) -> Estate {
    let mut estate = Estate {
        namespace: namespace.map(str::to_owned),
        clusters: ["m1", "m2"]
            .map(|name| json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"syncMode": "Push", "region": "north"}}))
            .to_vec(),
        policies: vec![json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": "all"}, "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}})],
        ..Estate::default()
    };
    for namespace in ["shop", "other"] {
        let template = template("web", namespace, 3);
        let of = binding("web", namespace, of_cpp(), &[("m1", 2), ("m2", 1)]);
        estate.bindings.push(Binding::read(of).unwrap());
        estate.works.push(Work::read(work("m1", &template, 2)).unwrap());
        estate.works.push(Work::read(work("m2", &template, 1)).unwrap());
        estate.templates.insert(ObjectRef::of(&template).unwrap(), template);
    }
    estate
}

fn blocking(estate: &Estate) -> Vec<String> {
    let found = check::findings(converter(), estate, &BuiltIn);
    let blocks = found.iter().filter(|one| one.severity == Severity::Blocks);
    blocks.map(|Finding { object, problem, .. }| format!("{object}: {problem}")).collect()
}

#[test]
fn a_settled_estate_has_nothing_in_its_way_and_starts_where_it_is() {
    let estate = estate(None);
    assert_eq!(blocking(&estate), [""; 0]);
    assert_eq!(estate.namespaces(), ["other", "shop"]);
    let binding = estate.moving().next().unwrap();
    let (object, _) = hub::template(converter(), binding, &estate.templates[&binding.of]);
    let object = object.unwrap();
    let start: Value =
        serde_json::from_str(object["metadata"]["annotations"][START].as_str().unwrap()).unwrap();
    assert_eq!(
        start,
        json!({"clusters": [{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}]})
    );
    assert!(hub::is_made(&object) && object["metadata"].get("uid").is_none());
    let policies = hub::prepared(converter(), &estate).objects;
    let policy = &policies[0];
    assert_eq!(policy["spec"]["preserveResourcesOnDeletion"], true);
    let before: Value =
        serde_json::from_str(policy["metadata"]["annotations"][BEFORE].as_str().unwrap()).unwrap();
    assert_eq!(before, json!({"preserveResourcesOnDeletion": null}));
}

#[test]
fn a_policy_of_several_namespaces_is_named_when_one_moves() {
    let found = blocking(&estate(Some("shop")));
    assert!(found.len() == 1 && found[0].contains("claims objects in other, too"), "{found:?}");
}

#[test]
fn what_would_move_replicas_or_start_pods_again_blocks() {
    let change = |change: &dyn Fn(&mut Estate)| {
        let mut estate = estate(None);
        change(&mut estate);
        let found = blocking(&estate);
        assert!(!found.is_empty());
        found.join("\n")
    };
    let image = change(&|estate| {
        let manifest = "/spec/workload/manifests/0/spec/template/spec/containers/0/image";
        *estate.works[0].object.pointer_mut(manifest).unwrap() = json!("web:0");
    });
    assert!(
        image.contains("Deployment.apps shop/web on m1: spec.template.spec.containers[0].image"),
        "{image}"
    );
    let sum = change(&|estate| estate.bindings[0].clusters[0].replicas = 7);
    assert!(sum.contains("8 replicas together") && sum.contains("spec.replicas"), "{sum}");
    let lacking = change(&|estate| {
        estate.works.remove(0);
    });
    assert!(lacking.contains("m1 has no Work of it yet"), "{lacking}");
    let old = change(&|estate| {
        estate.bindings[0].clusters.remove(1);
    });
    assert!(old.contains("m2 still has a Work of it"), "{old}");
    let leaving = change(&|estate| {
        estate.bindings[0].object["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m3"}]);
    });
    assert!(leaving.contains("wait until Karmada has ended its eviction tasks"), "{leaving}");
    let unclaimed = change(&|estate| estate.bindings[0].policy = None);
    assert!(unclaimed.contains("no policy claims it"), "{unclaimed}");
    let gone = change(&|estate| estate.templates.clear());
    assert!(gone.contains("not the object"), "{gone}");
    let suspended =
        change(&|estate| estate.policies[0]["spec"]["suspension"] = json!({"dispatching": true}));
    assert!(suspended.contains("end the suspension first"), "{suspended}");
}

#[test]
fn a_suspension_of_the_migration_itself_is_not_in_the_way() {
    let mut estate = estate(None);
    let policy = &mut estate.policies[0];
    policy["spec"]["suspension"] = json!({"dispatching": true});
    let before = json!({"/spec/suspension/dispatching": null}).to_string();
    policy["metadata"]["annotations"] = json!({BEFORE: before});
    assert_eq!(blocking(&estate), [""; 0]);
    let converted = hub::prepared(converter(), &estate).objects;
    assert_ne!(converted[0]["spec"]["suspension"]["dispatching"], true);
}

#[test]
fn members_that_are_missing_or_differ_are_named_with_the_fix() {
    let estate = estate(None);
    let on_hub = |region: &str, ready: &str| {
        json!({"metadata": {"name": "m1"}, "spec": {"region": region},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let of = |hub: BTreeMap<String, Value>| {
        let found = members::findings(converter(), &estate, &hub);
        found.into_iter().map(|one| one.problem).collect::<Vec<_>>()
    };
    let found = of(BTreeMap::from([("m1".to_owned(), on_hub("north", "True"))]));
    let join = "it has not joined Atoll: `atoll join m2 --region north`, with `--rights workloads,proxy -o yaml`";
    assert!(found.len() == 1 && found[0].starts_with(join), "{found:?}");
    let mut both = BTreeMap::from([("m1".to_owned(), on_hub("south", "False"))]);
    both.insert("m2".to_owned(), on_hub("north", "True"));
    let found = of(both);
    assert!(
        found.len() == 2 && found[0].contains("spec.region") && found[1].contains("not Ready"),
        "{found:?}"
    );
}

/// What the control plane has beside policies and placements, for namespace `shop`.
fn extras() -> Vec<Value> {
    let of = |api_version: &str, kind: &str, metadata: Value, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    let in_shop = |name: &str| json!({"name": name, "namespace": "shop"});
    let config = "config.karmada.io/v1alpha1";
    let policy = "policy.karmada.io/v1alpha1";
    let customization = |name: &str, kind: &str| {
        let target = json!({"apiVersion": "apps/v1", "kind": kind});
        of(
            config,
            "ResourceInterpreterCustomization",
            json!({"name": name}),
            json!({"target": target, "customizations": {}}),
        )
    };
    let mut quota = of(
        policy,
        "FederatedResourceQuota",
        in_shop("limit"),
        json!({"overall": {"cpu": "2", "memory": "1Gi"}}),
    );
    quota["status"] = json!({"overallUsed": {"cpu": "2", "memory": "512Mi"}});
    vec![
        customization("deployments", "Deployment"),
        customization("rollouts", "Rollout"),
        of(
            policy,
            "ClusterTaintPolicy",
            json!({"name": "unready"}),
            json!({"taints": [{"key": "a", "effect": "NoSchedule"}]}),
        ),
        quota,
        of(
            "networking.karmada.io/v1alpha1",
            "MultiClusterService",
            in_shop("web"),
            json!({"types": ["CrossCluster"]}),
        ),
    ]
}

#[test]
fn rules_for_kinds_come_before_policies_and_cluster_scoped_objects_with_everything() {
    let prepared = |namespace: Option<&str>| -> Vec<String> {
        let estate = Estate { extras: extras(), ..estate(namespace) };
        let made = hub::prepared(converter(), &estate).objects;
        made.iter().map(|object| ObjectRef::of(object).unwrap().to_string()).collect()
    };
    let rules = "ResourceInterpreterCustomization.config.atoll.dev";
    let quota = "FederatedResourceQuota.policy.atoll.dev shop/limit".to_owned();
    let policy = "ClusterPropagationPolicy.policy.atoll.dev all".to_owned();
    let (own, other) = (format!("{rules} deployments"), format!("{rules} rollouts"));
    let taints = "ClusterTaintPolicy.policy.atoll.dev unready".to_owned();
    assert_eq!(
        prepared(None),
        [own.clone(), other, policy.clone(), taints, quota.clone()],
        "everything moves"
    );
    assert_eq!(prepared(Some("shop")), [own, policy, quota], "one namespace moves");

    let found = |namespace: Option<&str>| -> Vec<String> {
        let estate = Estate { extras: extras(), ..estate(namespace) };
        let found = check::findings(converter(), &estate, &BuiltIn);
        let others = found.iter().filter(|one| !check::is_about_sharing(one));
        others.map(|one| format!("{:?} {}: {}", one.severity, one.object, one.problem)).collect()
    };
    let all = found(None);
    assert!(all.len() == 1 && all[0].contains("MultiClusterService"), "{all:?}");
    let one = found(Some("shop"));
    assert!(one.len() == 2 && one[0].contains("ClusterTaintPolicy"), "{one:?}");
    assert!(one.iter().all(|line| line.starts_with("Changes ")), "{one:?}");
}

#[test]
fn a_quota_that_is_used_up_and_what_scales_in_karmada_block() {
    let mut estate = Estate { extras: extras(), ..estate(None) };
    estate.extras[3]["status"]["overallUsed"]["cpu"] = json!("2500m");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    estate
        .extras
        .push(json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"scaleTargetRef": target}}));
    let found = blocking(&estate).join("\n");
    assert!(found.contains("spec.overall.cpu is 2, and the namespace uses 2500m"), "{found}");
    assert!(found.contains("it scales Deployment.apps shop/web"), "{found}");
    assert_eq!(found.lines().count(), 2, "{found}");
}

/// A rule of a user: the replicas of Gadgets are in `spec.size`.
struct OfGadgets;

impl Meaning for OfGadgets {
    fn replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        Ok(object["spec"]["size"].as_i64())
    }

    fn revised(&self, object: &Value, replicas: i64) -> Result<Option<Value>, String> {
        let mut revised = object.clone();
        revised["spec"]["size"] = json!(replicas);
        Ok(Some(revised))
    }
}

#[test]
fn what_karmada_divides_by_a_rule_of_users_is_compared_by_that_rule() {
    let gadget = |size: i64| {
        json!({"apiVersion": "example.com/v1", "kind": "Gadget",
        "metadata": {"name": "gear", "namespace": "shop"}, "spec": {"size": size}})
    };
    let mut estate = estate(None);
    estate.bindings.truncate(1);
    estate.bindings[0].object["spec"]["resource"] = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "namespace": "shop", "name": "gear"});
    estate.bindings[0] = Binding::read(estate.bindings[0].object.clone()).unwrap();
    let of = ObjectRef::of(&gadget(3)).unwrap();
    estate.templates = BTreeMap::from([(of, gadget(3))]);
    estate.works = [("m1", 2), ("m2", 1)]
        .map(|(member, size)| {
            Work::read(json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                "metadata": {"name": "w", "namespace": format!("karmada-es-{member}")},
                "spec": {"workload": {"manifests": [gadget(size)]}}}))
            .unwrap()
        })
        .to_vec();
    let found = check::findings(converter(), &estate, &OfGadgets);
    assert_eq!(found, [], "the shares of Karmada's Works");
    let found = check::findings(converter(), &estate, &BuiltIn);
    assert!(found.iter().any(|one| one.problem.starts_with("spec.size")), "{found:?}");
}
