//! Requests that are passed on to mounted APIs.

use std::sync::{Arc, PoisonError};

pub(super) use atoll_apimachinery::raw::request_body;
use atoll_apimachinery::{
    ApiError,
    identity::Identity,
    raw::{RawApi, RequestBody},
    response::Body,
};
use http::{Response, request::Parts};

use super::auth;
use crate::{core::Core, verbs::rbac};

/// The API that serves a path.
pub(super) fn find(core: &Core, path: &str) -> Option<Arc<dyn RawApi>> {
    let mounted = core.raw.read().unwrap_or_else(PoisonError::into_inner);
    mounted.iter().find(|api| api.names().serves(path)).cloned()
}

/// Authenticates and authorises a request, and passes it on.
pub(super) async fn answer(
    core: &Arc<Core>,
    api: &dyn RawApi,
    parts: Parts,
    body: RequestBody,
) -> Result<Response<Body>, ApiError> {
    let identity = auth::identify(core, parts.extensions.get::<Identity>(), &parts.headers)?;
    if identity.is_anonymous() {
        return Err(ApiError::unauthorized());
    }
    let wanted = api.attributes(&parts)?;
    if !rbac::may_do(core, &identity, &wanted) {
        let resource = wanted.resource.unwrap_or_default();
        let what = format!("{}/{}", resource.resource, resource.subresource);
        let why = format!(
            "User {:?} cannot {} resource {what:?} in API group {:?} at the cluster scope",
            identity.user, wanted.verb, resource.group
        );
        return Err(ApiError::forbidden(&resource.group, &resource.resource, &resource.name, why));
    }
    Ok(api.answer(identity, parts, body).await)
}
