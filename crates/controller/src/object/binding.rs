//! Bindings as returned by the hub: read into their rows from the text of the reply or event, without a JSON tree in between.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::{Fetched, Reply};
use crate::index::received::Received;
use crate::index::rows::{Binding, RowError};

/// A binding of either scope: its row, or why the object is none. That is no error of the request, because one malformed
/// object must not stop a stream.
pub(crate) type BindingObject = Fetched<Result<Box<Binding>, RowError>>;

/// What is known of an object that is no binding.
#[derive(Deserialize)]
struct Names {
    metadata: ObjectMeta,
}

impl BindingObject {
    /// Its row.
    pub(crate) fn row(&self) -> Result<&Binding, &RowError> {
        self.content.as_deref()
    }

    /// Its names, and its row.
    pub(crate) fn into_parts(self) -> (ObjectMeta, Result<Box<Binding>, RowError>) {
        (self.metadata, self.content)
    }
}

impl<'de> Deserialize<'de> for BindingObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let content = Binding::parse(text.get()).map(Box::new);
        let metadata = match &content {
            Ok(row) => ObjectMeta {
                namespace: row.key.namespace.clone(),
                name: Some(row.key.name.clone()),
                uid: Some(row.uid.to_string()),
                resource_version: Some(row.resource_version().to_owned())
                    .filter(|version| !version.is_empty()),
                ..ObjectMeta::default()
            },
            Err(_) => {
                let names: Names = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
                names.metadata
            }
        };
        Ok(Self { content, metadata })
    }
}

impl Reply for BindingObject {
    fn received(self, _: &ApiResource) -> Received {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn binding(spec: Value) -> String {
        json!({
            "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {
                "namespace": "shop", "name": "web-deployment", "uid": "u", "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": spec,
        })
        .to_string()
    }

    #[test]
    fn a_binding_is_read_from_its_text_and_kube_finds_its_names() {
        let text = binding(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "clusters": [{"name": "member1", "replicas": 2}],
        }));
        let object: BindingObject = serde_json::from_str(&text).unwrap();
        assert_eq!(object.row(), Binding::read(&serde_json::from_str(&text).unwrap()).as_ref());
        assert_eq!(
            (object.name_any(), object.namespace()),
            ("web-deployment".into(), Some("shop".into()))
        );
        assert_eq!((object.uid(), object.resource_version()), (Some("u".into()), Some("7".into())));
    }

    #[test]
    fn an_object_that_is_no_binding_has_its_names_and_says_why() {
        let object: BindingObject = serde_json::from_str(&binding(json!({"resource": 7}))).unwrap();
        let why = object.row().unwrap_err().to_string();
        assert!(why.contains("invalid type: integer `7`"), "{why}");
        assert_eq!(
            (object.name_any(), object.resource_version()),
            ("web-deployment".into(), Some("7".into()))
        );
        serde_json::from_str::<BindingObject>("[]").unwrap_err();
    }
}
