//! Progress of a rotation of the certificate authority: which members still need the old one.

use atoll_api::cluster::{ClusterStatus, SessionState};
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::{MEMBER_LIFE, PublicKeyHash};
use jiff::Timestamp;
use tonic::Status;

use crate::member::context::Context;

/// Why a certificate of an authority that was replaced at once is refused.
pub(crate) const DISTRUSTED: &str =
    "the authority of the certificate is no longer trusted: get a new token with `atoll rejoin`";

/// How a member stands in a rotation to the authority with this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No agent has joined, or its session needs no certificate.
    NoCertificate,
    /// Its agent connected with a certificate of the new authority.
    Renewed,
    /// Its last certificate has expired: it has to join again in any case.
    Expired,
    /// Its last known certificate is of another authority.
    Old,
    /// A session was opened by a controller that did not record the authority.
    Unknown,
}

/// From the status of its Cluster.
#[must_use]
pub fn standing(status: Option<&ClusterStatus>, new: PublicKeyHash, now: Timestamp) -> Standing {
    // A certificate may have been issued to an agent that has not connected yet.
    let known = |status: &&ClusterStatus| {
        let session = status.session.as_ref();
        status.cluster_id.is_some() || session.is_some_and(|session| session.authority.is_some())
    };
    let Some(status) = status.filter(known) else { return Standing::NoCertificate };
    let Some(session) = &status.session else { return Standing::Unknown };
    // Where no end was recorded: no certificate outlives the last session by more than a certificate's life.
    let ends = session.certificate_until.as_ref().map(|until| until.0).or_else(|| {
        let away = session.state != SessionState::Connected;
        session.since.as_ref().filter(|_| away)?.0.checked_add(MEMBER_LIFE).ok()
    });
    let expired = ends.is_some_and(|ends| ends <= now);
    match &session.authority {
        Some(authority) if *authority == new.to_string() => Standing::Renewed,
        _ if expired => Standing::Expired,
        Some(_) => Standing::Old,
        None => Standing::Unknown,
    }
}

/// Ends the sessions and tunnels with certificates of authorities that are no longer trusted.
pub(crate) fn enforce(cx: &Context, authorities: &Authorities) {
    for member in cx.registry.all() {
        let session = member.lock().session.clone();
        let Some(session) = session else { continue };
        if session.authority.is_some_and(|authority| !authorities.trusts(authority)) {
            session.end(Status::unauthenticated(DISTRUSTED));
        }
    }
    cx.sessions.tunnels.enforce(|authority| authorities.trusts(authority));
}

/// Whether no member needs the old authority any more. False while no rotation runs, or not all members are known.
pub(crate) fn is_done(cx: &Context, authorities: &Authorities) -> bool {
    if authorities.predecessor().is_none() || !cx.leadership.is_any_complete() {
        return false;
    }
    let (new, now) = (authorities.signing().hash(), cx.clock.now());
    cx.registry.all().iter().all(|member| {
        let cluster = member.lock().cluster.clone();
        // A member without a Cluster is only a name.
        let Some(cluster) = cluster else { return true };
        match standing(cluster.status.as_ref(), new, now) {
            Standing::NoCertificate | Standing::Renewed | Standing::Expired => true,
            Standing::Old | Standing::Unknown => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use atoll_api::cluster::SessionStatus;
    use atoll_protocol::member::KeyRequest;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn only_a_recorded_certificate_of_the_new_authority_or_an_expired_one_counts() {
        let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let (old, new) = (key(), key());
        let status = |authority: Option<PublicKeyHash>, until: Option<i64>| ClusterStatus {
            cluster_id: Some("id".into()),
            session: Some(SessionStatus {
                state: SessionState::Lost,
                epoch: 1,
                since: None,
                agent_version: None,
                authority: authority.map(|hash| hash.to_string()),
                certificate_until: until.map(|second| Time(at(second))),
            }),
            ..ClusterStatus::default()
        };
        let of = |status: &ClusterStatus| standing(Some(status), new, at(10));
        assert_eq!(standing(None, new, at(10)), Standing::NoCertificate);
        assert_eq!(of(&ClusterStatus::default()), Standing::NoCertificate);
        assert_eq!(of(&status(Some(new), Some(99))), Standing::Renewed);
        assert_eq!(of(&status(Some(old), Some(99))), Standing::Old);
        assert_eq!(of(&status(Some(old), Some(10))), Standing::Expired);
        assert_eq!(of(&status(None, None)), Standing::Unknown);
        // It went away under a controller that recorded no certificates.
        let away = |since: i64, state: SessionState| {
            let mut status = status(None, None);
            let session = status.session.as_mut().unwrap();
            (session.state, session.since) = (state, Some(Time(at(since))));
            of(&status)
        };
        let life = MEMBER_LIFE.as_secs();
        assert_eq!(away(10 - life, SessionState::Lost), Standing::Expired);
        assert_eq!(away(11 - life, SessionState::Lost), Standing::Unknown);
        assert_eq!(away(10 - life, SessionState::Connected), Standing::Unknown);
        // Enrolled, and not connected yet.
        let enrolled =
            |authority| ClusterStatus { cluster_id: None, ..status(Some(authority), Some(99)) };
        assert_eq!(of(&enrolled(old)), Standing::Old);
        assert_eq!(of(&enrolled(new)), Standing::Renewed);
        let silent = ClusterStatus { session: None, ..status(None, None) };
        assert_eq!(of(&silent), Standing::Unknown);
    }

    fn key() -> PublicKeyHash {
        KeyRequest::generate().unwrap().public_key()
    }
}
