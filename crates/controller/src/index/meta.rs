//! Metadata of bindings in little room: there is one of these for each workload.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::sync::Arc;

use atoll_api::{Few, share_equal};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

use super::key::BindingKey;
use crate::since::Since;

/// What is used of a binding's metadata, besides its key and uid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meta {
    /// Guards the next write; empty if the hub sent none.
    pub resource_version: Box<str>,
    /// Version of the spec.
    pub generation: Option<NonZeroI64>,
    pub created: Since,
    /// It is being withdrawn since then.
    pub deleted: Since,
    pub finalizers: Arc<[Box<str>]>,
    pub labels: Texts,
    pub annotations: Texts,
}

/// What is read of a binding's metadata. Managed fields, for example, are skipped.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawMeta {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Meta {
    pub(super) fn read(metadata: RawMeta) -> Self {
        let finalizers = metadata.finalizers.into_iter().flatten();
        Self {
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            generation: metadata.generation.and_then(NonZeroI64::new),
            created: metadata.creation_timestamp.map(|time| time.0).into(),
            deleted: metadata.deletion_timestamp.map(|time| time.0).into(),
            finalizers: finalizers.map(String::into_boxed_str).collect(),
            labels: Texts::from(&metadata.labels.unwrap_or_default()),
            annotations: Texts::from(&metadata.annotations.unwrap_or_default()),
        }
    }

    /// Uses the texts of another binding where they are equal: bindings of a policy have most of them in common.
    pub(super) fn share(&mut self, other: &Self) {
        self.labels.share(&other.labels);
        self.annotations.share(&other.annotations);
        share_equal(&mut self.finalizers, &other.finalizers);
    }

    /// As the hub's API has it.
    pub(crate) fn object(&self, key: &BindingKey, uid: &str) -> ObjectMeta {
        let finalizers: Vec<_> = self.finalizers.iter().map(|name| name.to_string()).collect();
        ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(str::to_owned),
            uid: Some(uid.to_owned()),
            resource_version: Some(self.resource_version.to_string()).filter(|v| !v.is_empty()),
            generation: self.generation.map(NonZeroI64::get),
            creation_timestamp: self.created.time().map(Time),
            deletion_timestamp: self.deleted.time().map(Time),
            finalizers: Some(finalizers).filter(|names| !names.is_empty()),
            labels: Some(BTreeMap::from(&self.labels)).filter(|labels| !labels.is_empty()),
            annotations: Some(BTreeMap::from(&self.annotations)).filter(|texts| !texts.is_empty()),
            ..ObjectMeta::default()
        }
    }
}

/// Labels or annotations. Equal texts of several bindings are kept once.
pub(crate) type Texts = Few<Arc<str>, Arc<str>>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_comes_back_as_it_was_and_equal_texts_are_shared() {
        let object = |name: &str| {
            json!({
                "name": name, "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-02T00:00:00Z", "deletionTimestamp": "2026-01-03T00:00:00Z",
                "finalizers": ["a.example/b"], "labels": {"app": name, "tier": "web"},
                "annotations": {"placement": "{}", "one": "two"},
            })
        };
        let read = |name: &str| Meta::read(serde_json::from_value(object(name)).unwrap());
        let (web, mut api) = (read("web"), read("api"));
        let back = web.object(&BindingKey::new("shop", "web"), "u");
        assert_eq!(serde_json::to_value(back).unwrap(), object("web"));
        let before = api.clone();
        api.share(&web);
        assert_eq!(api, before, "sharing changes no text");
        let shared = |a: &Texts, b: &Texts| {
            a.values().zip(b.values()).filter(|(a, b)| Arc::ptr_eq(a, b)).count()
        };
        assert_eq!(
            (shared(&api.labels, &web.labels), shared(&api.annotations, &web.annotations)),
            (1, 2)
        );
        assert!(Arc::ptr_eq(&api.finalizers, &web.finalizers));
        assert_eq!(
            (api.labels.get("app").map(|app| &**app), api.labels.get("none")),
            (Some("api"), None)
        );
        let none = Meta::read(RawMeta::default());
        let bare = none.object(&BindingKey::of(None, "web"), "u");
        assert_eq!((bare.labels, bare.annotations, bare.finalizers), (None, None, None));
    }
}
