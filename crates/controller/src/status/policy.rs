//! The status of policies: what they match and claim, which policies take precedence, and whether they are valid.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::WorkloadPolicy;
use atoll_api::binding::Outcome;
use atoll_api::conditions::{self, ACCEPTED, Status};
use atoll_api::policy::PropagationPolicyStatus;
use atoll_api::workload_policy::{DomainStatus, WorkloadPolicyStatus};
use atoll_scheduler::detect::{Excluded, MOST_KINDS};
use atoll_scheduler::lint_policy::{self, Finding, Severity};
use jiff::Timestamp;

use super::secrets;
use crate::detect::{self, Claim, Match};
use crate::index::key::GroupKind;
use crate::index::rows::Policy;
use crate::index::template::Template;
use crate::index::{Index, Source};
use crate::schedule::priority;

/// Limit of policies in `shadowedBy`.
const MOST_SHADOWS: usize = 20;
/// Limit of unknown clusters in a message.
const MOST_NAMES: usize = 5;

/// A policy's templates by their relation to it.
#[derive(Default)]
struct Found<'a> {
    shadows: BTreeSet<String>,
    hub_runs: Option<String>,
    /// Why selected objects are left out, for objects that every cluster creates itself.
    left_out: BTreeMap<&'static str, i64>,
    claimed: Vec<&'a Template>,
}

/// Whether a policy is accepted: status, reason and message.
type Answer = (Status, &'static str, String);

/// The desired status of a policy, given the names of the scheduler profiles.
#[must_use]
pub(crate) fn status<'p>(
    index: &Index,
    policy: &Policy,
    profiles: impl IntoIterator<Item = &'p str>,
    now: Timestamp,
) -> PropagationPolicyStatus {
    let mut status = PropagationPolicyStatus {
        observed_generation: Some(policy.generation),
        conditions: policy.status.conditions.clone(),
        ..PropagationPolicyStatus::default()
    };
    let kinds = index.kinds_of(policy);
    let mut found = Found::default();
    for template in kinds.iter().flat_map(|kind| index.templates_of(kind)) {
        if let Some(how) = detect::selects_here(index, policy, template) {
            count(index, policy, (template, how), &mut status, &mut found);
        }
    }
    status.shadowed_by = found.shadows.iter().take(MOST_SHADOWS).cloned().collect();
    let (holds, reason, message) =
        refusal(index, policy, profiles, &found).unwrap_or_else(|| accepted(index, policy, &found));
    let generation = Some(policy.generation);
    let conditions = &mut status.conditions;
    conditions::set(conditions, ACCEPTED, holds, reason, &message, generation, now);
    status
}

/// Counts one object that the policy selects.
fn count<'a>(
    index: &'a Index,
    policy: &Policy,
    (template, how): (&'a Template, Match),
    status: &mut PropagationPolicyStatus,
    found: &mut Found<'a>,
) {
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
            found.claimed.push(template);
        }
        Claim::Policy(winner, _) => {
            status.matched += 1;
            found.shadows.insert(winner.key.to_string());
        }
        Claim::Bare | Claim::Waiting(_) | Claim::None => status.matched += 1,
        Claim::Excluded(Excluded::HubRunsWorkloads(evidence)) => {
            status.matched += 1;
            found.hub_runs = Some(evidence);
        }
        // Every namespace has such objects, so `kind: "*"` does not mean them.
        Claim::Excluded(Excluded::MadeByEveryCluster(_)) if how == Match::EveryKind => {}
        Claim::Excluded(Excluded::MadeByEveryCluster(what)) => {
            *found.left_out.entry(what).or_default() += 1;
        }
        Claim::Excluded(Excluded::OwnKind | Excluded::ReservedNamespace) => {}
    }
}

/// Why a policy is rejected, if so.
fn refusal<'p>(
    index: &Index,
    policy: &Policy,
    profiles: impl IntoIterator<Item = &'p str>,
    found: &Found<'_>,
) -> Option<Answer> {
    if let Some(mistake) = mistake(lint_policy::propagation_policy(policy)) {
        return Some((Status::False, "Invalid", mistake));
    }
    if let Some(problem) = lint_policy::unknown_profile(&policy.spec.scheduler_name, profiles) {
        let message = format!("spec.schedulerName: {problem}; {}", lint_policy::PROFILE_FIX);
        return Some((Status::False, "UnknownScheduler", message));
    }
    if let Some(evidence) = &found.hub_runs {
        let message = format!("{evidence}: kinds that make Pods are not claimed on such a hub");
        return Some((Status::False, "HubRunsWorkloads", message));
    }
    if let Some(message) = secrets::of_policy(index, policy, &found.claimed) {
        return Some((Status::False, secrets::NOT_READABLE, message));
    }
    if let Some(answer) = unread(index, policy) {
        return Some(answer);
    }
    let priority = priority::priority(index, Some(policy));
    let trouble = priority.trouble()?;
    Some((Status::False, "NoPriority", trouble.to_owned()))
}

/// Why objects of a kind that the policy selects are not read, if so.
fn unread(index: &Index, policy: &Policy) -> Option<Answer> {
    let every_kind = policy.selects_every_kind();
    if every_kind && let Some(why) = index.kinds_unread() {
        let message = format!("kind \"*\": the kinds of the hub cannot be read: {why}");
        return Some((Status::False, "KindUnreadable", message));
    }
    let named: BTreeSet<_> = policy.named_kinds().collect();
    let kinds = index.kinds_of(policy);
    let kinds = kinds.iter().filter(|kind| named.contains(kind) || !is_refused(index, kind));
    let unread: Vec<String> = kinds.filter_map(|kind| index.frozen(kind.borrowed())).collect();
    if !unread.is_empty() {
        return Some((Status::False, "KindUnreadable", few(&unread)));
    }
    let beyond: Vec<String> = index
        .kinds_beyond_limit()
        .filter(|kind| every_kind && !named.contains(kind))
        .map(ToString::to_string)
        .collect();
    if beyond.is_empty() {
        return None;
    }
    let more = beyond.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "kind \"*\" selects at most {MOST_KINDS} kinds of the hub; it does not select {}{more}; name these kinds in selectors of their own",
        beyond[..beyond.len().min(MOST_NAMES)].join(", ")
    );
    Some((Status::False, "TooManyKinds", message))
}

/// Whether the hub refuses to list a kind, other than that it was not listed yet.
fn is_refused(index: &Index, kind: &GroupKind) -> bool {
    index.reading(&Source::Templates(kind.clone())).unreadable.is_some()
}

/// The first entries.
fn few(entries: &[String]) -> String {
    let more = entries.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!("; and {more} more kinds") } else { String::new() };
    format!("{}{more}", entries[..entries.len().min(MOST_NAMES)].join("; "))
}

/// The kinds that only `kind: "*"` selects and that the controller may not read. The other kinds are propagated.
fn left_out(index: &Index, policy: &Policy) -> Option<Answer> {
    if !policy.selects_every_kind() {
        return None;
    }
    let kinds = index.kinds_of(policy);
    let refused = kinds.iter().filter(|kind| is_refused(index, kind));
    let refused: Vec<String> = refused.filter_map(|kind| index.frozen(kind.borrowed())).collect();
    (!refused.is_empty()).then(|| {
        let message = format!(
            "kind \"*\" leaves out kinds that the controller cannot read: {}",
            few(&refused)
        );
        (Status::True, "SomeKindsUnreadable", message)
    })
}

/// Further remarks on an accepted policy.
fn accepted(index: &Index, policy: &Policy, found: &Found<'_>) -> Answer {
    let named = lint_policy::named_clusters(&policy.spec.placement);
    let unknown: Vec<_> =
        named.into_iter().filter(|(_, name)| index.cluster(name).is_none()).collect();
    let names: BTreeSet<&str> = unknown.iter().map(|(_, name)| *name).collect();
    if let Some((field, _)) = unknown.first() {
        let shown: Vec<String> =
            names.iter().take(MOST_NAMES).map(|name| format!("{name:?}")).collect();
        let more = names.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!(
            "{field}: there is no Cluster {}{more}; correct the name or register the cluster",
            shown.join(", ")
        );
        return (Status::True, "UnknownClusters", message);
    }
    if let Some(answer) = left_out(index, policy) {
        return answer;
    }
    let left_out = found.left_out.iter().map(|(what, times)| {
        let what = Excluded::MadeByEveryCluster(what);
        if *times > 1 { format!("{what} ({times} of them)") } else { what.to_string() }
    });
    (Status::True, "Accepted", left_out.collect::<Vec<_>>().join("; "))
}

/// The desired status of a WorkloadPolicy, given the domains of the last decision under it.
#[must_use]
pub(crate) fn workload_policy(
    policy: &WorkloadPolicy,
    domains: Option<&[DomainStatus]>,
    now: Timestamp,
) -> WorkloadPolicyStatus {
    let before = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let mut status = WorkloadPolicyStatus {
        observed_generation: generation,
        conditions: before.conditions,
        // No decision under it since the start of this process: keep the existing domains.
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

/// The first finding that prevents an object from working; findings without effect are left to `atoll lint`.
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
            let policy = Policy::read(&object).unwrap();
            status(&Index::default(), &policy, ["default"], Timestamp::UNIX_EPOCH)
        };
        let sound = policy(json!({"spreadByField": "region", "minGroups": 1, "maxGroups": 2}));
        // This one is valid; its kind was not listed yet.
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
