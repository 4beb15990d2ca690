//! Asks the rules of users what templates mean. They run in jobs, and bindings wait for their answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Leading;
use super::jobs::JobDone;
use crate::hub_state::HubState;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::rows::Template;
use crate::interpret::{Interpreted, Revised, RuleFailed};
use crate::placements::revisions::{Origin, Question};
use crate::queue::{Done, Opening, Urgency};

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
            let found = interpreter.interpret(&rules, &template).await;
            JobDone::Interpreted { key, template: template.key.clone(), found }
        });
    }

    /// The rules answered.
    pub(super) fn interpreted(
        &mut self,
        hub: &mut HubState,
        key: &BindingKey,
        template: &TemplateKey,
        found: Interpreted,
    ) {
        self.rules_failed(hub, found.failed);
        let Some(meaning) = found.meaning else {
            return self.finish(key, Done::Waits(Vec::new(), Some(Instant::now() + BUSY)));
        };
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
                if revised.objects.len() < wanted {
                    tokio::time::sleep(BUSY).await;
                }
                JobDone::Revised { key, origin, revised }
            });
        }
    }

    /// A rule has written replicas.
    pub(super) fn revised(
        &mut self,
        hub: &HubState,
        key: &BindingKey,
        origin: Origin,
        revised: Revised,
    ) {
        self.rules_failed(hub, revised.failed);
        self.placements.revisions.answered(key, origin, revised.objects);
        self.dispatch(hub, key);
        self.mark_status(hub, key);
    }

    fn rules_failed(&mut self, hub: &HubState, failed: impl IntoIterator<Item = RuleFailed>) {
        for failed in failed {
            self.statuses.rule_failed(&hub.index, failed);
        }
    }
}
