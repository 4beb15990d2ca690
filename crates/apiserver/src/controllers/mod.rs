//! The background work of kube-controller-manager and the apiextensions API server: emptying terminating
//! namespaces, removing the objects of deleted CRDs, collecting garbage, creating namespaces' default
//! ServiceAccount, expiring Events.
//!
//! Controllers read the store's logs directly and write through the same verbs as clients. They wait for
//! changes; only the expiry of Events and the pause after an error are timed.

mod accounts;
mod crds;
mod events;
mod garbage;
mod namespaces;

use std::{sync::Arc, time::Duration};

use atoll_apimachinery::{identity::Identity, request::Query, request::accept::Shape};
use http::{HeaderMap, HeaderValue, header};
use tokio_util::sync::CancellationToken;

use crate::{core::Core, kinds::Kind, store::ObjectKey, verbs::Call};

/// Pause after a failed pass (a full disk, for example) before everything is checked again.
const RETRY: Duration = Duration::from_secs(1);
/// Concurrent deletions: with a disk they share commits.
const CONCURRENCY: usize = 64;

/// Runs all controllers until the token is cancelled.
pub(crate) async fn run(core: Arc<Core>, token: CancellationToken) {
    let collector = async {
        if core.garbage_collection {
            garbage::run(&core).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        _ = async {
            tokio::join!(
                namespaces::run(&core),
                crds::run(&core),
                accounts::run(&core),
                events::run(&core),
                collector,
            )
        } => {}
    }
}

/// A controller's request for one object.
fn call(core: &Arc<Core>, kind: &Arc<Kind>, key: &ObjectKey, controller: &'static str) -> Call {
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
