//! The parts of a Node that capacity needs.

use std::collections::BTreeMap;

use atoll_api::quantity::Quantity;
use serde_json::Value;

use super::amounts::Amounts;

/// Summary of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NodeFacts {
    /// Condition Ready is True.
    pub ready: bool,
    /// Not cordoned.
    pub schedulable: bool,
    /// Taints that repel pods: NoSchedule and NoExecute, sorted. (`PreferNoSchedule` repels none.)
    pub taints: Vec<Taint>,
    /// All labels: which ones matter is not known in advance.
    pub labels: BTreeMap<String, String>,
    /// Allocatable, in thousandths.
    pub allocatable: Amounts,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Effect.
    pub effect: String,
}

/// Reads a Node.
#[must_use]
pub(super) fn read(node: &Value) -> NodeFacts {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .into_iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let mut taints: Vec<_> = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|taint| taint["effect"] != "PreferNoSchedule")
        .map(|taint| Taint {
            key: text(&taint["key"]),
            value: text(&taint["value"]),
            effect: text(&taint["effect"]),
        })
        .collect();
    taints.sort_unstable();
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let allocatable = node["status"]["allocatable"].as_object().into_iter().flatten();
    NodeFacts {
        ready,
        schedulable: node["spec"]["unschedulable"] != true,
        taints,
        labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
        // Skip a quantity that cannot be parsed: a missing resource fits nothing.
        allocatable: allocatable
            .filter_map(|(resource, value)| {
                let milli = Quantity::new(value.as_str()?).milli().ok()?;
                Some((resource.clone(), i64::try_from(milli).unwrap_or(i64::MAX)))
            })
            .collect(),
    }
}
