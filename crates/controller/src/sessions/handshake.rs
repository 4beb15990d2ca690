//! The start of a session: checks the agent's Hello.

use std::sync::Arc;

use atoll_protocol::ca::MEMBER_LIFE;
use atoll_protocol::transport::EPOCH_FLOOR;
use atoll_protocol::v1;
use tokio::time::Instant;
use tonic::Status;

use super::bounds;
use super::handle::SessionHandle;
use super::listener::Peer;
use super::wire;
use crate::enrolment::identity::{Certificate, ClusterIdError};
use crate::enrolment::revocation;
use crate::enrolment::rotation::DISTRUSTED;
use crate::health::refusals;
use crate::health::terms::{self, Refusal};
use crate::leader::LeaderTerm;
use crate::member::context::Context;
use crate::member::events;
use crate::member::state::Member;

/// Checks the Hello, and makes this the member's current session.
pub(super) fn admit(
    cx: &Context,
    member: &Arc<Member>,
    peer: &Peer,
    hello: &v1::Hello,
) -> Result<SessionHandle, Status> {
    if hello.cluster_uid != peer.uid.as_str() {
        return Err(Status::permission_denied("hello.cluster_uid differs from the certificate's"));
    }
    let term = cx.term().ok_or_else(|| Status::unavailable("not leader"))?;
    if hello.member_uid.is_empty() || hello.member_uid.len() > bounds::MAX_ID {
        return Err(Status::invalid_argument("hello.member_uid must have 1 to 256 bytes"));
    }
    wire::id("hello.member_uid", &hello.member_uid)?;
    cx.registry.claim_cluster_id(member, &hello.member_uid).map_err(|error| {
        let reason = match &error {
            ClusterIdError::Changed { .. } => "IdentityChanged",
            ClusterIdError::Duplicate { .. } => "DuplicateCluster",
        };
        events::publish(cx, member, reason, &error.to_string());
        Status::failed_precondition(error.to_string())
    })?;
    check_epoch(cx, member, hello)?;
    let named = LeaderTerm::new(hello.highest_term);
    if named > term {
        let refusal = Refusal::Term { named, ours: term };
        return Err(refusals::refuse(cx, member, refusal));
    }
    refusals::clear(cx, member);
    let session = SessionHandle::new(cx.sessions.admission.next_id(), peer.issued, term, &cx.token)
        .of_agent(&wire::text(hello.agent_version.clone()), peer.authority);
    let mut state = member.lock();
    // A revocation may have arrived since the call was authorised.
    if revocation::is_revoked(peer.issued, state.identity.revocation.as_ref()) {
        return Err(Status::permission_denied("the certificate is revoked"));
    }
    // A rotation may have ended since, too: later ends are only those of sessions that are known here.
    let trusted =
        |authority| cx.authority.borrow().as_ref().is_some_and(|all| all.trusts(authority));
    if peer.authority.is_some_and(|authority| !trusted(authority)) {
        return Err(Status::unauthenticated(DISTRUSTED));
    }
    if hello.epoch < state.epoch.highest {
        return Err(Status::aborted("another session of this member has started"));
    }
    state.epoch.highest = hello.epoch;
    match peer.authority {
        Some(authority) => {
            // None that we issued lasts longer: whoever has a stolen authority chooses the end freely.
            let longest = cx.clock.now().checked_add(MEMBER_LIFE).unwrap_or(peer.not_after);
            let until = peer.not_after.min(longest);
            state.identity.certified(Certificate { authority, until });
        }
        None => state.identity.certificate = None,
    }
    if let Some(old) = state.session.replace(session.clone()) {
        old.end(Status::aborted("another session of this member has started"));
    }
    state.heartbeats.started(Instant::now());
    state.desired.session_started();
    Ok(session)
}

/// Refuses an epoch below the highest accepted one, and one that the agent's Lease cannot have reached.
fn check_epoch(cx: &Context, member: &Arc<Member>, hello: &v1::Hello) -> Result<(), Status> {
    let known = member.lock().epoch.highest;
    if hello.epoch < known {
        let message = format!(
            "hello.epoch {} is below {known}: another agent of this member took over; if there is no other agent, `atoll rejoin {}`",
            hello.epoch, member.name
        );
        events::publish(cx, member, "EpochBelow", &message);
        let mut refused = Status::failed_precondition(message);
        // The Lease's holder may continue from there: a Lease recreated under a wrong clock starts too low.
        refused.metadata_mut().insert(EPOCH_FLOOR, known.into());
        return Err(refused);
    }
    let limit = terms::epoch_limit(known, cx.clock.now().as_second());
    if hello.epoch > limit {
        let refusal = Refusal::Epoch { named: hello.epoch, limit };
        return Err(refusals::refuse(cx, member, refusal));
    }
    Ok(())
}
