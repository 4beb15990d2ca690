//! Drops the fields that a schema does not declare.

use serde_json::Value;

use super::Schema;
use crate::value::Place;

/// Drops the fields of an object that its schema does not declare, and returns their paths (`spec.list[0].typo`),
/// sorted. With `fieldValidation=Strict` the request is rejected for them. `apiVersion`, `kind` and `metadata` are part
/// of every object's schema and stay; unknown fields within `metadata` are dropped.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(value, schema, &Place::ROOT, &mut dropped);
    dropped.sort();
    dropped
}

fn walk(value: &mut Value, schema: &Schema, path: &Place<'_>, dropped: &mut Vec<String>) {
    if schema.is_open() {
        return;
    }
    match value {
        Value::Object(fields) => {
            fields.retain(|name, v| {
                let at = Place::Field(path, name);
                match schema.field(name) {
                    Some(field) => {
                        walk(v, field.schema, &at, dropped);
                        true
                    }
                    None => {
                        dropped.push(at.to_string());
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            // A list that is not declared as one has no declared item fields either.
            let inner = schema.items().unwrap_or(schema);
            for (i, item) in items.iter_mut().enumerate() {
                walk(item, inner, &Place::Item(path, i), dropped);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go_and_preserved_ones_stay_but_not_within_declared_fields() {
        let schema = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {
                    "known": {"type": "string"},
                    "free": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"strict": {"type": "object", "properties": {
                            "a": {"type": "integer"},
                        }}},
                    },
                    "map": {"type": "object", "additionalProperties": {
                        "type": "object", "properties": {"x": {"type": "string"}},
                    }},
                    "list": {"type": "array", "items": {
                        "type": "object", "properties": {"y": {"type": "string"}},
                    }},
                    "template": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true,
                    },
                }},
            },
        }))
        .unwrap();
        let mut value = json!({
            "apiVersion": "a/v1", "kind": "A",
            "metadata": {"name": "a", "labels": {"l": "1"}, "typo": 1},
            "spec": {
                "known": "k", "unknown": {"deep": 1},
                "free": {"any": {"thing": 1}, "strict": {"a": 1, "b": 2}},
                "map": {"key": {"x": "1", "z": "2"}},
                "list": [{"y": "1"}, {"y": "2", "z": "3"}],
                "template": {"kind": "B", "metadata": {"name": "b"}, "spec": {"q": 1}},
            },
            "status": {"s": 1},
        });
        let dropped = prune(&mut value, &schema);
        let expected = [
            "metadata.typo",
            "spec.free.strict.b",
            "spec.list[1].z",
            "spec.map.key.z",
            "spec.unknown",
            "status",
        ];
        assert_eq!(dropped, expected);
        assert_eq!(value["spec"]["free"], json!({"any": {"thing": 1}, "strict": {"a": 1}}));
        assert_eq!(value["spec"]["template"]["spec"], json!({"q": 1}));
        assert_eq!(prune(&mut value, &schema), [""; 0]);
    }
}
