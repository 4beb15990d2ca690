//! Which nodes a Pod's names, labels and fields allow.

use std::collections::BTreeMap;

use atoll_api::selector::Requirement;
use serde_json::Value;

use crate::index::fields::{list, strings, text};
use crate::index::object::Object;

/// Whether `nodeName`, `nodeSelector` and the required node affinity of a Pod spec allow a node.
pub(crate) fn allows(spec: &Value, node: &Object) -> bool {
    let named = text(spec, "/nodeName").is_none_or(|name| name.is_empty() || name == node.key.name);
    let labels = strings(spec, "/nodeSelector");
    named
        && labels.iter().all(|(key, value)| node.label(key) == Some(value))
        && matches_terms(spec, node)
}

/// The alternatives of the required node affinity.
pub(crate) fn node_affinity_terms(spec: &Value) -> &[Value] {
    list(
        spec,
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    )
}

fn matches_terms(spec: &Value, node: &Object) -> bool {
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    if spec.pointer(required).is_none() {
        return true;
    }
    node_affinity_terms(spec).iter().any(|term| matches_term(term, node))
}

/// Whether all expressions of a term hold; an empty term matches nothing.
fn matches_term(term: &Value, node: &Object) -> bool {
    let labels = list(term, "/matchExpressions");
    let fields = list(term, "/matchFields");
    let by_field = BTreeMap::from([("metadata.name".to_owned(), node.key.name.clone())]);
    (!labels.is_empty() || !fields.is_empty())
        && labels.iter().all(|expression| holds(expression, node.labels()))
        && fields.iter().all(|expression| holds(expression, &by_field))
}

/// Whether one expression holds. An invalid one matches nothing.
fn holds(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = text(expression, "/key").unwrap_or_default();
    let operator = text(expression, "/operator").unwrap_or_default();
    let values: Vec<String> = list(expression, "/values")
        .iter()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    let value = labels.get(key).map(String::as_str);
    Requirement::parse_node(key, operator, &values).is_ok_and(|rule| rule.accepts(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::kind::Kind;

    fn node() -> Object {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}});
        Object::new(Kind::Node, serde_json::from_value(node).unwrap())
    }

    fn by_term(term: Value) -> bool {
        let required = json!({"nodeSelectorTerms": [term]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        allows(&json!({"affinity": affinity}), &node())
    }

    #[test]
    fn node_affinity_reads_every_operator_of_node_selectors() {
        let label = |key: &str, operator: &str, values: Value| {
            by_term(
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
            )
        };
        assert!(label("zone", "In", json!(["a", "b"])));
        assert!(!label("zone", "NotIn", json!(["a"])));
        assert!(label("cores", "Gt", json!(["4"])) && !label("cores", "Lt", json!(["4"])));
        assert!(!label("zone", "Gt", json!(["4"])), "no number, no comparison");
        assert!(by_term(
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
        ));
        assert!(!by_term(json!({})), "an empty term matches nothing");
        assert!(allows(&json!({"nodeSelector": {"zone": "a"}}), &node()));
        assert!(!allows(&json!({"nodeSelector": {"zone": "b"}}), &node()));
        assert!(!allows(&json!({"nodeName": "n2"}), &node()));
    }
}
