//! CEL rules (`x-kubernetes-validations`): where they apply and to which values. The API server evaluates them.

use serde::Deserialize;
use serde_json::Value;

use super::{ListType, Node, Schema, Unknown};
use crate::value::{Place, same};

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The CEL expression; `self` is the value of the field with the rule.
    pub rule: String,
    /// The message for users if the rule fails.
    #[serde(default)]
    pub message: Option<String>,
    /// CEL expression for the message.
    #[serde(default)]
    pub message_expression: Option<String>,
    /// Machine-readable reason, such as `FieldValueInvalid` (the default).
    #[serde(default)]
    pub reason: Option<String>,
    /// Path below the field to report as invalid, such as `.spec.x`.
    #[serde(default)]
    pub field_path: Option<String>,
    /// Whether `oldSelf` is an optional value and the rule is also evaluated on create.
    #[serde(default)]
    pub optional_old_self: Option<bool>,
}

/// A rule and a value to which it applies.
#[derive(Debug, Clone)]
pub struct RuleSite<'a> {
    /// The field, such as `spec.placement.x[0].y`; empty at the root.
    pub path: String,
    /// The rule.
    pub rule: &'a Rule,
    /// The schema of `self`.
    pub schema: &'a Schema,
    /// `self`.
    pub value: &'a Value,
    /// `oldSelf`: the value at the same place before the update, if that place can be identified. Items of maps and of
    /// keyed lists can be matched, items of atomic lists and sets cannot.
    pub old: Option<&'a Value>,
    /// Whether the update leaves the value as it was.
    pub unchanged: bool,
}

/// Which rules apply to a value or to anything in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::schema) enum Within {
    /// None.
    #[default]
    Nothing,
    /// Rules on the value alone.
    Rules,
    /// Also rules that compare it with the value before.
    Comparisons,
}

impl Within {
    /// Of a node whose children are complete.
    pub(super) fn of(node: &Node) -> Self {
        let own = node.rules.iter().map(|rule| match rule.compares() {
            true => Self::Comparisons,
            false => Self::Rules,
        });
        let values = match &node.unknown {
            Unknown::Values(values) => Some(values),
            Unknown::Refused | Unknown::Kept => None,
        };
        let below = node.properties.values().chain(&node.items).chain(values);
        own.chain(below.map(|schema| schema.0.within)).max().unwrap_or_default()
    }
}

/// Every rule that an update of `old` to `value` has to pass, or a create without `old`: parents before children, fields
/// in order of name. Rules of absent and `null` fields do not apply. To a value that the update does not change, only rules
/// apply that compare it with the value before: otherwise a stricter rule would freeze existing objects.
#[must_use]
pub fn rules<'a>(
    value: &'a Value,
    old: Option<&'a Value>,
    schema: &'a Schema,
) -> Vec<RuleSite<'a>> {
    let mut out = Vec::new();
    walk(value, old, false, schema, &Place::ROOT, &mut out);
    out
}

impl Schema {
    /// The rules of this node itself.
    #[must_use]
    pub fn own_rules(&self) -> &[Rule] {
        &self.0.rules
    }
}

impl Rule {
    /// Whether it may compare a value with the one before the update.
    fn compares(&self) -> bool {
        self.rule.contains("oldSelf")
    }
}

/// `kept`: a value that contains this one is as it was.
fn walk<'a>(
    value: &'a Value,
    old: Option<&'a Value>,
    kept: bool,
    schema: &'a Schema,
    path: &Place<'_>,
    out: &mut Vec<RuleSite<'a>>,
) {
    if value.is_null() || schema.0.within == Within::Nothing {
        return;
    }
    let old = old.filter(|o| !o.is_null());
    let kept = kept || old == Some(value);
    if kept && schema.0.within < Within::Comparisons {
        return;
    }
    let due = schema.own_rules().iter().filter(|rule| !kept || rule.compares());
    out.extend(due.map(|rule| RuleSite {
        path: path.to_string(),
        rule,
        schema,
        value,
        old,
        unchanged: kept,
    }));
    match value {
        Value::Object(fields) => {
            for (name, v) in fields {
                if let Some(field) = schema.field(name) {
                    let old = old.and_then(|o| o.get(name));
                    walk(v, old, kept, field.schema, &Place::Field(path, name), out);
                }
            }
        }
        Value::Array(items) => {
            let old_items = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (i, item) in items.iter().enumerate() {
                let before = match schema.list_type() {
                    ListType::Map(keys) => old_items.iter().find(|o| same_keys(item, o, keys)),
                    ListType::Atomic | ListType::Set => None,
                };
                walk(item, before, kept, schema.items_or_untyped(), &Place::Item(path, i), out);
            }
        }
        _ => {}
    }
}

fn same_keys(a: &Value, b: &Value, keys: &[String]) -> bool {
    keys.iter().all(|key| match (a.get(key), b.get(key)) {
        (Some(a), Some(b)) => same(a, b),
        (a, b) => a.is_none() && b.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_follow_keyed_items_but_not_atomic_ones() {
        let schema = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {"spec": {
                "type": "object",
                "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "n"}],
                "properties": {
                    "n": {"type": "integer"},
                    "keyed": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "items": {
                            "type": "object",
                            "properties": {"k": {"type": "string"}},
                            "x-kubernetes-validations": [{"rule": "self == oldSelf"}],
                        },
                    },
                    "plain": {
                        "type": "array",
                        "items": {
                            "type": "string",
                            "x-kubernetes-validations": [{"rule": "self != ''"}],
                        },
                    },
                },
            }},
        }))
        .unwrap();
        fn seen<'a>(sites: &'a [RuleSite<'a>]) -> Vec<(&'a str, &'a str, bool)> {
            sites.iter().map(|s| (&*s.path, &*s.rule.rule, s.old.is_some())).collect()
        }
        let old = json!({"spec": {"n": 1, "keyed": [{"k": "a"}, {"k": "b"}], "plain": ["x"]}});
        let new = json!({"spec": {"n": 2, "keyed": [{"k": "b"}, {"k": "c"}], "plain": ["y", "x"]}});
        let sites = rules(&new, Some(&old), &schema);
        let expected = [
            ("spec", "self.n > 0", true),
            ("spec.keyed[0]", "self == oldSelf", true),
            ("spec.keyed[1]", "self == oldSelf", false),
            ("spec.plain[0]", "self != ''", false),
            ("spec.plain[1]", "self != ''", false),
        ];
        assert_eq!(seen(&sites), expected);
        // Items of a list without keys are unchanged if the list is; rules that compare apply nevertheless.
        let new = json!({"spec": {"n": 2, "keyed": [{"k": "a"}, {"k": "b"}], "plain": ["x"]}});
        let sites = rules(&new, Some(&old), &schema);
        let expected = [
            ("spec", "self.n > 0", true),
            ("spec.keyed[0]", "self == oldSelf", true),
            ("spec.keyed[1]", "self == oldSelf", true),
        ];
        assert_eq!(seen(&sites), expected);
        assert_eq!(seen(&rules(&old, Some(&old), &schema)), expected[1..]);
    }
}
