//! The request that verbs answer.

use std::sync::Arc;

use atoll_apimachinery::{
    ApiError, identity::Identity, request::Query, request::accept::Shape, response, response::Body,
    view::View,
};
use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio_util::sync::CancellationToken;

use crate::{core::Core, item::Item, kinds::Kind, store::ObjectKey};

/// One request for objects of one kind.
pub(crate) struct Call {
    pub(crate) core: Arc<Core>,
    pub(crate) kind: Arc<Kind>,
    pub(crate) identity: Identity,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) shape: Shape,
    /// `None`: all namespaces, or a cluster-scoped kind.
    pub(crate) namespace: Option<String>,
    /// Empty for a collection.
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    /// Cancelled when the request's listener stops, which ends watches.
    pub(crate) closing: CancellationToken,
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) item: Item,
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
}

impl Call {
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.clone().unwrap_or_default(), self.name.clone())
    }

    pub(crate) fn view(&self) -> Result<View<Kind>, ApiError> {
        View::new(self.kind.clone(), self.shape, &self.query)
    }

    pub(crate) fn respond(&self, code: u16, body: Bytes) -> Response<Body> {
        response::respond(code, response::JSON, body)
    }

    pub(crate) fn respond_written(&self, written: &Written) -> Result<Response<Body>, ApiError> {
        let body = self.view()?.object(&written.item, self.core.now());
        let mut response = self.respond(written.code, body);
        response::warn(&mut response, &written.warnings);
        Ok(response)
    }
}
