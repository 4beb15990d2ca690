//! Pluggable authentication and authorisation, for servers that are reachable from outside their machine.

use futures::future::BoxFuture;
use http::HeaderMap;

use crate::{error::ApiError, http::auth::Identity};

/// The attributes of a request for authorisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for non-resource paths, the
    /// method in lower case.
    pub verb: String,
    /// The path.
    pub path: String,
    /// The objects; `None` for a non-resource path.
    pub resource: Option<Resource>,
}

/// Objects, in the terms of authorisers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
}

/// Authenticates and authorises requests.
pub trait Gate: Send + Sync + 'static {
    /// Admits a request. `peer` is the subject of the verified client certificate; `None` without one, and
    /// for callers in this process. Health paths pass unchecked.
    ///
    /// # Errors
    /// The client's answer: 401 if the user is unknown, 403 if the request is not allowed.
    fn admit<'a>(
        &'a self,
        peer: Option<&'a Identity>,
        headers: &'a HeaderMap,
        wanted: &'a Attributes,
    ) -> BoxFuture<'a, Result<Identity, ApiError>>;
}
