//! Which certificates of a member are refused: all issued up to an instant.
//!
//! A user requests it by an annotation, whose time comes from the user's clock. A thief could renew between that time
//! and the moment at which the controller reads it. So the instant that counts is when the leader first sees the
//! request, by the clock that also dates certificates; it is written to the Cluster's status, where later leaders read
//! it.

use atoll_api::cluster::Revocation;
use atoll_api::{Cluster, marks};
use atoll_protocol::token::TokenId;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::context::{Context, HUB_TIMEOUT};
use super::enrol::EnrolError;
use super::registry::{Member, Session};
use super::types::{LostReason, MemberEvent};
use crate::manager;

/// Annotation on a Cluster, in RFC 3339: refuses all certificates and open tokens created up to this time and up to the
/// moment at which the controller reads it. A new value revokes again. Set by `atoll revoke`.
pub const REVOKED_BEFORE: &str = "atoll.dev/revoked-before";

/// Certificates have times in whole seconds.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);
/// How far a revocation may be ahead of the clock that dates certificates: other clocks wrote it.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// Attempts of a write in case of conflicts.
const TRIES: usize = 5;

/// Whether a certificate issued at this time is refused.
pub(super) fn is_revoked(issued: Timestamp, revocation: Option<&Revocation>) -> bool {
    revocation.is_some_and(|revocation| issued <= revocation.before.0)
}

/// The revocation in force after this version of the Cluster was seen; `ours` was in force before.
pub(super) fn seen(
    ours: Option<&Revocation>,
    cluster: &Cluster,
    now: Timestamp,
) -> Option<Revocation> {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
    let asked = cluster.annotations().get(REVOKED_BEFORE);
    let newer = match (ours, stored) {
        // A leader's stored value for the same request takes precedence.
        (Some(ours), Some(stored)) if ours.request == stored.request && ours.token.is_none() => {
            Some(stored)
        }
        (Some(ours), Some(stored)) if ours.before.0 > stored.before.0 => Some(ours),
        (ours, stored) => stored.or(ours),
    };
    let Some(asked) =
        asked.filter(|asked| newer.is_none_or(|known| known.request.as_ref() != Some(asked)))
    else {
        return newer.cloned();
    };
    // A time that cannot be parsed was meant to revoke as well.
    let before = whole(asked.parse().unwrap_or(now).max(now));
    let before = newer.map_or(before, |known| before.max(known.before.0));
    Some(Revocation { before: Time(before), request: Some(asked.clone()), token: None })
}

/// Rounded like the hub's and certificates' times: `issued <= before` is the same with both in whole seconds.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether the Cluster requests a revocation that is not stored yet.
pub(super) fn is_pending(cluster: &Cluster) -> bool {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
    let asked = cluster.annotations().get(REVOKED_BEFORE);
    asked.is_some_and(|asked| stored.is_none_or(|stored| stored.request.as_ref() != Some(asked)))
}

/// An issue time that this revocation does not refuse: now, or a second later. `None` while the revocation lies in the
/// future.
pub(super) fn issue_at(revocation: Option<&Revocation>, now: Timestamp) -> Option<Timestamp> {
    let Some(revocation) = revocation else { return Some(now) };
    let earliest = revocation.before.0.saturating_add(RESOLUTION).ok()?;
    let latest = now.saturating_add(AHEAD).ok()?;
    (earliest <= latest).then(|| now.max(earliest))
}

/// Ends the member's session if its certificate is refused now; returns whether it did.
pub(super) fn enforce(cx: &Context, member: &Member) -> bool {
    let session = {
        let state = member.lock();
        let revoked = |session: &Session| is_revoked(session.issued, state.revocation.as_ref());
        state.session.clone().filter(revoked)
    };
    let Some(session) = session else { return false };
    session.end(Status::permission_denied("the certificate is revoked"));
    let (cluster, reason) = (member.name.clone(), LostReason::Revoked);
    cx.outbox.push(MemberEvent::Lost { cluster, reason });
    true
}

/// Revokes everything issued for this Cluster up to now, because an agent enrolled with this token, and writes that to
/// the hub before it returns.
pub(super) async fn replace_identity(
    cx: &Context,
    mut cluster: Cluster,
    token: &TokenId,
) -> Result<Revocation, EnrolError> {
    let api: Api<Cluster> = Api::all(cx.client.clone());
    let name = cluster.name_any();
    let hub = |error| EnrolError::Hub(Box::new(error));
    for _ in 0..TRIES {
        let now = cx.clock.now();
        let old = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
        let revocation = Revocation {
            before: Time(old.map_or(whole(now), |old| whole(now).max(old.before.0))),
            request: old.and_then(|old| old.request.clone()),
            token: Some(token.as_str().to_owned()),
        };
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": cluster.metadata.uid,
                "resourceVersion": cluster.metadata.resource_version,
            },
            "status": {"revocation": revocation},
        }));
        cx.metrics.hub_writes.inc();
        let params = manager::patch(marks::MANAGER_STATUS);
        let written = timeout(HUB_TIMEOUT, api.patch_status(&name, &params, &patch)).await;
        match written.map_err(|_| EnrolError::Timeout)? {
            Ok(written) => {
                learn(cx, &written);
                // The hub's version: its times may be coarser.
                let stored = written.status.and_then(|status| status.revocation);
                return stored.ok_or(EnrolError::Cluster);
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(hub(error)),
        }
        let fresh = timeout(HUB_TIMEOUT, api.get_opt(&name)).await;
        let fresh = fresh.map_err(|_| EnrolError::Timeout)?.map_err(hub)?;
        let same = fresh.filter(|fresh| fresh.metadata.uid == cluster.metadata.uid);
        cluster = same.ok_or(EnrolError::Cluster)?;
    }
    Err(EnrolError::Timeout)
}

/// Stores a version of the Cluster that was just written, and ends the session that it revokes.
fn learn(cx: &Context, cluster: &Cluster) {
    let taken = cx.registry.take(cluster, (Instant::now(), cx.clock.now()));
    let Some((member, _)) = taken else { return };
    enforce(cx, &member);
    member.wake.notify_one();
    cx.due.mark(&member.name);
}

#[cfg(test)]
mod tests {
    use atoll_api::cluster::{ClusterSpec, ClusterStatus};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn cluster(asked: Option<Timestamp>, stored: Option<&Revocation>) -> Cluster {
        let mut cluster = Cluster::new("a", ClusterSpec::default());
        if let Some(asked) = asked {
            let annotation = (REVOKED_BEFORE.to_owned(), asked.to_string());
            cluster.metadata.annotations = Some([annotation].into());
        }
        cluster.status =
            Some(ClusterStatus { revocation: stored.cloned(), ..ClusterStatus::default() });
        cluster
    }

    #[test]
    fn what_was_issued_between_the_request_and_its_first_sight_is_revoked_too() {
        let asked = cluster(Some(at(0)), None);
        let first = seen(None, &asked, at(30)).unwrap();
        assert!(is_revoked(at(29), Some(&first)) && is_revoked(at(30), Some(&first)));
        assert!(!is_revoked(at(31), Some(&first)));
        // Seen again it stays the same, here and with a later leader that finds it stored.
        assert_eq!(seen(Some(&first), &asked, at(60)), Some(first.clone()));
        let stored = cluster(Some(at(0)), Some(&first));
        assert!(is_pending(&asked) && !is_pending(&stored));
        assert_eq!(seen(None, &stored, at(90)), Some(first.clone()));
        // A follower that saw the request later uses the leader's instant.
        let late = seen(None, &asked, at(40));
        assert_eq!(seen(late.as_ref(), &stored, at(90)), Some(first.clone()));
        // Without the annotation it stays in force: a revocation is permanent.
        assert_eq!(seen(Some(&first), &cluster(None, None), at(90)), Some(first.clone()));
        // Another value revokes again.
        let again = seen(Some(&first), &cluster(Some(at(5)), Some(&first)), at(99)).unwrap();
        assert_eq!(again.before.0, at(99));
    }

    #[test]
    fn a_revocation_in_the_future_holds_until_then_and_one_of_now_delays_nothing() {
        let ahead = seen(None, &cluster(Some(at(3_600)), None), at(0)).unwrap();
        assert_eq!(ahead.before.0, at(3_600));
        assert_eq!(issue_at(Some(&ahead), at(0)), None);
        assert_eq!(issue_at(Some(&ahead), at(3_700)), Some(at(3_700)));
        let now = seen(None, &cluster(Some(at(0)), None), at(0)).unwrap();
        let issued = issue_at(Some(&now), at(0)).unwrap();
        assert!(issued == at(1) && !is_revoked(issued, Some(&now)));
    }
}
