//! Bindings as returned by the hub. The row is read from the text of the reply or event, without a JSON tree in between.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::rows::{Binding, RowError};
use crate::object::{Fetched, Object};

/// A binding of either scope: its row, or why it cannot be read. This is no error of the request, because one malformed
/// object must not stop a stream.
pub(crate) type BindingObject = Fetched<Result<Box<Binding>, RowError>>;

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
            // kube needs the names, even if other metadata is malformed.
            Err(_) => {
                let object: Object = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
                object.metadata
            }
        };
        Ok(Self { content, metadata })
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
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
    }

    #[test]
    fn a_binding_that_cannot_be_read_has_its_names_and_says_why() {
        let mut malformed_metadata = placed();
        malformed_metadata["metadata"]["labels"] = json!([]);
        let malformed_spec = binding(json!({"resource": 7}));
        for (object, why) in
            [(malformed_metadata, "expected a map"), (malformed_spec, "integer `7`")]
        {
            let object: BindingObject = serde_json::from_str(&object.to_string()).unwrap();
            let error = object.row().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            let names = (object.name_any(), object.resource_version());
            assert_eq!(names, ("web-deployment".into(), Some("7".into())));
        }
        serde_json::from_str::<BindingObject>("[]").unwrap_err();
    }
}
