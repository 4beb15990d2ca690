//! The requests of controllers, and the limits that they share.

use std::{sync::Arc, time::Duration};

use atoll_apimachinery::{identity::Identity, request::Query, request::accept::Shape};
use http::{HeaderMap, HeaderValue, header};
use tokio_util::sync::CancellationToken;

use crate::{core::Core, kinds::Kind, store::ObjectKey, verbs::Call};

/// Pause after a failed pass (a full disk, for example) before everything is checked again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Concurrent deletions: with a disk they share commits.
pub(super) const CONCURRENCY: usize = 64;

/// A controller's request for one object.
pub(super) fn call(
    core: &Arc<Core>,
    kind: &Arc<Kind>,
    key: &ObjectKey,
    controller: &'static str,
) -> Call {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(controller));
    Call {
        core: core.clone(),
        kind: kind.clone(),
        identity: Identity::internal(),
        headers,
        query: Query::default(),
        shape: Shape::Object,
        namespace: kind.namespaced.then(|| key.namespace.clone()),
        name: key.name.clone(),
        subresource: None,
        closing: CancellationToken::new(),
    }
}
