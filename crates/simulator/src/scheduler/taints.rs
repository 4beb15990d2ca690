//! Taints of nodes and tolerations of Pods.

use serde_json::Value;

use crate::index::fields::{int, list, text};
use crate::index::object::Object;

/// Taint of a cordoned node; the scheduler treats `spec.unschedulable` as this taint.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Default time that a Pod stays on a failed node: the toleration that admission plugin DefaultTolerationSeconds adds
/// to every Pod.
const DEFAULT_TOLERATION_SECONDS: i64 = 300;
/// The two taints that it covers.
const DEFAULT_TOLERATED: [&str; 2] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// A taint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taint<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
    pub(crate) effect: &'a str,
    /// When a NoExecute taint was added, as text.
    pub(crate) added: Option<&'a str>,
}

fn taints(node: &Object) -> impl Iterator<Item = Taint<'_>> {
    node.list("/spec/taints").iter().map(|taint| Taint {
        key: text(taint, "/key").unwrap_or_default(),
        value: text(taint, "/value").unwrap_or_default(),
        effect: text(taint, "/effect").unwrap_or_default(),
        added: text(taint, "/timeAdded"),
    })
}

/// A toleration matches by effect (none means all), key (none with `Exists` means all) and value.
fn matches(toleration: &Value, taint: Taint<'_>) -> bool {
    let field = |pointer| text(toleration, pointer).unwrap_or_default();
    let effect = field("/effect");
    let key = field("/key");
    let exists = field("/operator") == "Exists";
    (effect.is_empty() || effect == taint.effect)
        && (if key.is_empty() { exists } else { key == taint.key })
        && (exists || field("/value") == taint.value)
}

fn is_tolerated(spec: &Value, taint: Taint<'_>) -> bool {
    list(spec, "/tolerations").iter().any(|toleration| matches(toleration, taint))
}

/// Whether a node is cordoned for a Pod.
pub(crate) fn is_cordoned(spec: &Value, node: &Object) -> bool {
    let taint = Taint { key: UNSCHEDULABLE, value: "", effect: "NoSchedule", added: None };
    node.flag("/spec/unschedulable") && !is_tolerated(spec, taint)
}

/// The first taint that prevents a Pod from being scheduled to a node.
pub(crate) fn untolerated<'a>(spec: &Value, node: &'a Object) -> Option<Taint<'a>> {
    taints(node)
        .filter(|taint| matches!(taint.effect, "NoSchedule" | "NoExecute"))
        .find(|taint| !is_tolerated(spec, *taint))
}

/// The NoExecute taints that evict a Pod, each with the delay in seconds.
pub(crate) fn evicting<'a>(spec: &Value, node: &'a Object) -> Vec<(Taint<'a>, i64)> {
    taints(node)
        .filter(|taint| taint.effect == "NoExecute")
        .filter_map(|taint| {
            let tolerations: Vec<_> =
                list(spec, "/tolerations").iter().filter(|t| matches(t, taint)).collect();
            if tolerations.is_empty() {
                let defaulted = DEFAULT_TOLERATED.contains(&taint.key);
                return Some((taint, if defaulted { DEFAULT_TOLERATION_SECONDS } else { 0 }));
            }
            // The shortest matching toleration counts; one without a time tolerates forever, but does not outweigh one
            // with a time.
            let seconds = tolerations.iter().filter_map(|t| int(t, "/tolerationSeconds")).min()?;
            Some((taint, seconds.max(0)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::kind::Kind;

    fn node(taints: Value) -> Object {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
        Object::new(Kind::Node, serde_json::from_value(node).unwrap())
    }

    #[test]
    fn tolerations_match_as_kubernetes_says() {
        let node = node(json!([{"key": "gpu", "value": "a", "effect": "NoSchedule"}]));
        let tolerates =
            |toleration: Value| untolerated(&json!({"tolerations": [toleration]}), &node).is_none();
        assert!(untolerated(&json!({}), &node).is_some());
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(json!({"key": "gpu", "operator": "Exists"})));
        assert!(tolerates(json!({"key": "gpu", "value": "a"})));
        assert!(!tolerates(json!({"key": "gpu", "value": "b"})));
        assert!(!tolerates(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerates(json!({"value": "a"})), "an empty key needs Exists");
    }

    #[test]
    fn eviction_waits_for_the_shortest_toleration() {
        let node = node(json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]));
        let after = |spec: Value| evicting(&spec, &node).first().map(|(_, seconds)| *seconds);
        assert_eq!(after(json!({})), Some(300));
        let key = "node.kubernetes.io/unreachable";
        let toleration = |seconds: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
        assert_eq!(after(json!({"tolerations": [toleration(json!(30))]})), Some(30));
        assert_eq!(after(json!({"tolerations": [toleration(Value::Null)]})), None);
    }
}
