//! Checks which policy selects which workload, which policies shadow others, and what policies require of their
//! workloads.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::placement::ReplicaSchedulingType;
use atoll_api::policy::PriorityClassSource;
use atoll_api::selector::Selector;
use atoll_api::text::counted;
use atoll_api::workload_policy::AllocationType;

use super::{Finding, Page, reach, selectors};
use crate::cycle::check;
use crate::detect::{self, Claim, Match, Policy, PolicyKey, Which};
use crate::offline::{Workload, World};
use crate::state::row::Row;

/// Checks the selectors of one policy.
pub(super) fn selectors(page: &mut Page, policy: &Policy) {
    if let Err(mistake) = &policy.selectors {
        let (field, problem) =
            mistake.split_once(": ").unwrap_or(("spec.resourceSelectors", mistake));
        page.error(field, problem, "correct it: until then the policy selects nothing");
    }
    if policy.spec.resource_selectors.is_empty() {
        page.error("spec.resourceSelectors", "is empty: it selects nothing", "add a selector");
    }
    for (at, selector) in policy.spec.resource_selectors.iter().enumerate() {
        let field = format!("spec.resourceSelectors[{at}]");
        if let (Some(own), Some(other)) = (&policy.key.namespace, &selector.namespace)
            && own != other
            && !other.is_empty()
        {
            let problem = format!(
                "is {other:?}: a PropagationPolicy selects in its own namespace {own:?} only"
            );
            page.error(
                format!("{field}.namespace"),
                problem,
                "remove it, or use a ClusterPropagationPolicy",
            );
        }
        let named = selector.name.as_deref().is_some_and(|name| !name.is_empty());
        if let Some(labels) = &selector.label_selector {
            selectors::labels(page, &format!("{field}.labelSelector"), labels);
            if named {
                let problem = "is ignored because name is set";
                page.warning(format!("{field}.labelSelector"), problem, "remove one of the two");
            }
        }
        let earlier = &policy.spec.resource_selectors[..at];
        if let Some(other) = earlier.iter().position(|earlier| earlier == selector) {
            let problem = format!("is the same as resourceSelectors[{other}]");
            page.warning(field, problem, "remove it");
        }
    }
}

/// Rejects the sources of priority classes that Karmada declares but does not implement.
pub(super) fn priority(page: &mut Page, policy: &Policy) {
    let Some(asked) = &policy.spec.schedule_priority else { return };
    if asked.priority_class_source != PriorityClassSource::KubePriorityClass {
        let problem = format!("{:?} is not supported", asked.priority_class_source);
        let fix = "use KubePriorityClass and name a PriorityClass of the hub";
        page.error("spec.schedulePriority.priorityClassSource", problem, fix);
    }
    if asked.priority_class_name.is_empty() {
        page.error(
            "spec.schedulePriority.priorityClassName",
            "is empty",
            "name a PriorityClass of the hub, or remove spec.schedulePriority",
        );
    }
}

/// Checks all workloads against the policies that select them.
pub(super) fn workloads(world: &World, rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut matched: BTreeMap<&PolicyKey, usize> = BTreeMap::new();
    let mut shadows: BTreeMap<(&PolicyKey, PolicyKey), Vec<String>> = BTreeMap::new();
    for workload in &world.workloads {
        let claim = world.claim(workload);
        let of_namespace = world.namespace_labels(&workload.key);
        let mut page = Page::new(workload.key.to_string());
        for policy in world.policies.values() {
            let Some(how) = how(policy, workload) else {
                continue;
            };
            let labels = &workload.template.labels;
            if !policy.is_for_namespace_of(&workload.key, labels, of_namespace.as_deref()) {
                continue;
            }
            excluded(&mut page, policy, how, &claim);
            *matched.entry(&policy.key).or_default() += 1;
            if let Some(winner) = claim.policy().filter(|winner| winner.key != policy.key) {
                let lost = shadows.entry((&policy.key, winner.key.clone())).or_default();
                lost.push(workload.key.to_string());
            }
        }
        let template = &workload.template;
        if let Err(mistake) = check::replicas(template.replicas) {
            page.error(mistake.field, mistake.problem, "correct the number");
        }
        let counted = check::requests(template.requirements.as_deref(), template.replicas);
        if let Err((resource, problem)) = counted {
            page.error(check::request_field(&resource), problem, check::REQUEST_FIX);
        }
        steering(&mut page, workload, world);
        findings.extend(page.findings);
        if let Some(policy) = claim.policy() {
            let mut page = Page::new(format!("{} {}", policy.key.kind(), policy.key));
            asked(&mut page, policy, workload, world, rows);
            findings.extend(page.findings);
        }
    }
    for ((loser, winner), lost) in shadows {
        let mut page = Page::new(format!("{} {loser}", loser.kind()));
        let all = matched.get(loser).copied() == Some(lost.len());
        let what = if all { "is shadowed as a whole" } else { "is shadowed in part" };
        let more =
            if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
        let problem = format!("{what}: {} {winner} claims {}{more}", winner.kind(), lost[0]);
        page.warning(
            "spec.resourceSelectors",
            problem,
            "narrow one of them, or raise spec.priority here",
        );
        findings.extend(page.findings);
    }
    if !world.workloads.is_empty() {
        for policy in world.policies.values() {
            findings.extend(idle(policy, world));
        }
    }
    findings
}

/// Whether, and how narrowly, a policy selects a workload, regardless of its namespaceSelector.
fn how(policy: &Policy, workload: &Workload) -> Option<Match> {
    detect::selects(policy, &workload.key, &workload.template.labels, workload.is_owned())
}

/// Reports an object that a policy names, or that lies in the policy's own namespace, and that is never propagated. A
/// cluster-scoped policy for a whole kind, and one for every kind, are expected to skip such objects.
fn excluded(page: &mut Page, policy: &Policy, how: Match, claim: &Claim) {
    let Claim::Excluded(why) = claim else { return };
    if how == Match::Name || (policy.key.namespace.is_some() && how != Match::EveryKind) {
        page.warning(
            "metadata",
            format!(
                "{} {} selects it, but it is never propagated: {why}",
                policy.key.kind(),
                policy.key
            ),
            "leave it out of the policy",
        );
    }
}

/// Finds selectors that match no object.
fn idle(policy: &Policy, world: &World) -> Vec<Finding> {
    let mut page = Page::new(format!("{} {}", policy.key.kind(), policy.key));
    for (at, selector) in policy.selectors().iter().enumerate() {
        let one = Policy { selectors: Ok(vec![selector.clone()]), ..policy.clone() };
        let hit = |workload: &Workload| how(&one, workload).is_some();
        if !world.workloads.iter().any(|workload| hit(workload)) {
            let kind = selector.kind.as_ref().map_or("object".to_owned(), ToString::to_string);
            let what = match &selector.which {
                Which::All => format!("no {kind}"),
                Which::Name(name) => format!("no {kind} {name:?}"),
                Which::Labels(_) => format!("no {kind} with these labels"),
            };
            let place = policy.key.namespace.as_ref().or(selector.namespace.as_ref());
            let place = place.map_or(String::new(), |namespace| format!(" in {namespace:?}"));
            let problem = format!("matches nothing: there is {what}{place}");
            page.warning(
                format!("spec.resourceSelectors[{at}]"),
                problem,
                "correct it or remove it",
            );
        }
    }
    page.findings
}

/// Checks the WorkloadPolicy and WorkloadSpread of a workload.
fn steering(page: &mut Page, workload: &Workload, world: &World) {
    let namespace = workload.key.namespace().unwrap_or_default().to_owned();
    let pods = "spec.template.metadata.labels";
    let Some(name) = &workload.template.workload_policy else {
        for ((place, name), policy) in &world.workload_policies {
            let Ok(selector) = Selector::parse(&policy.spec.label_selector) else { continue };
            if *place == namespace
                && !selector.requirements().is_empty()
                && selector.matches(&workload.template.pod_labels)
                && workload.template.replicas.is_some()
            {
                let problem = format!(
                    "its pods count for WorkloadPolicy {name:?}, but no label policy.atoll.dev/workload-policy names it: it does not place them"
                );
                page.warning(
                    pods,
                    problem,
                    "add the label to the pod template, or narrow the policy's labelSelector",
                );
            }
        }
        return;
    };
    let Some(policy) = world.workload_policies.get(&(namespace.clone(), name.clone())) else {
        let problem = format!("there is no WorkloadPolicy {name:?} in namespace {namespace:?}");
        return page.error(
            pods,
            problem,
            "correct policy.atoll.dev/workload-policy or add the policy",
        );
    };
    if let Ok(selector) = Selector::parse(&policy.spec.label_selector)
        && let Some(failing) = selector.first_failing(&workload.template.pod_labels)
    {
        let problem = format!(
            "{failing} does not hold, which the labelSelector of WorkloadPolicy {name:?} requires"
        );
        page.error(
            pods,
            problem,
            "add the label to the pod template, or correct the labelSelector",
        );
    }
    let targets = policy.spec.allocation_policy.iter();
    let sum = targets.fold(0_i64, |sum, target| sum.saturating_add(target.replicas));
    if policy.spec.allocation_type == AllocationType::Required
        && let Some(replicas) = workload.template.replicas.filter(|replicas| *replicas > sum)
    {
        let problem = format!(
            "{} requested, but the Required targets of WorkloadPolicy {name:?} add up to {sum}: the rest stays pending",
            counted(replicas, "replica")
        );
        page.warning(
            "spec.replicas",
            problem,
            "lower it, raise a target, or use allocationType: Preferred",
        );
    }
    if let Some(spread) = world.spreads_of(&workload.key).next() {
        let by = spread.metadata.name.as_deref().unwrap_or_default();
        let problem = format!("WorkloadPolicy {name:?} is shadowed by WorkloadSpread {by:?}");
        page.warning(pods, problem, "remove one of the two");
    }
}

/// Checks the placement's requirements against a workload that it claims.
fn asked(page: &mut Page, policy: &Policy, workload: &Workload, world: &World, rows: &[Row]) {
    let placement = &policy.spec.placement;
    let (Some(scheduling), Some(replicas)) =
        (&placement.replica_scheduling, workload.template.replicas)
    else {
        return;
    };
    let field = "spec.placement.replicaScheduling";
    let spread = world.spreads_of(&workload.key).next().is_some();
    if spread || workload.template.workload_policy.is_some() {
        let by = if spread { "a WorkloadSpread" } else { "a WorkloadPolicy" };
        if scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated {
            let problem = format!(
                "Duplicated contradicts {by} of {}, which divides the replicas",
                workload.key
            );
            page.error(format!("{field}.replicaSchedulingType"), problem, "remove one of them");
        } else {
            let problem = format!("is ignored for {}: {by} divides it", workload.key);
            page.warning(field, problem, "remove it");
        }
        return;
    }
    if scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated || rows.is_empty() {
        return;
    }
    let mut bounded: BTreeSet<&str> = BTreeSet::new();
    let (mut least, mut most) = (0_i64, 0_i64);
    for bound in &scheduling.bounds {
        let own = reach::matching(&bound.target_cluster, rows);
        // Only clusters outside all earlier bounds are certain to need additional replicas.
        if own.iter().all(|row| !bounded.contains(&*row.name)) {
            least = least.saturating_add(bound.min.unwrap_or(0));
        }
        if let Some(max) = bound.max {
            most = most.saturating_add(max);
            bounded.extend(own.iter().map(|row| &*row.name));
        } else if bound.min.is_some_and(|min| min > 0) {
            bounded.extend(own.iter().map(|row| &*row.name));
            most = i64::MAX;
        }
    }
    if least > replicas && replicas > 0 {
        let problem =
            format!("the minimums add up to {least}, but {} requests {replicas}", workload.key);
        page.error(format!("{field}.bounds"), problem, "lower a min or raise spec.replicas");
    }
    let candidates = reach::candidates(placement, rows);
    let all = !candidates.is_empty() && candidates.iter().all(|row| bounded.contains(&*row.name));
    if all && most < replicas {
        let problem = format!(
            "every cluster is bounded and the maximums add up to {most}, but {} requests {replicas}",
            workload.key
        );
        page.error(format!("{field}.bounds"), problem, "raise a max or lower spec.replicas");
    }
}
