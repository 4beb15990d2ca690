//! The users' objects, and the expected final state.

use std::collections::BTreeMap;

use atoll_api::conditions;
use atoll_api::placement::Placement;
use serde::Deserialize;
use serde_json::{Value, json};

use super::MEMBERS;
use super::action::Poison;
use crate::random::Random;
use crate::world::kinds::{CLUSTER, DEPLOYMENT, PROPAGATION_POLICY, RESOURCE_BINDING};
use crate::world::{View, condition, shares};

pub(super) fn app_name(app: u64) -> String {
    format!("web{app}")
}

pub(super) fn members() -> Vec<String> {
    (1..=MEMBERS).map(|number| format!("member{number}")).collect()
}

pub(super) fn deployment(app: u64, replicas: u64) -> Value {
    named_deployment(&app_name(app), replicas, "500m")
}

fn named_deployment(name: &str, replicas: u64, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": name, "image": "nginx", "resources": {"requests": {"cpu": cpu}},
                }]},
            },
        },
    })
}

pub(super) fn image(name: &str, tag: u64) -> Value {
    let containers = json!([{
        "name": name, "image": format!("nginx:{tag}"), "resources": {"requests": {"cpu": "500m"}},
    }]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

fn named_policy(name: &str, kind: &str, placement: Value) -> Value {
    let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [{"apiVersion": api_version, "kind": kind, "name": name}],
            "placement": placement,
        },
    })
}

/// A policy for a workload, drawn from a seed.
pub(super) fn policy(app: u64, placement: u64) -> Value {
    let mut random = Random(placement);
    let mut names = members();
    if random.chance(50) {
        let left_out = random.below(MEMBERS);
        names.retain(|name| *name != format!("member{}", left_out + 1));
    }
    let divided = |more: Value| {
        let mut scheduling = json!({"replicaSchedulingType": "Divided"});
        for (field, value) in more.as_object().into_iter().flatten() {
            scheduling[field] = value.clone();
        }
        scheduling
    };
    let scheduling = match random.below(5) {
        0 => {
            let list: Vec<Value> = names
                .iter()
                .map(|name| {
                    let weight = 1 + random.below(3);
                    json!({"targetCluster": {"clusterNames": [name]}, "weight": weight})
                })
                .collect();
            divided(json!({
                "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": list},
            }))
        }
        1 => divided(json!({
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        })),
        2 => divided(json!({"replicaDivisionPreference": "Aggregated"})),
        3 => json!({"replicaSchedulingType": "Duplicated"}),
        _ => divided(json!({"replicaDivisionPreference": "Weighted"})),
    };
    let placement =
        json!({"clusterAffinity": {"clusterNames": names}, "replicaScheduling": scheduling});
    named_policy(&app_name(app), "Deployment", placement)
}

pub(super) fn poison_name(what: Poison) -> String {
    format!("poison-{what:?}").to_lowercase()
}

pub(super) fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text},
    })
}

/// Problematic objects.
pub(super) fn poison(what: Poison) -> Vec<Value> {
    let name = poison_name(what);
    let mut deployment = named_deployment(&name, 2, "500m");
    let everywhere = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    match what {
        Poison::Large => {
            deployment["metadata"]["annotations"] = json!({"large": "x".repeat(200 * 1024)});
            vec![deployment, named_policy(&name, "Deployment", everywhere)]
        }
        Poison::Huge => {
            let object = config_map(&name, &"x".repeat(900 * 1024));
            vec![object, named_policy(&name, "ConfigMap", everywhere)]
        }
        Poison::Crowd => {
            let names: Vec<String> = (0..1_000).map(|number| format!("nobody{number}")).collect();
            let placement = json!({"clusterAffinity": {"clusterNames": names}});
            vec![deployment, named_policy(&name, "Deployment", placement)]
        }
        Poison::Greedy => {
            let deployment = named_deployment(&name, 4, "1000");
            let placement = json!({"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"},
            }});
            vec![deployment, named_policy(&name, "Deployment", placement)]
        }
        Poison::Taken => {
            vec![config_map(&name, "ours"), named_policy(&name, "ConfigMap", everywhere)]
        }
    }
}

/// Whether the hub shows every member as healthy and excludes none from placement.
pub(super) fn all_well(view: &View) -> Result<(), String> {
    members().iter().try_for_each(|name| {
        let cluster = view.hub(&CLUSTER, name);
        let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
        let ready = condition(cluster, conditions::READY);
        let well = taints == 0 && ready == "True";
        well.then_some(()).ok_or_else(|| format!("{name}: Ready={ready}, {taints} taints"))
    })
}

/// Whether every workload runs as its policy requires and the hub shows it.
pub(super) fn as_desired(view: &View) -> Result<(), String> {
    let templates: BTreeMap<&String, &Value> = view.all("hub", &DEPLOYMENT).collect();
    for (key, template) in templates {
        let binding = view.hub(&RESOURCE_BINDING, &format!("{key}-deployment"));
        let desired = template["spec"]["replicas"].as_i64().unwrap_or(1);
        let shares = shares(binding);
        let decided: i64 = shares.values().sum();
        let duplicated =
            binding["spec"]["placement"]["replicaScheduling"]["replicaSchedulingType"] != "Divided";
        let wanted = match duplicated {
            true => desired * i64::try_from(shares.len()).unwrap_or(0),
            false => desired,
        };
        let ready: i64 = view.ready(&DEPLOYMENT, key).values().sum();
        let shown = template["status"]["readyReplicas"].as_i64().unwrap_or(0);
        let observed =
            template["status"]["observedGeneration"] == template["metadata"]["generation"];
        let holds = [decided, ready, shown].iter().all(|count| *count == wanted) && observed;
        if !holds || condition(binding, "FullyApplied") != "True" {
            return Err(format!(
                "{key}: {wanted} wanted, {decided} decided, {ready} ready, {shown} shown, observed: {observed}"
            ));
        }
        let policy = view.hub(&PROPAGATION_POLICY, key);
        if policy.is_object() && placement(policy)? != placement(binding)? {
            return Err(format!("{key}: its policy has changed since it was decided"));
        }
    }
    Ok(())
}

/// The placement of a policy or a binding.
fn placement(object: &Value) -> Result<Placement, String> {
    let placement = &object["spec"]["placement"];
    Placement::deserialize(placement).map_err(|error| format!("{placement}: {error}"))
}
