//! Hard `topologySpreadConstraints` (`DoNotSchedule`). Soft ones only rank nodes in a real scheduler; here they are
//! ignored and the emptiest node is taken.

use std::collections::BTreeMap;

use atoll_api::selector::Selector;
use serde_json::Value;

use super::{affinity, taints};
use crate::index::fields::{any_selector, int, list, text};
use crate::index::object::Object;

/// One constraint of a Pod, with the Pods of each domain.
#[derive(Debug)]
struct Constraint {
    topology: String,
    max_skew: i64,
    /// Whether the Pod itself will count.
    counts_itself: bool,
    /// Matching Pods by value of the topology label.
    domains: BTreeMap<String, i64>,
    min_domains: i64,
}

/// The constraints of one Pod: computed once, checked for each node.
#[derive(Debug, Default)]
pub(super) struct Spread(Vec<Constraint>);

impl Spread {
    /// Looks at the nodes that the Pod may use and at the Pods on them (`placed`: Pod and node).
    pub(super) fn of<'a>(
        pod: &Object,
        nodes: impl Iterator<Item = &'a Object> + Clone,
        placed: impl Iterator<Item = (&'a Object, &'a Object)> + Clone,
    ) -> Self {
        let spec = &pod.data["spec"];
        let hard: Vec<_> = list(spec, "/topologySpreadConstraints")
            .iter()
            .filter(|constraint| text(constraint, "/whenUnsatisfiable") != Some("ScheduleAnyway"))
            .collect();
        let keys: Vec<_> =
            hard.iter().filter_map(|constraint| text(constraint, "/topologyKey")).collect();
        let read = |constraint: &&Value| {
            let topology = text(constraint, "/topologyKey").unwrap_or_default();
            let selector = any_selector(constraint, "/labelSelector");
            let same = same_labels(pod, list(constraint, "/matchLabelKeys"));
            let counts = |other: &Object| matches(selector.as_ref(), &same, other);
            // By default a node's affinity counts and its taints do not.
            let by_affinity = text(constraint, "/nodeAffinityPolicy") != Some("Ignore");
            let by_taints = text(constraint, "/nodeTaintsPolicy") == Some("Honor");
            let usable = |node: &Object| {
                keys.iter().all(|key| node.label(key).is_some())
                    && (!by_affinity || affinity::allows(spec, node))
                    && (!by_taints || taints::untolerated(spec, node).is_none())
            };
            let mut domains: BTreeMap<String, i64> = nodes
                .clone()
                .filter(|node| usable(node))
                .filter_map(|node| Some((node.label(topology)?.to_owned(), 0)))
                .collect();
            for (other, node) in placed.clone().filter(|(_, node)| usable(node)) {
                let here = other.key.namespace == pod.key.namespace && !other.is_deleting();
                let domain = node.label(topology).and_then(|value| domains.get_mut(value));
                if let Some(domain) = domain.filter(|_| here && counts(other)) {
                    *domain += 1;
                }
            }
            Constraint {
                topology: topology.to_owned(),
                max_skew: int(constraint, "/maxSkew").unwrap_or(1),
                counts_itself: counts(pod),
                domains,
                min_domains: int(constraint, "/minDomains").unwrap_or(1),
            }
        };
        Self(hard.iter().map(read).collect())
    }

    /// Why a node with these labels would exceed the maximum skew.
    pub(super) fn refusal(&self, labels: &BTreeMap<String, String>) -> Option<&'static str> {
        self.0.iter().find_map(|constraint| {
            let Some(value) = labels.get(&constraint.topology) else {
                return Some(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let number = i64::try_from(constraint.domains.len()).unwrap_or(i64::MAX);
            let least = constraint.domains.values().min().copied().unwrap_or(0);
            // Fewer domains than `minDomains` count as one more, empty domain.
            let least = if number < constraint.min_domains { 0 } else { least };
            let here = constraint.domains.get(value).copied().unwrap_or(0);
            let skew = here + i64::from(constraint.counts_itself) - least;
            (skew > constraint.max_skew)
                .then_some("node(s) didn't match pod topology spread constraints")
        })
    }
}

/// The Pod's own labels under these keys: other Pods count only if theirs are equal.
fn same_labels(pod: &Object, keys: &[Value]) -> Vec<(String, String)> {
    keys.iter()
        .filter_map(Value::as_str)
        .filter_map(|key| Some((key.to_owned(), pod.label(key)?.to_owned())))
        .collect()
}

fn matches(selector: Option<&Selector>, same: &[(String, String)], pod: &Object) -> bool {
    selector.is_some_and(|selector| selector.matches(pod.labels()))
        && same.iter().all(|(key, value)| pod.label(key) == Some(value))
}
