//! What kube-controller-manager and the apiextensions API server do behind the API: empty terminating
//! namespaces, remove the objects of deleted CRDs, collect garbage, give namespaces their default
//! ServiceAccount, let Events expire.
//!
//! Controllers read the store's logs directly and write through the same verbs as clients. They wait for
//! changes; only Events' expiry and the pause after an error wait for time.

mod accounts;
mod crds;
mod events;
mod garbage;
mod namespaces;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, header};
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    http::{accept::Shape, auth::Identity, query::Query},
    kinds::Kind,
    store::ObjectKey,
    verbs::Call,
};

/// Pause after a failed pass (a full disk, say) before everything is looked at again.
const RETRY: Duration = Duration::from_secs(1);
/// Deletions under way at once: with a disk they share commits.
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

/// A request of a controller for one object.
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
