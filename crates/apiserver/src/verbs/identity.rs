//! Rules about `metadata` that hold for every kind (apimachinery `api/validation/objectmeta.go`).

use atoll_apimachinery::{FieldError, FieldReason, meta};
use serde_json::Value;

use crate::{
    kinds::{Kind, Origin},
    names,
};

/// Total bytes of annotation keys and values.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Validates the metadata that a writer sent.
pub(super) fn check(kind: &Kind, object: &Value, errors: &mut Vec<FieldError>) {
    let rule = match &kind.origin {
        Origin::Builtin(b) => b.name,
        Origin::Custom(_) | Origin::Virtual(..) => names::dns_subdomain,
    };
    let name = meta::name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Err(why) = rule(name) {
        errors.push(FieldError::invalid("metadata.name", &name.into(), why));
    }
    for (key, value) in entries(object, "labels") {
        if let Err(why) = names::qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.as_str().into(), why));
        }
        if let Err(why) = names::label_value(value.as_str().unwrap_or("")) {
            errors.push(FieldError::invalid("metadata.labels", value, why));
        }
    }
    let mut size = 0;
    for (key, value) in entries(object, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        if let Err(why) = names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), why));
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::new(
            "metadata.annotations",
            FieldReason::TooLong,
            format_args!("may not be more than {ANNOTATIONS_MAX} bytes"),
        ));
    }
    for (n, finalizer) in meta::finalizers(object).into_iter().enumerate() {
        if let Err(why) = names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{n}]"),
                &finalizer.into(),
                why,
            ));
        }
    }
    check_owners(object, errors);
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta::get(object, field).and_then(Value::as_object).into_iter().flatten()
}

fn check_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let owners = meta::get(object, "ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for (n, owner) in owners.into_iter().flatten().enumerate() {
        let path = format!("metadata.ownerReferences[{n}]");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(field).and_then(Value::as_str).unwrap_or("").is_empty() {
                errors.push(FieldError::invalid(
                    format!("{path}.{field}"),
                    &"".into(),
                    format_args!("{field} must not be empty"),
                ));
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &Value::from(controllers),
            "Only one reference can have Controller set to true",
        ));
    }
}

/// While an object is being deleted its finalizers may only shrink.
pub(super) fn check_finalizers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if !meta::is_deleting(old) {
        return;
    }
    let before = meta::finalizers(old);
    let added: Vec<&str> =
        meta::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    if !added.is_empty() {
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            format_args!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
            ),
        ));
    }
}

/// Fields of `metadata` that only the server sets; writers' values are ignored.
const SERVER_OWNED: [&str; 8] = [
    "name",
    "namespace",
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
];

/// Restores the server's fields.
pub(super) fn restore(old: &Value, new: &mut Value) {
    for field in SERVER_OWNED {
        meta::set(new, field, meta::get(old, field).cloned());
    }
}

/// Drops empty maps and lists from `metadata`, as Go's encoder does; otherwise removing the last label would leave `{}`
/// behind and look like a permanent change.
pub(super) fn tidy(object: &mut Value) {
    meta::of(object).retain(|name, value| match value {
        Value::Null => false,
        // An explicit empty list requests a reset, which the managed fields code handles.
        _ if name == "managedFields" => true,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}
