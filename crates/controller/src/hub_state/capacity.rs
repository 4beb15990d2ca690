//! Converts members' facts to the scheduler's types.

use std::collections::BTreeMap;

use atoll_decision::Amounts;
use atoll_scheduler::{Capacity, FreeVector, NodeClass};
use k8s_openapi::api::core::v1::Taint;

use crate::members::Counted;

/// A member's capacity by node class.
pub(super) fn capacity(counted: &Counted) -> Capacity {
    let classes = counted.node_classes.iter().map(|class| NodeClass {
        taints: class
            .taints
            .iter()
            .map(|(key, value, effect)| Taint {
                key: key.clone(),
                value: Some(value.clone()).filter(|value| !value.is_empty()),
                effect: effect.clone(),
                time_added: None,
            })
            .collect(),
        labels: class.labels.clone(),
        free: class
            .free
            .iter()
            .map(|(nodes, milli)| FreeVector { nodes: *nodes, milli: milli.clone() })
            .collect(),
    });
    Capacity { classes: classes.collect() }
}

/// What a member's ResourceQuotas leave, by namespace.
pub(super) fn quotas(counted: &Counted) -> BTreeMap<String, Amounts> {
    let whole = |(resource, milli): (&String, &i64)| {
        let amount = if resource == "cpu" { *milli } else { milli / 1000 };
        (resource.clone(), amount)
    };
    let each = counted.quotas.iter();
    each.map(|(namespace, free)| (namespace.clone(), free.iter().map(whole).collect())).collect()
}
