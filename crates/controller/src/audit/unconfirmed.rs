//! Members that were disconnected while a binding was withdrawn hold objects of a deleted binding. History has the
//! proof needed to remove them; if it does not answer, they stay as orphans until the next session.

use atoll_api::{BindingUid, ClusterName};

use super::query::limited;
use crate::env::Env;
use crate::index::Index;

/// The withdrawn bindings that each member has not confirmed, by uid.
pub(crate) fn query(
    env: &Env,
    index: &Index,
) -> impl Future<Output = Vec<(ClusterName, Vec<BindingUid>)>> + Send + 'static {
    let store = env.store.clone();
    let clusters: Vec<ClusterName> = index.clusters().map(|(name, _)| name.clone()).collect();
    async move {
        let mut unconfirmed = Vec::new();
        for cluster in clusters {
            match limited(store.unconfirmed(&cluster)).await {
                Ok(uids) if uids.is_empty() => {}
                Ok(uids) => {
                    unconfirmed.push((cluster, uids.into_iter().map(BindingUid::from).collect()))
                }
                Err(why) => {
                    tracing::warn!(
                        cluster = cluster.as_str(),
                        why,
                        "history database unreachable: objects of withdrawn bindings stay on members as orphans"
                    );
                    break;
                }
            }
        }
        unconfirmed
    }
}
