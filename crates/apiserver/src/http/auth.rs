//! Authentication: a client certificate, a ServiceAccount's bearer token, anonymous, or a caller in this process.
//!
//! Anonymous requests may read only the health and version paths. [`crate::verbs::rbac`] decides what other users may do.

use atoll_apimachinery::{ApiError, identity::Identity};
use http::{HeaderMap, header};

use crate::{core::Core, verbs::rbac};

/// The identity of a request: the listener's, replaced by a bearer token if there is one.
pub(super) fn identify(
    core: &Core,
    listener: Option<&Identity>,
    headers: &HeaderMap,
) -> Result<Identity, ApiError> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer ").or_else(|| v.strip_prefix("bearer ")));
    let identity = match (listener, bearer) {
        (None, _) => Identity::internal(),
        (Some(known), _) if !known.is_anonymous() => known.clone(),
        (Some(_), Some(token)) => core
            .tokens
            .check(&core.store, core.now(), token.trim())?
            .ok_or_else(ApiError::unauthorized)?,
        (Some(anonymous), None) => anonymous.clone(),
    };
    match impersonated(headers).filter(|_| !identity.is_anonymous()) {
        None => Ok(identity),
        Some(other) if rbac::is_unlimited(core, &identity) => Ok(other),
        Some(other) => {
            let why = format!("User {:?} cannot impersonate", identity.user);
            Err(ApiError::forbidden("", "users", &other.user, why))
        }
    }
}

/// The user that an authenticated user impersonates (`kubectl --as`).
fn impersonated(headers: &HeaderMap) -> Option<Identity> {
    let text = |v: &http::HeaderValue| v.to_str().ok().map(str::to_owned);
    let user = headers.get("impersonate-user").and_then(text).filter(|u| !u.is_empty())?;
    let groups = headers.get_all("impersonate-group").iter().filter_map(text);
    Some(Identity::user(user, groups.collect::<Vec<_>>()))
}
