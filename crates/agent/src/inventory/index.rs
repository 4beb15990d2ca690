//! The one small object in the member that says where to look: the kinds and namespaces in which Atoll has objects.
//!
//! It is extended *before* the first object of a kind goes out (the rule of kubectl's ApplySet), so that an agent that
//! starts finds every object with Atoll's marks by listing these kinds, and never has to ask all kinds of a server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::key::{GroupKind, Key};
use crate::member::{Member, MemberError, Target};

/// Name of the ConfigMap.
const NAME: &str = "atoll-inventory";

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

    /// Reads it from the member; empty where there is none yet.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn read(member: &Member, namespace: &str) -> Result<Self, MemberError> {
        let Some(object) = member.get(&target(), &key(namespace)).await? else {
            return Ok(Self::default());
        };
        let list = |name: &str| {
            let text = object["data"][name].as_str().unwrap_or_default().to_owned();
            text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(Self {
            kinds: list("group-kinds").iter().filter_map(|text| GroupKind::parse(text)).collect(),
            namespaces: list("namespaces").into_iter().collect(),
        })
    }

    /// Writes it to the member.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn write(&self, member: &Member, namespace: &str) -> Result<(), MemberError> {
        let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
        let namespaces: Vec<_> = self.namespaces.iter().map(String::as_str).collect();
        let object: Value = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": {"group-kinds": kinds.join(","), "namespaces": namespaces.join(",")},
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
