//! The status of policies: what they match and claim, who stands before them, and whether they are understood.

use std::collections::BTreeSet;

use atoll_api::WorkloadPolicy;
use atoll_api::binding::Outcome;
use atoll_api::conditions::{self, ACCEPTED, Status};
use atoll_api::policy::PropagationPolicyStatus;
use atoll_api::workload_policy::{DomainStatus, WorkloadPolicyStatus};
use atoll_scheduler::lint_policy::{self, Finding, Severity};
use jiff::Timestamp;

use crate::detect::{self, Claim, Excluded};
use crate::index::Index;
use crate::index::key::GroupKind;
use crate::index::rows::Policy;
use crate::schedule::priority;

/// Policies that `shadowedBy` names at most.
const MOST_SHADOWS: usize = 20;

/// The status that a policy should have.
#[must_use]
pub fn status(index: &Index, policy: &Policy, now: Timestamp) -> PropagationPolicyStatus {
    let mut status = PropagationPolicyStatus {
        observed_generation: Some(policy.generation),
        conditions: policy.status.conditions.clone(),
        ..PropagationPolicyStatus::default()
    };
    let mut shadows = BTreeSet::new();
    let mut hub_runs = None;
    let kinds: BTreeSet<&GroupKind> = policy.selectors().iter().map(|s| &s.kind).collect();
    for template in kinds.iter().flat_map(|kind| index.templates_of(kind)) {
        if detect::selects(policy, template).is_none() {
            continue;
        }
        let binding = index.binding(&template.key.binding());
        let held = binding.and_then(|binding| binding.policy());
        match detect::claim(index, template, held.as_ref()) {
            Claim::Policy(winner, _) if winner.key == policy.key => {
                status.matched += 1;
                status.claimed += 1;
                let decision = binding.and_then(|binding| binding.spec.decision.as_ref());
                let failing = decision.is_some_and(|decision| {
                    !matches!(decision.outcome, Outcome::Placed | Outcome::Unchanged)
                        || decision.pending.iter().any(|pending| pending.replicas > 0)
                });
                status.failing += i64::from(failing);
            }
            Claim::Policy(winner, _) => {
                status.matched += 1;
                shadows.insert(winner.key.to_string());
            }
            Claim::Bare | Claim::None => status.matched += 1,
            Claim::Excluded(Excluded::HubRunsWorkloads(evidence)) => {
                status.matched += 1;
                hub_runs = Some(evidence);
            }
            Claim::Excluded(Excluded::OwnKind | Excluded::ReservedNamespace) => {}
        }
    }
    status.shadowed_by = shadows.into_iter().take(MOST_SHADOWS).collect();
    let unread: Vec<String> = kinds.iter().filter_map(|kind| index.frozen(kind)).collect();
    let mistake = mistake(lint_policy::propagation_policy(policy));
    let no_priority = priority::priority(index, Some(policy));
    let (holds, reason, message) = match (mistake, hub_runs, unread.first()) {
        (Some(mistake), _, _) => (Status::False, "Invalid", mistake),
        (None, Some(evidence), _) => (
            Status::False,
            "HubRunsWorkloads",
            format!("{evidence}: kinds that make Pods are not claimed on such a hub"),
        ),
        (None, None, Some(why)) => (Status::False, "KindUnreadable", why.clone()),
        (None, None, None) => match no_priority.trouble() {
            Some(why) => (Status::False, "NoPriority", why.to_owned()),
            None => (Status::True, "Accepted", String::new()),
        },
    };
    let generation = Some(policy.generation);
    let conditions = &mut status.conditions;
    conditions::set(conditions, ACCEPTED, holds, reason, &message, generation, now);
    status
}

/// The status that a WorkloadPolicy should have, given the domains as the last decision under it left them.
#[must_use]
pub fn workload_policy(
    policy: &WorkloadPolicy,
    domains: Option<&[DomainStatus]>,
    now: Timestamp,
) -> WorkloadPolicyStatus {
    let before = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let mut status = WorkloadPolicyStatus {
        observed_generation: generation,
        conditions: before.conditions,
        // Nobody has decided under it since the start of this process: what is there stands.
        domains: domains.map_or(before.domains, <[_]>::to_vec),
    };
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let mistake = mistake(lint_policy::workload_policy(name, &policy.spec));
    let (holds, reason, message) = match mistake {
        Some(mistake) => (Status::False, "Invalid", mistake),
        None => (Status::True, "Accepted", String::new()),
    };
    let conditions = &mut status.conditions;
    conditions::set(conditions, ACCEPTED, holds, reason, &message, generation, now);
    status
}

/// The first thing that keeps an object from doing what it says; what merely has no effect is `atoll lint`'s to tell.
fn mistake(findings: Vec<Finding>) -> Option<String> {
    let error = findings.into_iter().find(|finding| finding.severity == Severity::Error);
    error.map(|finding| finding.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_contradicts_itself_is_not_accepted_and_the_message_names_the_field() {
        let accepted = |conditions: &[_]| {
            let accepted = conditions::find(conditions, ACCEPTED).unwrap();
            (accepted.status.clone(), accepted.reason.clone(), accepted.message.clone())
        };
        let policy = |groups: serde_json::Value| {
            let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
            let object = json!({
                "apiVersion": "policy.atoll.dev/v1alpha1",
                "kind": "PropagationPolicy",
                "metadata": {"name": "p", "namespace": "shop", "uid": "u", "generation": 3},
                "spec": {
                    "resourceSelectors": selectors,
                    "placement": {"spreadConstraints": [groups]},
                },
            });
            status(&Index::default(), &Policy::read(&object).unwrap(), Timestamp::UNIX_EPOCH)
        };
        let sound = policy(json!({"spreadByField": "region", "minGroups": 1, "maxGroups": 2}));
        // Nothing is wrong with this one; that its kind was not listed yet is another matter.
        assert_eq!(accepted(&sound.conditions).1, "KindUnreadable");
        let (holds, reason, message) = accepted(
            &policy(json!({"spreadByField": "region", "minGroups": 3, "maxGroups": 2})).conditions,
        );
        assert_eq!((holds.as_str(), reason.as_str()), ("False", "Invalid"));
        assert!(message.contains("spec.placement.spreadConstraints[0]"), "{message}");

        let twins: WorkloadPolicy = serde_json::from_value(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1",
            "kind": "WorkloadPolicy",
            "metadata": {"name": "w", "namespace": "shop"},
            "spec": {
                "topologyKey": "zone",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "allocationPolicy": [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 2}],
            },
        }))
        .unwrap();
        let (holds, _, message) =
            accepted(&workload_policy(&twins, None, Timestamp::UNIX_EPOCH).conditions);
        assert_eq!(holds, "False");
        assert!(message.contains("spec.allocationPolicy"), "{message}");
    }
}
