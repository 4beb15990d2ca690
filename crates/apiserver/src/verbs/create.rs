//! create: POST to a collection.

use atoll_apimachinery::{ApiError, meta, response::Body};
use http::Response;
use serde_json::Value;

use super::{
    call::Call,
    prepare::{self, Draft},
    write,
};

/// The namespace of a body must equal that of the path; an absent one is filled in.
pub(super) fn place(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let namespace = call.namespace.clone().unwrap_or_default();
    let sent = meta::namespace(object).to_owned();
    if !call.kind.namespaced {
        meta::set(object, "namespace", None);
        return Ok(());
    }
    if !sent.is_empty() && sent != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set(object, "namespace", Some(namespace.into()));
    Ok(())
}

/// POST to a collection.
pub(crate) async fn create(call: &Call, mut object: Value) -> Result<Response<Body>, ApiError> {
    prepare::type_meta(&call.kind, &mut object)?;
    if call.kind.namespaced && call.namespace.is_none() {
        return Err(ApiError::method_not_allowed());
    }
    if call.kind.custom().is_some_and(|c| c.terminating) {
        let mut error = ApiError::method_not_allowed();
        error.message =
            "create not allowed while custom resource definition is terminating".to_owned();
        return Err(error);
    }
    if meta::resource_version(&object).is_some() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    place(call, &mut object)?;
    let written = write::create(call, Draft { object, managed: false }).await?;
    call.respond_written(&written)
}
