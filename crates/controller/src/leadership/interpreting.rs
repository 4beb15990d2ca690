//! Asks the rules of users what templates and reports of members mean. They run in jobs, and bindings wait for their
//! answers.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_api::customization::Operation;
use tokio::time::Instant;

use super::Leading;
use super::jobs::JobDone;
use crate::hub_state::HubState;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::interpret::{Interpreted, ReportRead, Revised, RuleNews};
use crate::members::{Key, Report};
use crate::placements::readings::{Place, Reading};
use crate::placements::revisions::{Origin, Question};
use crate::queue::{Done, Opening, Urgency};
use crate::status::due::{Phase, Subject};

/// How long a binding waits if too many rules run or wait. An ordinary rule takes less than a millisecond.
const BUSY: Duration = Duration::from_millis(200);

impl Leading {
    /// Asks the rules about a template that has to be decided on.
    pub(super) fn interpret(&mut self, hub: &HubState, key: &BindingKey, template: &Arc<Template>) {
        if !self.jobs.has_room_for_rules() {
            return self.finish(key, Done::Waits(Vec::new(), Some(Instant::now() + BUSY)));
        }
        let (interpreter, rules) = (self.env.interpreter.clone(), hub.index.rules().clone());
        let (key, template) = (key.clone(), template.clone());
        self.jobs.ask_rules(async move {
            let found = Box::new(interpreter.interpret(&rules, &template).await);
            JobDone::Interpreted { key, template: template.key.clone(), found }
        });
    }

    /// The rules answered. If a webhook did not, a workload that was decided keeps what was decided, and a new one waits.
    pub(super) fn interpreted(
        &mut self,
        hub: &mut HubState,
        key: &BindingKey,
        template: &TemplateKey,
        found: Interpreted,
    ) {
        self.take_rule_news(hub, found.news);
        let Some(meaning) = found.meaning else {
            return self.finish(key, Done::Waits(Vec::new(), Some(Instant::now() + BUSY)));
        };
        if found.unreachable {
            if !hub.index.binding(key).is_some_and(|binding| is_decided(binding)) {
                let again = Instant::now() + self.env.interpreter.ask_again_after();
                tracing::info!(%key, "not decided before its webhook is reachable");
                return self.finish(key, Done::Waits(Vec::new(), Some(again)));
            }
            self.ask_later(key);
        }
        let mut touched = hub.index.set_meaning(template, meaning);
        touched.keys.remove(key);
        self.absorb(hub, touched, Urgency::Now, Opening::Template);
        self.finish(key, Done::Again);
    }

    /// Asks the rules that write replicas, for the bindings that wait for them.
    pub(super) fn ask_revisions(&mut self, hub: &HubState) {
        while self.jobs.has_room_for_rules() {
            let Some(question) = self.placements.revisions.next() else { return };
            let (interpreter, rules) = (self.env.interpreter.clone(), hub.index.rules().clone());
            self.jobs.ask_rules(async move {
                let Question { key, origin, template, numbers } = question;
                let wanted = numbers.len();
                let revised = interpreter.revise(&rules, &template, numbers).await;
                if revised.objects.len() < wanted && !revised.unreachable {
                    tokio::time::sleep(BUSY).await;
                }
                JobDone::Revised { key, origin, revised }
            });
        }
    }

    /// A rule has written replicas. If a webhook did not answer, members keep what they have.
    pub(super) fn revised(
        &mut self,
        hub: &HubState,
        key: &BindingKey,
        origin: Origin,
        revised: Revised,
    ) {
        self.take_rule_news(hub, revised.news);
        if revised.unreachable {
            self.ask_later(key);
        }
        let revisions = &mut self.placements.revisions;
        revisions.answered(key, origin, revised.objects, revised.unreachable);
        self.dispatch(hub, key);
        self.mark_status(hub, key);
    }

    /// Whether webhooks read the state of a binding's object on members.
    pub(super) fn is_read_by_webhooks(hub: &HubState, binding: &Binding, report: &Report) -> bool {
        let webhooks = hub.index.rules().webhooks();
        let Some(template) = hub.index.template(&binding.template) else { return false };
        let asked = |operation| webhooks.asked_about(template.kind(), operation).is_some();
        !report.gone
            && report.status_left_out == 0
            && (asked(Operation::InterpretHealth) || asked(Operation::InterpretStatus))
    }

    /// Takes in a member's report, or has webhooks read it first.
    pub(super) fn take_status(
        &mut self,
        hub: &mut HubState,
        binding: &Binding,
        (cluster, object): (&ClusterName, &Key),
        report: &Report,
    ) {
        let place = (binding.key.clone(), cluster.clone());
        if Self::is_read_by_webhooks(hub, binding, report) {
            return self.placements.readings.push(place, object.clone(), report.clone());
        }
        self.placements.readings.forget(&place);
        self.set_reported(hub, binding, cluster, report);
    }

    fn set_reported(
        &mut self,
        hub: &mut HubState,
        binding: &Binding,
        cluster: &ClusterName,
        report: &Report,
    ) {
        let now = self.env.clock.now_seconds();
        if self.placements.reported(&binding.key, cluster, report, now) {
            self.placement_changed(hub, &binding.key);
            self.audit.note_health(&self.placements, binding, cluster);
        }
    }

    /// Asks webhooks about the reports that wait for them.
    pub(super) fn ask_readings(&mut self, hub: &HubState) {
        while self.jobs.has_room_for_rules() {
            let Some(reading) = self.placements.readings.next() else { return };
            let Reading { place, object, report } = reading;
            let (key, cluster) = &place;
            let Some(binding) = hub.index.binding(key) else {
                self.placements.readings.done(&place, false);
                self.placements.readings.forget(&place);
                continue;
            };
            let before =
                self.placements.observed(key, cluster).map(|held| held.whole_item(cluster));
            let (claim, outlet) = (binding.uid.clone(), self.env.outlet.clone());
            let (interpreter, rules) = (self.env.interpreter.clone(), hub.index.rules().clone());
            self.jobs.ask_rules(async move {
                // The desired state may be locked for a moment: not for the event loop.
                let manifest = outlet.manifest(&place.1, &claim, &object);
                let read = match manifest.and_then(|text| serde_json::from_slice(&text).ok()) {
                    Some(manifest) => interpreter.read(&rules, manifest, report, before).await,
                    // It is not wanted there any more.
                    None => ReportRead::unread(report),
                };
                if read.is_busy {
                    tokio::time::sleep(BUSY).await;
                }
                JobDone::Read { place, read: Box::new(read) }
            });
        }
    }

    /// Webhooks have read a report.
    pub(super) fn report_read(&mut self, hub: &mut HubState, place: &Place, read: ReportRead) {
        self.take_rule_news(hub, read.news);
        if !self.placements.readings.done(place, read.is_busy) || read.is_busy {
            return;
        }
        let (key, cluster) = place;
        let Some(binding) = hub.index.binding(key).cloned() else { return };
        if read.unreachable {
            self.ask_later(key);
        }
        if !Self::is_read_by_webhooks(hub, &binding, &read.report) {
            self.placements.readings.forget(place);
        }
        self.set_reported(hub, &binding, cluster, &read.report);
    }

    /// A webhook did not answer for a binding: asks again after a while.
    pub(super) fn ask_later(&mut self, key: &BindingKey) {
        let at = Instant::now() + self.env.interpreter.ask_again_after();
        self.jobs.later.add(key, at);
    }

    /// Asks again for the bindings for which a webhook did not answer.
    pub(super) fn ask_webhooks_again(&mut self, hub: &mut HubState, now: Instant) {
        while let Some(key) = self.jobs.later.pop(now) {
            if let Some(template) = hub.index.template_for(&key).cloned() {
                hub.index.interpret_again(&template);
            }
            self.placements.revisions.ask_again(&key);
            self.placements.readings.ask_again(&key);
            self.statuses.mark(Subject::Template(key.clone()), Phase::InProgress);
            self.enqueue(hub, key, Urgency::Later, None);
        }
    }

    pub(super) fn take_rule_news(
        &mut self,
        hub: &HubState,
        news: impl IntoIterator<Item = RuleNews>,
    ) {
        for news in news {
            self.statuses.take_rule_news(&hub.index, news);
        }
    }
}

/// Whether there is something to keep while a webhook does not answer.
fn is_decided(binding: &Binding) -> bool {
    binding.spec.decision.is_some() || binding.is_attached()
}
