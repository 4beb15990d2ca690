//! The gRPC service and its authorisation, which is only here; the gate calls it before a call's body is read.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_protocol::ca::Issued;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::v1::agent_service_server::AgentService;
use atoll_protocol::v1::{self, RenewRequest};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::listener::{Link, Peer};
use super::session;
use super::writer::OUTBOUND;
use crate::enrolment::attempts::Attempts;
use crate::enrolment::enrol::Enrolled;
use crate::enrolment::identity::Certificate;
use crate::enrolment::rotation::DISTRUSTED;
use crate::enrolment::{enrol, revocation};
use crate::member::context::Context;
use crate::member::metrics::RefusedLabels;
use crate::member::state::Member;

/// Time from the end of a session to the close of its connection: the reason has to reach the agent.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Service {
    cx: Arc<Context>,
    attempts: Attempts,
}

impl Service {
    pub(super) fn new(cx: Arc<Context>) -> Self {
        Self { cx, attempts: Attempts::new(Instant::now()) }
    }

    /// Whether this connection may try to enrol now. The token is checked later.
    pub(super) fn may_enrol(&self, extensions: &http::Extensions) -> Result<(), Status> {
        if self.cx.term().is_none() {
            return Err(self.refuse("not_leader", Status::unavailable("not leader")));
        }
        let link = extensions.get::<Link>().ok_or_else(|| Status::internal("no connection"))?;
        if let Some(address) = link.address
            && !self.attempts.admit(address, Instant::now())
        {
            let text = "too many enrolment attempts from this address or in total: try again later";
            return Err(self.refuse("enrol_rate", Status::resource_exhausted(text)));
        }
        Ok(())
    }

    /// The member of a connection's certificate, if it may call at all.
    pub(super) fn authorise(
        &self,
        link: Option<&Link>,
    ) -> Result<(Arc<Member>, Arc<Peer>, Link), Status> {
        let cx = &self.cx;
        if cx.term().is_none() {
            return Err(self.refuse("not_leader", Status::unavailable("not leader")));
        }
        let link = link.ok_or_else(|| Status::internal("no connection"))?;
        let no_certificate = || {
            let status =
                Status::unauthenticated("a certificate of a member is required: join first");
            self.refuse("no_certificate", status)
        };
        let peer = link.peer.clone().ok_or_else(no_certificate)?;
        let trusted =
            cx.authority.borrow().as_ref().map(|all| all.signing().trust_domain().clone());
        if trusted.as_ref() != Some(&peer.trust_domain) {
            let status =
                Status::permission_denied("the certificate belongs to another trust domain");
            return Err(self.refuse("trust_domain", status));
        }
        let trusted = |hash| cx.authority.borrow().as_ref().is_some_and(|all| all.trusts(hash));
        if peer.authority.is_some_and(|authority| !trusted(authority)) {
            let status = Status::unauthenticated(DISTRUSTED);
            return Err(self.refuse("authority", status));
        }
        if peer.not_after <= cx.clock.now() {
            let status = Status::unauthenticated("the certificate has expired: join again");
            return Err(self.refuse("expired", status));
        }
        let Some(member) = cx.registry.by_uid(&peer.uid) else {
            if !cx.leadership.is_any_complete() {
                return Err(Status::unavailable(
                    "the controller has not read all Clusters yet: try again",
                ));
            }
            let status = Status::permission_denied("no Cluster has the uid of the certificate");
            return Err(self.refuse("unknown", status));
        };
        if is_revoked(&member, &peer) {
            return Err(self.refuse("revoked", revoked()));
        }
        Ok((member, peer, link.clone()))
    }

    fn refuse(&self, reason: &'static str, status: Status) -> Status {
        self.cx.metrics.refused.get_or_create(&RefusedLabels { reason }).inc();
        status
    }

    fn answer(
        &self,
        issued: Issued,
        uid: &ClusterUid,
        name: &ClusterName,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        let authority = self.cx.authority.borrow().clone();
        let authority = authority.ok_or_else(|| {
            Status::unavailable("the controller has no certificate authority yet")
        })?;
        Ok(Response::new(v1::CertificateResponse {
            chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
            cluster_uid: uid.to_string(),
            cluster_name: name.into(),
            trust_domain: authority.signing().trust_domain().to_string(),
            authority_change: authority.proof(),
        }))
    }
}

fn is_revoked(member: &Member, peer: &Peer) -> bool {
    revocation::is_revoked(peer.issued, member.lock().identity.revocation.as_ref())
}

fn revoked() -> Status {
    Status::permission_denied("the certificate is revoked")
}

#[tonic::async_trait]
impl AgentService for Service {
    type SessionStream =
        Pin<Box<dyn Stream<Item = Result<v1::ControllerMessage, Status>> + Send + 'static>>;

    async fn enroll(
        &self,
        request: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        if self.cx.term().is_none() {
            return Err(self.refuse("not_leader", Status::unavailable("not leader")));
        }
        let request = request.into_inner();
        let member_uid = request.member_uid.clone();
        let enrolled = enrol::enrol(&self.cx, request).await;
        match enrolled {
            Ok(Enrolled { issued, authority, uid, name }) => {
                if let Some(member) = self.cx.registry.by_uid(&uid) {
                    let certificate = Certificate { authority, until: issued.not_after };
                    member.lock().enrolled(&member_uid, certificate);
                    self.cx.writes.mark(&member.name);
                }
                tracing::info!(cluster = name.as_str(), "member enrolled");
                self.answer(issued, &uid, &name)
            }
            Err(error) => {
                tracing::info!(%error, "enrolment refused");
                Err(self.refuse(error.label(), error.status()))
            }
        }
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        let (member, peer, _) = self.authorise(request.extensions().get())?;
        let authority = self.cx.authority.borrow().clone();
        let authority = authority.ok_or_else(|| {
            Status::unavailable("the controller has no certificate authority yet")
        })?;
        let now = self.cx.clock.now();
        let at = revocation::issue_at(member.lock().identity.revocation.as_ref(), now);
        let at = at.ok_or_else(|| self.refuse("revoked", revoked()))?;
        let RenewRequest { csr_der, follows_authority } = request.get_ref();
        let signer = authority.signer(*follows_authority, peer.authority);
        let issued = signer
            .sign_member(csr_der, &peer.uid, at)
            .map_err(|error| self.refuse("request", Status::invalid_argument(error.to_string())))?;
        if let Some(key) = peer.key {
            // A certificate of an authority that is being replaced may be renewed at any age.
            let replaced = peer.authority.is_some_and(|old| old != signer.hash());
            let issue = if replaced { Timestamp::UNIX_EPOCH } else { peer.issued };
            let mut state = member.lock();
            let admitted = state.identity.renewals.admit(key, issue, issued.public_key, now);
            // A certificate of the new authority counts when its agent connects with it.
            if admitted.is_ok() && !replaced {
                state
                    .identity
                    .certified(Certificate { authority: signer.hash(), until: issued.not_after });
            }
            drop(state);
            admitted.map_err(|error| {
                self.refuse("renewal_rate", Status::resource_exhausted(error.to_string()))
            })?;
        }
        self.cx.writes.mark(&member.name);
        // A revocation that arrived meanwhile applies to the new certificate too.
        if is_revoked(&member, &peer) {
            return Err(self.refuse("revoked", revoked()));
        }
        self.answer(issued, &peer.uid, &member.name)
    }

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (member, peer, link) = self.authorise(request.extensions().get())?;
        if !self.cx.sessions.admission.admit(Instant::now()) {
            let status =
                Status::resource_exhausted("too many sessions are being started: try again");
            return Err(self.refuse("admission", status));
        }
        let (out, answers) = mpsc::channel(OUTBOUND);
        let (cx, inbound) = (self.cx.clone(), request.into_inner());
        self.cx.tasks.spawn(async move {
            session::run(cx, member, Peer::clone(&peer), inbound, out).await;
            tokio::time::sleep(LINGER).await;
            link.cut.cancel();
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
