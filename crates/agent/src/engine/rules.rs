//! The engine's part in users' rules: new rules from the controller, readings of objects, reports of failures.

use std::collections::BTreeSet;

use atoll_protocol::v1;
use serde_json::Value;
use tokio::task::JoinError;
use tokio::time::Instant;

use super::Engine;
use super::readings::{Read, ReadResult};
use crate::apply::object::Live;
use crate::apply::order::metadata_is_enough;
use crate::key::{GroupKind, Key};
use crate::observe;
use crate::rules::{Reading, VersionKind};

/// Reason of applies that failed because a rule about retained fields did not answer.
const RETENTION_FAILED: &str = "RetentionFailed";

impl Engine {
    pub(super) fn rule_text(&mut self, text: &v1::RuleText) {
        if let Err(error) = self.rules.take_text(text) {
            tracing::warn!(hash = %text.hash, %error, "rules of a customization are not used");
        }
    }

    /// The controller's list of customizations, which replaces the earlier one.
    pub(super) fn customizations(&mut self, list: v1::Customizations) {
        if let Some(session) = &mut self.session {
            session.has_customizations = true;
        }
        let changed = self.rules.take_list(list);
        let now = Instant::now();
        for kind in group_kinds(&changed.kinds) {
            for key in self.table.live(&kind) {
                self.readings.push(&key, None);
            }
        }
        for kind in group_kinds(&changed.retained) {
            self.table.apply_again(&kind, now);
        }
        if !changed.kinds.is_empty() {
            self.table.wake(RETENTION_FAILED, now);
        }
    }

    /// The session's first comparison: a controller that has sent no customizations by now has none.
    pub(super) fn expect_customizations(&mut self) {
        if self.session.as_ref().is_some_and(|session| !session.has_customizations) {
            self.customizations(v1::Customizations::default());
        }
    }

    /// Reports an object's state, or has it read by users' rules first.
    pub(super) fn observe(&mut self, key: &Key, object: &Value) {
        let reading = self.rules.reading(object);
        if reading == Reading::Rules {
            // Of some kinds, watch events have the metadata only.
            let whole = !metadata_is_enough(&key.kind);
            self.readings.push(key, whole.then_some(object));
            return;
        }
        let mut status = observe::status(key, object, &Live::of(object));
        if reading == Reading::Raw {
            observe::set_status(&mut status, object.get("status"));
        }
        self.set_status(key, status);
    }

    fn set_status(&mut self, key: &Key, status: v1::Status) {
        if self.table.set_status(key, status) {
            self.status_changed(key);
        }
    }

    pub(super) fn start_readings(&mut self) {
        if self.readings.is_idle() {
            return;
        }
        let apis = self.options.discovery.current();
        let table = &self.table;
        let version = |key: &Key| table.version_of(&key.kind);
        self.readings.start(&self.rules, &self.options.member, &apis, version);
    }

    pub(super) fn read_done(&mut self, done: Result<Read, JoinError>) {
        let Read { key, result } = match done {
            Ok(done) => done,
            Err(error) => {
                // By a defect; its key stays taken, others continue.
                tracing::error!(%error, "reading an object by users' rules panicked");
                return;
            }
        };
        self.readings.done(&key);
        match result {
            ReadResult::Judged(object, judged) => {
                let status = observe::status(&key, &object, &Live::of(&object));
                self.set_status(&key, observe::judged(status, judged));
            }
            ReadResult::Again(held) => self.readings.again(key, held),
            // The watch reports it.
            ReadResult::Gone => {}
        }
    }

    /// Reports failures of rules to the controller.
    pub(super) fn send_rule_failures(&mut self, now: Instant) {
        let Some(session) = &self.session else { return };
        for failure in self.rules.take_failures(now) {
            session.outbox.rule_failure(failure);
        }
    }

    /// When failures of rules will be reported.
    pub(super) fn next_rule_failure(&self, now: Instant) -> Option<Instant> {
        self.session.as_ref().and_then(|_| self.rules.next_failure(now))
    }
}

/// The kinds, whatever their version.
fn group_kinds(kinds: &BTreeSet<VersionKind>) -> BTreeSet<GroupKind> {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    kinds.iter().map(|kind| GroupKind::new(group(&kind.api_version), &*kind.kind)).collect()
}
