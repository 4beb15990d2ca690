//! Which policy claims an object of the tables. The rules are the scheduler crate's, which offline readers share; here is
//! where the tables answer what they ask.

use atoll_scheduler::detect::{self as rules, Subject};
pub use atoll_scheduler::detect::{Claim, Excluded, Match, Why};

use crate::index::Index;
use crate::index::key::PolicyKey;
use crate::index::rows::{Policy, Template};

/// Whether, and how narrowly, a policy selects an object.
#[must_use]
pub fn selects(policy: &Policy, template: &Template) -> Option<Match> {
    rules::selects(policy, &template.key, &template.labels)
}

/// What claims this object, given the policy that has it already.
#[must_use]
pub fn claim(index: &Index, template: &Template, current: Option<&PolicyKey>) -> Claim {
    let subject = Subject {
        key: &template.key,
        labels: &template.labels,
        controlled: template.controlled,
        names_workload_policy: template.workload_policy.is_some(),
        has_spread: index.spreads_for(&template.key).is_some(),
    };
    let policies = index.policies_for(&template.key.kind);
    rules::claim(policies, &subject, current, || index.hub_runs_workloads())
}

#[cfg(test)]
mod tests;
