//! Sends an agent the differences between what its member should hold and what it holds.
//!
//! The writer gets the next message from the desired set whenever the connection has room, so an agent that does not
//! read costs a set of keys, not queued messages.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::BindingUid;
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::v1;
use atoll_protocol::v1::controller_message::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;

use super::customizations::CustomizationSender;
use super::desired::Order;
use super::handle::{SessionHandle, term_ended};
use super::wire;
use crate::member::context::Context;
use crate::member::metrics::SentLabels;
use crate::member::state::Member;
use crate::member::types::{LimitReason, MemberEvent};

/// Messages to the agent: bounded, in front of HTTP/2's own window.
pub(super) type Sender = mpsc::Sender<Result<v1::ControllerMessage, Status>>;
/// Messages between the writer and HTTP/2. The desired set is the real queue, so a few are enough to keep the
/// connection busy.
pub(super) const OUTBOUND: usize = 16;

/// A session's sending side.
struct Writer {
    cx: Arc<Context>,
    member: Arc<Member>,
    session: SessionHandle,
    out: Sender,
    /// Node label keys that templates use.
    labels: watch::Receiver<Vec<String>>,
    customizations: CustomizationSender,
    authorities: watch::Receiver<Option<Arc<Authorities>>>,
}

/// Sends pending messages in order, as fast as the agent reads. Returns why the session must end.
pub(super) async fn run(
    cx: Arc<Context>,
    member: Arc<Member>,
    session: SessionHandle,
    out: Sender,
    hello: v1::Hello,
) -> Status {
    let mut labels = cx.sessions.labels.subscribe();
    labels.mark_changed();
    let customizations = CustomizationSender::new(cx.sessions.customizations.subscribe());
    let mut authorities = cx.authority.subscribe();
    authorities.mark_changed();
    let mut writer = Writer { cx, member, session, out, labels, customizations, authorities };
    let Err(status) = writer.serve(&hello).await;
    status
}

impl Writer {
    async fn serve(&mut self, hello: &v1::Hello) -> Result<Infallible, Status> {
        self.welcome().await?;
        if !self.cx.leadership.completed(self.session.term).await {
            return Err(Status::unavailable("the controller is stopping"));
        }
        // Without our finalizer the Cluster could be deleted with objects left on the member, so nothing is sent.
        while !self.member.lock().is_held() {
            self.member.wake.notified().await;
        }
        if self.agrees(hello)? {
            publish_inventory(&self.cx, &self.member);
        } else {
            let request = Message::InventoryRequest(v1::InventoryRequest {});
            self.send(request, "inventory_request").await?;
        }
        loop {
            self.send_next().await?;
        }
    }

    async fn welcome(&self) -> Result<(), Status> {
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        let welcome = Message::Welcome(v1::Welcome {
            session: self.session.id.to_string(),
            heartbeat_ms: millis(self.cx.times.heartbeat),
            facts_ms: millis(self.cx.times.facts),
            cluster_name: String::from(&self.member.name),
        });
        self.send(welcome, "welcome").await
    }

    /// Whether the agent's digest shows that the member holds exactly what it should.
    fn agrees(&self, hello: &v1::Hello) -> Result<bool, Status> {
        let mut state = self.member.lock();
        // The term may have ended since: then the desired state is incomplete.
        if !self.cx.leadership.is_complete(self.session.term) {
            return Err(term_ended(self.session.term, self.cx.term()));
        }
        let agreed = state.desired.intended().matches(&hello.inventory_digest);
        if agreed {
            state.desired.agree();
            state.agreed = true;
        }
        Ok(agreed)
    }

    /// Sends one message, or waits until there may be one.
    async fn send_next(&mut self) -> Result<(), Status> {
        // Reserve first, then take the message: what is not sent yet may still be replaced by something newer.
        let permit = loop {
            tokio::select! {
                biased;
                permit = self.out.reserve() => break permit.map_err(|_| stream_closed())?,
                // The agent does not read; a withdrawal can be confirmed nevertheless.
                () = self.member.wake.notified() => self.publish_confirmed(),
            }
        };
        self.check_term()?;
        if self.labels.has_changed().unwrap_or(false) {
            let keys = self.labels.borrow_and_update().clone();
            if !keys.is_empty() {
                permit.send(Ok(self.message(Message::WatchLabels(v1::WatchLabels { keys }))));
                return Ok(());
            }
        }
        if must_renew(&mut self.authorities, self.session.authority) {
            self.count("renew_certificate");
            permit.send(Ok(self.message(Message::RenewCertificate(v1::RenewCertificate {}))));
            return Ok(());
        }
        // Before any manifest: they say which fields the member keeps.
        if let Some((message, kind)) = self.customizations.next() {
            self.count(kind);
            permit.send(Ok(self.message(message)));
            return Ok(());
        }
        let oracle = self.cx.leadership.oracle(self.session.term);
        let (order, reopens, confirmed) = {
            let mut state = self.member.lock();
            let held_back = state.desired.held_back().len();
            let limit = |claim: &BindingUid| match &oracle {
                Some(oracle) => oracle.limit(claim),
                None => Some(LimitReason::HistoryUnreachable),
            };
            let order = state.desired.next(Instant::now(), &limit);
            if state.desired.held_back().len() != held_back {
                self.cx.writes.mark(&self.member.name);
            }
            (order, state.desired.reopens(), state.desired.take_confirmed())
        };
        self.cx.outbox.push_withdrawn(&self.member.name, confirmed);
        if let Some(order) = order {
            let trace = match &order {
                Order::Upsert(packed, _) => self.member.traced.take(&packed.key),
                _ => None,
            };
            let (message, kind) = wire::message(order, trace);
            self.count(kind);
            permit.send(Ok(self.message(message)));
            return Ok(());
        }
        drop(permit);
        let reopens = async {
            match reopens {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.member.wake.notified() => Ok(()),
            changed = self.labels.changed() => {
                // The wait has marked it as seen.
                self.labels.mark_changed();
                changed.map_err(|_| stream_closed())
            }
            changed = self.authorities.changed() => {
                self.authorities.mark_changed();
                changed.map_err(|_| stream_closed())
            }
            changed = self.customizations.changed() => changed.map_err(|_| stream_closed()),
            () = reopens => Ok(()),
        }
    }

    fn publish_confirmed(&self) {
        let confirmed = self.member.lock().desired.take_confirmed();
        self.cx.outbox.push_withdrawn(&self.member.name, confirmed);
    }

    async fn send(&self, message: Message, kind: &'static str) -> Result<(), Status> {
        self.check_term()?;
        self.count(kind);
        self.out.send(Ok(self.message(message))).await.map_err(|_| stream_closed())
    }

    fn check_term(&self) -> Result<(), Status> {
        match self.cx.term() {
            Some(term) if term == self.session.term => Ok(()),
            now => Err(term_ended(self.session.term, now)),
        }
    }

    fn message(&self, message: Message) -> v1::ControllerMessage {
        v1::ControllerMessage { term: self.session.term.get(), message: Some(message) }
    }

    fn count(&self, kind: &'static str) {
        self.cx.metrics.sent.get_or_create(&SentLabels { kind }).inc();
    }
}

/// Whether the authorities changed, and the one of the agent's certificate does not sign any more.
fn must_renew(
    authorities: &mut watch::Receiver<Option<Arc<Authorities>>>,
    own: Option<PublicKeyHash>,
) -> bool {
    if !authorities.has_changed().unwrap_or(false) {
        return false;
    }
    let signing = authorities.borrow_and_update().as_ref().map(|all| all.signing().hash());
    own.is_some_and(|own| signing.is_some_and(|signing| own != signing))
}

fn stream_closed() -> Status {
    Status::cancelled("the agent closed the stream")
}

/// Publishes what the member holds, now that both ends agree on it.
pub(super) fn publish_inventory(cx: &Context, member: &Member) {
    let mut state = member.lock();
    let (held, orphans) = (state.desired.held(), state.desired.orphans().len());
    let confirmed = state.desired.take_confirmed();
    drop(state);
    let cluster = member.name.clone();
    cx.outbox.push(MemberEvent::Inventory { cluster, held, orphans });
    cx.outbox.push_withdrawn(&member.name, confirmed);
    cx.writes.mark(&member.name);
}
