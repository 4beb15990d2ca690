//! Which policy claims an object in the tables, and which bindings are not processed. The rules are in the scheduler
//! crate, shared with offline tools; this module supplies the look-ups.

pub(crate) mod dependencies;
pub(crate) mod refusal;

use atoll_scheduler::detect::{self as rules, Subject, Whole};
pub(crate) use atoll_scheduler::detect::{Claim, Match};

use crate::index::Index;
use crate::index::key::PolicyKey;
use crate::index::rows::Policy;
use crate::index::template::Template;

/// Whether, and how narrowly, a policy selects an object, in its namespace.
#[must_use]
pub(crate) fn selects_here(index: &Index, policy: &Policy, template: &Template) -> Option<Match> {
    let of_namespace = index.namespace_labels(&template.key);
    let here = policy.is_for_namespace_of(&template.key, &template.labels, of_namespace);
    here.then(|| selects(policy, template)).flatten()
}

/// Whether, and how narrowly, the resourceSelectors of a policy select an object.
#[must_use]
pub(crate) fn selects(policy: &Policy, template: &Template) -> Option<Match> {
    rules::selects(policy, &template.key, &template.labels, template.owned)
}

/// What claims this object, given the policy that currently claims it.
#[must_use]
pub(crate) fn claim(index: &Index, template: &Template, current: Option<&PolicyKey>) -> Claim {
    let object = || template.object();
    let subject = Subject {
        key: &template.key,
        labels: &template.labels,
        namespace_labels: index.namespace_labels(&template.key),
        object: Whole::Later(&object),
        reserved: index.reserved(),
        controlled: template.controlled,
        owned: template.owned,
        names_workload_policy: template.extract.workload_policy.is_some(),
        has_spread: index.spreads_for(&template.key).is_some(),
    };
    let policies = index.policies_for(&template.key);
    rules::claim(policies, &subject, current, || index.hub_runs_workloads())
}

#[cfg(test)]
mod tests;
