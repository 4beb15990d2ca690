//! Objects of policies that concern a whole namespace or members' own numbers, and what must be true of them at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::marks;
use serde_json::{Value, json};

use super::draw;
use super::expect::{app_name, deployment, members, policy};
use crate::random::Random;
use crate::world::kinds::{
    CHANGE_GUARD, CONFIG_MAP, DEPLOYMENT, FEDERATED_RESOURCE_QUOTA, PROPAGATION_POLICY,
    RESOURCE_BINDING, RESOURCE_QUOTA,
};
use crate::world::{View, shares};

/// The policy that selects every kind of the namespace.
pub(super) const EVERYTHING: &str = "everything";
/// The ChangeGuard.
pub(super) const GUARD: &str = "guard";
/// The quota with static assignments.
pub(super) const ASSIGNED: &str = "assigned";
/// Number of the workload whose members set its replicas.
pub(super) const FOLLOWING: u64 = draw::APPS;

/// A policy that sends everything of the namespace to all members but one; the number of members: to all.
pub(super) fn everything(left_out: u64) -> Value {
    let mut names = members();
    names.retain(|name| *name != format!("member{}", left_out + 1));
    // Not the workload whose members set its replicas: it follows its own policy only.
    let key = atoll_interpreter::RETAIN_REPLICAS;
    let not_following = json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]});
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": EVERYTHING},
        "spec": {
            "resourceSelectors": [{"apiVersion": "*", "kind": "*", "labelSelector": not_following}],
            "placement": {"clusterAffinity": {"clusterNames": names}},
        },
    })
}

/// A quota that gives members amounts of their own, drawn from a seed.
pub(super) fn assignments(seed: u64) -> Value {
    let mut random = Random(seed);
    let mut list = Vec::new();
    for name in members() {
        if list.is_empty() || random.chance(60) {
            let pods = (500 + random.below(100)).to_string();
            list.push(json!({"clusterName": name, "hard": {"pods": pods, "services": "9"}}));
        }
    }
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": ASSIGNED}, "spec": {"staticAssignments": list},
    })
}

/// A workload whose number of replicas its members set.
pub(super) fn following(replicas: u64) -> Value {
    let mut template = deployment(FOLLOWING, replicas);
    template["metadata"]["labels"][atoll_interpreter::RETAIN_REPLICAS] = json!("true");
    template
}

/// Its policy, drawn from a seed.
pub(super) fn following_policy(placement: u64) -> Value {
    let mut policy = policy(FOLLOWING, placement);
    let scheduling = &mut policy["spec"]["placement"]["replicaScheduling"];
    if scheduling["replicaSchedulingType"] != "Divided" {
        *scheduling = json!({"replicaSchedulingType": "Divided"});
    }
    scheduling["replicaSync"] = json!("FromMembers");
    policy
}

/// How soon after the last decision a leader knows what waits: it collects changes for two seconds.
pub(super) const HELD_SOON: Duration = Duration::from_secs(8);

/// A guard of everything, with a window that is longer than a history.
pub(super) fn guard(replicas: u64, freezes: bool) -> Value {
    let freeze = match freezes {
        true => json!([{"schedule": "*/2 * * * *", "duration": "1m"}]),
        false => json!([]),
    };
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ChangeGuard", "metadata": {"name": GUARD},
        "spec": {"maxMovedReplicas": replicas, "window": "24h", "freeze": freeze},
    })
}

/// The plans that the guard holds.
pub(super) fn held(view: &View) -> Vec<String> {
    let held = view.hub(&CHANGE_GUARD, GUARD)["status"]["held"].as_array();
    let plans = held.into_iter().flatten().filter_map(|one| one["plan"].as_str());
    plans.map(str::to_owned).collect()
}

/// Whether no change waits for the guard.
pub(super) fn nothing_waits(view: &View) -> Result<(), String> {
    let waiting =
        view.all("hub", &RESOURCE_BINDING).find(|(_, row)| !row["spec"]["held"].is_null());
    match waiting {
        Some((key, binding)) => Err(format!("{key} waits: {}", binding["spec"]["held"])),
        None => match &held(view)[..] {
            [] => Ok(()),
            plans => Err(format!("the guard holds {plans:?}")),
        },
    }
}

/// The policy that claims a template, as its binding says; `Null` if none does any more.
pub(super) fn claiming<'v>(view: &'v View, binding: &Value) -> &'v Value {
    let annotation = |name: &str| binding["metadata"]["annotations"][name].as_str();
    match (annotation(marks::POLICY_NAMESPACE), annotation(marks::POLICY_NAME)) {
        (Some(namespace), Some(name)) => {
            view.hub(&PROPAGATION_POLICY, &format!("{namespace}/{name}"))
        }
        _ => &Value::Null,
    }
}

/// Whether what these policies ask for is there.
pub(super) fn as_desired(view: &View) -> Result<(), String> {
    everything_is_sent(view)?;
    amounts_are_assigned(view)?;
    numbers_are_the_members(view)
}

/// I13: the ConfigMaps that the policy for every kind selects are on all of its members, and every copy of a ConfigMap
/// is the latest.
fn everything_is_sent(view: &View) -> Result<(), String> {
    let policy = view.hub(&PROPAGATION_POLICY, &format!("default/{EVERYTHING}"));
    let names = policy["spec"]["placement"]["clusterAffinity"]["clusterNames"].as_array();
    let selected: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, source) in view.all("hub", &CONFIG_MAP) {
        let Some(name) = key.strip_prefix("default/").filter(|name| *name != "kube-root-ca.crt")
        else {
            continue;
        };
        let binding = view.hub(&RESOURCE_BINDING, &format!("default/{name}-configmap"));
        let shares = shares(binding);
        // A copy that went along with a workload first is sent there for both.
        let wanted = selected.iter().copied().chain(shares.keys().map(String::as_str));
        for member in wanted {
            let copy = view.on(member, &CONFIG_MAP, key);
            if copy["data"] != source["data"] {
                let (hub, there) = (&source["data"], &copy["data"]);
                return Err(format!("I13: {key} of {member} has {there}, the hub {hub}"));
            }
        }
    }
    Ok(())
}

/// I13: each member holds the ResourceQuota with its own amounts, and no other does. Without assignments nothing is left.
fn amounts_are_assigned(view: &View) -> Result<(), String> {
    let quota = view.hub(&FEDERATED_RESOURCE_QUOTA, &format!("default/{ASSIGNED}"));
    let assigned = quota["spec"]["staticAssignments"].as_array().into_iter().flatten();
    let assigned: BTreeMap<&str, &Value> = assigned
        .filter_map(|entry| Some((entry["clusterName"].as_str()?, &entry["hard"])))
        .collect();
    let key = format!("default/static-{ASSIGNED}");
    for member in members() {
        let copy = view.on(&member, &RESOURCE_QUOTA, &key);
        let wanted = assigned.get(member.as_str()).copied();
        // A backup may bring back what no binding claims any more. It is reported and kept.
        let returned = wanted.is_none() && view.was_restored(&member);
        if copy["spec"]["hard"] != *wanted.unwrap_or(&Value::Null) && !returned {
            let held = &copy["spec"]["hard"];
            return Err(format!("I13: {member} has the amounts {held}, assigned are {wanted:?}"));
        }
    }
    let held = !view.hub(&RESOURCE_QUOTA, &key).is_null();
    match held != assigned.is_empty() {
        true => Ok(()),
        false => Err(format!("I13: the hub has ResourceQuota {key}: {held}")),
    }
}

/// I13: the template, the shares and the members have the same numbers of replicas, if the policy that says so claims it.
fn numbers_are_the_members(view: &View) -> Result<(), String> {
    let key = format!("default/{}", app_name(FOLLOWING));
    let template = view.hub(&DEPLOYMENT, &key);
    let binding = view.hub(&RESOURCE_BINDING, &format!("{key}-deployment"));
    let policy = claiming(view, binding);
    let follows = &policy["spec"]["placement"]["replicaScheduling"]["replicaSync"];
    if template.is_null() || follows != "FromMembers" {
        return Ok(());
    }
    let shares = shares(binding);
    let (run, asked) = (view.wanted(&DEPLOYMENT, &key), &template["spec"]["replicas"]);
    let sum: i64 = run.values().sum();
    match shares == run && *asked == sum {
        true => Ok(()),
        false => Err(format!("I13: {key}: members run {run:?}, decided {shares:?} of {asked}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::config_map;
    use super::*;

    #[test]
    fn a_config_map_that_the_policy_for_every_kind_does_not_send_is_found() {
        let mut view = View::default();
        view.set("hub", CONFIG_MAP, "default/settings0", config_map("settings0", "new"));
        view.set("hub", CONFIG_MAP, "default/kube-root-ca.crt", config_map("kube-root-ca.crt", ""));
        assert_eq!(as_desired(&view), Ok(()), "no policy selects it");
        view.set("hub", PROPAGATION_POLICY, "default/everything", everything(2));
        assert!(as_desired(&view).unwrap_err().contains("settings0 of member1"));
        for member in ["member1", "member2"] {
            view.set(member, CONFIG_MAP, "default/settings0", config_map("settings0", "new"));
        }
        assert_eq!(as_desired(&view), Ok(()), "member3 is left out");
        view.set("member2", CONFIG_MAP, "default/settings0", config_map("settings0", "old"));
        assert!(as_desired(&view).is_err());
        // The policy is gone: what it placed stays, and follows the hub.
        view.remove("hub", &PROPAGATION_POLICY, "default/everything");
        let binding = json!({"spec": {"clusters": [{"name": "member2"}]}});
        view.set("hub", RESOURCE_BINDING, "default/settings0-configmap", binding);
        assert!(as_desired(&view).unwrap_err().contains("settings0 of member2"));
    }

    #[test]
    fn wrong_amounts_and_what_is_left_of_them_are_found() {
        const KEY: &str = "default/static-assigned";
        let mut view = View::default();
        let quota = assignments(1);
        let list = quota["spec"]["staticAssignments"].as_array().cloned().unwrap_or_default();
        view.set("hub", FEDERATED_RESOURCE_QUOTA, "default/assigned", quota);
        assert!(as_desired(&view).unwrap_err().contains("assigned are"));
        for entry in &list {
            let copy = json!({"spec": {"hard": entry["hard"]}});
            view.set(entry["clusterName"].as_str().unwrap(), RESOURCE_QUOTA, KEY, copy);
        }
        assert!(as_desired(&view).unwrap_err().contains("static-assigned: false"));
        view.set("hub", RESOURCE_QUOTA, KEY, json!({}));
        assert_eq!(as_desired(&view), Ok(()));
        view.remove("hub", &FEDERATED_RESOURCE_QUOTA, "default/assigned");
        assert!(as_desired(&view).unwrap_err().contains("assigned are None"));
    }

    #[test]
    fn a_number_of_a_member_that_the_template_does_not_have_is_found() {
        let mut view = View::default();
        view.set("hub", DEPLOYMENT, "default/web3", following(3));
        view.set("hub", PROPAGATION_POLICY, "default/web3", following_policy(1));
        let claimed = json!({marks::POLICY_NAMESPACE: "default", marks::POLICY_NAME: "web3"});
        let binding = json!({
            "metadata": {"annotations": claimed},
            "spec": {"clusters": [{"name": "member1", "replicas": 3}]},
        });
        view.set("hub", RESOURCE_BINDING, "default/web3-deployment", binding);
        view.set("member1", DEPLOYMENT, "default/web3", following(3));
        assert_eq!(as_desired(&view), Ok(()));
        view.set("member1", DEPLOYMENT, "default/web3", following(4));
        assert!(as_desired(&view).unwrap_err().contains("members run"));
    }
}
