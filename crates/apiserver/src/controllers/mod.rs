//! The background work of kube-controller-manager and the apiextensions API server: emptying terminating
//! namespaces, removing the objects of deleted CRDs, collecting garbage, creating namespaces' default
//! ServiceAccount, expiring Events.
//!
//! Controllers read the store's logs directly and write through the same verbs as clients. They wait for
//! changes; only the expiry of Events and the pause after an error are timed.

mod accounts;
mod call;
mod crds;
mod events;
mod garbage;
mod namespaces;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::core::Core;

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
