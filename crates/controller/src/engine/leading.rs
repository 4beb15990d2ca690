//! Start and end of a leadership, and the records passed to history.

use std::time::Duration;

use atoll_history::{Record, outbox};
use tokio::time::Instant;

use super::Engine;
use super::freshness::Freshness;
use super::jobs::{Committing, JobDone};
use super::outward::binding_ref;
use super::reissued::Reissued;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::queue::{Queue, Urgency};

/// Limit of one query to history.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before decisions that did not fit history's queue are offered again.
const OFFER_AGAIN: Duration = Duration::from_secs(10);

impl Engine {
    /// The leadership changed.
    pub(super) fn follow_leadership(&mut self) {
        let leadership = *self.leadership.borrow_and_update();
        let term = leadership.and_then(|leadership| leadership.in_force());
        if term == self.led {
            return;
        }
        let raised = self.led.is_some() && term.is_some();
        if self.led.is_some() {
            self.step_down();
        }
        self.freshness = Freshness::begin(raised);
        if let Some(term) = term {
            self.take_over(term);
        }
    }

    /// Leadership lost: nothing may be written any more. Running jobs are aborted; the tables stay up to date.
    fn step_down(&mut self) {
        self.led = None;
        self.counters.leads.set(0);
        self.jobs.abandon();
        self.queue = Queue::new(self.extensions.order());
        self.stale_answers += usize::from(self.deciding.take().is_some());
        self.sent.clear();
        self.leaving.clear();
        self.confirmed.clear();
        self.withdrawals.clear();
        self.pace.clear(Instant::now());
        self.emptying.clear();
        self.look_at = None;
        self.due.clear();
        self.receipts.clear();
        self.unoffered.clear();
        self.offer_again = None;
        self.lives.clear();
        self.told.clear();
        self.reissued = Reissued::default();
        self.views.clear();
        self.outlet.stepped_down();
        let bindings: Vec<_> = self.index.bindings().cloned().collect();
        for binding in bindings {
            self.views.seed(&binding.key, &binding.status);
            // Shares of decisions that may never have been committed must not count.
            if let Some(facts) = self.facts_of(&binding.key) {
                self.tables.upsert_binding(facts);
            }
        }
    }

    /// Leadership gained: passes committed decisions to members and history, then queues every binding once.
    fn take_over(&mut self, term: LeaderTerm) {
        self.led = Some(term);
        self.counters.leads.set(1);
        // Verdicts of an earlier term may be about deleted bindings.
        self.verdicts.begin(term);
        let bindings: Vec<_> = self.index.bindings().cloned().collect();
        for binding in &bindings {
            self.dispatch(&binding.key);
            if self.index.refusal(binding).is_none() {
                self.offer(&binding.key);
            }
            self.enqueue(binding.key.clone(), Urgency::Later, None);
        }
        let clusters: Vec<String> = self.index.clusters().map(|(name, _)| name.clone()).collect();
        for cluster in clusters {
            self.chronicle_member(&cluster);
        }
        let kinds: Vec<_> = self.index.wanted_kinds().into_keys().collect();
        for kind in kinds {
            let of_kind = self.index.templates_of(&kind);
            for key in of_kind.map(|template| template.key.binding()).collect::<Vec<_>>() {
                self.enqueue(key, Urgency::Later, None);
            }
        }
        let now = Instant::now();
        self.look_at = Some(now);
        let policies: Vec<_> = self.index.policies().map(|policy| policy.key.clone()).collect();
        for policy in policies {
            self.mark_policy(policy, now);
        }
        let spreads: Vec<_> = self.index.spreads().cloned().collect();
        for spread in spreads {
            let subject = crate::status::due::Subject::WorkloadSpread(spread);
            self.due.mark(subject, crate::status::due::Pace::OnItsWay, now);
        }
        self.review_limit();
        self.compare_with_history(term);
        self.ask_for_unconfirmed(term);
        self.recover_lives(term);
        self.recover_members(term);
    }

    /// Members that were disconnected while a binding was withdrawn hold objects of a deleted binding. History has the
    /// proof needed to remove them; if it does not answer, they stay as orphans until the next session.
    fn ask_for_unconfirmed(&mut self, term: LeaderTerm) {
        let store = self.store.clone();
        let clusters: Vec<String> = self.index.clusters().map(|(name, _)| name.clone()).collect();
        self.jobs.spawn(async move {
            let mut claims = Vec::new();
            for cluster in clusters {
                let asked = tokio::time::timeout(HISTORY_TIMEOUT, store.unconfirmed(&cluster));
                match asked.await {
                    Ok(Ok(uids)) if uids.is_empty() => {}
                    Ok(Ok(uids)) => claims.push((cluster, uids)),
                    Ok(Err(error)) => {
                        tracing::warn!(cluster, %error, "history does not say what it has to give back");
                        break;
                    }
                    Err(_) => {
                        tracing::warn!(cluster, "history does not answer");
                        break;
                    }
                }
            }
            JobDone::Unconfirmed { term, claims }
        });
    }

    /// History's proofs are loaded, and every committed decision was passed on: members' inventories may be judged.
    pub(super) fn unconfirmed_known(
        &mut self,
        term: LeaderTerm,
        claims: Vec<(String, Vec<String>)>,
    ) {
        for (cluster, uids) in claims {
            self.verdicts.unconfirmed(&cluster, uids);
        }
        if self.led == Some(term) {
            self.outlet.caches_complete(term);
        }
    }

    /// Whether history holds a decision.
    pub(super) fn is_recorded(&self, id: &str) -> bool {
        self.receipts.get(id).is_some_and(atoll_history::Receipt::is_recorded)
    }

    /// Passes a newly committed decision to history, with its detail.
    pub(super) fn record(&mut self, binding: &Binding, committing: &mut Committing) {
        let detail = committing.detail.take();
        let decision = committing.decision.as_ref();
        let record = Record {
            record: committing.decided.record.clone(),
            binding: binding_ref(binding),
            workload: binding.spec.resource.clone(),
            before: Some(committing.before.clone()),
            after: committing.decided.clusters.clone(),
            reason: decision.and_then(atoll_history::reason),
            gap: None,
            withdrawal: None,
            provenance: committing.provenance.clone(),
            rejections: decision.map(atoll_history::rejections),
            detail,
        };
        self.hand_to_history(binding.key.clone(), record);
        self.trim_receipts(binding);
    }

    /// Passes all records that a binding holds to history, which skips existing ones.
    fn offer(&mut self, key: &BindingKey) {
        let Some(binding) = self.index.binding(key).cloned() else { return };
        for record in outbox::records(&binding_ref(&binding), &binding.spec) {
            if !self.receipts.contains_key(&record.record.id)
                && !self.hand_to_history(key.clone(), record)
            {
                return;
            }
        }
    }

    fn hand_to_history(&mut self, key: BindingKey, record: Record) -> bool {
        let id = record.record.id.clone();
        match self.recorder.record(record) {
            Ok(receipt) => {
                self.receipts.insert(id, receipt);
                true
            }
            Err(error) => {
                tracing::warn!(%key, %error, "the decision stays in its binding for now");
                self.unoffered.insert(key);
                self.offer_again.get_or_insert(Instant::now() + OFFER_AGAIN);
                false
            }
        }
    }

    /// Offers decisions again that did not fit history's queue.
    pub(super) fn offer_again(&mut self, now: Instant) {
        if self.offer_again.is_none_or(|at| at > now) {
            return;
        }
        self.offer_again = None;
        for key in std::mem::take(&mut self.unoffered) {
            self.offer(&key);
        }
    }

    /// Drops receipts of decisions that the binding no longer holds.
    fn trim_receipts(&mut self, binding: &Binding) {
        let parent = binding.spec.decision.as_ref().and_then(|decision| decision.parent.as_ref());
        let still = |id: &str| binding.spec.unrecorded.iter().any(|held| held.decision.id == id);
        if let Some(parent) = parent
            && !still(parent)
        {
            self.receipts.remove(parent);
        }
    }
}
