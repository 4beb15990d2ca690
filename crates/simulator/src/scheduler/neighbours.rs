//! Required affinity and anti-affinity between Pods, over any topology key.

use std::collections::BTreeMap;

use atoll_api::selector::Selector;
use serde_json::Value;

use crate::index::fields::{any_selector, list, text};
use crate::index::object::Object;

const AFFINITY: &str = "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const ANTI_AFFINITY: &str =
    "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// A parsed affinity term of a Pod.
#[derive(Debug)]
struct Term {
    /// `None` selects nothing.
    selector: Option<Selector>,
    namespaces: Vec<String>,
    all_namespaces: bool,
    topology: String,
}

impl Term {
    /// An absent namespace list means the Pod's own; an empty `namespaceSelector` means all. Selecting namespaces by
    /// label is not simulated: such a term looks at the Pod's own namespace.
    fn read(term: &Value, home: &str) -> Self {
        let mut namespaces: Vec<String> = list(term, "/namespaces")
            .iter()
            .filter_map(|namespace| namespace.as_str().map(str::to_owned))
            .collect();
        if namespaces.is_empty() {
            namespaces.push(home.to_owned());
        }
        let all = term.get("namespaceSelector").and_then(Value::as_object);
        Self {
            selector: any_selector(term, "/labelSelector"),
            namespaces,
            all_namespaces: all.is_some_and(serde_json::Map::is_empty),
            topology: text(term, "/topologyKey").unwrap_or_default().to_owned(),
        }
    }

    fn selects(&self, pod: &Object) -> bool {
        (self.all_namespaces || self.namespaces.contains(&pod.key.namespace))
            && self.selector.as_ref().is_some_and(|selector| selector.matches(pod.labels()))
    }
}

fn terms(pod: &Object, pointer: &str) -> Vec<Term> {
    let Some(spec) = pod.data.get("spec") else { return Vec::new() };
    list(spec, pointer).iter().map(|term| Term::read(term, &pod.key.namespace)).collect()
}

/// Why other Pods make a node unsuitable for a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clash {
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

impl Clash {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
        }
    }
}

/// Constraints from other Pods: computed once per Pod, checked for each node.
#[derive(Debug, Default)]
pub(super) struct Neighbourhood {
    /// Terms of the Pod's affinity, each with the topology domains that have a matching Pod.
    wanted: Vec<(String, Vec<String>, bool)>,
    /// (topology key, value) that the Pod's own anti-affinity forbids.
    shunned: Vec<(String, String)>,
    /// (topology key, value) that the anti-affinity of Pods already there forbids.
    forbidden: Vec<(String, String)>,
}

impl Neighbourhood {
    /// Looks at the Pods on nodes (`placed`: Pod and node).
    pub(super) fn of<'a>(
        pod: &Object,
        placed: impl Iterator<Item = (&'a Object, &'a Object)> + Clone,
    ) -> Self {
        let mut this = Self::default();
        let domain = |node: &Object, key: &str| node.label(key).map(str::to_owned);
        for term in terms(pod, AFFINITY) {
            let matching = placed.clone().filter(|(other, _)| term.selects(other));
            let domains: Vec<_> =
                matching.filter_map(|(_, node)| domain(node, &term.topology)).collect();
            // The first Pod of a group with affinity to itself may go anywhere.
            let starts_group = domains.is_empty() && term.selects(pod);
            this.wanted.push((term.topology, domains, starts_group));
        }
        for term in terms(pod, ANTI_AFFINITY) {
            let matching = placed.clone().filter(|(other, _)| term.selects(other));
            this.shunned.extend(matching.filter_map(|(_, node)| {
                Some((term.topology.clone(), domain(node, &term.topology)?))
            }));
        }
        for (other, node) in placed {
            let against = terms(other, ANTI_AFFINITY).into_iter().filter(|term| term.selects(pod));
            this.forbidden.extend(against.filter_map(|term| {
                let value = domain(node, &term.topology)?;
                Some((term.topology, value))
            }));
        }
        this
    }

    pub(super) fn clash(&self, labels: &BTreeMap<String, String>) -> Option<Clash> {
        let within = |pairs: &[(String, String)]| {
            pairs.iter().any(|(key, value)| labels.get(key) == Some(value))
        };
        let missed = self.wanted.iter().any(|(key, domains, starts_group)| match labels.get(key) {
            None => true,
            Some(value) => !starts_group && !domains.contains(value),
        });
        if missed {
            Some(Clash::Affinity)
        } else if within(&self.shunned) {
            Some(Clash::AntiAffinity)
        } else if within(&self.forbidden) {
            Some(Clash::ExistingAntiAffinity)
        } else {
            None
        }
    }
}
