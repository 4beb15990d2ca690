//! Bindings as returned by the hub. The row is read from the text of the reply or event, without a JSON tree in between.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::rows::{Binding, RowError};
use crate::object::{Fetched, Object};

/// A binding of either scope: its row, or why it cannot be read. This is no error of the request, because one malformed
/// object must not stop a stream.
pub(crate) type BindingObject = Fetched<Result<Box<Binding>, RowError>>;

/// A binding of either scope, of which only the names were read. A watch delivers the controller's own writes again, mostly
/// after their replies: then no row is needed.
pub(crate) type BindingText = Fetched<Box<RawValue>>;

/// The metadata that kube itself reads.
#[derive(Deserialize)]
struct Named {
    metadata: Names,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Names {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl BindingObject {
    /// Its row.
    pub(crate) fn row(&self) -> Result<&Binding, &RowError> {
        self.content.as_deref()
    }
}

impl<'de> Deserialize<'de> for BindingObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let content = Binding::parse(text.get()).map(Box::new);
        let metadata = match &content {
            Ok(row) => Box::new(ObjectMeta {
                namespace: row.key.namespace().map(str::to_owned),
                name: Some(row.key.name().to_owned()),
                uid: Some(row.uid.to_string()),
                resource_version: Some(row.resource_version().to_owned())
                    .filter(|version| !version.is_empty()),
                ..ObjectMeta::default()
            }),
            Err(_) => names(text.get()).map_err(de::Error::custom)?,
        };
        Ok(Self { content, metadata })
    }
}

impl<'de> Deserialize<'de> for BindingText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let content = Box::<RawValue>::deserialize(deserializer)?;
        let metadata = names(content.get()).map_err(de::Error::custom)?;
        Ok(Self { content, metadata })
    }
}

/// What kube needs of the metadata, even if other metadata is malformed.
fn names(object: &str) -> serde_json::Result<Box<ObjectMeta>> {
    match serde_json::from_str(object) {
        Ok(Named { metadata: Names { name, namespace, uid, resource_version } }) => {
            let names = ObjectMeta { name, namespace, uid, resource_version, ..Default::default() };
            Ok(Box::new(names))
        }
        Err(_) => serde_json::from_str(object).map(|object: Object| object.metadata),
    }
}

#[cfg(test)]
mod tests {
    use kube::{Resource, ResourceExt};
    use serde_json::{Value, json};

    use super::*;

    fn binding(spec: Value) -> Value {
        json!({
            "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {
                "namespace": "shop", "name": "web-deployment", "uid": "u", "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": spec,
        })
    }

    fn placed() -> Value {
        binding(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "clusters": [{"name": "member1", "replicas": 2}],
        }))
    }

    #[test]
    fn a_binding_is_read_from_its_text_and_kube_finds_its_names() {
        let object: BindingObject = serde_json::from_str(&placed().to_string()).unwrap();
        assert_eq!(object.row(), Binding::read(&placed()).as_ref());
        let names = (object.namespace(), object.name_any(), object.uid());
        assert_eq!(names, (Some("shop".into()), "web-deployment".into(), Some("u".into())));
        assert_eq!(object.resource_version(), Some("7".into()));
        let unread: BindingText = serde_json::from_str(&placed().to_string()).unwrap();
        assert_eq!(unread.metadata, object.metadata);
    }

    #[test]
    fn a_binding_that_cannot_be_read_has_its_names_and_says_why() {
        let malformed = |field: &str, value: Value| {
            let mut object = placed();
            object["metadata"][field] = value;
            object
        };
        let malformed_spec = binding(json!({"resource": 7}));
        for (object, why) in [
            (malformed("labels", json!([])), "expected a map"),
            (malformed("uid", json!(7)), "integer `7`"),
            (malformed_spec, "integer `7`"),
        ] {
            let text = object.to_string();
            let read: BindingObject = serde_json::from_str(&text).unwrap();
            let error = read.row().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            let unread: BindingText = serde_json::from_str(&text).unwrap();
            for names in [read.meta(), unread.meta()] {
                let names = (names.name.as_deref(), names.resource_version.as_deref());
                assert_eq!(names, (Some("web-deployment"), Some("7")));
            }
        }
        serde_json::from_str::<BindingObject>("[]").unwrap_err();
        serde_json::from_str::<BindingText>("[]").unwrap_err();
    }
}
