//! Which policy claims an object in the tables, and which bindings are not processed. The rules are in the scheduler
//! crate, shared with offline tools; this module supplies the look-ups.

use std::fmt;

use atoll_api::ReservedNamespaces;
use atoll_scheduler::detect::{self as rules, Subject};
pub(crate) use atoll_scheduler::detect::{Claim, Excluded, Match};

use crate::index::Index;
use crate::index::key::{BindingKey, PolicyKey, TemplateKey};
use crate::index::rows::{Binding, Policy, Template};

/// Whether, and how narrowly, a policy selects an object.
#[must_use]
pub(crate) fn selects(policy: &Policy, template: &Template) -> Option<Match> {
    rules::selects(policy, &template.key, &template.labels)
}

/// What claims this object, given the policy that currently claims it.
#[must_use]
pub(crate) fn claim(index: &Index, template: &Template, current: Option<&PolicyKey>) -> Claim {
    let subject = Subject {
        key: &template.key,
        labels: &template.labels,
        object: &template.object,
        reserved: index.reserved(),
        controlled: template.controlled,
        names_workload_policy: template.workload_policy.is_some(),
        has_spread: index.spreads_for(&template.key).is_some(),
    };
    let policies = index.policies_for(&template.key.kind);
    rules::claim(policies, &subject, current, || index.hub_runs_workloads())
}

/// Why nothing of a binding may reach a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Its namespace and name do not match its `spec.resource`: Atoll did not create it.
    Misplaced {
        /// Its `spec.resource`.
        resource: TemplateKey,
        /// The key that a binding of this resource has.
        expected: BindingKey,
    },
    /// Objects like this one are never propagated.
    OffLimits(TemplateKey, Excluded),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced { resource, expected } => write!(
                f,
                "spec.resource is {resource}, whose binding is {expected}: restore spec.resource or delete this binding; \
                 nothing is sent to or removed from members on its word"
            ),
            Self::OffLimits(resource, why) => write!(
                f,
                "spec.resource is {resource}, which is never propagated ({why}): delete this binding; nothing is sent to \
                 or removed from members on its word"
            ),
        }
    }
}

/// Whether a binding must not be processed. Write access to bindings determines what members receive: a binding written
/// by a user could otherwise send any object that the controller can read to any member.
#[must_use]
pub(crate) fn refusal(binding: &Binding, reserved: &ReservedNamespaces) -> Option<Refusal> {
    let resource = binding.template();
    if let Some(why) = rules::off_limits(&resource, reserved) {
        return Some(Refusal::OffLimits(resource, why));
    }
    let expected = resource.binding();
    (expected != binding.key).then_some(Refusal::Misplaced { resource, expected })
}

#[cfg(test)]
mod tests;
