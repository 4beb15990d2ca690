//! Strategic merge patch: the merge that `kubectl apply` and `kubectl patch` use for built-in kinds.
//!
//! Lists with a merge key merge item by item. Directives in the patch express what merging alone cannot: `$patch`
//! (replace, delete, merge), `$retainKeys`, `$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`. The
//! [`Schema`] defines which lists merge, and by which key; a list without a rule is replaced.

use serde_json::{Map, Value};

use crate::{
    patch::PatchError,
    schema::{PatchRule, Schema},
    value::{child, element, same},
};

type Object = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges a strategic merge patch into `doc`.
///
/// # Errors
/// [`PatchError`] if the patch uses a directive incorrectly or lacks a merge key.
pub fn merge(doc: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Value::Object(original), Value::Object(patch)) = (doc, patch) else {
        return Err(PatchError::Malformed("a strategic merge patch is an object".to_owned()));
    };
    merge_objects(original.clone(), patch, schema, "").map(Value::Object)
}

fn refused(path: &str, message: impl Into<String>) -> PatchError {
    PatchError::Strategic { path: path.to_owned(), message: message.into() }
}

fn merge_objects(
    mut original: Object,
    patch: &Object,
    schema: &Schema,
    path: &str,
) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                let mut whole = patch.clone();
                whole.remove(DIRECTIVE);
                Ok(whole)
            }
            Some("delete") => Ok(Object::new()),
            Some("merge") => {
                let mut rest = patch.clone();
                rest.remove(DIRECTIVE);
                merge_objects(original, &rest, schema, path)
            }
            _ => Err(unknown_directive(directive, path)),
        };
    }
    retain_keys(&mut original, patch, path)?;
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(SET_ORDER) {
            set_order(&mut original, patch, field, value, schema, path)?;
        } else if let Some(field) = name.strip_prefix(DELETE_FROM_LIST) {
            let at = child(path, field);
            let gone = value.as_array().ok_or_else(|| refused(&at, "expected a list to delete"))?;
            if let Some(Value::Array(items)) = original.get_mut(field) {
                items.retain(|item| !gone.iter().any(|g| same(g, item)));
            }
        } else if name != RETAIN_KEYS && !patch.contains_key(&format!("{SET_ORDER}{name}")) {
            merge_field(&mut original, name, value, schema, path)?;
        }
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, path: &str) -> PatchError {
    let message = format!(
        "unknown {DIRECTIVE} directive {directive}: use \"replace\", \"delete\" or \"merge\""
    );
    refused(path, message)
}

/// Drops the fields that `$retainKeys` does not list. The patch must not set any other fields.
fn retain_keys(original: &mut Object, patch: &Object, path: &str) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let keys =
        keys.as_array().ok_or_else(|| refused(path, "$retainKeys must be a list of fields"))?;
    let kept = |name: &str| keys.iter().any(|k| k.as_str() == Some(name));
    let foreign = patch
        .iter()
        .find(|(name, value)| !value.is_null() && !name.starts_with('$') && !kept(name));
    if let Some((name, _)) = foreign {
        let message = format!("the patch sets {name}, which its $retainKeys does not name");
        return Err(refused(path, message));
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

fn merge_field(
    original: &mut Object,
    name: &str,
    value: &Value,
    schema: &Schema,
    path: &str,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(name);
        return Ok(());
    }
    let at = child(path, name);
    let schema = schema.property(name).unwrap_or_else(|| Schema::untyped());
    let merged = match (original.remove(name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            if schema.node().patch == PatchRule::Replace {
                Some(value.clone())
            } else {
                Some(Value::Object(merge_objects(old, new, schema, &at)?))
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            Some(Value::Array(merge_lists(old, new, schema, &at)?))
        }
        (_, new) => without_directives(new),
    };
    if let Some(merged) = merged {
        original.insert(name.to_owned(), merged);
    }
    Ok(())
}

/// The value of a patch that has nothing to merge with: directives and nulls are dropped.
fn without_directives(patch: &Value) -> Option<Value> {
    match patch {
        Value::Object(fields) => {
            let directive = fields.get(DIRECTIVE).and_then(Value::as_str);
            if directive == Some("delete") {
                return None;
            }
            let kept = fields.iter().filter(|(name, value)| {
                let special = name.as_str() == DIRECTIVE
                    || name.as_str() == RETAIN_KEYS
                    || name.starts_with(SET_ORDER)
                    || name.starts_with(DELETE_FROM_LIST);
                !special && !value.is_null()
            });
            let clean =
                |(name, value): (&String, &Value)| Some((name.clone(), without_directives(value)?));
            let cleaned: Object = kept.filter_map(clean).collect();
            // An item such as `{$patch: replace}` applies to its list and is not an item itself.
            if directive.is_some() && cleaned.is_empty() { None } else { Some(cleaned.into()) }
        }
        Value::Array(items) => {
            Some(Value::Array(items.iter().filter_map(without_directives).collect()))
        }
        other => Some(other.clone()),
    }
}

fn merge_lists(
    old: Vec<Value>,
    new: &[Value],
    schema: &Schema,
    path: &str,
) -> Result<Vec<Value>, PatchError> {
    let PatchRule::MergeItems(key) = &schema.node().patch else {
        return Ok(new.to_vec());
    };
    match key {
        Some(key) => merge_keyed(old, new, key, schema.items_or_untyped(), path),
        None => {
            let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
            for item in old.iter().chain(new) {
                if !merged.iter().any(|m| same(m, item)) {
                    merged.push(item.clone());
                }
            }
            Ok(in_order(merged, new, &old, None))
        }
    }
}

fn merge_keyed(
    mut old: Vec<Value>,
    new: &[Value],
    key: &str,
    schema: &Schema,
    path: &str,
) -> Result<Vec<Value>, PatchError> {
    let mut replace = false;
    let mut items: Vec<&Object> = Vec::with_capacity(new.len());
    for (i, item) in new.iter().enumerate() {
        let at = element(path, i);
        let item = item.as_object().ok_or_else(|| refused(&at, "expected an object"))?;
        let Some(directive) = item.get(DIRECTIVE) else {
            if !item.contains_key(key) {
                return Err(refused(&at, format!("the item lacks its merge key {key}")));
            }
            items.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let gone = item
                    .get(key)
                    .ok_or_else(|| refused(&at, format!("$patch: delete needs the key {key}")))?;
                old.retain(|o| !o.get(key).is_some_and(|k| same(k, gone)));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(refused(&at, "$patch: merge is not possible for items of a list"));
            }
            _ => return Err(unknown_directive(directive, &at)),
        }
    }
    let whole = |item: &Object| without_directives(&Value::Object(item.clone()));
    if replace {
        return Ok(items.into_iter().filter_map(whole).collect());
    }
    let order: Vec<Value> = items.iter().map(|item| Value::Object((*item).clone())).collect();
    let server_order = old.clone();
    for (i, item) in items.iter().enumerate() {
        let wanted = &item[key];
        match old.iter_mut().find(|o| o.get(key).is_some_and(|k| same(k, wanted))) {
            Some(Value::Object(found)) => {
                let before = std::mem::take(found);
                *found = merge_objects(before, item, schema, &element(path, i))?;
            }
            _ => old.extend(whole(item)),
        }
    }
    Ok(in_order(old, &order, &server_order, Some(key)))
}

/// `$setElementOrder/<field>`: merges the field's list, then sorts it in the user's order.
fn set_order(
    original: &mut Object,
    patch: &Object,
    field: &str,
    order: &Value,
    schema: &Schema,
    path: &str,
) -> Result<(), PatchError> {
    let at = child(path, field);
    let order = order.as_array().ok_or_else(|| refused(&at, "expected a list of the order"))?;
    let server_order = match original.get(field) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let property = schema.property(field).unwrap_or_else(|| Schema::untyped());
    let key = match &property.node().patch {
        PatchRule::MergeItems(key) => key.as_deref(),
        _ => None,
    };
    if let Some(Value::Array(items)) = patch.get(field) {
        let ordered = |item: &Value| order.iter().any(|o| matches(o, item, key));
        let unordered = items.iter().position(|i| i.get(DIRECTIVE).is_none() && !ordered(i));
        if let Some(i) = unordered {
            let message = "the item is not in the list's $setElementOrder";
            return Err(refused(&element(&at, i), message));
        }
    }
    if let Some(value) = patch.get(field) {
        merge_field(original, field, value, schema, path)?;
    }
    if let Some(Value::Array(items)) = original.get_mut(field) {
        let merged = std::mem::take(items);
        *items = in_order(merged, order, &server_order, key);
    }
    Ok(())
}

fn matches(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => a.get(key).zip(b.get(key)).is_some_and(|(a, b)| same(a, b)),
        None => same(a, b),
    }
}

/// Items in the patch come in the patch's order, items that only the server has in the server's order. The two are
/// merged so that a server item stays before a patch item that it preceded on the server.
fn in_order(
    items: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let place = |order: &[Value], item: &Value| order.iter().position(|o| matches(o, item, key));
    let (mut patched, server): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| place(patch_order, item).is_some());
    patched.sort_by_key(|item| place(patch_order, item));

    let mut out = Vec::with_capacity(patched.len() + server.len());
    let (mut patched, mut server) = (patched.into_iter().peekable(), server.into_iter().peekable());
    while let (Some(p), Some(s)) = (patched.peek(), server.peek()) {
        let server_first =
            place(server_order, s).zip(place(server_order, p)).is_some_and(|(s, p)| s < p);
        out.extend(if server_first { server.next() } else { patched.next() });
    }
    out.extend(server);
    out.extend(patched);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn deployment() -> Schema {
        Schema::builtin("apps", "v1", "Deployment").unwrap()
    }

    fn pod(patch: Value) -> Value {
        json!({"spec": {"template": {"spec": patch}}})
    }

    fn merged(doc: Value, patch: Value) -> Value {
        let out = merge(&pod(doc), &pod(patch), &deployment()).unwrap();
        out["spec"]["template"]["spec"].clone()
    }

    #[test]
    fn keyed_lists_merge_by_key_and_new_items_come_first() {
        let doc = json!({"containers": [
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "b:1"},
        ]});
        let patch = json!({"containers": [
            {"name": "b", "image": "b:2"},
            {"name": "c", "image": "c:1"},
            {"name": "a", "env": [{"name": "Y", "value": "2"}]},
        ]});
        let expected = json!({"containers": [
            {"name": "b", "image": "b:2"},
            {"name": "c", "image": "c:1"},
            {"name": "a", "image": "a:1", "env": [
                {"name": "Y", "value": "2"}, {"name": "X", "value": "1"},
            ]},
        ]});
        assert_eq!(merged(doc, patch), expected);
    }

    #[test]
    fn set_element_order_decides() {
        let doc = json!({"containers": [{"name": "a"}, {"name": "server"}, {"name": "b"}]});
        let patch = json!({
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c", "image": "c"}],
        });
        let expected = json!({"containers": [
            {"name": "server"}, {"name": "b"}, {"name": "c", "image": "c"}, {"name": "a"},
        ]});
        assert_eq!(merged(doc.clone(), patch), expected);
        let other_way = json!({
            "$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
            "containers": [{"name": "c"}, {"name": "d"}],
        });
        assert_eq!(
            merged(json!({}), other_way),
            json!({"containers": [{"name": "d"}, {"name": "c"}]})
        );
        let only_order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]});
        let expected = json!({"containers": [{"name": "server"}, {"name": "b"}, {"name": "a"}]});
        assert_eq!(merged(doc.clone(), only_order), expected);
        let foreign = json!({
            "$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "z"}],
        });
        let error = merge(&pod(doc), &pod(foreign), &deployment()).unwrap_err();
        assert!(error.to_string().starts_with("spec.template.spec.containers[0]: "), "{error}");
    }

    #[test]
    fn patch_directives_delete_and_replace() {
        let doc = json!({
            "containers": [{"name": "a"}, {"name": "b"}],
            "securityContext": {"runAsUser": 1, "fsGroup": 2},
            "affinity": {"nodeAffinity": {}},
        });
        let patch = json!({
            "containers": [{"name": "a", "$patch": "delete"}, {"name": "new", "$patch": "delete"}],
            "securityContext": {"$patch": "replace", "runAsUser": 3},
            "affinity": {"$patch": "delete"},
        });
        let expected = json!({
            "containers": [{"name": "b"}], "securityContext": {"runAsUser": 3}, "affinity": {},
        });
        assert_eq!(merged(doc.clone(), patch), expected);
        let whole = json!({"containers": [{"$patch": "replace"}, {"name": "z"}]});
        assert_eq!(merged(doc.clone(), whole)["containers"], json!([{"name": "z"}]));
        for wrong in [
            json!({"containers": [{"$patch": "delete"}]}),
            json!({"containers": [{"name": "a", "$patch": "frob"}]}),
            json!({"containers": [{"image": "x"}]}),
            json!({"securityContext": {"$patch": 1}}),
        ] {
            assert!(
                merge(&pod(doc.clone()), &pod(wrong.clone()), &deployment()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn retain_keys_clears_the_other_kinds_of_a_union() {
        let doc = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
        let patch = json!({"volumes": [
            {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}},
        ]});
        let expected = json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]});
        assert_eq!(merged(doc.clone(), patch), expected);
        let wrong = json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "secret": {}}]});
        assert!(merge(&pod(doc), &pod(wrong), &deployment()).is_err());
    }

    #[test]
    fn primitive_lists_are_united_and_deleted_from() {
        let schema = deployment();
        let doc = json!({"metadata": {"finalizers": ["a", "b"]}});
        let add = json!({"metadata": {"finalizers": ["c", "a"]}});
        let out = merge(&doc, &add, &schema).unwrap();
        assert_eq!(out["metadata"]["finalizers"], json!(["c", "a", "b"]));
        let delete = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
        let out = merge(&doc, &delete, &schema).unwrap();
        assert_eq!(out["metadata"]["finalizers"], json!(["b"]));
    }

    #[test]
    fn other_lists_are_replaced_and_nulls_remove() {
        let doc = json!({"tolerations": [{"key": "a"}], "nodeName": "n", "hostNetwork": true});
        let patch = json!({"tolerations": [{"key": "b"}], "nodeName": null, "gone": null});
        let expected = json!({"tolerations": [{"key": "b"}], "hostNetwork": true});
        assert_eq!(merged(doc, patch), expected);
    }

    #[test]
    fn directives_leave_no_trace_where_there_was_nothing_to_merge() {
        let patch = json!({
            "initContainers": [{"name": "a", "$patch": "delete"}, {"name": "b", "image": null}],
            "securityContext": {"$retainKeys": ["runAsUser"], "runAsUser": 1},
        });
        let expected =
            json!({"initContainers": [{"name": "b"}], "securityContext": {"runAsUser": 1}});
        assert_eq!(merged(json!({}), patch), expected);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any::<i64>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]{1,2}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_empty_patch_changes_nothing(spec in any_json()) {
            let doc = json!({"spec": spec});
            prop_assert_eq!(merge(&doc, &json!({}), &deployment()).unwrap(), doc);
        }

        #[test]
        fn merging_an_object_into_nothing_gives_it_back(spec in any_json()) {
            let patch = json!({"spec": {"template": spec}});
            prop_assert_eq!(merge(&json!({}), &patch, &deployment()).unwrap(), patch);
        }
    }
}
