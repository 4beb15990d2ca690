//! The controller that leads, by its Lease on the hub.

use atoll_api::marks::{LEADER_VERSION, SYSTEM_NAMESPACE, TERM};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde::Serialize;

use crate::hub::Hub;

/// Name of the Lease.
const LEASE: &str = "atoll-controller";

/// The holder of the Lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leader {
    /// Its name: its Pod's, or its host's.
    pub(crate) holder: String,
    /// Its term.
    pub(crate) term: u64,
    /// Version of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// When it renewed the Lease last.
    pub(crate) renewed: Timestamp,
    #[serde(skip)]
    seconds: i32,
}

impl Leader {
    /// Whether its Lease has not ended.
    pub(crate) fn leads(&self, now: Timestamp) -> bool {
        now.duration_since(self.renewed) < SignedDuration::from_secs(self.seconds.into())
    }
}

/// The last holder of the Lease; `None` if it was released or never held.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn find(hub: &Hub) -> anyhow::Result<Option<Leader>> {
    let leases: Api<Lease> = Api::namespaced(hub.client.clone(), SYSTEM_NAMESPACE);
    let doing = format!("read Lease {SYSTEM_NAMESPACE}/{LEASE}");
    let lease = hub.call(&doing, leases.get_opt(LEASE)).await?;
    Ok(lease.and_then(|lease| of(&lease)))
}

fn of(lease: &Lease) -> Option<Leader> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let annotation = |key: &str| lease.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let term = annotation(TERM);
    // The name, then what tells two processes of this name apart.
    let name = holder.rsplit_once('_').map_or(holder, |(name, _)| name);
    Some(Leader {
        holder: name.to_owned(),
        term: term.and_then(|term| term.parse().ok()).unwrap_or_default(),
        version: annotation(LEADER_VERSION).cloned(),
        renewed: spec.renew_time.as_ref()?.0,
        seconds: spec.lease_duration_seconds.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_held_until_it_ends() {
        let now: Timestamp = "2030-01-01T00:00:20Z".parse().unwrap();
        let lease = |holder: &str, renewed: &str| {
            let metadata = json!({"annotations": {"atoll.dev/term": "4"}});
            let spec =
                json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
            of(&serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
        };
        let leader = lease("c-0_17-5", "2030-01-01T00:00:10.000000Z").unwrap();
        assert!(leader.leads(now), "{leader:?}");
        assert_eq!((leader.holder.as_str(), leader.term), ("c-0", 4));
        assert!(!lease("c-0", "2030-01-01T00:00:04.000000Z").unwrap().leads(now));
        assert_eq!(lease("", "2030-01-01T00:00:10.000000Z"), None);
    }
}
