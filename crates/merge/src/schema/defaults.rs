//! Sets the defaults that a schema declares.

use serde_json::Value;

use super::Schema;

/// Sets defaults, outer before inner, so that a defaulted object gets the defaults of its fields. `null` counts as
/// absent if the field is not nullable: it is replaced by the default, or removed.
pub fn default(value: &mut Value, schema: &Schema) {
    if schema.is_open() {
        return;
    }
    match value {
        Value::Object(fields) => {
            if fields.values().any(Value::is_null) {
                fields.retain(|name, v| {
                    let Some(field) = schema.field(name) else { return true };
                    let node = field.schema.node();
                    !v.is_null() || node.nullable || node.default.is_some()
                });
            }
            for (name, property) in schema.properties() {
                let node = property.node();
                let Some(default) = &node.default else { continue };
                let missing = fields.get(name).is_none_or(|v| v.is_null() && !node.nullable);
                if missing {
                    fields.insert(name.to_owned(), default.clone());
                }
            }
            for (name, v) in fields.iter_mut().filter(|(_, v)| !is_plain(v)) {
                let Some(field) = schema.field(name) else { continue };
                let node = field.schema.node();
                if v.is_null()
                    && !node.nullable
                    && let Some(default) = &node.default
                {
                    *v = default.clone();
                }
                self::default(v, field.schema);
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return };
            let node = schema.node();
            for item in items {
                if item.is_null()
                    && !node.nullable
                    && let Some(default) = &node.default
                {
                    *item = default.clone();
                }
                self::default(item, schema);
            }
        }
        _ => {}
    }
}

/// Whether defaults have no effect on it.
fn is_plain(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_nest_and_nulls_count_as_absent() {
        let schema = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {"spec": {"type": "object", "default": {}, "properties": {
                "n": {"type": "integer", "default": 3},
                "keep": {"type": "string", "nullable": true, "default": "x"},
                "gone": {"type": "string"},
                "inner": {"type": "object", "properties": {
                    "mode": {"type": "string", "default": "Auto"},
                }},
                "list": {"type": "array", "items": {"type": "object", "properties": {
                    "protocol": {"type": "string", "default": "TCP"},
                }}},
                "map": {"type": "object", "additionalProperties": {
                    "type": "integer", "default": 7,
                }},
            }}},
        }))
        .unwrap();
        let mut empty = json!({});
        default(&mut empty, &schema);
        assert_eq!(empty, json!({"spec": {"n": 3, "keep": "x"}}));

        let mut value = json!({"spec": {
            "n": null, "keep": null, "gone": null, "inner": {}, "list": [{}, {"protocol": "UDP"}],
            "map": {"a": null, "b": 1},
        }});
        default(&mut value, &schema);
        let expected = json!({"spec": {
            "n": 3, "keep": null, "inner": {"mode": "Auto"},
            "list": [{"protocol": "TCP"}, {"protocol": "UDP"}],
            "map": {"a": 7, "b": 1},
        }});
        assert_eq!(value, expected);
    }
}
