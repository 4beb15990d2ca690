//! ReplicaSet: keeps the requested number of Pods.

use std::sync::Arc;

use serde_json::json;

use super::children::{PodDraft, by_dispensability, claim, is_active, next_available, put_count};
use super::names;
use crate::engine::brain::View;
use crate::engine::concern::Concern;
use crate::index::fields::{selector, strings};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::conditions::{Condition, Conditions, Custom};
use crate::writes::{Plan, Write};

/// Maximum number of Pods that one pass creates or deletes (`burstReplicas`).
const BURST: usize = 500;

/// Reconciles a ReplicaSet.
pub(crate) fn reconcile(view: &View<'_>, set: &Object) -> Plan {
    let Some(selector) = selector(&set.data, "/spec/selector") else {
        return Plan::default();
    };
    let claim = claim(view, set, Kind::Pod, &selector, |_| true);
    if !claim.writes.is_empty() {
        return Plan::of(claim.writes);
    }
    let active: Vec<_> = claim.owned.into_iter().filter(|pod| is_active(pod)).collect();
    let mut plan = Plan::default();
    if !set.is_deleting() {
        plan.push(scale(view, set, &active));
    }
    if plan.writes.is_empty() || view.refused_create(Concern::ReplicaSet, &set.key).is_some() {
        plan.push(status(view, set, &active));
    }
    if let Some(at) = next_available(active.iter(), set.count("/spec/minReadySeconds"), view.now) {
        plan.again_at(at);
    }
    plan
}

fn scale(view: &View<'_>, set: &Object, active: &[Arc<Object>]) -> Vec<Write> {
    let wanted = wanted(set);
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(BURST);
        let template = set.data.pointer("/spec/template").unwrap_or(&serde_json::Value::Null);
        let prefix = format!("{}-", set.key.name);
        (0_u64..)
            .map(|number| names::generated(&prefix, view.settings.seed, &set.uid, view.now, number))
            .filter(|name| {
                view.index.get(Kind::Pod, &Key::new(&set.key.namespace, name.as_str())).is_none()
            })
            .take(missing)
            .map(|name| {
                let mut draft = PodDraft::from_template(template, name);
                draft.generate_name = Some(prefix.clone());
                draft.create(set)
            })
            .collect()
    } else {
        let surplus = (active.len() - wanted).min(BURST);
        if surplus == 0 {
            return Vec::new();
        }
        let mut ranked = active.to_vec();
        by_dispensability(&mut ranked, &siblings(view, set));
        ranked.iter().take(surplus).map(|pod| Write::delete(pod)).collect()
    }
}

fn wanted(set: &Object) -> usize {
    usize::try_from(set.int("/spec/replicas").unwrap_or(1)).unwrap_or(0)
}

/// Active Pods of all ReplicaSets with the same Deployment: scaling down starts on nodes with many of them.
fn siblings(view: &View<'_>, set: &Object) -> Vec<Arc<Object>> {
    let sets: Vec<String> = match set.controller() {
        Some(owner) => {
            view.index.owned(&owner.uid, Kind::ReplicaSet).map(|s| s.uid.clone()).collect()
        }
        None => vec![set.uid.clone()],
    };
    sets.iter()
        .flat_map(|uid| view.index.owned(uid, Kind::Pod))
        .filter(|pod| is_active(pod))
        .cloned()
        .collect()
}

fn status(view: &View<'_>, set: &Object, active: &[Arc<Object>]) -> Option<Write> {
    let min_ready = set.count("/spec/minReadySeconds");
    let template_labels = strings(&set.data, "/spec/template/metadata/labels");
    let count = |test: &dyn Fn(&Object) -> bool| {
        i64::try_from(active.iter().filter(|pod| test(pod)).count()).unwrap_or(i64::MAX)
    };
    let labelled = |pod: &Object| {
        template_labels.iter().all(|(key, value)| pod.label(key) == Some(value.as_str()))
    };
    let mut conditions = Conditions::of(set, Custom::Workload { has_update_time: false }, view.now);
    match view.refused_create(Concern::ReplicaSet, &set.key) {
        Some(message) if !set.is_deleting() => conditions.set(Condition {
            type_: "ReplicaFailure",
            status: "True",
            reason: "FailedCreate",
            message,
        }),
        _ => conditions.remove("ReplicaFailure"),
    }
    let mut status = set.status();
    status["replicas"] = json!(active.len());
    put_count(&mut status, "fullyLabeledReplicas", count(&labelled));
    put_count(&mut status, "readyReplicas", count(&|pod| pod.pod().ready_since.is_some()));
    let available = count(&|pod| pod.pod().is_available(min_ready, view.now));
    put_count(&mut status, "availableReplicas", available);
    put_count(&mut status, "observedGeneration", set.generation());
    status["conditions"] = match conditions.into_value() {
        list if list.as_array().is_some_and(Vec::is_empty) => serde_json::Value::Null,
        list => list,
    };
    Write::status(set, status)
}
