//! Which certificates of a member are refused: all issued up to an instant.
//!
//! A user requests it by an annotation, whose time comes from the user's clock. A thief could renew between that time
//! and the moment at which the controller reads it. So the instant that counts is when the leader first sees the
//! request, by the clock that also dates certificates; it is written to the Cluster's status, where later leaders read
//! it.

use atoll_api::Cluster;
use atoll_api::cluster::Revocation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// Annotation on a Cluster, in RFC 3339: refuses all certificates and open tokens created up to this time and up to the
/// moment at which the controller reads it. A new value revokes again. Set by `atoll revoke`.
pub const REVOKED_BEFORE: &str = "atoll.dev/revoked-before";

/// Certificates have times in whole seconds.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);
/// How far a revocation may be ahead of the clock that dates certificates: other clocks wrote it.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// Whether a certificate issued at this time is refused.
pub(crate) fn is_revoked(issued: Timestamp, revocation: Option<&Revocation>) -> bool {
    revocation.is_some_and(|revocation| issued <= revocation.before.0)
}

/// The revocation in force after this version of the Cluster was seen; `ours` was in force before.
pub(crate) fn seen(
    ours: Option<&Revocation>,
    cluster: &Cluster,
    now: Timestamp,
) -> Option<Revocation> {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
    let requested = cluster.annotations().get(REVOKED_BEFORE);
    let newer = match (ours, stored) {
        // A leader's stored value for the same request takes precedence.
        (Some(ours), Some(stored)) if ours.request == stored.request && ours.token.is_none() => {
            Some(stored)
        }
        (Some(ours), Some(stored)) if ours.before.0 > stored.before.0 => Some(ours),
        (ours, stored) => stored.or(ours),
    };
    let Some(requested) = requested
        .filter(|requested| newer.is_none_or(|known| known.request.as_ref() != Some(requested)))
    else {
        return newer.cloned();
    };
    // A time that cannot be parsed was meant to revoke as well.
    let before = whole(requested.parse().unwrap_or(now).max(now));
    let before = newer.map_or(before, |known| before.max(known.before.0));
    Some(Revocation { before: Time(before), request: Some(requested.clone()), token: None })
}

/// Rounded like the hub's and certificates' times: `issued <= before` is the same with both in whole seconds.
pub(crate) fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether the Cluster requests a revocation that is not stored yet.
pub(crate) fn is_pending(cluster: &Cluster) -> bool {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
    let requested = cluster.annotations().get(REVOKED_BEFORE);
    requested.is_some_and(|requested| {
        stored.is_none_or(|stored| stored.request.as_ref() != Some(requested))
    })
}

/// An issue time that this revocation does not refuse: now, or a second later. `None` while the revocation lies in the
/// future.
pub(crate) fn issue_at(revocation: Option<&Revocation>, now: Timestamp) -> Option<Timestamp> {
    let Some(revocation) = revocation else { return Some(now) };
    let earliest = revocation.before.0.saturating_add(RESOLUTION).ok()?;
    let latest = now.saturating_add(AHEAD).ok()?;
    (earliest <= latest).then(|| now.max(earliest))
}

#[cfg(test)]
mod tests {
    use atoll_api::cluster::{ClusterSpec, ClusterStatus};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn cluster(requested: Option<Timestamp>, stored: Option<&Revocation>) -> Cluster {
        let mut cluster = Cluster::new("a", ClusterSpec::default());
        if let Some(requested) = requested {
            let annotation = (REVOKED_BEFORE.to_owned(), requested.to_string());
            cluster.metadata.annotations = Some([annotation].into());
        }
        cluster.status =
            Some(ClusterStatus { revocation: stored.cloned(), ..ClusterStatus::default() });
        cluster
    }

    #[test]
    fn what_was_issued_between_the_request_and_its_first_sight_is_revoked_too() {
        let requested = cluster(Some(at(0)), None);
        let first = seen(None, &requested, at(30)).unwrap();
        assert!(is_revoked(at(29), Some(&first)) && is_revoked(at(30), Some(&first)));
        assert!(!is_revoked(at(31), Some(&first)));
        // Seen again it stays the same, here and with a later leader that finds it stored.
        assert_eq!(seen(Some(&first), &requested, at(60)), Some(first.clone()));
        let stored = cluster(Some(at(0)), Some(&first));
        assert!(is_pending(&requested) && !is_pending(&stored));
        assert_eq!(seen(None, &stored, at(90)), Some(first.clone()));
        // A follower that saw the request later uses the leader's instant.
        let late = seen(None, &requested, at(40));
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
