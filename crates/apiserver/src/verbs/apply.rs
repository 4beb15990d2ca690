//! Server-side apply: PATCH with `application/apply-patch+yaml`. `atoll-merge` does the merge.

use atoll_apimachinery::{ApiError, FieldError, meta, response::Body};
use http::Response;
use serde_json::Value;

use super::{
    call::{Call, Written},
    create, managed,
    prepare::{self, Draft, Part},
    write,
};

fn options(error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error])
}

/// Creates a missing object, or merges into an existing one.
pub(super) async fn apply(
    call: &Call,
    mut applied: Value,
    part: Part,
) -> Result<Response<Body>, ApiError> {
    if call.query.field_manager.is_none() {
        return Err(options(FieldError::required("fieldManager", "is required for apply patch")));
    }
    for field in ["apiVersion", "kind"] {
        if applied.get(field).and_then(Value::as_str).unwrap_or("").is_empty() {
            return Err(ApiError::bad_request(format!(
                "an apply patch must be an object with {field}"
            )));
        }
    }
    prepare::type_meta(&call.kind, &mut applied)?;
    if meta::get(&applied, "managedFields").is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    create::place(call, &mut applied)?;
    let sent = meta::name(&applied).to_owned();
    if sent.is_empty() {
        meta::set(&mut applied, "name", Some(call.name.as_str().into()));
    } else if sent != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({})",
            call.name
        )));
    }
    loop {
        if part == Part::Main && call.core.store.get(&call.kind.table, &call.key()).is_none() {
            match fresh(call, &applied).await {
                // Another writer created it in between: apply onto that object.
                Err(error) if error.reason == "AlreadyExists" && !create_only(&applied) => continue,
                result => return call.respond_written(&result?),
            }
        }
        let written = write::modify(call, part, |live| {
            if create_only(&applied) {
                let kind = &call.kind;
                return Err(ApiError::modified(&kind.group, &kind.plural, &call.name));
            }
            // The merge ignores uid and version of the applied configuration: they are preconditions.
            prepare::same_object(call, live, &applied)?;
            Ok(Draft { object: managed::apply(call, Some(live), &applied)?, managed: true })
        })
        .await;
        match written {
            // Deleted meanwhile: create it.
            Err(error) if error.reason == "NotFound" && part == Part::Main => {}
            result => return call.respond_written(&result?),
        }
    }
}

/// `resourceVersion: "0"` in an apply means create only.
fn create_only(applied: &Value) -> bool {
    meta::resource_version(applied) == Some("0")
}

/// An apply that creates. A configuration with a uid or version cannot mean a new object.
async fn fresh(call: &Call, applied: &Value) -> Result<Written, ApiError> {
    let kind = &call.kind;
    if !meta::uid(applied).is_empty() {
        return Err(ApiError::conflict(
            &kind.group,
            &kind.plural,
            &call.name,
            format_args!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta::uid(applied)
            ),
        ));
    }
    if meta::resource_version(applied).is_some() && !create_only(applied) {
        return Err(ApiError::conflict(
            &kind.group,
            &kind.plural,
            &call.name,
            "resourceVersion was given and no existing object was found",
        ));
    }
    let mut object = managed::apply(call, None, applied)?;
    meta::set(&mut object, "resourceVersion", None);
    write::create(call, Draft { object, managed: true }).await
}
