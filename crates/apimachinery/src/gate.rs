//! Pluggable authentication and authorisation, for servers that are reachable from outside their machine.

use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::error::ApiError;
use crate::identity::Identity;
use crate::request::{Query, Target};

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

impl Attributes {
    /// The attributes of a request, by upstream's RequestInfoFactory.
    ///
    /// # Errors
    /// When no verb belongs to the method, or the query is invalid.
    pub fn of(target: &Target, parts: &Parts) -> Result<Self, ApiError> {
        let path = parts.uri.path().to_owned();
        let Target::Object(object) = target else {
            let verb = parts.method.as_str().to_lowercase();
            return Ok(Attributes { verb, path, resource: None });
        };
        let watches = object.watch || Query::parse(parts.uri.query().unwrap_or(""))?.watch;
        let verb = match (&parts.method, object.name.is_some()) {
            (&Method::GET | &Method::HEAD, _) if watches => "watch",
            (&Method::GET | &Method::HEAD, true) => "get",
            (&Method::GET | &Method::HEAD, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => return Err(ApiError::method_not_allowed()),
        };
        let resource = Resource {
            group: object.group.clone(),
            version: object.version.clone(),
            resource: object.resource.clone(),
            subresource: object.subresource.clone().unwrap_or_default(),
            namespace: object.namespace.clone().unwrap_or_default(),
            name: object.name.clone().unwrap_or_default(),
        };
        Ok(Attributes { verb: verb.to_owned(), path, resource: Some(resource) })
    }
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
