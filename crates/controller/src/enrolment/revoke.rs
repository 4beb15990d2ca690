//! Carries out revocations: ends sessions, and revokes a member's earlier identities when it enrols again.

use atoll_api::cluster::Revocation;
use atoll_api::{Cluster, marks};
use atoll_protocol::token::TokenId;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tonic::Status;

use super::error::EnrolError;
use super::identity::ClusterIdError;
use super::revocation::{is_revoked, whole};
use crate::manager;
use crate::member::context::Context;
use crate::member::hub::in_time;
use crate::member::state::Member;
use crate::member::types::{LostReason, MemberEvent};
use crate::sessions::handle::SessionHandle;

/// Attempts of a write in case of conflicts.
const TRIES: usize = 5;

/// Ends the member's session if its certificate is refused now; returns whether it did.
pub(crate) fn enforce(cx: &Context, member: &Member) -> bool {
    let session = {
        let state = member.lock();
        let revoked = |session: &SessionHandle| {
            is_revoked(session.issued, state.identity.revocation.as_ref())
        };
        state.session.clone().filter(revoked)
    };
    let Some(session) = session else { return false };
    session.end(Status::permission_denied("the certificate is revoked"));
    let (cluster, reason) = (member.name.clone(), LostReason::Revoked);
    cx.outbox.push(MemberEvent::Lost { cluster, reason });
    true
}

/// Revokes everything issued for this Cluster up to now, because an agent enrolled with this token, and writes that to
/// the hub before it returns. With `member_uid` the Cluster represents that member from now on.
pub(crate) async fn replace_identity(
    cx: &Context,
    mut cluster: Cluster,
    token: &TokenId,
    member_uid: Option<&str>,
) -> Result<Revocation, EnrolError> {
    let api: Api<Cluster> = Api::all(cx.client.clone());
    let name = cluster.name_any();
    for _ in 0..TRIES {
        let now = cx.clock.now();
        let old = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
        let revocation = Revocation {
            before: Time(old.map_or(whole(now), |old| whole(now).max(old.before.0))),
            request: old.and_then(|old| old.request.clone()),
            token: Some(token.as_str().to_owned()),
        };
        let mut status = json!({"revocation": revocation});
        if let Some(uid) = member_uid {
            status["clusterId"] = uid.into();
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": cluster.metadata.uid,
                "resourceVersion": cluster.metadata.resource_version,
            },
            "status": status,
        }));
        cx.metrics.hub_writes.inc();
        let params = manager::patch(marks::MANAGER_STATUS);
        match in_time(api.patch_status(&name, &params, &patch)).await {
            Ok(written) => {
                learn(cx, &written, member_uid)?;
                // The hub's version: its times may be coarser.
                let stored = written.status.and_then(|status| status.revocation);
                return stored.ok_or(EnrolError::Cluster);
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
        let fresh = in_time(api.get_opt(&name)).await?;
        let same = fresh.filter(|fresh| fresh.metadata.uid == cluster.metadata.uid);
        cluster = same.ok_or(EnrolError::Cluster)?;
    }
    Err(EnrolError::Conflicts)
}

/// Stores a version of the Cluster that was just written, and ends the session that it revokes.
fn learn(cx: &Context, cluster: &Cluster, member_uid: Option<&str>) -> Result<(), ClusterIdError> {
    let taken_over = match member_uid {
        Some(uid) => cx.registry.taken_over(&cluster.name_any(), uid),
        None => Ok(()),
    };
    // The revocation is on the hub in any case.
    let taken = cx.registry.take(cluster, (Instant::now(), cx.clock.now()));
    if let Some((member, _)) = taken {
        enforce(cx, &member);
        member.wake.notify_one();
        cx.writes.mark(&member.name);
    }
    taken_over
}
