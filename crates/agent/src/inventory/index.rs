//! A small object in the member that lists the kinds and namespaces in which Atoll has objects.
//!
//! It is extended *before* the first object of a kind is applied (the rule of kubectl's ApplySet), so that a starting
//! agent finds every object with Atoll's marks by listing only these kinds, not all kinds of the server.
//!
//! It has a checksum. A missing or damaged index is not trusted at all: an object of a kind that it no longer names
//! would stay on the member after its withdrawal, unnoticed. Then all kinds are listed once, and the index is
//! rewritten.

use std::collections::BTreeSet;

use atoll_api::hex;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::key::{GroupKind, Key};
use crate::member::{Member, MemberError, Target};

/// Name of the ConfigMap.
const NAME: &str = "atoll-inventory";

/// The member's index as read at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Unmodified since the agent wrote it.
    Intact(Index),
    /// There is none.
    Absent,
    /// Not what an agent wrote last, or of a version without a checksum.
    Damaged,
}

/// Kinds and namespaces in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Kinds.
    pub kinds: BTreeSet<GroupKind>,
    /// Namespaces.
    pub namespaces: BTreeSet<String>,
}

impl Index {
    /// Whether an object may be applied: its kind and its namespace are listed.
    #[must_use]
    pub(crate) fn covers(&self, key: &Key) -> bool {
        self.kinds.contains(&key.kind)
            && (key.namespace.is_empty() || self.namespaces.contains(&key.namespace))
    }

    /// Lists the object's kind and namespace.
    pub(crate) fn add(&mut self, key: &Key) {
        self.kinds.insert(key.kind.clone());
        if !key.namespace.is_empty() {
            self.namespaces.insert(key.namespace.clone());
        }
    }

    /// Reads the index from the member.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn read(member: &Member, namespace: &str) -> Result<Found, MemberError> {
        let object = member.get(&target(), &key(namespace)).await?;
        Ok(object.map_or(Found::Absent, |object| Self::of(&object)))
    }

    fn of(object: &Value) -> Found {
        let text = |name: &str| object["data"][name].as_str().unwrap_or_default();
        let (kinds, namespaces) = (text("group-kinds"), text("namespaces"));
        if text("checksum") != checksum(kinds, namespaces) {
            return Found::Damaged;
        }
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        Found::Intact(Self {
            kinds: list(kinds).iter().filter_map(|text| GroupKind::parse(text)).collect(),
            namespaces: list(namespaces).into_iter().collect(),
        })
    }

    fn data(&self) -> Value {
        let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
        let namespaces: Vec<_> = self.namespaces.iter().map(String::as_str).collect();
        let (kinds, namespaces) = (kinds.join(","), namespaces.join(","));
        let checksum = checksum(&kinds, &namespaces);
        json!({"group-kinds": kinds, "namespaces": namespaces, "checksum": checksum})
    }

    /// Writes the index to the member.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn write(&self, member: &Member, namespace: &str) -> Result<(), MemberError> {
        let object: Value = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": self.data(),
        });
        member.apply(&target(), &key(namespace), &object, true).await.map(drop)
    }
}

fn target() -> Target {
    Target::builtin("", "v1", "ConfigMap", "configmaps", true)
}

fn key(namespace: &str) -> Key {
    Key {
        kind: GroupKind::new("", "ConfigMap"),
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
    }
}

/// SHA-256 of both lists in their written form, in hex.
fn checksum(kinds: &str, namespaces: &str) -> String {
    let hash = digest(&SHA256, format!("{kinds}\n{namespaces}").as_bytes());
    hex::encode(hash.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_believed_as_it_was_written_and_not_otherwise() {
        let mut index = Index::default();
        assert_eq!(Index::of(&json!({"data": index.data()})), Found::Intact(index.clone()));
        for (group, kind, namespace) in [("apps", "Deployment", "shop"), ("", "Namespace", "")] {
            let kind = GroupKind::new(group, kind);
            index.add(&Key { kind, namespace: namespace.into(), name: "web".into() });
        }
        let data = index.data();
        assert_eq!(Index::of(&json!({"data": data})), Found::Intact(index));
        for (field, value) in [
            ("group-kinds", json!("Deployment.apps")),
            ("group-kinds", json!(null)),
            ("namespaces", json!("")),
            ("namespaces", json!("shop,web")),
            ("checksum", json!(null)),
            ("checksum", json!("\u{fffd}")),
        ] {
            let mut data = data.clone();
            data[field] = value;
            assert_eq!(Index::of(&json!({"data": data})), Found::Damaged, "{data}");
        }
        assert_eq!(Index::of(&json!({})), Found::Damaged);
    }
}
