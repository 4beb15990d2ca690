//! Authentication and authorisation by somebody else, for servers that are not alone on their machine.

use futures::future::BoxFuture;
use http::HeaderMap;

use crate::{error::ApiError, http::auth::Identity};

/// What a request wants, as authorisers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; of a path that is no object's,
    /// the method in lower case.
    pub verb: String,
    /// The path.
    pub path: String,
    /// Which objects; `None` for a path that is no object's.
    pub resource: Option<Resource>,
}

/// Objects, as authorisers name them.
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

/// Says who makes a request, and whether they may.
pub trait Gate: Send + Sync + 'static {
    /// Admits a request. `peer` is the subject of the client certificate that TLS has verified; nothing without one, and
    /// for callers in this process. Health paths pass without being asked about.
    ///
    /// # Errors
    /// What the client is told: 401 where nobody knows who it is, 403 where it may not.
    fn admit<'a>(
        &'a self,
        peer: Option<&'a Identity>,
        headers: &'a HeaderMap,
        wanted: &'a Attributes,
    ) -> BoxFuture<'a, Result<Identity, ApiError>>;
}
