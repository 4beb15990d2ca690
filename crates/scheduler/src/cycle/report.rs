//! Builds a Decision from a cycle: shares, moves, tasks, verdicts, and the events that would change the outcome.

use std::collections::BTreeMap;

use atoll_api::binding::{Mode, Outcome, PendingReplicas, TargetCluster, Trigger};

use super::intent::Strategy;
use super::state::{Assignment, Cycle};
use super::triggers::TriggerFacts;
use super::{Failure, leave, migration, observe, preempted, preserve, shrink};
use crate::framework::verdicts::Hold;
use crate::plugins::{application_health, preemption, taint_toleration, workload_affinity};
use crate::request::Request;
use crate::state::row::Session;
use crate::state::snapshot::Snapshot;
use crate::state::supply::Supply;
use atoll_api::text::counted;
use atoll_api::{ClusterName, DecisionId};
use atoll_decision::{
    Applied, BitSet, CheckedTrigger, ClusterOutcome, ClusterSet, Column, Decision, Move,
    OVERCOMMITTED, Rejection, Shares, TemplateRef, Verdict, cut_reason,
};

/// The trigger, and the results of the attempts.
pub struct Draft {
    /// The trigger.
    pub trigger: Trigger,
    /// The mode.
    pub mode: Mode,
    /// The checked triggers.
    pub triggers: Vec<CheckedTrigger>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// Why no decision may be made.
    pub held: Option<String>,
}

impl Draft {
    /// A decision that moves nothing.
    #[must_use]
    pub fn unchanged(trigger: Trigger, triggers: Vec<CheckedTrigger>) -> Self {
        Self { trigger, mode: Mode::Steady, triggers, failure: None, held: None }
    }

    /// A decision that is suspended.
    #[must_use]
    pub fn held(_: TriggerFacts, why: &str) -> Self {
        Self { held: Some(why.to_owned()), ..Self::unchanged(Trigger::Avoid, Vec::new()) }
    }
}

/// Clusters named in the reason of an overcommitted decision. Further ones are only counted.
const MAX_NAMED: usize = 4;
/// Most pending groups, as the CRD allows. Further ones are merged.
const MAX_PENDING: usize = 16;

fn before(request: &Request) -> Vec<TargetCluster> {
    let mut before: Vec<TargetCluster> =
        request.previous.iter().flat_map(|previous| previous.clusters.clone()).collect();
    before.sort_by(|a, b| a.name.cmp(&b.name));
    before
}

fn template(request: &Request) -> TemplateRef {
    let template = &request.template;
    TemplateRef {
        api_version: template.api_version.clone(),
        kind: template.kind.clone(),
        namespace: template.namespace.clone(),
        name: template.name.clone(),
        uid: template.uid.clone(),
    }
}

fn blank(snapshot: &Snapshot, request: &Request, profile: &str, applied: Applied) -> Decision {
    let record = request.previous.as_ref().and_then(|previous| previous.decision.as_ref());
    let before = before(request);
    Decision {
        id: DecisionId::default(),
        parent: record.map(|record| record.id.clone()),
        binding: request.key.clone(),
        template: template(request),
        profile: profile.into(),
        trigger: Trigger::Avoid,
        mode: Mode::Steady,
        outcome: Outcome::Unchanged,
        reason: String::new(),
        triggers: Vec::new(),
        strategy: "".into(),
        desired: request.template.replicas,
        affinity_name: None,
        pending: Vec::new(),
        moves: Vec::new(),
        verdicts: Vec::new(),
        notes: Vec::new(),
        groups: Vec::new(),
        policies: request.policies.clone(),
        snapshot: snapshot.version(),
        now: request.now,
        waits_for: Vec::new(),
        evictions: request.previous.iter().flat_map(|p| p.eviction_tasks.clone()).collect(),
        preserved: request.previous.as_ref().and_then(|previous| previous.preserved.clone()),
        preempts: Vec::new(),
        preempted_by: preempted::followed(snapshot, request),
        full_clusters: record.map(|record| record.full_clusters.clone()).unwrap_or_default(),
        applied_placement: applied,
        after: Vec::new().into(),
        before,
    }
}

/// A decision on an invalid request: nothing moves until a user edits it.
#[must_use]
pub fn invalid(snapshot: &Snapshot, request: &Request, profile: &str, mistake: &str) -> Decision {
    let previous = request.previous.as_ref();
    let applied =
        previous.and_then(|previous| previous.applied_placement.clone()).unwrap_or_else(|| {
            Applied::of(serde_json::to_value(&request.placement).unwrap_or_default())
        });
    let mut decision = blank(snapshot, request, profile, applied);
    let lost = preempted::lost(snapshot, request);
    let held = preempted::without(&decision.before, &lost);
    decision.after = held.clone().into();
    decision.preempts.clone_from(&previous.map(|p| p.preempts.clone()).unwrap_or_default());
    decision.trigger = match previous.filter(|previous| !previous.clusters.is_empty()) {
        Some(_) if !lost.is_empty() => Trigger::Preempted,
        Some(_) => Trigger::Reconcile,
        None => Trigger::First,
    };
    decision.outcome = Outcome::Invalid;
    decision.reason = mistake.to_owned();
    decision.strategy = "none: the request is invalid".into();
    let sum = |shares: &[TargetCluster]| {
        shares.iter().fold(0_i64, |sum, t| sum.saturating_add(t.replicas.max(0)))
    };
    let running = sum(&held);
    let desired = request.template.replicas.unwrap_or(0);
    let open = desired.saturating_sub(running);
    if was_divided(request, sum(&decision.before)) && (0..running).contains(&desired) {
        decision.after = shrink::shares(&held, desired).into();
    }
    if open > 0 {
        decision.pending = vec![PendingReplicas { replicas: open, reason: cut_reason(mistake) }];
    }
    if !lost.is_empty() {
        let failed = BitSet::empty(snapshot.len());
        let leaving = leave::Leaving {
            trigger: Trigger::Preempted,
            before: &decision.before,
            after: &decision.after,
            failed: &failed,
            lost: &lost,
            pending: decision.pending_replicas(),
        };
        decision.evictions = leave::plan(snapshot, request, &leaving);
    }
    let field = mistake.split_once(": ").map_or(mistake, |(field, _)| field).to_owned();
    decision.waits_for = vec![atoll_decision::WakeCondition::Edit { field }];
    for (kind, name) in [("WorkloadPolicy", request.template.workload_policy.clone())] {
        if let (true, Some(name)) = (mistake.starts_with(kind), name) {
            let namespace = request.template.namespace.clone().unwrap_or_default();
            decision
                .waits_for
                .push(atoll_decision::WakeCondition::WorkloadPolicyChanges { namespace, name });
        }
    }
    if mistake.starts_with("WorkloadSpread") {
        decision.waits_for.push(spread_condition(request));
    }
    decision.verdicts = shares_only(&decision.before, &decision.after);
    avoid_repetition(&mut decision, request);
    decision.seal();
    decision
}

fn spread_condition(request: &Request) -> atoll_decision::WakeCondition {
    atoll_decision::WakeCondition::WorkloadSpreadChanges {
        namespace: request.template.namespace.clone().unwrap_or_default(),
        kind: request.template.kind.clone(),
        name: request.template.name.clone(),
    }
}

/// Whether the last decision divided all replicas that it accounted for.
fn was_divided(request: &Request, running: i64) -> bool {
    let previous = request.previous.as_ref();
    let record = previous.and_then(|previous| previous.decision.as_ref());
    let waits = previous.map_or(0, crate::request::Previous::pending);
    let job = request.template.kind == "Job";
    record.is_some_and(|record| !job && running.saturating_add(waits) == record.desired)
}

fn shares_only(before: &[TargetCluster], after: &[TargetCluster]) -> Vec<Verdict> {
    if before.is_empty() {
        return Vec::new();
    }
    let clusters = ClusterSet::of(before.iter().map(|target| target.name.as_str()));
    let share = |of: &[TargetCluster], name: &str| {
        of.iter().find(|target| target.name == name).map(|target| target.replicas)
    };
    vec![Verdict {
        outcome: ClusterOutcome::Kept,
        rejections: Vec::new(),
        before: clusters.iter().map(|name| share(before, name)).collect(),
        after: clusters.iter().map(|name| share(after, name)).collect(),
        capacity: Column::default(),
        bounds: Vec::new(),
        bounded: Column::default(),
        weights: Column::default(),
        scores: BTreeMap::new(),
        clusters,
    }]
}

fn pending(groups: &[(i64, String)]) -> Vec<PendingReplicas> {
    let mut merged: Vec<PendingReplicas> = Vec::new();
    for (replicas, reason) in groups.iter().filter(|(replicas, _)| *replicas > 0) {
        let reason = cut_reason(reason);
        let full = merged.len() == MAX_PENDING;
        match merged.iter_mut().rev().find(|group| full || group.reason == reason) {
            Some(group) => group.replicas = group.replicas.saturating_add(*replicas),
            None => merged.push(PendingReplicas { replicas: *replicas, reason }),
        }
    }
    merged
}

/// The plugins that rejected clusters, with counts, in descending order.
#[must_use]
pub fn why_no_fit(cycle: &Cycle<'_>) -> String {
    if cycle.snapshot.is_empty() {
        return "there are no clusters".to_owned();
    }
    let mut plugins: Vec<(&str, usize, &str)> = Vec::new();
    for refusal in &cycle.verdicts.refusals {
        if !plugins.iter().any(|(plugin, _, _)| *plugin == refusal.plugin) {
            let count = cycle.verdicts.refused_by(refusal.plugin).count();
            plugins.push((refusal.plugin, count, &refusal.reason));
        }
    }
    plugins.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let parts: Vec<String> = plugins
        .iter()
        .map(|(plugin, count, reason)| format!("{plugin} rejects {count} ({reason})"))
        .collect();
    format!("none of {} fits: {}", counted(cycle.snapshot.len(), "cluster"), parts.join(", "))
}

/// Shares as (row, replicas), ascending.
type Rows = Vec<(u32, i64)>;

/// Builds the decision.
#[must_use]
pub fn finish(mut cycle: Cycle<'_>, draft: Draft) -> Decision {
    let applied = observe::in_force(&cycle);
    let mut decision = blank(cycle.snapshot, cycle.request, &cycle.profile.name, applied);
    decision.trigger = draft.trigger;
    decision.mode = draft.mode;
    decision.triggers = draft.triggers;
    decision.strategy = cycle.intent.strategy.describe();
    decision.desired = cycle.intent.requested();
    decision.affinity_name = cycle.term.name.clone();
    decision.policies.extend(cycle.intent.policy.clone());
    decision.groups = std::mem::take(&mut cycle.groups);
    decision.notes = std::mem::take(&mut cycle.notes);
    if let Some(why) = draft.held {
        decision.notes.push(why);
    }
    let assignment = cycle.assignment.take();
    let quiet = matches!(draft.trigger, Trigger::Avoid | Trigger::EvictionDone);
    let shares = match (&draft.failure, &assignment) {
        _ if quiet => {
            keep_record(&mut decision, cycle.request);
            None
        }
        (Some(failure), _) => {
            decision.outcome = failure.outcome;
            decision.reason.clone_from(&failure.reason);
            // Karmada removes a workload that fits no cluster. But if its clusters failed, its shares stay, because
            // nothing replaces them.
            let clears = cycle.as_karmada()
                && failure.outcome == Outcome::NoFit
                && failed(&cycle).is_empty();
            clears.then(Vec::new)
        }
        (None, Some(assignment)) => settle(&mut decision, &cycle, assignment),
        (None, None) => None,
    };
    let failed_to = shares.is_none() && !quiet;
    // Scaling down needs no capacity.
    let shrunk = if failed_to { shrink::to_desired(&mut cycle) } else { None };
    let gone: &[TargetCluster] = match (&shares, &shrunk) {
        (Some(_), _) => &[],
        (None, Some(shrunk)) => &shrunk.gone,
        (None, None) => &cycle.targets.gone,
    };
    let stays = shares.is_none() && shrunk.is_none();
    let after: Rows = match (shares, &shrunk) {
        (Some(shares), _) => shares,
        (None, Some(shrunk)) => shrunk.seats.clone(),
        (None, None) => cycle.targets.seats.clone(),
    };
    decision.preempts = preemption::open(&cycle).cloned().collect();
    let mut taken = std::mem::take(&mut cycle.preempts);
    taken.retain(|_| !failed_to);
    decision.preempts.extend(taken);
    decision.after = if stays {
        preempted::without(&decision.before, &cycle.targets.lost).into()
    } else if gone.is_empty() {
        Shares::of_rows(cycle.snapshot.names(), after.clone())
    } else {
        let rows = Shares::of_rows(cycle.snapshot.names(), after.clone());
        let mut list: Vec<TargetCluster> = rows.iter().chain(gone).cloned().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list.into()
    };
    if let Some(shrunk) = &shrunk {
        decision.pending = pending(&shrunk.pending);
    } else if failed_to {
        fail_pending(&mut decision, &cycle);
    }
    decision.moves = moves(&decision.before, &decision.after);
    // Removing surplus replicas is scaling, whatever the trigger is called.
    let (leaves_by, failed) = match shrunk.is_some() {
        true => (Trigger::Scale, BitSet::empty(cycle.snapshot.len())),
        false => (decision.trigger, failed(&cycle)),
    };
    let leaving = leave::Leaving {
        trigger: leaves_by,
        before: &decision.before,
        after: &decision.after,
        failed: &failed,
        lost: &cycle.targets.lost,
        pending: decision.pending_replicas(),
    };
    decision.evictions = leave::plan(cycle.snapshot, cycle.request, &leaving);
    let (preserved, notes) =
        preserve::carry(cycle.request, decision.trigger, &decision.before, &decision.after);
    decision.preserved = preserved;
    decision.notes.extend(notes);
    decision.full_clusters = migration::full_clusters(&cycle, &decision.after);
    decision.notes.extend(migration::notes(&cycle, &decision));
    decision.notes.extend(workload_affinity::violations(&cycle, &decision.after));
    decision.verdicts = super::verdicts::build(&cycle, &after, gone);
    let chosen = rows_of(&after, cycle.snapshot.len());
    decision.waits_for = super::wake_conditions::of(&cycle, &decision, &chosen);
    avoid_repetition(&mut decision, cycle.request);
    decision.seal();
    decision
}

/// A decision that moves nothing keeps the outcome of the last record.
fn keep_record(decision: &mut Decision, request: &Request) {
    decision.outcome = Outcome::Unchanged;
    if let Some(previous) = &request.previous {
        decision.affinity_name =
            previous.term().map(str::to_owned).or(decision.affinity_name.take());
        if let Some(record) = &previous.decision {
            decision.outcome = record.outcome.held();
            decision.pending.clone_from(&record.pending);
            decision.mode = record.mode;
            decision.reason = record.reason.clone().unwrap_or_default();
        }
        if let Some(applied) = &previous.applied_placement {
            decision.applied_placement = applied.clone();
        }
    }
}

/// The shares from an assignment; `None` = nothing moves.
fn settle(decision: &mut Decision, cycle: &Cycle<'_>, assignment: &Assignment) -> Option<Rows> {
    if let Some(reason) = &assignment.refused {
        decision.outcome = if assignment.infeasible {
            Outcome::FailoverInfeasible
        } else {
            Outcome::Unschedulable
        };
        if reason.starts_with("placement.") {
            decision.outcome = Outcome::Invalid;
        }
        decision.reason.clone_from(reason);
        return None;
    }
    let waiting = pending(&assignment.pending);
    if !waiting.is_empty() && !cycle.intent.partially {
        decision.outcome = Outcome::Unschedulable;
        decision.reason = format!(
            "insufficientCapacity is Refuse, and not all replicas fit: {}",
            waiting[0].reason
        );
        return None;
    }
    let mut after: Rows = Vec::with_capacity(cycle.candidates.len());
    for (at, row) in cycle.candidates.iter().enumerate() {
        let replicas = assignment.seats.get(at).copied().unwrap_or(0);
        let target = assignment.targets.as_ref().map_or(replicas > 0, |targets| targets[at]);
        if target {
            after.push((*row, replicas));
        }
    }
    if cycle.intent.desired == Some(0) && assignment.targets.is_none() {
        after = at_zero(cycle);
    }
    after.sort_unstable();
    if let Some(reason) = no_replacement(cycle, &after, &waiting) {
        decision.outcome = Outcome::FailoverInfeasible;
        decision.reason = reason;
        return None;
    }
    decision.pending = match &cycle.withheld {
        Some(withheld) => {
            let mut groups = assignment.pending.clone();
            groups.push((withheld.count, withheld.reason.clone()));
            pending(&groups)
        }
        None => waiting,
    };
    let sets = cycle.intent.desired.is_none();
    let placed = after.iter().any(|(_, replicas)| sets || *replicas > 0);
    decision.outcome = match (decision.pending.is_empty(), placed) {
        (true, _) if after == cycle.targets.seats && cycle.targets.gone.is_empty() => {
            if after.is_empty() { Outcome::Placed } else { Outcome::Unchanged }
        }
        (true, _) => Outcome::Placed,
        (false, true) => Outcome::Partial,
        (false, false) => Outcome::Unschedulable,
    };
    match decision.pending.first() {
        Some(first) => decision.reason.clone_from(&first.reason),
        None => decision.reason = overcommitted(cycle, &after).unwrap_or_default(),
    }
    Some(after)
}

/// A workload that is scaled to zero keeps its targets with 0 replicas: members keep the object, as Kubernetes does.
fn at_zero(cycle: &Cycle<'_>) -> Rows {
    let stays = |row: usize| cycle.verdicts.passing.contains(row) || cycle.kept.contains(row);
    let targets = cycle.targets.seats.iter().filter(|(row, _)| stays(*row as usize));
    targets.map(|(row, _)| (*row, 0)).collect()
}

/// Describes the replicas beyond the free capacity, for strategies that ignore capacity (static weights, Duplicated).
fn overcommitted(cycle: &Cycle<'_>, after: &Rows) -> Option<String> {
    let all = after.iter().fold(0_i64, |sum, (_, replicas)| sum.saturating_add(*replicas));
    let (mut over, mut names, mut others) = (0_i64, Vec::new(), 0);
    for (row, replicas) in after {
        let grown = replicas.saturating_sub(cycle.targets.on(*row as usize));
        let more = cycle.more(*row as usize).unwrap_or(i64::MAX).max(0);
        let beyond = grown.saturating_sub(more);
        let cluster = cycle.snapshot.row(*row as usize);
        // With Karmada's rules, a cluster without figures has no room.
        if beyond <= 0 || matches!(cluster.supply, Supply::Unknown) {
            continue;
        }
        over = over.saturating_add(beyond);
        if names.len() < MAX_NAMED {
            names.push(format!("{} (room for {more} more)", cluster.name));
        } else {
            others += 1;
        }
    }
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    (over > 0).then(|| {
        let names = names.join(", ");
        format!("{OVERCOMMITTED}: {over} of {all} replicas placed beyond the free room of {names}{others}")
    })
}

/// Targets that must lose their share.
fn failed(cycle: &Cycle<'_>) -> BitSet {
    let mut failed = BitSet::empty(cycle.snapshot.len());
    if !cycle.keeps_all {
        // With Karmada's rules, other filters also use `Never`, for example affinity. That does not mean that the
        // cluster failed.
        let failures = [taint_toleration::NAME, application_health::NAME];
        let leaves = |plugin| !cycle.as_karmada() || failures.contains(&plugin);
        let never = cycle.verdicts.refusals.iter();
        let never = never.filter(|refusal| refusal.hold == Hold::Never && leaves(refusal.plugin));
        never.for_each(|refusal| failed.or(&refusal.rows));
        failed.and(&cycle.targets.rows);
    }
    failed
}

/// Why replicas stay on clusters that they should leave: no cluster can take a single one, and removing them would
/// leave no replacement. Does not apply to clusters that are gone, or terminating without an agent.
fn no_replacement(
    cycle: &Cycle<'_>,
    after: &[(u32, i64)],
    waiting: &[PendingReplicas],
) -> Option<String> {
    let first = waiting.first()?;
    // WorkloadPolicy and WorkloadSpread report themselves which replicas are pending when a domain or subset is lost.
    let steered =
        matches!(cycle.intent.strategy, Strategy::WorkloadPolicy(_) | Strategy::WorkloadSpread(_));
    let steady = cycle.mode == Mode::Steady && cycle.targets.gone.is_empty() && !steered;
    if !steady
        || cycle.as_karmada()
        || after.iter().any(|(row, n)| *n > cycle.targets.on(*row as usize))
    {
        return None;
    }
    let failed = failed(cycle);
    let going = |row: usize| {
        let row = cycle.snapshot.row(row);
        row.terminating && row.session != Session::Connected
    };
    let stuck: Vec<usize> = failed.iter().filter(|row| cycle.targets.on(*row) > 0).collect();
    if stuck.is_empty() || stuck.iter().any(|row| going(*row)) {
        return None;
    }
    let replicas = stuck.iter().fold(0_i64, |sum, row| sum.saturating_add(cycle.targets.on(*row)));
    let names: Vec<&str> = stuck.iter().map(|row| &*cycle.snapshot.row(*row).name).collect();
    let names = names.join(", ");
    Some(format!("{} cannot leave {names}: {}", counted(replicas, "replica"), first.reason))
}

/// Requested replicas that do not run become pending, with the reason of the failure.
fn fail_pending(decision: &mut Decision, cycle: &Cycle<'_>) {
    let Some(desired) = cycle.intent.requested() else { return };
    let running = if cycle.intent.strategy.divides() { cycle.targets.total() } else { 0 };
    let duplicated = !cycle.intent.strategy.divides() && !cycle.targets.is_empty();
    let open = desired.saturating_sub(running);
    if open > 0 && !duplicated {
        decision.pending = pending(&[(open, decision.reason.clone())]);
    }
}

fn moves(before: &[TargetCluster], after: &Shares) -> Vec<Move> {
    if before.is_empty() {
        return Vec::new();
    }
    let old: BTreeMap<&str, i64> = before.iter().map(|t| (t.name.as_str(), t.replicas)).collect();
    let new: BTreeMap<&str, i64> = after.each().collect();
    let less = |a: &BTreeMap<&str, i64>, b: &BTreeMap<&str, i64>| -> Vec<(ClusterName, i64)> {
        a.iter()
            .map(|(name, n)| (*name, n.saturating_sub(b.get(name).copied().unwrap_or(0))))
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| (name.into(), n))
            .collect()
    };
    let (mut from, mut to) = (less(&old, &new).into_iter(), less(&new, &old).into_iter());
    let (mut giver, mut taker) = (from.next(), to.next());
    let mut moves = Vec::new();
    while let (Some((from_name, gives)), Some((to_name, takes))) = (&mut giver, &mut taker) {
        let count = (*gives).min(*takes);
        moves.push(Move { from: from_name.clone(), to: to_name.clone(), count });
        *gives -= count;
        *takes -= count;
        if *gives == 0 {
            giver = from.next();
        }
        if taker.as_ref().is_some_and(|(_, takes)| *takes == 0) {
            taker = to.next();
        }
    }
    moves
}

/// Avoids writing a decision that equals the last one.
fn avoid_repetition(decision: &mut Decision, request: &Request) {
    let Some(previous) = &request.previous else { return };
    let Some(record) = &previous.decision else { return };
    let same_tasks = previous.eviction_tasks == decision.evictions;
    let same_placement =
        previous.applied_placement.as_ref().is_none_or(|old| *old == decision.applied_placement);
    let same_outcome = decision.outcome == record.outcome
        || (decision.outcome == Outcome::Unchanged
            && matches!(record.outcome, Outcome::Placed | Outcome::Unchanged));
    let same = decision.after == decision.before
        && decision.pending == record.pending
        && decision.desired.unwrap_or(0) == record.desired
        && same_outcome
        && same_tasks
        && same_placement
        // The shares of the binding differ from the members' counts, which are "before" here.
        && previous.before_members_scaled.is_none()
        && decision.affinity_name == record.affinity_name;
    if same && !matches!(decision.trigger, Trigger::Rebalance | Trigger::First) {
        decision.trigger = Trigger::Avoid;
    }
    if same && decision.trigger == Trigger::First && decision.outcome != Outcome::Placed {
        decision.trigger = Trigger::Avoid;
    }
}

/// The rejection in a verdict for a refusal.
#[must_use]
pub(super) fn rejection(refusal: &crate::framework::verdicts::Refusal) -> Rejection {
    Rejection { plugin: refusal.plugin.into(), code: refusal.code, reason: refusal.reason.clone() }
}

/// The rows that have a share.
#[must_use]
pub(super) fn rows_of(shares: &[(u32, i64)], len: usize) -> BitSet {
    let mut rows = BitSet::empty(len);
    shares.iter().for_each(|(row, _)| rows.insert(*row as usize));
    rows
}
