//! Authors: the last writer of every template and policy, from `managedFields`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_history::{LastChange, Provenance, SourceObject};
use atoll_scheduler::Decision;
use jiff::Timestamp;
use serde_json::Value;

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

/// Limit of writers whose text is shared. A hub has few field managers, but users can make up names.
const MOST_WRITERS: usize = 256;

/// A field manager, and how it writes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Writer {
    manager: String,
    operation: String,
}

/// The last change of each object.
#[derive(Debug, Default)]
pub(crate) struct Authors {
    /// By uid.
    changes: BTreeMap<Box<str>, (Arc<Writer>, Option<Timestamp>)>,
    /// The writers that newer changes share.
    writers: BTreeSet<Arc<Writer>>,
}

impl Authors {
    /// An object was created or changed; without `managedFields` the known author stays.
    pub(crate) fn learn(&mut self, uid: Option<&str>, changed: Option<LastChange>) {
        if let (Some(uid), Some(changed)) = (uid, changed) {
            let writer = self.shared(changed.manager, changed.operation);
            self.changes.insert(uid.into(), (writer, changed.at));
        }
    }

    fn shared(&mut self, manager: String, operation: String) -> Arc<Writer> {
        let writer = Writer { manager, operation };
        if let Some(known) = self.writers.get(&writer) {
            return known.clone();
        }
        if self.writers.len() == MOST_WRITERS {
            self.writers.clear();
        }
        let writer = Arc::new(writer);
        self.writers.insert(writer.clone());
        writer
    }

    /// The last change of an object, if it is known.
    fn of(&self, uid: &str) -> Option<LastChange> {
        let (writer, at) = self.changes.get(uid)?;
        let Writer { manager, operation } = &**writer;
        Some(LastChange { manager: manager.clone(), operation: operation.clone(), at: *at })
    }

    /// An object was deleted.
    pub(crate) fn forget(&mut self, uid: Option<&str>) {
        if let Some(uid) = uid {
            self.changes.remove(uid);
        }
    }

    /// A decision's inputs and their authors.
    pub(crate) fn provenance(&self, decision: &Decision, template: &Template) -> Provenance {
        let of_template = SourceObject {
            kind: template.key.group_kind().kind.to_owned(),
            namespace: template.key.namespace().map(str::to_owned),
            name: template.key.name().to_owned(),
            uid: Some((&template.uid).into()),
            generation: Some(template.generation).filter(|generation| *generation > 0),
            changed: self.of(&template.uid),
        };
        let policies = decision.policies.iter().map(|policy| SourceObject {
            kind: policy.kind.clone(),
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            uid: Some(policy.uid.clone()).filter(|uid| !uid.is_empty()),
            generation: Some(policy.generation).filter(|generation| *generation > 0),
            changed: self.of(&policy.uid),
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
        let known = authors.of("u").unwrap();
        assert_eq!((known.manager.as_str(), known.operation.as_str()), ("kubectl-edit", "Update"));
        assert_eq!(known.at, Some("2026-01-02T00:00:00Z".parse().unwrap()));
        let scaled = reduce(Some(json!([
            entry("kubectl-create", "", "2026-01-01T00:00:00Z"),
            entry("kubectl-scale", "scale", "2026-01-01T12:00:00Z"),
        ])));
        assert_eq!(scaled.unwrap()[0]["manager"], "kubectl-scale");
        for number in 0..=MOST_WRITERS {
            let manager = format!("made-up-{number}");
            let changed = LastChange { manager, operation: "Apply".into(), at: None };
            authors.learn(Some(&format!("other-{number}")), Some(changed));
        }
        assert!(authors.writers.len() <= MOST_WRITERS, "users can make up field managers");
        assert_eq!(authors.of("other-0").unwrap().manager, "made-up-0");
        authors.forget(Some("u"));
        assert_eq!(authors.of("u"), None);
        assert_eq!(reduce(Some(json!([entry("a", "status", "2026-01-03T00:00:00Z")]))), None);
        assert_eq!((reduce(Some(json!({"manager": "a"}))), reduce(None)), (None, None));
    }
}
