//! Passes requests for logs and sessions on to the kubelets.

use std::sync::PoisonError;

use atoll_apimachinery::{ApiError, response::Body};
use http::{Method, Response, request::Parts};

use crate::{kubelets::PodRequest, verbs::Call};

/// Whether kubelets answer the request.
pub(super) fn concerned(call: &Call) -> bool {
    let sessions = ["log", "exec", "attach", "portforward"];
    call.kind.is("", "Pod")
        && call.subresource.as_deref().is_some_and(|name| sessions.contains(&name))
}

/// Passes an authorised request on.
pub(super) async fn answer(call: Call, parts: Parts) -> Result<Response<Body>, ApiError> {
    let subresource = call.subresource.clone().unwrap_or_default();
    let allowed = match parts.method {
        Method::GET => true,
        Method::POST => subresource != "log",
        _ => false,
    };
    if !allowed {
        return Err(ApiError::method_not_allowed());
    }
    let pod = call.core.read(&call.kind, &call.key()).await?;
    let pod = pod.ok_or_else(|| call.kind.not_found(&call.name))?.value();
    let kubelets = call.core.kubelets.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(kubelets) = kubelets else {
        return Err(ApiError::unavailable("this server has no kubelets"));
    };
    kubelets.answer(PodRequest { pod, subresource, parts, closing: call.closing }).await
}
