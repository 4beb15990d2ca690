//! The verbs: one file for each, plus the code that writes share.

pub(crate) mod access;
mod apply;
pub(crate) mod create;
pub(crate) mod delete;
mod identity;
mod managed;
pub(crate) mod patch;
mod prepare;
pub(crate) mod read;
pub(crate) mod scale;
mod services;
pub(crate) mod subresource;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use self::prepare::Part;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    error::ApiError,
    http::{self as web, Body, accept::Shape, auth::Identity, query::Query},
    kinds::Kind,
    store::ObjectKey,
    table::Include,
    view::{Item, View},
};

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

    pub(crate) fn view(&self) -> Result<View, ApiError> {
        let include = match self.query.include_object.as_deref() {
            None | Some("Metadata") => Include::Metadata,
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "unrecognized includeObject value: \"{other}\""
                )));
            }
        };
        Ok(View { kind: self.kind.clone(), shape: self.shape, include })
    }

    pub(crate) fn respond(&self, code: u16, body: Bytes) -> Response<Body> {
        web::respond(code, web::JSON, body)
    }

    pub(crate) fn respond_written(&self, written: &Written) -> Result<Response<Body>, ApiError> {
        let body = self.view()?.object(&written.item, self.core.now());
        let mut response = self.respond(written.code, body);
        web::warn(&mut response, &written.warnings);
        Ok(response)
    }
}
