//! Authors: the last writer of every template and policy, from `managedFields`.

use std::collections::BTreeMap;

use atoll_history::{LastChange, Provenance, SourceObject};
use atoll_scheduler::Decision;
use jiff::Timestamp;
use serde_json::Value;

use crate::index::key::uid_of;
use crate::index::template::Template;

/// Reduces managedFields to the last change without its fields, which are half of an object's size and unused here. A
/// status write does not count; `kubectl scale` does, by the subresource `scale`. What is no list of entries is dropped: no
/// decision uses it.
pub(crate) fn reduce(entries: Option<Value>) -> Option<Value> {
    let Some(Value::Array(entries)) = entries else { return None };
    let entries = entries.into_iter().filter(|entry| entry.is_object());
    let mut last = entries.filter(|entry| entry["subresource"] != "status").max_by_key(time_of)?;
    if let Some(fields) = last.as_object_mut() {
        fields.remove("fieldsV1");
    }
    Some(Value::Array(vec![last]))
}

fn time_of(entry: &Value) -> Option<Timestamp> {
    entry["time"].as_str()?.parse().ok()
}

/// The last change of an object with reduced managedFields.
pub(crate) fn last_change(object: &Value) -> Option<LastChange> {
    let entry = &object["metadata"]["managedFields"][0];
    Some(LastChange {
        manager: entry["manager"].as_str()?.to_owned(),
        operation: entry["operation"].as_str().unwrap_or_default().to_owned(),
        at: time_of(entry),
    })
}

/// The last change of each object, by uid.
#[derive(Debug, Default)]
pub(crate) struct Authors(BTreeMap<String, LastChange>);

impl Authors {
    /// An object was created or changed; without `managedFields` the known author stays.
    pub(crate) fn learn(&mut self, uid: Option<&str>, changed: Option<LastChange>) {
        if let (Some(uid), Some(changed)) = (uid, changed) {
            self.0.insert(uid.to_owned(), changed);
        }
    }

    /// An object was deleted.
    pub(crate) fn forget(&mut self, object: &Value) {
        if let Some(uid) = uid_of(object) {
            self.0.remove(uid);
        }
    }

    /// A decision's inputs and their authors.
    pub(crate) fn provenance(&self, decision: &Decision, template: &Template) -> Provenance {
        let of_template = SourceObject {
            kind: template.key.kind.kind.clone(),
            namespace: template.key.namespace.clone(),
            name: template.key.name.clone(),
            uid: Some((&template.uid).into()),
            generation: Some(template.generation).filter(|generation| *generation > 0),
            changed: self.0.get(&*template.uid).cloned(),
        };
        let policies = decision.policies.iter().map(|policy| SourceObject {
            kind: policy.kind.clone(),
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            uid: Some(policy.uid.clone()).filter(|uid| !uid.is_empty()),
            generation: Some(policy.generation).filter(|generation| *generation > 0),
            changed: self.0.get(&policy.uid).cloned(),
        });
        Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: decision.profile.to_string(),
            sources: std::iter::once(of_template).chain(policies).collect(),
            approved: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_change_counts_and_status_is_nobodys() {
        let entry = |manager: &str, subresource: &str, time: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "apps/v1", "time": time,
                "subresource": subresource, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
            })
        };
        let kept = reduce(Some(json!([
            "not an entry",
            entry("kubectl-edit", "", "2026-01-02T00:00:00Z"),
            entry("kubectl-create", "", "2026-01-01T00:00:00Z"),
            entry("kubectl-scale", "scale", "2026-01-01T12:00:00Z"),
            entry("atoll-status", "status", "2026-01-03T00:00:00Z"),
        ])))
        .unwrap();
        assert_eq!(kept.as_array().unwrap().len(), 1);
        let mut object = json!({"metadata": {"uid": "u", "managedFields": kept}});
        assert!(!object.to_string().contains("f:spec"), "{object}");
        let mut authors = Authors::default();
        authors.learn(Some("u"), last_change(&object));
        // The reply to our own write has none: the known author stays.
        object["metadata"]["managedFields"] = json!(null);
        authors.learn(Some("u"), last_change(&object));
        let known = &authors.0["u"];
        assert_eq!((known.manager.as_str(), known.operation.as_str()), ("kubectl-edit", "Update"));
        assert_eq!(known.at, Some("2026-01-02T00:00:00Z".parse().unwrap()));
        let scaled = reduce(Some(json!([
            entry("kubectl-create", "", "2026-01-01T00:00:00Z"),
            entry("kubectl-scale", "scale", "2026-01-01T12:00:00Z"),
        ])));
        assert_eq!(scaled.unwrap()[0]["manager"], "kubectl-scale");
        authors.forget(&object);
        assert!(authors.0.is_empty());
        assert_eq!(reduce(Some(json!([entry("a", "status", "2026-01-03T00:00:00Z")]))), None);
        assert_eq!((reduce(Some(json!({"manager": "a"}))), reduce(None)), (None, None));
    }
}
