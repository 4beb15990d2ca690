//! Objects as returned by the hub, parsed once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An object of the hub. kube's DynamicObject would first buffer most of it, and parse the metadata into types that are
/// unused here, twice for every write: the reply and the watch event.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetched<C> {
    pub(crate) content: C,
    /// The fields that kube itself reads: namespace, name, uid and version.
    pub(crate) metadata: Box<ObjectMeta>,
}

/// An object of any kind, as JSON.
pub(crate) type Object = Fetched<Map<String, Value>>;

impl Object {
    pub(crate) fn of(fields: Map<String, Value>) -> Self {
        let text = |field: &str| {
            let value = fields.get("metadata")?.get(field)?.as_str()?;
            Some(value.to_owned()).filter(|value| !value.is_empty())
        };
        let metadata = ObjectMeta {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self { content: fields, metadata: Box::new(metadata) }
    }

    /// The object as JSON, with its kind and without allocated fields. `manage` says what is kept of its managed fields,
    /// which are half of its size.
    pub(crate) fn complete(
        mut self,
        resource: &ApiResource,
        manage: impl FnOnce(Option<Value>) -> Option<Value>,
    ) -> Arc<Value> {
        self.name_kind(resource);
        self.leave_out_allocated();
        self.manage(manage);
        Arc::new(self.whole())
    }

    /// Sets the kind, which list items lack.
    fn name_kind(&mut self, resource: &ApiResource) {
        self.content.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        self.content.insert("kind".to_owned(), resource.kind.clone().into());
    }

    /// Removes fields that the hub's API server allocated and no user wrote. Must be called while the managed fields
    /// are still there, after the kind was set.
    fn leave_out_allocated(&mut self) {
        atoll_interpreter::strip_allocated(&mut self.content);
    }

    /// Replaces its managed fields.
    fn manage(&mut self, change: impl FnOnce(Option<Value>) -> Option<Value>) {
        let Some(metadata) = self.content.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        let held = metadata.remove("managedFields");
        if let Some(entries) = change(held) {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }

    /// Converts it to one JSON value.
    fn whole(self) -> Value {
        Value::Object(self.content)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::of)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.content.serialize(serializer)
    }
}

impl<C> Resource for Fetched<C> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The string values of an object.
pub(crate) fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| value.as_str().map(|value| (key.clone(), value.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_what_the_hub_says_and_kube_finds_its_name_and_version() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "resourceVersion": "7", "generation": 3, "labels": {"b": "c"}},
            "spec": {"replicas": 1}, "status": {},
        });
        let read: Object = serde_json::from_value(object.clone()).unwrap();
        assert_eq!((read.name_any(), read.resource_version()), ("a".into(), Some("7".into())));
        assert_eq!(serde_json::to_value(&read).unwrap(), object);
        assert_eq!(read.whole(), object);
    }

    #[test]
    fn managed_fields_are_replaced_or_taken_away() {
        let entry = json!({"manager": "kubectl", "fieldsV1": {"f:spec": {}}});
        let object = json!({"metadata": {"name": "a", "managedFields": [entry]}});
        let mut read: Object = serde_json::from_value(object).unwrap();
        read.manage(|entries| {
            let mut entries = entries.unwrap();
            entries[0].as_object_mut().unwrap().remove("fieldsV1");
            Some(entries)
        });
        let held = serde_json::to_value(&read).unwrap();
        assert_eq!(held["metadata"]["managedFields"], json!([{"manager": "kubectl"}]));
        read.manage(|_| None);
        assert_eq!(read.whole(), json!({"metadata": {"name": "a"}}));
    }
}
