//! How sessions drive the engine: their beginning, the controller's orders, and the agreement on the inventory.

use atoll_protocol::transport::{INVENTORY_PAGE, INVENTORY_PAGE_BYTES};
use atoll_protocol::v1;
use atoll_protocol::v1::controller_message::Message;
use atoll_traces::TraceContext;
use tokio::time::Instant;

use super::{Command, Engine, Session, convert};
use crate::apply::order::is_namespace;
use crate::apply::removal::{How, Withdrawal};
use crate::inventory::agreement::{Agreement, Line, claims};
use crate::key::Key;
use crate::observe;

impl Engine {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Begin { outbox, reply } => {
                self.table.drop_held();
                let agreement = Agreement::default();
                self.session = Some(Session {
                    outbox,
                    agreement,
                    waiting: Some(reply),
                    has_customizations: false,
                });
            }
            Command::End => {
                self.session = None;
                // Withdrawals held for the previous session are ordered again by the next one.
                self.table.drop_held();
            }
            Command::Message(message) => self.message(message),
        }
    }

    pub(super) fn waits_for_inventory(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.waiting.is_some())
    }

    /// Replies to a session that waits for the inventory, once every kind of the index was listed or the wait is over.
    pub(super) fn answer_if_ready(&mut self, now: Instant) {
        if !self.waits_for_inventory() {
            return;
        }
        let awaited = self.kinds.are_awaited() || !self.is_everything_followed();
        if awaited && self.patience.is_some_and(|until| now < until) {
            return;
        }
        for kind in self.kinds.unlisted() {
            tracing::warn!(%kind, "cannot list a kind yet; its objects are missing in the inventory");
        }
        if !self.is_everything_followed() {
            tracing::warn!("not all kinds of the member are known; the inventory may lack objects");
        }
        self.patience = None;
        let inventory = self.table.inventory();
        let Some(session) = &mut self.session else { return };
        session.agreement.begin(inventory);
        if let Some(reply) = session.waiting.take() {
            // If the session has ended, the next one asks again.
            let _ = reply.send(session.agreement.digest());
        }
        self.rules.repeat_failures();
        for (key, report) in self.table.open_reports() {
            session.outbox.applied(key, report);
        }
        for (key, status) in self.table.statuses() {
            let status = observe::with_pods(&status, self.pods.get(&key));
            session.outbox.status(key, status);
        }
    }

    /// Sends the current inventory; nothing is removed before the controller agrees with it.
    pub(super) fn send_inventory(&mut self) {
        self.late = false;
        self.table.drop_held();
        let inventory = self.table.inventory();
        if let Some(session) = &mut self.session {
            session.agreement.begin(inventory);
            session.outbox.inventory(session.agreement.pages(INVENTORY_PAGE, INVENTORY_PAGE_BYTES));
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Upsert(upsert) => self.upsert(upsert),
            Message::Remove(remove) => {
                let withdrawal = Withdrawal { how: How::Remove, uid: remove.object_uid };
                self.withdraw(remove.key, withdrawal);
            }
            Message::Release(release) => {
                let withdrawal = Withdrawal { how: How::Release, uid: release.object_uid };
                self.withdraw(release.key, withdrawal);
            }
            Message::RuleText(text) => self.rule_text(&text),
            Message::Customizations(list) => self.customizations(list),
            Message::Synced(synced) => {
                self.expect_customizations();
                let Some(session) = &mut self.session else { return };
                if session.agreement.compare(&synced.digest) {
                    self.table.release_held(Instant::now());
                } else {
                    tracing::info!("the controller's digest differs: sending the inventory again");
                    self.send_inventory();
                }
            }
            Message::InventoryRequest(_) => self.send_inventory(),
            // Handled by the session itself.
            Message::Welcome(_) | Message::WatchLabels(_) | Message::RenewCertificate(_) => {}
        }
    }

    fn upsert(&mut self, upsert: v1::Upsert) {
        let Some(key) = Key::from_wire(upsert.key.clone()) else {
            tracing::warn!("dropped an upsert without a key");
            return;
        };
        let desired = match convert::desired(&upsert) {
            Ok(desired) => desired,
            Err(error) => {
                let message = format!("the manifest cannot be read: {error}");
                self.refuse(&key, upsert.hash, "InvalidManifest", message);
                return;
            }
        };
        if let Some(session) = &mut self.session {
            let line = Line {
                hash: desired.hash.clone(),
                claims: claims(&desired.claims),
                preserve: desired.preserve,
                uid: String::new(),
            };
            session.agreement.put(key.clone(), line);
        }
        // After the key entered the agreement: a refusal must not delay the removal of other objects.
        if let Some((reason, message)) = self.off_limits(&key) {
            self.refuse(&key, desired.hash, reason, message);
            return;
        }
        let trace = TraceContext::read(&upsert.traceparent);
        let trace = trace.filter(|_| self.options.metrics.traces());
        match self.table.upsert(&key, desired, Instant::now()) {
            Some(report) => self.report(key, report),
            None => self.table.set_trace(&key, trace),
        }
    }

    /// Why an object of this key is never applied. The controller has the same rule; the agent does not rely on it,
    /// because these objects would let an attacker who controls the controller take over the member itself.
    fn off_limits(&self, key: &Key) -> Option<(&'static str, String)> {
        if key.kind.is_own() {
            let message = format!("{key} is of a kind of Atoll's own; the agent does not apply it");
            return Some(("OwnKind", message));
        }
        let namespace = match is_namespace(&key.kind) {
            true => key.name.as_str(),
            false => key.namespace.as_str(),
        };
        let options = &self.options;
        if namespace != options.namespace && !options.reserved.contains(namespace) {
            return None;
        }
        let message = format!(
            "namespace {namespace} is reserved on this member ({}, and the agent's own); the agent applies nothing in it",
            options.reserved
        );
        Some(("ReservedNamespace", message))
    }

    pub(super) fn refuse(&mut self, key: &Key, hash: String, reason: &str, message: String) {
        let report = v1::Applied {
            key: Some(key.to_wire()),
            hash,
            result: v1::ApplyResult::Failed.into(),
            reason: reason.to_owned(),
            message,
            ..v1::Applied::default()
        };
        self.report(key.clone(), report);
    }

    fn withdraw(&mut self, key: Option<v1::ObjectKey>, withdrawal: Withdrawal) {
        let Some(key) = Key::from_wire(key) else {
            tracing::warn!("dropped a removal without a key");
            return;
        };
        let Some(session) = &mut self.session else { return };
        session.agreement.take(&key);
        let agreed = session.agreement.is_agreed();
        self.table.withdraw(&key, withdrawal, agreed, Instant::now());
    }

    /// Reports the result of an order. The status follows, also where the order changed nothing: the controller dropped
    /// an earlier one if it did not know the object then.
    pub(super) fn report(&mut self, key: Key, report: v1::Applied) {
        if report.result() == v1::ApplyResult::Applied {
            self.status_changed(&key);
        }
        if let Some(session) = &self.session {
            session.outbox.applied(key, report);
        }
    }
}
