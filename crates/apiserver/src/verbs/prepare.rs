//! The steps of every write between decoding and the store: types, unknown fields, defaults, server-owned fields,
//! generation, managed fields, validation. Pure except for the clock and the ids.

use atoll_apimachinery::{ApiError, FieldError, FieldReason, meta, request::FieldValidation};
use atoll_merge::schema;
use serde_json::Value;

use super::{call::Call, identity, managed};
use crate::{
    crd,
    kinds::{Kind, Origin, rules},
};

/// Which part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object's own path: everything but status, where `/status` exists.
    Main,
    /// `/status`.
    Status,
    /// The server's own subresources (`/finalize`, `/binding`): everything, unchecked.
    Internal,
}

/// The object that the writer wants, in the request's version.
pub(crate) struct Draft {
    pub(crate) object: Value,
    /// Server-side apply has computed the managed fields already.
    pub(crate) managed: bool,
}

/// The result of an update.
pub(crate) enum Outcome {
    /// Nothing changed: no new resourceVersion, no event.
    Unchanged,
    /// The new state, in stored form.
    Put(Value),
    /// The last finalizer of a deleted object was removed: the object is removed too.
    Remove(Value),
}

/// Checks `apiVersion` and `kind` of a body, filling in absent ones.
pub(crate) fn type_meta(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let Some(fields) = object.as_object_mut() else {
        return Err(ApiError::bad_request("the request's body must be a JSON object"));
    };
    let expected = kind.api_version();
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let (version, found) = (text("apiVersion"), text("kind"));
    if !version.is_empty() && version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if !found.is_empty() && found != kind.kind {
        return Err(ApiError::bad_request(format!(
            "the kind in the data ({found}) does not match the expected kind ({})",
            kind.kind
        )));
    }
    fields.insert("apiVersion".to_owned(), expected.into());
    fields.insert("kind".to_owned(), kind.kind.as_str().into());
    match fields.get("metadata") {
        None | Some(Value::Null) => {
            fields.insert("metadata".to_owned(), Value::Object(serde_json::Map::new()));
        }
        Some(Value::Object(_)) => {}
        Some(_) => return Err(ApiError::bad_request("metadata must be an object")),
    }
    Ok(())
}

/// Types, unknown fields and defaults: what upstream does while it decodes.
fn decode(call: &Call, object: &mut Value, warnings: &mut Vec<String>) -> Result<(), ApiError> {
    let kind = &call.kind;
    type_meta(kind, object)?;
    let schema = kind.schema();
    // First, because it removes nulls, which every decoder treats as absent.
    schema::default(object, schema);
    if kind.builtin().is_some() {
        let wrong = schema::validate(object, schema)
            .into_iter()
            .find(|e| e.reason == schema::FieldReason::Type);
        if let Some(wrong) = wrong {
            return Err(ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: {wrong}",
                kind.kind, kind.version
            )));
        }
    }
    let unknown = schema::prune(object, schema);
    if !unknown.is_empty() {
        let texts: Vec<String> = unknown.iter().map(|f| format!("unknown field {f:?}")).collect();
        match call.query.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(texts),
            FieldValidation::Strict => {
                let list = format!("strict decoding error: {}", texts.join(", "));
                return Err(ApiError::bad_request(match &kind.origin {
                    Origin::Builtin(_) => format!(
                        "{0} in version {1:?} cannot be handled as a {0}: {list}",
                        kind.kind, kind.version
                    ),
                    Origin::Custom(_) | Origin::Virtual(..) => list,
                }));
            }
        }
    }
    if let Origin::Builtin(b) = &kind.origin {
        (b.default)(object);
    }
    identity::tidy(object);
    Ok(())
}

/// All validation errors of an object, as a 422.
fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    identity::check(kind, new, &mut errors);
    match &kind.origin {
        Origin::Builtin(b) => {
            let mut check = rules::Check::new(new, old);
            (b.validate)(&mut check);
            errors.extend(check.errors);
        }
        Origin::Custom(custom) => {
            // Labels, annotations and the like were checked by name above.
            let violations = match old {
                None => schema::validate(new, kind.schema()),
                Some(old) => {
                    let mut found = schema::validate_update(new, old, kind.schema());
                    found.retain(|v| !crd::unchanged(old, new, &v.path));
                    found
                }
            };
            let structural = violations.is_empty();
            errors.extend(violations.into_iter().map(from_schema));
            // Upstream runs CEL only on objects that match their schema.
            if structural {
                errors.extend(crd::cel::check(&custom.programs, kind.schema(), new, old));
            }
        }
        Origin::Virtual(..) => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&kind.group, &kind.kind, meta::name(new), &errors))
}

fn from_schema(error: schema::FieldError) -> FieldError {
    use schema::FieldReason as Theirs;
    let reason = match error.reason {
        Theirs::Type => FieldReason::TypeInvalid,
        Theirs::Required => FieldReason::Required,
        Theirs::NotSupported => FieldReason::NotSupported,
        Theirs::Invalid => FieldReason::Invalid,
        Theirs::Duplicate => FieldReason::Duplicate,
        Theirs::TooMany => FieldReason::TooMany,
        Theirs::TooLong => FieldReason::TooLong,
    };
    let path = if error.path.is_empty() { "<nil>".to_owned() } else { error.path };
    FieldError { path, reason, message: error.message }
}

/// A new object in the request's version, with a name, which may turn out to be taken.
pub(super) fn create(
    call: &Call,
    draft: Draft,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let kind = &call.kind;
    let mut object = draft.object;
    decode(call, &mut object, warnings)?;
    // Labels derived from the name (a namespace's own) can be defaulted only once there is one.
    let prefix = meta::text(&object, "generateName").to_owned();
    if meta::name(&object).is_empty() && !prefix.is_empty() {
        let name = call.core.ids.name(&prefix);
        meta::set(&mut object, "name", Some(name.into()));
        if let Origin::Builtin(b) = &kind.origin {
            (b.default)(&mut object);
        }
    }
    call.core.stamp(&mut object);
    // Some defaults depend on the uid (a job's selector).
    if let Origin::Builtin(b) = &kind.origin {
        (b.default)(&mut object);
    }
    if kind.status && !kind.is("", "Node") {
        let status = kind.builtin().map(|b| rules::initial_status(b.group, b.kind, &object));
        match (status, object.as_object_mut()) {
            (Some(status), Some(fields)) => {
                fields.insert("status".to_owned(), status);
            }
            (None, Some(fields)) => {
                fields.remove("status");
            }
            (_, None) => {}
        }
    }
    if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        crd::definition::establish(&mut object, None, &call.core.store, call.core.now());
    }
    if kind.has_generation() {
        meta::set(&mut object, "generation", Some(1.into()));
    }
    if !draft.managed {
        meta::set(&mut object, "managedFields", None);
        object = managed::update(call, None, object);
    }
    validate(kind, &object, None)?;
    Ok(object)
}

/// An update of `live` (in the request's version) to `draft`.
pub(super) fn update(
    call: &Call,
    live: &Value,
    draft: Draft,
    part: Part,
    warnings: &mut Vec<String>,
) -> Result<Outcome, ApiError> {
    let kind = &call.kind;
    let mut new = draft.object;
    type_meta(kind, &mut new)?;
    same_object(call, live, &new)?;
    if part == Part::Status {
        keep_all_but_status(kind, live, &mut new);
    }
    if part != Part::Internal {
        decode(call, &mut new, warnings)?;
    }
    identity::restore(live, &mut new);
    identity::tidy(&mut new);
    let version = meta::get(live, "resourceVersion").cloned();
    meta::set(&mut new, "resourceVersion", version);
    if part == Part::Main && kind.status {
        keep(live, &mut new, "status");
    }
    if kind.is("", "Namespace") && part == Part::Main {
        // Only /finalize writes a namespace's spec.
        keep(live, &mut new, "spec");
    }
    if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") && part == Part::Main {
        crd::definition::establish(&mut new, Some(live), &call.core.store, call.core.now());
    }
    if part != Part::Status && kind.has_generation() && spec_changed(kind, live, &new) {
        meta::set(&mut new, "generation", Some((meta::generation(live) + 1).into()));
    }
    if !draft.managed {
        new = managed::update(call, Some(live), new);
    }
    managed::keep_times(live, &mut new);
    if new == *live {
        return Ok(Outcome::Unchanged);
    }
    if part != Part::Internal {
        let mut errors = Vec::new();
        identity::check_finalizers(live, &new, &mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid(&kind.group, &kind.kind, meta::name(live), &errors));
        }
        validate(kind, &new, Some(live))?;
    }
    let gone = is_finished(&new);
    let stored = kind.incoming(new);
    Ok(if gone { Outcome::Remove(stored) } else { Outcome::Put(stored) })
}

/// Whether a deleted object has no finalizer or grace period left.
pub(super) fn is_finished(object: &Value) -> bool {
    let waiting = |path: &str| {
        object.pointer(path).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    };
    let grace = meta::get(object, "deletionGracePeriodSeconds").and_then(Value::as_i64);
    let namespace = object["kind"] == "Namespace" && object["apiVersion"] == "v1";
    meta::is_deleting(object)
        && !waiting("/metadata/finalizers")
        && grace.unwrap_or(0) == 0
        && !(namespace && waiting("/spec/finalizers"))
}

/// Name, uid and resourceVersion of a body must be those of the object at the path.
pub(super) fn same_object(call: &Call, live: &Value, new: &Value) -> Result<(), ApiError> {
    let kind = &call.kind;
    let name = meta::name(live);
    let sent = meta::name(new);
    if !sent.is_empty() && sent != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        )));
    }
    let (place, namespace) = (meta::namespace(live), meta::namespace(new));
    if !namespace.is_empty() && namespace != place {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({place})"
        )));
    }
    let uid = meta::uid(new);
    if !uid.is_empty() && uid != meta::uid(live) {
        return Err(ApiError::conflict(
            &kind.group,
            &kind.plural,
            name,
            format_args!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(live)
            ),
        ));
    }
    match meta::resource_version(new) {
        Some(version) if meta::resource_version(live) != Some(version) => {
            // Zero means "any" to older clients, and "must not exist" to apply, which was handled before.
            if version == "0" {
                return Ok(());
            }
            Err(ApiError::modified(&kind.group, &kind.plural, name))
        }
        _ => Ok(()),
    }
}

/// Restores a top-level field.
fn keep(live: &Value, new: &mut Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match live.get(field) {
        Some(value) if fields.get(field) == Some(value) => {}
        Some(value) => {
            fields.insert(field.to_owned(), value.clone());
        }
        None => {
            fields.remove(field);
        }
    }
}

/// Restores what `/status` may not change. A custom object keeps all its metadata; built-in ones keep labels (except
/// those of nodes and pods, which kubelets set) and owners.
fn keep_all_but_status(kind: &Kind, live: &Value, new: &mut Value) {
    // An apply has computed the managed fields; a plain write's are computed later.
    let open: &[&str] = match &kind.origin {
        Origin::Builtin(b) if b.status_labels => {
            &["managedFields", "labels", "annotations", "finalizers"]
        }
        Origin::Builtin(_) => &["managedFields", "annotations", "finalizers"],
        Origin::Custom(_) | Origin::Virtual(..) => &["managedFields"],
    };
    let (Some(held), Some(fields)) = (live.as_object(), new.as_object_mut()) else { return };
    keep_fields(held, fields, &["status", "metadata"]);
    let (held, fields) = (held.get("metadata"), meta::of(new));
    if let Some(held) = held.and_then(Value::as_object) {
        keep_fields(held, fields, open);
    }
    // Absent or null: the writer removes them.
    fields.retain(|name, value| !open.contains(&name.as_str()) || !value.is_null());
}

/// Restores all fields except the open ones. Most are equal already, and are not copied.
fn keep_fields(held: &meta::Fields, fields: &mut meta::Fields, open: &[&str]) {
    fields.retain(|name, _| open.contains(&name.as_str()) || held.contains_key(name));
    for (name, value) in held.iter().filter(|(name, _)| !open.contains(&name.as_str())) {
        if fields.get(name) != Some(value) {
            fields.insert(name.clone(), value.clone());
        }
    }
}

/// Whether any field that counts for `metadata.generation` differs.
fn spec_changed(kind: &Kind, live: &Value, new: &Value) -> bool {
    let counts = |name: &str| {
        !(matches!(name, "metadata" | "apiVersion" | "kind") || name == "status" && kind.status)
    };
    let fields =
        [live, new].map(|object| object.as_object().into_iter().flatten().filter(|f| counts(f.0)));
    let [before, after] = fields;
    // Deployments count their annotations too (registry/apps/deployment/strategy.go).
    let annotations = kind.is("apps", "Deployment")
        && meta::get(live, "annotations") != meta::get(new, "annotations");
    annotations || !before.eq(after)
}
