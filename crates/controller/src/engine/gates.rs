//! Entry into the queue: a binding's priority there, and whether a gate keeps it out.

use atoll_api::binding::ObjectReference;
use tokio::time::Instant;

use super::Engine;
use crate::detect;
use crate::events::{Note, Severity};
use crate::index::Source;
use crate::index::key::BindingKey;
use crate::index::rows::Template;
use crate::queue::{Held, Opening, Urgency};
use crate::schedule::extend::Gate;
use crate::schedule::priority::{self, Priority};
use crate::status::binding::GATED;

/// The gates that a stream's event may open.
pub(super) fn opening(source: &Source) -> Opening {
    match source {
        Source::Clusters => Opening::Cluster,
        Source::PropagationPolicies
        | Source::ClusterPropagationPolicies
        | Source::WorkloadPolicies
        | Source::WorkloadSpreads => Opening::Policy,
        Source::ResourceBindings | Source::ClusterResourceBindings => Opening::Binding,
        Source::Namespaces | Source::Nodes | Source::ReplicaSets | Source::Pods => Opening::Hub,
        Source::PriorityClasses => Opening::PriorityClass,
        Source::Templates(_) => Opening::Template,
    }
}

impl Engine {
    /// Adds a key to the queue, because of `news` if that may open a gate. Behind a shut gate that it does not open,
    /// the key only gets work that needs no decision.
    pub(super) fn enqueue(&mut self, key: BindingKey, urgency: Urgency, news: Option<Opening>) {
        let opens = |held: &Held| news.is_some_and(|news| held.opens.contains(&news));
        let stays = self.queue.held(&key).is_some_and(|held| !opens(held));
        if !stays || self.template_of(&key).is_none() {
            self.judge(&key);
        }
        self.queue.add(key, urgency, Instant::now());
    }

    /// An event that may open gates of bindings which it does not affect otherwise.
    pub(super) fn reopen(&mut self, news: Opening) {
        for key in self.queue.held_until(news) {
            self.judge(&key);
            if self.queue.held(&key).is_none() {
                self.queue.add(key, Urgency::Now, Instant::now());
            }
        }
    }

    /// Evaluates the gates, and looks up the priority.
    fn judge(&mut self, key: &BindingKey) {
        let (priority, gate) = self.standing(key);
        let same = self.queue.held(key) == gate.as_ref();
        let why = gate.as_ref().map(ToString::to_string);
        self.queue.stand(key, priority, gate);
        if same {
            return;
        }
        self.mark_status(key);
        let Some(why) = why else { return };
        tracing::debug!(%key, why, "gated");
        let Some(template) = self.template_of(key) else { return };
        let about = ObjectReference {
            api_version: template.api_version().to_owned(),
            kind: template.key.kind.kind.clone(),
            namespace: template.key.namespace.clone(),
            name: template.key.name.clone(),
            uid: Some(template.uid.clone()),
        };
        // The same gate shut again is the same Event; the current state is in the binding's status.
        let id = format!(
            "{:016x}",
            atoll_scheduler::hash::fnv1a_64(format!("{} {why}", template.uid).as_bytes())
        );
        self.notes.tell(Note {
            about,
            id,
            reason: GATED.to_owned(),
            message: format!("not decided while a gate is shut: {why}"),
            severity: Severity::Normal,
            at: self.clock.now_seconds(),
            cause: None,
            repeat_after: None,
        });
    }

    fn template_of(&self, key: &BindingKey) -> Option<&std::sync::Arc<Template>> {
        self.index.template(&self.index.template_for(key)?)
    }

    /// Its priority, and the gate that keeps it out. If there is nothing to decide, no gate applies.
    fn standing(&self, key: &BindingKey) -> (i32, Option<Held>) {
        let binding = self.index.binding(key);
        let held_priority =
            binding.and_then(|binding| binding.spec.schedule_priority).unwrap_or_default();
        let refused = binding.is_some_and(|binding| self.index.refusal(binding).is_some());
        let Some(template) = self.template_of(key).filter(|_| !refused) else {
            return (held_priority.priority, None);
        };
        let held = binding.and_then(|binding| binding.policy());
        let claim = detect::claim(&self.index, template, held.as_ref());
        let policy = claim.policy();
        let ends = binding.is_some_and(|binding| binding.deleting());
        if ends || (binding.is_none() && !claim.holds()) {
            return (held_priority.priority, None);
        }
        let priority = if claim.holds() {
            priority::priority(&self.index, policy.map(|policy| &**policy))
        } else {
            Priority::Known(Some(held_priority))
        };
        // Without a claim, the binding keeps the values of its last one.
        let of_binding = binding.filter(|_| !claim.holds()).map(|binding| &binding.spec);
        let suspension = policy.map_or_else(
            || of_binding.and_then(|spec| spec.suspension.as_ref()),
            |policy| policy.spec.suspension.as_ref(),
        );
        let profile = policy.map_or_else(
            || of_binding.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default(),
            |policy| &policy.spec.scheduler_name,
        );
        let gate = Gate {
            key,
            template: &template.object,
            decided: binding.is_some_and(|binding| binding.spec.decision.is_some()),
            suspended: suspension.is_some_and(|suspension| suspension.scheduling),
            no_priority: priority.trouble(),
        };
        let shut = self.extensions.gate(profile, &gate).err();
        let value = match &priority {
            Priority::Known(value) => value.unwrap_or_default().priority,
            Priority::Unknown(_) => held_priority.priority,
        };
        (value, shut)
    }
}
