//! The events that would change the outcome, derived from the rejections, the capacity and the policies of a decision.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{Outcome, TargetCluster};
use atoll_api::placement::RescheduleOn;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::intent::Strategy;
use super::state::Cycle;
use super::triggers::AllowedTriggers;
use super::{migration, recovery};
use crate::plugins::{
    api_enablement, application_health, cluster_affinity, cluster_eviction, cluster_sets,
    resource_fit, taint_toleration, topology_spread, workload_affinity, workload_spread,
};
use crate::state::needs::PODS;
use crate::state::row::Ready;
use atoll_decision::{BitSet, ClusterSet, Column, Decision, WakeCondition};

/// The wake conditions of a decision.
#[must_use]
pub fn of(cycle: &Cycle<'_>, decision: &Decision, chosen: &BitSet) -> Vec<WakeCondition> {
    let mut conditions = Vec::new();
    let short = !decision.pending.is_empty()
        || matches!(
            decision.outcome,
            Outcome::NoFit
                | Outcome::Unschedulable
                | Outcome::FailoverInfeasible
                | Outcome::Partial
        );
    let allowed = AllowedTriggers::new(
        cycle.request.placement.reschedule_on.as_deref(),
        cycle.intent.strategy.divides(),
        cycle.request.placement.sticky,
    );
    let prefers = allowed.has(RescheduleOn::Recovery) && !allowed.sticky;
    let follows = allowed.has(RescheduleOn::ClusterChange) && !allowed.sticky;
    watch_targets(cycle, decision, chosen, follows, &mut conditions);
    // Unschedulable replicas that no other cluster has room for wait for room like pending ones.
    let stuck = migration::waits_for_room(cycle, &allowed);
    let short = short || stuck;
    if short || prefers || (follows && !cycle.intent.strategy.divides()) {
        conditions.push(WakeCondition::ClusterJoins);
        newcomers(cycle, &mut conditions);
    }
    let unready = || cycle.snapshot.rows().any(|(_, row)| row.ready == Ready::No);
    if prefers && !conditions.contains(&WakeCondition::TaintsChange) && unready() {
        // A member's readiness changes together with its taints and session.
        conditions.push(WakeCondition::TaintsChange);
    }
    if short || prefers {
        capacity(cycle, decision, &mut conditions);
        others(cycle, &mut conditions);
    }
    if short || (follows && !cycle.intent.strategy.divides()) {
        groups(cycle, &mut conditions);
    }
    if let (Some(withheld), Some(namespace)) = (&cycle.withheld, cycle.request.key.namespace()) {
        let (namespace, amounts) = (namespace.to_owned(), withheld.amounts.clone());
        conditions.push(WakeCondition::QuotaFrees { namespace, amounts });
    }
    policies(cycle, &mut conditions);
    times(cycle, decision, chosen, (prefers, short), &mut conditions);
    if decision.outcome == Outcome::Invalid {
        let field = decision.reason.split_once(": ").map_or("spec", |(field, _)| field);
        conditions.push(WakeCondition::Edit { field: field.to_owned() });
    }
    conditions
}

/// A set of rows for a condition: a workload may keep it for as long as it is placed.
fn set_of(cycle: &Cycle<'_>, rows: BitSet) -> ClusterSet {
    ClusterSet::lasting(cycle.snapshot.names(), rows)
}

fn names(targets: &[TargetCluster]) -> ClusterSet {
    ClusterSet::of(targets.iter().map(|target| target.name.as_str()))
}

/// Changes of the current targets.
fn watch_targets(
    cycle: &Cycle<'_>,
    decision: &Decision,
    chosen: &BitSet,
    follows: bool,
    conditions: &mut Vec<WakeCondition>,
) {
    if decision.after.count() == 0 {
        return;
    }
    // Targets that are no longer members have no row, only a name.
    let clusters = if decision.after.count() == chosen.count() {
        set_of(cycle, chosen.clone())
    } else {
        names(&decision.after)
    };
    conditions.push(WakeCondition::TargetChanges { clusters });
    if follows && !cycle.intent.strategy.divides() {
        conditions.push(WakeCondition::LabelsChange);
    }
}

/// Changes that would admit further clusters.
fn newcomers(cycle: &Cycle<'_>, conditions: &mut Vec<WakeCondition>) {
    // The verdicts contain no refusal without rows.
    let plugins: BTreeSet<&str> =
        cycle.verdicts.refusals.iter().map(|refusal| refusal.plugin).collect();
    let rejects = |plugin: &str| plugins.contains(plugin);
    let known = [
        taint_toleration::NAME,
        api_enablement::NAME,
        cluster_eviction::NAME,
        crate::plugins::sticky::NAME,
        resource_fit::NAME,
        workload_affinity::NAME,
    ];
    let by_labels = plugins.iter().any(|plugin| !known.contains(plugin));
    if by_labels || rejects(cluster_affinity::NAME) || rejects(topology_spread::NAME) {
        conditions.push(WakeCondition::LabelsChange);
    }
    if rejects(taint_toleration::NAME) {
        conditions.push(WakeCondition::TaintsChange);
    }
    if rejects(api_enablement::NAME) {
        let template = &cycle.request.template;
        conditions.push(WakeCondition::ServesApi {
            api_version: template.api_version.clone(),
            kind: template.kind.clone(),
        });
    }
    if rejects(cluster_sets::NAME)
        && let Some(namespace) = cycle.request.key.namespace().map(str::to_owned)
    {
        conditions.push(WakeCondition::ClusterSetsChange { namespace });
    }
    if rejects(cluster_eviction::NAME) {
        let rows = cycle.verdicts.refused_by(cluster_eviction::NAME);
        let clusters = set_of(cycle, rows);
        conditions.push(WakeCondition::EvictionEnds { clusters });
    }
}

/// Capacity for one more replica on a candidate.
fn capacity(cycle: &Cycle<'_>, decision: &Decision, conditions: &mut Vec<WakeCondition>) {
    components(cycle, conditions);
    let Some(column) = &cycle.capacity else { return };
    if !cycle.intent.strategy.divides() {
        return;
    }
    let mut rows = cycle.verdicts.passing.clone();
    rows.or(&cycle.kept);
    // A cluster with unknown capacity has no limit, so more capacity changes nothing.
    for row in rows.clone().iter().filter(|row| column.more(*row).is_none()) {
        rows.remove(row);
    }
    if rows.is_empty() {
        return;
    }
    member_quotas(cycle, &mut rows, conditions);
    if rows.is_empty() {
        return;
    }
    // Later events are compared with the capacity that is left after this decision's own additions.
    let added: BTreeMap<usize, i64> = decision
        .after
        .iter()
        .filter_map(|share| {
            let row = cycle.snapshot.find(&share.name)?;
            Some((row, share.replicas.saturating_sub(cycle.targets.on(row)).max(0)))
        })
        .collect();
    let left = |row: usize| {
        let added = added.get(&row).copied().unwrap_or(0);
        Some(column.more(row)?.saturating_sub(added).max(0))
    };
    let had: Column = rows.iter().map(left).collect();
    conditions.push(WakeCondition::CapacityRises {
        clusters: set_of(cycle, rows),
        had: Box::new(had),
        requests: cycle.intent.needs.requests.clone(),
        node: cycle.intent.needs.node.clone().map(Box::new),
    });
}

/// Where ResourceQuotas on members limit the capacity, only they are waited for.
fn member_quotas(cycle: &Cycle<'_>, rows: &mut BitSet, conditions: &mut Vec<WakeCondition>) {
    let by_quota = cycle.capacity.as_ref().and_then(|column| column.by_quota.as_ref());
    let Some(by_quota) = by_quota else { return };
    let mut limited = rows.clone();
    limited.and(by_quota);
    if limited.is_empty() {
        return;
    }
    rows.minus(&limited);
    let mut amounts = cycle.intent.needs.requests.clone();
    amounts.insert(PODS.to_owned(), 1);
    conditions.push(WakeCondition::MemberQuotaFrees {
        clusters: set_of(cycle, limited),
        namespace: cycle.request.key.namespace().unwrap_or_default().to_owned(),
        amounts,
    });
}

/// Capacity for more replicas of a component, where the set does not fit.
fn components(cycle: &Cycle<'_>, conditions: &mut Vec<WakeCondition>) {
    let namespace = cycle.request.key.namespace().unwrap_or_default();
    let total = resource_fit::total(&cycle.intent.components);
    let quotas = cycle.snapshot.lacking_in_member_quotas(namespace, &total);
    if !quotas.is_empty() && !cycle.intent.components.is_empty() {
        let names: Vec<&str> = quotas.keys().map(|name| &**name).collect();
        conditions.push(WakeCondition::MemberQuotaFrees {
            clusters: ClusterSet::of(names),
            namespace: namespace.to_owned(),
            amounts: total,
        });
    }
    for component in &cycle.intent.components {
        let column = resource_fit::column(cycle, component);
        let mut rows = cycle.verdicts.refused_by(resource_fit::NAME);
        for row in rows.clone().iter().filter(|row| column.more(*row).is_none()) {
            rows.remove(row);
        }
        if rows.is_empty() {
            continue;
        }
        let had: Column = rows.iter().map(|row| column.more(row)).collect();
        conditions.push(WakeCondition::CapacityRises {
            clusters: set_of(cycle, rows),
            had: Box::new(had),
            requests: component.needs.requests.clone(),
            node: component.needs.node.clone().map(Box::new),
        });
    }
}

/// Other bindings that count in the same domains.
fn others(cycle: &Cycle<'_>, conditions: &mut Vec<WakeCondition>) {
    let namespace = cycle.request.template.namespace.clone().unwrap_or_default();
    let constraints = cycle.request.placement.topology_spread_constraints.iter();
    let mut selectors: Vec<LabelSelector> =
        constraints.filter_map(|c| c.counted(&cycle.request.template.pod_labels)).collect();
    if let Strategy::WorkloadPolicy(policy) = &cycle.intent.strategy {
        selectors.push(policy.spec.label_selector.clone());
    }
    conditions.extend(selectors.into_iter().map(|selector| WakeCondition::BindingShrinks {
        namespace: namespace.clone(),
        selector,
        except: cycle.request.key.clone(),
    }));
}

/// Groups that the placement requires.
fn groups(cycle: &Cycle<'_>, conditions: &mut Vec<WakeCondition>) {
    let template = &cycle.request.template;
    let namespace = template.namespace.clone().unwrap_or_default();
    let required = workload_affinity::required(cycle).into_iter();
    conditions.extend(required.map(|group| WakeCondition::AffinityGroupChanges {
        namespace: namespace.clone(),
        label: group.label,
        value: group.value,
        except: cycle.request.key.clone(),
    }));
}

fn policies(cycle: &Cycle<'_>, conditions: &mut Vec<WakeCondition>) {
    if cycle.as_karmada() || cycle.intent.desired.is_none() {
        return;
    }
    let template = &cycle.request.template;
    let namespace = template.namespace.clone().unwrap_or_default();
    if let Some(name) = &template.workload_policy {
        conditions.push(WakeCondition::WorkloadPolicyChanges {
            namespace: namespace.clone(),
            name: name.clone(),
        });
    }
    conditions.push(WakeCondition::WorkloadSpreadChanges {
        namespace,
        kind: template.kind.clone(),
        name: template.name.clone(),
    });
}

/// Times at which a condition expires. Only the earliest is kept, because it triggers a new decision.
fn times(
    cycle: &Cycle<'_>,
    decision: &Decision,
    chosen: &BitSet,
    (prefers, short): (bool, bool),
    conditions: &mut Vec<WakeCondition>,
) {
    let now = cycle.request.now;
    let mut due: Vec<Timestamp> =
        decision.evictions.iter().filter_map(|task| Some(task.deadline.as_ref()?.0)).collect();
    for (tolerations, among) in taint_toleration::tolerations(cycle) {
        let column = cycle.cache.borrow_mut().taints.get(cycle.snapshot, &tolerations);
        let ours = |row: usize| cycle.targets.rows.contains(row) || chosen.contains(row);
        due.extend(
            column
                .expiring
                .iter()
                .filter(|(row, _, _)| among.as_ref().is_none_or(|rows| rows.contains(*row)))
                .filter(|(row, _, _)| ours(*row))
                .map(|(_, until, _)| *until),
        );
    }
    if let Some(rules) = application_health::rules(cycle.request) {
        let targets = decision.after.iter();
        due.extend(targets.filter_map(|target| {
            application_health::tolerated_until(cycle.request, rules, &target.name)
        }));
    }
    due.extend(migration::times(cycle, decision.trigger, prefers || short));
    if prefers {
        let back = cycle.snapshot.rows().filter(|(row, _)| !chosen.contains(*row));
        due.extend(back.filter_map(|(_, row)| recovery::stable_at(row, cycle.request)));
    }
    if let Strategy::WorkloadSpread(spread) = &cycle.intent.strategy {
        let marks = decision.groups.iter().filter_map(|group| group.unschedulable_since);
        due.extend(marks.filter_map(|since| since.checked_add(workload_spread::MARKED).ok()));
        let strategy = &spread.spec.schedule_strategy;
        if let Some(adaptive) = &strategy.adaptive {
            let critical = adaptive
                .reschedule_critical_seconds
                .map_or(workload_spread::CRITICAL, |s| SignedDuration::from_secs(s.max(0)));
            let reports = cycle.request.reports.values().filter(|report| report.unschedulable > 0);
            due.extend(
                reports.filter_map(|report| report.unschedulable_since?.checked_add(critical).ok()),
            );
        }
    }
    if let Some(at) = due.into_iter().filter(|at| *at > now).min() {
        conditions.push(WakeCondition::TimePasses { at });
    }
}
