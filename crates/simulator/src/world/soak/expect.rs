//! The users' objects, and the expected final state.

use std::collections::BTreeMap;

use atoll_api::placement::Placement;
use atoll_api::{conditions, names};
use serde::Deserialize;
use serde_json::{Value, json};

use super::MEMBERS;
use super::action::Poison;
use super::draw::SITES;
use super::policies;
use crate::random::Random;
use crate::world::kinds::{
    CLUSTER, CONFIG_MAP, DEPLOYMENT, OVERRIDE_POLICY, RESOURCE_BINDING, WIDGET,
};
use crate::world::{View, condition, shares};

/// Label of Clusters that override policies select by.
pub(super) const SITE: &str = "site";
/// Label of all workloads, by which workload affinity groups them.
const GROUP: &str = "group";
/// Label of copies that override policies set.
pub(super) const TIER: &str = "tier";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const REFERENCE: &str = "/spec/template/spec/containers/0/envFrom/0/configMapRef/name";

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
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {GROUP: "web"}},
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

/// A template that takes its environment from a ConfigMap.
pub(super) fn reference(name: &str, config: &str) -> Value {
    let containers = json!([{
        "name": name, "image": "nginx", "resources": {"requests": {"cpu": "500m"}},
        "envFrom": [{"configMapRef": {"name": config}}],
    }]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

fn named_policy(name: &str, kind: &str, placement: Value) -> Value {
    let api_version = match kind {
        "Deployment" => "apps/v1",
        "Widget" => "example.com/v1",
        _ => "v1",
    };
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
    let mut placement =
        json!({"clusterAffinity": {"clusterNames": names}, "replicaScheduling": scheduling});
    if random.chance(40) {
        let changes = ["PolicyChange", "ReplicasChange", "ClusterFailure", "Unschedulable"];
        placement["rescheduleOn"] = json!(changes);
        placement["unschedulableAfterSeconds"] = json!(1 + random.below(10));
    }
    named_policy(&app_name(app), "Deployment", placement)
}

/// As [`policy`], with affinity to the other workloads.
pub(super) fn policy_together(app: u64, placement: u64, apart: bool) -> Value {
    let mut policy = policy(app, placement);
    let term = if apart { "antiAffinity" } else { "affinity" };
    policy["spec"]["placement"]["workloadAffinity"] = json!({term: {"groupByLabelKey": GROUP}});
    policy
}

/// Name of the quota and of the ClusterSet.
pub(super) const LIMITS: &str = "limits";

/// A quota of the namespace.
pub(super) fn quota(tenths: u64) -> Value {
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": LIMITS}, "spec": {"overall": {"cpu": format!("{}m", tenths * 100)}},
    })
}

/// Limits all namespaces to the members of a site.
pub(super) fn cluster_set(site: u64) -> Value {
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "ClusterSet",
        "metadata": {"name": LIMITS}, "spec": {
            "clusterSelector": {"matchLabels": {SITE: site.to_string()}}, "namespaceSelector": {},
        },
    })
}

/// An override policy for a workload, drawn from a seed.
pub(super) fn overrides(app: u64, seed: u64) -> Value {
    let mut random = Random(seed);
    let count = 1 + random.below(2);
    let rules: Vec<Value> = (0..count).map(|number| rule(&mut random, number)).collect();
    let name = app_name(app);
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "overrideRules": rules,
        },
    })
}

fn rule(random: &mut Random, number: u64) -> Value {
    let value = format!("v{}", random.below(1000));
    let mut rule = json!({"overriders": match random.below(2) {
        0 => json!({"imageOverrider": [
            {"component": "Registry", "operator": "replace", "value": format!("{value}.example")},
        ]}),
        _ => json!({"labelsOverrider": [{"operator": "add", "value": {TIER: value}}]}),
    }});
    match random.below(3) {
        0 => {
            let member = format!("member{}", 1 + random.below(MEMBERS));
            rule["targetCluster"] = json!({"clusterNames": [member]});
        }
        1 => {
            let site = random.below(SITES).to_string();
            rule["targetCluster"] = json!({"labelSelector": {"matchLabels": {SITE: site}}});
        }
        // The second of two rules for all members would hide the first.
        _ if number == 0 => {}
        _ => rule["targetCluster"] = json!({"clusterNames": ["member1"]}),
    }
    rule
}

pub(super) fn widget_name(number: u64) -> String {
    format!("widget{number}")
}

/// An object of the customized kind.
pub(super) fn widget(number: u64, size: u64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": widget_name(number)}, "spec": {"size": size},
    })
}

/// A policy that divides such an object, drawn from a seed.
pub(super) fn widget_policy(number: u64, seed: u64) -> Value {
    let mut random = Random(seed);
    let mut names = members();
    if random.chance(50) {
        let left_out = random.below(MEMBERS);
        names.retain(|name| *name != format!("member{}", left_out + 1));
    }
    let placement = json!({
        "clusterAffinity": {"clusterNames": names},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        },
    });
    named_policy(&widget_name(number), "Widget", placement)
}

pub(super) fn config_name(number: u64) -> String {
    format!("settings{number}")
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
        Poison::Inapplicable => {
            let mut policy = overrides(0, 0);
            policy["metadata"]["name"] = json!(name);
            policy["spec"]["overrideRules"] = json!([{
                "targetCluster": {"clusterNames": ["member1"]},
                "overriders": {"plaintext": [
                    {"path": "/spec/template/spec/containers/7/image", "operator": "replace", "value": "x"},
                ]},
            }]);
            vec![policy]
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
    widgets_as_desired(view)?;
    policies::as_desired(view)?;
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
        // Members that keep their own numbers run those, whatever was decided.
        let keeps = template["metadata"]["labels"][atoll_interpreter::RETAIN_REPLICAS] == "true";
        let runs = match keeps {
            true => view.wanted(&DEPLOYMENT, key).values().sum(),
            false => wanted,
        };
        let holds = decided == wanted && ready == runs && shown == runs && observed;
        if !holds || condition(binding, "FullyApplied") != "True" {
            return Err(format!(
                "{key}: {wanted} wanted, {decided} decided, {ready} ready, {shown} shown, observed: {observed}"
            ));
        }
        for member in shares.keys() {
            overridden(view, key, template, member)?;
            accompanied(view, key, template, member)?;
        }
        let policy = policies::claiming(view, binding);
        if policy.is_object() && placement(policy)? != placement(binding)? {
            return Err(format!("{key}: its policy has changed since it was decided"));
        }
    }
    Ok(())
}

/// I13: a member's copy is what the latest override policy makes of the latest template there. The rules are evaluated
/// here once more, as the documentation describes them.
fn overridden(view: &View, key: &str, template: &Value, member: &str) -> Result<(), String> {
    let policy = view.hub(&OVERRIDE_POLICY, key);
    let site = &view.hub(&CLUSTER, member)["metadata"]["labels"][SITE];
    let mut image = template.pointer(IMAGE).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut tier = &template["metadata"]["labels"][TIER];
    for rule in policy["spec"]["overrideRules"].as_array().into_iter().flatten() {
        let target = &rule["targetCluster"];
        let names = target["clusterNames"].as_array();
        let selected = &target["labelSelector"]["matchLabels"][SITE];
        if names.is_some_and(|names| !names.iter().any(|name| name == member))
            || (selected.is_string() && selected != site)
        {
            continue;
        }
        let overriders = &rule["overriders"];
        if let Some(registry) = overriders["imageOverrider"][0]["value"].as_str() {
            let name = image.rsplit('/').next().unwrap_or_default();
            image = format!("{registry}/{name}");
        }
        if let Some(labels) = overriders["labelsOverrider"].get(0) {
            tier = &labels["value"][TIER];
        }
    }
    let copy = view.on(member, &DEPLOYMENT, key);
    let held = (copy.pointer(IMAGE).and_then(Value::as_str), &copy["metadata"]["labels"][TIER]);
    match held == (Some(&image), tier) {
        true => Ok(()),
        false => Err(format!("I13: {key} of {member} has {held:?}, not {:?}", (image, tier))),
    }
}

/// I13: a member that runs a workload whose policy has `propagateDeps` holds the latest ConfigMap that it refers to.
fn accompanied(view: &View, key: &str, template: &Value, member: &str) -> Result<(), String> {
    let binding = view.hub(&RESOURCE_BINDING, &format!("{key}-deployment"));
    let propagates = policies::claiming(view, binding)["spec"]["propagateDeps"] == true;
    let name = template.pointer(REFERENCE).and_then(Value::as_str).filter(|_| propagates);
    let Some(name) = name else { return Ok(()) };
    let (namespace, _) = key.split_once('/').unwrap_or_default();
    let config = format!("{namespace}/{name}");
    let (source, copy) = (view.hub(&CONFIG_MAP, &config), view.on(member, &CONFIG_MAP, &config));
    match source.is_null() || source["data"] == copy["data"] {
        true => Ok(()),
        false => Err(format!(
            "I13: {key} needs {config} on {member}: {} on the hub, {} there",
            source["data"], copy["data"]
        )),
    }
}

/// Whether every object of the customized kind is divided as its binding says, by the customization's rules (I13).
fn widgets_as_desired(view: &View) -> Result<(), String> {
    for (key, template) in view.all("hub", &WIDGET) {
        let name = names::binding_name(
            key.rsplit('/').next().unwrap_or_default(),
            "Widget",
            "example.com",
        );
        let binding = view.hub(&RESOURCE_BINDING, &format!("default/{name}"));
        let shares = shares(binding);
        let held = shares.keys().map(|member| {
            (member.clone(), view.on(member, &WIDGET, key)["spec"]["size"].as_i64().unwrap_or(-1))
        });
        let held: BTreeMap<String, i64> = held.collect();
        let desired = template["spec"]["size"].as_i64().unwrap_or(0);
        // The policy for every kind gives each member all replicas.
        let scheduling = &binding["spec"]["placement"]["replicaScheduling"];
        let fits = match scheduling["replicaSchedulingType"] == "Divided" {
            true => shares.values().sum::<i64>() == desired,
            false => shares.values().all(|share| *share == desired),
        };
        if !fits || held != shares || condition(binding, "FullyApplied") != "True" {
            return Err(format!(
                "I13: {key}: {desired} wanted, {shares:?} decided, {held:?} there"
            ));
        }
        let policy = policies::claiming(view, binding);
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

#[cfg(test)]
mod tests {
    use atoll_api::marks;

    use super::*;
    use crate::world::kinds::{Kind, PROPAGATION_POLICY};

    const KEY: &str = "default/web0";

    /// A workload that refers to a ConfigMap, on member1 of site 1, with an override of its registry there.
    fn view() -> View {
        let mut view = View::default();
        let mut set = |site: &str, kind: Kind, key: &str, object: Value| {
            view.set(site, kind, key, object);
        };
        let mut template = deployment(0, 1);
        let patch = reference("web0", "settings0");
        template["spec"]["template"]["spec"] = patch["spec"]["template"]["spec"].clone();
        let mut copy = template.clone();
        copy["spec"]["template"]["spec"]["containers"][0]["image"] = json!("north.example/nginx");
        let rule = json!({
            "targetCluster": {"labelSelector": {"matchLabels": {SITE: "1"}}},
            "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": "north.example"},
            ]},
        });
        let policy = json!({"spec": {"propagateDeps": true}});
        let claimed = json!({marks::POLICY_NAMESPACE: "default", marks::POLICY_NAME: "web0"});
        let binding = json!({"metadata": {"annotations": claimed}});
        set("hub", RESOURCE_BINDING, "default/web0-deployment", binding);
        set("hub", CLUSTER, "member1", json!({"metadata": {"labels": {SITE: "1"}}}));
        set("hub", OVERRIDE_POLICY, KEY, json!({"spec": {"overrideRules": [rule]}}));
        set("hub", PROPAGATION_POLICY, KEY, policy);
        set("hub", DEPLOYMENT, KEY, template);
        set("hub", CONFIG_MAP, "default/settings0", config_map("settings0", "new"));
        set("member1", DEPLOYMENT, KEY, copy);
        set("member1", CONFIG_MAP, "default/settings0", config_map("settings0", "new"));
        view
    }

    fn check(view: &View) -> Result<(), String> {
        let template = view.hub(&DEPLOYMENT, KEY);
        overridden(view, KEY, template, "member1")?;
        accompanied(view, KEY, template, "member1")
    }

    #[test]
    fn a_copy_that_does_not_follow_its_overrides_is_found() {
        let mut view = view();
        assert_eq!(check(&view), Ok(()));
        view.set("hub", CLUSTER, "member1", json!({"metadata": {"labels": {SITE: "0"}}}));
        let error = check(&view).unwrap_err();
        assert!(error.contains("north.example/nginx"), "{error}");
    }

    #[test]
    fn a_config_map_that_is_old_or_missing_on_a_member_is_found() {
        let mut view = view();
        view.set("member1", CONFIG_MAP, "default/settings0", config_map("settings0", "old"));
        assert!(check(&view).unwrap_err().contains("needs default/settings0"));
        view.remove("member1", &CONFIG_MAP, "default/settings0");
        assert!(check(&view).is_err());
        // Without propagateDeps, and when the hub has none, nothing is expected.
        view.set("hub", PROPAGATION_POLICY, KEY, json!({"spec": {}}));
        assert_eq!(check(&view), Ok(()));
    }
}
