//! The Lease as the election reads and writes it.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::marks;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::candidate::Candidate;
use super::term::LeaderTerm;

/// When we last saw the record change.
pub(super) struct Seen {
    pub(super) version: String,
    pub(super) at: Instant,
}

impl Seen {
    pub(super) fn expires(&self, duration: Duration) -> Instant {
        self.at + duration
    }
}

/// The holder; empty if there is none.
pub(super) fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Where other controllers reach the holder.
pub(super) fn address(lease: &Lease) -> Option<&str> {
    let annotations = lease.metadata.annotations.as_ref()?;
    annotations.get(marks::LEADER_ADDRESS).map(String::as_str)
}

/// Largest term accepted from a Lease. Bindings store the term in 63 bits; this leaves room for raises.
const LARGEST_TERM: u64 = 1 << 62;

/// The term in the Lease; 0 if missing or invalid.
pub(super) fn term(lease: &Lease) -> LeaderTerm {
    let annotations = lease.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|annotations| annotations.get(marks::TERM)) else {
        return LeaderTerm::default();
    };
    match text.parse() {
        Ok(term) if term <= LARGEST_TERM => LeaderTerm::new(term),
        _ => {
            tracing::warn!(
                text,
                "annotation {} of the Lease must be a number up to 2^62: ignored",
                marks::TERM
            );
            LeaderTerm::default()
        }
    }
}

/// The record after we acquire it.
pub(super) fn taken(
    before: Option<&Lease>,
    candidate: &Candidate,
    identity: &str,
    term: LeaderTerm,
    now: Timestamp,
) -> Lease {
    let transitions = before
        .and_then(|lease| lease.spec.as_ref()?.lease_transitions)
        .map_or(0, |transitions| transitions.saturating_add(1));
    let mut lease = before.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(candidate.name.clone()),
            namespace: Some(candidate.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_duration_seconds: Some(whole_seconds(candidate.times.duration)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    });
    set_term(&mut lease, term);
    let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(marks::LEADER_VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    // That of the holder before must not stay.
    annotations.remove(marks::LEADER_ADDRESS);
    if let Some(address) = &candidate.address {
        annotations.insert(marks::LEADER_ADDRESS.to_owned(), address.clone());
    }
    lease
}

/// The record after a renewal.
pub(super) fn renewed(
    before: &Lease,
    candidate: &Candidate,
    term: LeaderTerm,
    now: Timestamp,
) -> Lease {
    let mut lease = before.clone();
    let spec = lease.spec.get_or_insert_default();
    // Others treat a record that does not change as abandoned: it must change even if our clock stands still.
    let same = spec.renew_time.as_ref().is_some_and(|before| before.0 == now);
    let tick = SignedDuration::from_micros(i64::from(same));
    spec.renew_time = Some(MicroTime(now.checked_add(tick).unwrap_or(now)));
    spec.lease_duration_seconds = Some(whole_seconds(candidate.times.duration));
    set_term(&mut lease, term);
    lease
}

/// The record after we release it. The term stays: the next holder raises it.
pub(super) fn released(before: &Lease, now: Timestamp) -> Lease {
    let mut lease = before.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = None;
    spec.renew_time = Some(MicroTime(now));
    lease
}

fn set_term(lease: &mut Lease, term: LeaderTerm) {
    let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(marks::TERM.to_owned(), term.to_string());
}

/// The API accepts whole seconds, and at least one.
fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}
