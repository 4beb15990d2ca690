//! Objects as the hub answers them, as JSON.

use kube::api::{DynamicObject, TypeMeta};
use serde_json::{Map, Value};

/// The object as one JSON value. Its data, nearly all of it, is taken over as it is.
pub(crate) fn whole(object: DynamicObject) -> Value {
    let DynamicObject { types, metadata, data } = object;
    let mut fields = match data {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if let Some(TypeMeta { api_version, kind }) = types {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
    }
    // Names, strings and times only: there is no key or number in it that JSON could not hold.
    fields.insert("metadata".to_owned(), serde_json::to_value(metadata).unwrap_or_default());
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_what_serializing_it_gives() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "generation": 3, "labels": {"b": "c"}},
            "spec": {"replicas": 1}, "status": {},
        });
        let read: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), object);
        assert_eq!(whole(read), object);
        let bare: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(whole(bare), json!({"metadata": {"name": "a"}}));
    }
}
