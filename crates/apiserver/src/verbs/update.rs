//! update: PUT to an object or its status.

use atoll_apimachinery::{ApiError, FieldError, meta, response::Body};
use http::Response;
use serde_json::Value;

use super::{
    call::Call,
    create,
    prepare::{self, Draft, Part},
    write,
};

/// Replaces an object, or its status. Without a resourceVersion, built-in kinds are replaced unconditionally; custom
/// ones are refused (`AllowUnconditionalUpdate`).
pub(crate) async fn update(
    call: &Call,
    mut object: Value,
    part: Part,
) -> Result<Response<Body>, ApiError> {
    prepare::type_meta(&call.kind, &mut object)?;
    create::place(call, &mut object)?;
    let sent = meta::name(&object);
    if sent.is_empty() {
        meta::set(&mut object, "name", Some(call.name.as_str().into()));
    } else if sent != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let creates = part == Part::Main && call.kind.builtin().is_some_and(|b| b.create_on_update);
    if creates && call.core.store.get(&call.kind.table, &call.key()).is_none() {
        let written = write::create(call, Draft { object, managed: false }).await?;
        return call.respond_written(&written);
    }
    let written = write::modify(call, part, |live| {
        if call.kind.custom().is_some() && meta::resource_version(&object).is_none() {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &0.into(),
                "must be specified for an update",
            );
            let kind = &call.kind;
            return Err(ApiError::invalid(&kind.group, &kind.kind, &call.name, &[error]));
        }
        let mut object = object.clone();
        // Without managed fields in the body they stay unchanged; an explicit empty list resets them.
        if meta::get(&object, "managedFields").is_none() {
            meta::set(&mut object, "managedFields", meta::get(live, "managedFields").cloned());
        }
        Ok(Draft { object, managed: false })
    })
    .await?;
    call.respond_written(&written)
}
