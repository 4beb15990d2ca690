//! The nodes of a subset: node affinity and tolerations of one member's pods.
//!
//! Subsets that share clusters select nodes of the same members. A copy has one pod template, so its pods may use the
//! nodes of all of these subsets, and prefer those of earlier ones.

use atoll_api::workload_spread::{Subset, WorkloadSpreadSpec};
use serde_json::{Map, Value, json};

/// Greatest weight of a preferred term in Kubernetes.
const MOST_WEIGHT: usize = 100;
/// Most terms of the required node affinity: every term of the template is combined with every one of the subsets.
const MOST_TERMS: usize = 256;

/// Nodes for the pods of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRules {
    /// Alternatives, each a node selector term. Empty = all nodes.
    required: Vec<Value>,
    /// Preferred scheduling terms.
    preferred: Vec<Value>,
    tolerations: Vec<Value>,
}

fn json_of(value: &impl serde::Serialize) -> Value {
    // These are plain structures with string keys, so they always convert.
    serde_json::to_value(value).unwrap_or_default()
}

impl NodeRules {
    /// The rules of a subset and of those that share its clusters. `None` if it does not select nodes.
    #[must_use]
    pub fn of(spec: &WorkloadSpreadSpec, at: usize) -> Option<Self> {
        let subsets = spec.sharing(at);
        let required: Vec<Value> = subsets
            .iter()
            .filter_map(|subset| subset.required_node_selector_term.as_ref().map(json_of))
            .collect();
        let mut preferred = by_order(&required);
        preferred.extend(subsets.iter().flat_map(|subset| wishes(subset, subsets.len() > 1)));
        if required.is_empty() && preferred.is_empty() {
            return None;
        }
        let mut tolerations: Vec<Value> = Vec::new();
        for toleration in subsets.iter().flat_map(|subset| &subset.tolerations).map(json_of) {
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
        Some(Self { required, preferred, tolerations })
    }

    /// Adds the rules to the pod template of a manifest.
    pub(crate) fn apply(&self, manifest: &mut Value) -> Result<(), String> {
        let Some(pod) = manifest.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut)
        else {
            return Err(
                "the kind has no pod template at spec.template: remove requiredNodeSelectorTerm and \
                 preferredNodeSelectorTerms from the subset"
                    .to_owned(),
            );
        };
        if !self.tolerations.is_empty() {
            let list = list(pod, "tolerations")?;
            let new = self.tolerations.iter().filter(|toleration| !list.contains(toleration));
            let new: Vec<Value> = new.cloned().collect();
            list.extend(new);
        }
        let affinity = map(map(pod, "affinity")?, "nodeAffinity")?;
        if !self.required.is_empty() {
            let selector = map(affinity, "requiredDuringSchedulingIgnoredDuringExecution")?;
            let terms = list(selector, "nodeSelectorTerms")?;
            *terms = combined(terms, &self.required)?;
        }
        if !self.preferred.is_empty() {
            let field = "preferredDuringSchedulingIgnoredDuringExecution";
            list(affinity, field)?.extend(self.preferred.iter().cloned());
        }
        Ok(())
    }
}

/// Preferences for the nodes of earlier subsets: weights fall evenly from 100. The last one needs none.
fn by_order(required: &[Value]) -> Vec<Value> {
    let last = required.len().saturating_sub(1);
    let weight = |at: usize| (MOST_WEIGHT * (last - at) / last).max(1);
    let earlier = required.iter().take(last).enumerate();
    earlier.map(|(at, term)| json!({"weight": weight(at), "preference": term})).collect()
}

/// A subset's own preferences. Where subsets share clusters, they concern only the nodes of this one.
fn wishes(subset: &Subset, shared: bool) -> Vec<Value> {
    let own = subset.required_node_selector_term.as_ref().filter(|_| shared).map(json_of);
    let wish = |wish: &_| {
        let mut wish = json_of(wish);
        if let Some(own) = &own {
            wish["preference"] = both(own, &wish["preference"]);
        }
        wish
    };
    subset.preferred_node_selector_terms.iter().map(wish).collect()
}

/// A term that holds where both hold.
fn both(one: &Value, other: &Value) -> Value {
    let mut term = Map::new();
    for field in ["matchExpressions", "matchFields"] {
        let rules = [one, other].into_iter().filter_map(|term| term.get(field)?.as_array());
        let rules: Vec<Value> = rules.flatten().cloned().collect();
        if !rules.is_empty() {
            term.insert(field.to_owned(), rules.into());
        }
    }
    term.into()
}

/// Every term of the template combined with every one of the subsets. A template without terms admits all nodes.
fn combined(template: &[Value], subsets: &[Value]) -> Result<Vec<Value>, String> {
    if template.is_empty() {
        return Ok(subsets.to_vec());
    }
    if template.len().saturating_mul(subsets.len()) > MOST_TERMS {
        return Err(format!(
            "{} nodeSelectorTerms of the template and {} of the subsets give more than {MOST_TERMS} combinations: use fewer",
            template.len(),
            subsets.len()
        ));
    }
    let with = |own: &Value| subsets.iter().map(|term| both(own, term)).collect::<Vec<_>>();
    Ok(template.iter().flat_map(with).collect())
}

fn map<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
) -> Result<&'a mut Map<String, Value>, String> {
    let child = parent.entry(field).or_insert(Value::Null);
    if child.is_null() {
        *child = json!({});
    }
    child.as_object_mut().ok_or_else(|| format!("{field} of the pod template must be a map"))
}

fn list<'a>(parent: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Vec<Value>, String> {
    let child = parent.entry(field).or_insert(Value::Null);
    if child.is_null() {
        *child = json!([]);
    }
    child.as_array_mut().ok_or_else(|| format!("{field} of the pod template must be a list"))
}
