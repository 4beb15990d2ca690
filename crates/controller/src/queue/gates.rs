//! Entry into the queue: a binding's priority there, and whether a gate keeps it out.

use atoll_scheduler::detect::Whole;

use super::{Held, Opening};
use crate::detect;
use crate::env::Env;
use crate::events::{Note, Severity};
use crate::index::key::BindingKey;
use crate::index::template::Template;
use crate::index::{Index, Source};
use crate::schedule::extend::{Extensions, Gate};
use crate::schedule::priority::{self, Priority};
use crate::status::binding::GATED;

/// The gates that a stream's event may open.
pub(crate) fn opening(source: &Source) -> Opening {
    match source {
        Source::Clusters => Opening::Cluster,
        Source::PropagationPolicies
        | Source::ClusterPropagationPolicies
        | Source::WorkloadPolicies
        | Source::WorkloadSpreads
        | Source::Customizations
        | Source::Webhooks => Opening::Policy,
        Source::OverridePolicies | Source::ClusterOverridePolicies => Opening::OverridePolicy,
        Source::ResourceBindings | Source::ClusterResourceBindings => Opening::Binding,
        Source::ClusterSets
        | Source::ChangeGuards
        | Source::Quotas
        | Source::Namespaces
        | Source::Nodes
        | Source::ReplicaSets
        | Source::Pods
        | Source::Kinds => Opening::Hub,
        Source::PriorityClasses => Opening::PriorityClass,
        Source::Templates(_) => Opening::Template,
    }
}

/// Publishes an Event on the template of a binding whose gate is shut. The current state is in the binding's status.
pub(crate) fn publish(env: &Env, index: &Index, key: &BindingKey, why: &str) {
    tracing::debug!(%key, why, "gated");
    let Some(template) = template_of(index, key) else { return };
    // The same gate shut again is the same Event.
    let id = atoll_scheduler::hash::fnv1a_64(format!("{} {why}", template.uid).as_bytes());
    env.notes.post(Note {
        about: template.reference(),
        id: format!("{id:016x}"),
        reason: GATED.to_owned(),
        message: format!("not decided while a gate is shut: {why}"),
        severity: Severity::Normal,
        at: env.clock.now_seconds(),
        cause: None,
        repeat_after: None,
    });
}

/// The template that a binding is for.
pub(crate) fn template_of<'a>(index: &'a Index, key: &BindingKey) -> Option<&'a Template> {
    index.template(index.template_for(key)?).map(|template| &**template)
}

/// A binding's priority, and the gate that keeps it out. If there is nothing to decide, no gate applies.
pub(crate) fn evaluate(
    extensions: &Extensions,
    index: &Index,
    key: &BindingKey,
) -> (i32, Option<Held>) {
    let binding = index.binding(key);
    let held_priority =
        binding.and_then(|binding| binding.spec.schedule_priority).unwrap_or_default();
    let refused = binding.is_some_and(|binding| index.refusal(binding).is_some());
    let template = match binding {
        Some(binding) => index.template(&binding.template).map(|template| &**template),
        None => template_of(index, key),
    };
    let Some(template) = template.filter(|_| !refused) else {
        return (held_priority.priority, None);
    };
    let held = binding.and_then(|binding| binding.policy());
    let claim = detect::claim(index, template, held.as_ref());
    let policy = claim.policy();
    let ends = binding.is_some_and(|binding| binding.deleting());
    if ends || (binding.is_none() && !claim.holds()) {
        return (held_priority.priority, None);
    }
    let priority = if claim.holds() {
        priority::priority(index, policy.map(|policy| &**policy))
    } else {
        Priority::Known(Some(held_priority))
    };
    // Without a claim, the binding keeps the values of its last one.
    let of_binding = binding.filter(|_| !claim.holds()).map(|binding| &binding.spec);
    let suspension = policy.map_or_else(
        || of_binding.and_then(|spec| spec.suspension.as_deref()),
        |policy| policy.spec.suspension.as_ref(),
    );
    let profile = policy.map_or_else(
        || of_binding.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default(),
        |policy| &policy.spec.scheduler_name,
    );
    let missing = policy.map_or_else(Vec::new, |policy| index.missing_overrides(policy));
    let object = || template.object();
    let gate = Gate {
        key,
        template: Whole::Later(&object),
        decided: binding.is_some_and(|binding| binding.spec.decision.is_some()),
        suspended: suspension.is_some_and(|suspension| suspension.scheduling),
        no_priority: priority.trouble(),
        missing_overrides: &missing,
    };
    let shut = extensions.gate(profile, &gate).err();
    let value = match &priority {
        Priority::Known(value) => value.unwrap_or_default().priority,
        Priority::Unknown(_) => held_priority.priority,
    };
    (value, shut)
}
