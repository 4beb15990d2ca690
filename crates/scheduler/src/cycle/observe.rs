//! Collects the facts for the triggers.

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::placement::{Placement, RescheduleOn};
use atoll_api::text::counted;
use serde_json::Value;

use super::state::Cycle;
use super::triggers::{AllowedTriggers, Evidence, TriggerFacts};
use super::{leave, migration, preempted, recovery};
use crate::framework::verdicts::Hold;
use crate::plugins::{application_health, cluster_sets, taint_toleration, workload_spread};
use crate::request::Previous;
use atoll_decision::Applied;

/// Key in the annotation for the WorkloadPolicy in force, next to the placement's own keys.
pub const WITH_POLICY: &str = "workloadPolicy";
/// Key in the annotation for the WorkloadSpread in force.
pub const WITH_SPREAD: &str = "workloadSpread";

/// The placement in force, for the annotation: the policy's placement, and the WorkloadPolicy or WorkloadSpread.
#[must_use]
pub fn in_force(cycle: &Cycle<'_>) -> Applied {
    cycle.cache.borrow_mut().placements.applied(&cycle.intent.parsed, &cycle.intent.strategy)
}

/// See [`in_force`]. `divider` is the key and spec of the object that divides.
#[must_use]
pub fn placement_in_force(placement: &Placement, divider: Option<(&str, Value)>) -> Value {
    // A placement is a plain structure with string keys, so it always converts to JSON.
    let mut value = serde_json::to_value(placement).unwrap_or_default();
    if let (Some((key, spec)), Some(object)) = (divider, value.as_object_mut()) {
        object.insert(key.to_owned(), spec);
    }
    value
}

/// Normalizes an annotation for comparison: fills in defaults and drops fields that only allow moves.
fn comparable(value: &Value, term: Option<&str>) -> Option<Value> {
    let mut placement: Placement = serde_json::from_value(value.clone()).ok()?;
    placement.reschedule_on = None;
    placement.unschedulable_after_seconds = None;
    placement.sticky = false;
    if let (Some(term), Some(terms)) = (term, &mut placement.cluster_affinities) {
        terms.retain(|known| known.affinity_name == term);
    }
    let mut comparable = serde_json::to_value(placement).ok()?;
    for key in [WITH_POLICY, WITH_SPREAD] {
        if let Some(spec) = value.get(key) {
            comparable.as_object_mut()?.insert(key.to_owned(), spec.clone());
        }
    }
    Some(comparable)
}

fn reconcile(cycle: &Cycle<'_>, previous: &Previous) -> Evidence {
    let Some(applied) = &previous.applied_placement else {
        // Atoll treats a missing annotation as unchanged; Karmada treats it as a change.
        return cycle.as_karmada().then(|| "no placement was applied yet".into());
    };
    let now = in_force(cycle);
    if *applied == now {
        return None;
    }
    // Karmada compares only the affinity term in force.
    let term = previous.term().filter(|_| cycle.as_karmada());
    let (old, new) = (comparable(applied.value(), term), comparable(now.value(), term));
    if old == new {
        return None;
    }
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) else {
        return Some("the applied placement cannot be read".into());
    };
    let mut keys: Vec<&String> =
        old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
    Some(format!("changed: {}", keys.join(", ")).into())
}

fn first(cycle: &Cycle<'_>, previous: Option<&Previous>) -> Evidence {
    if !cycle.targets.is_empty() {
        return None;
    }
    let never = previous.and_then(|previous| previous.decision.as_ref()).is_none_or(|record| {
        record.trigger == Trigger::First
            && !matches!(record.outcome, Outcome::Placed | Outcome::Partial | Outcome::Unchanged)
    });
    never.then(|| "it was never placed".into())
}

fn scale(cycle: &Cycle<'_>, previous: Option<&Previous>) -> Evidence {
    let desired = cycle.intent.requested()?;
    if !cycle.intent.strategy.divides() {
        let mut targets = cycle.targets.seats.iter();
        let (row, share) = targets.find(|(_, share)| *share != desired)?;
        let name = &cycle.snapshot.row(*row as usize).name;
        return Some(
            format!("{name} has {}, {desired} requested", counted(*share, "replica")).into(),
        );
    }
    if cycle.divides_once() && !cycle.targets.is_empty() {
        return None;
    }
    if let Some(before) = previous.and_then(|previous| previous.before_members_scaled) {
        return Some(match before == desired {
            true => format!("the members divided {desired} in another way").into(),
            false => format!("the members scaled from {before} to {desired}").into(),
        });
    }
    let waiting = match previous {
        Some(previous) if !cycle.as_karmada() => previous.pending(),
        _ => 0,
    };
    let lost = cycle.targets.lost.iter().map(|lost| lost.replicas).fold(0, i64::saturating_add);
    let known = cycle.targets.total().saturating_add(lost).saturating_add(waiting);
    let why = || format!("replicas changed from {known} to {desired}").into();
    (known != desired).then(why)
}

fn name<'c>(cycle: &'c Cycle<'_>, row: u32) -> &'c str {
    &cycle.snapshot.row(row as usize).name
}

/// The first target that is rejected with this hold.
fn refused_target(cycle: &Cycle<'_>, hold: Hold, of: impl Fn(&'static str) -> bool) -> Evidence {
    let refusals = cycle.verdicts.refusals.iter();
    let refusals = refusals.filter(|refusal| refusal.hold == hold && of(refusal.plugin));
    refusals.into_iter().find_map(|refusal| {
        let row =
            cycle.targets.seats.iter().find(|(row, _)| refusal.rows.contains(*row as usize))?;
        Some(format!("{}: {}", name(cycle, row.0), refusal.reason).into())
    })
}

fn cluster_change(cycle: &mut Cycle<'_>) -> Evidence {
    if cycle.targets.is_empty() {
        return None;
    }
    if cycle.intent.strategy.divides() {
        return refused_target(cycle, Hold::UnlessChange, |_| true);
    }
    cycle.kept = cycle.kept(true);
    super::score_and_select(cycle).ok()?;
    let chosen: std::collections::BTreeSet<u32> = cycle.candidates.iter().copied().collect();
    if let Some(new) = chosen.iter().find(|row| !cycle.targets.rows.contains(**row as usize)) {
        return Some(format!("{} would be selected now", name(cycle, *new)).into());
    }
    let mut targets = cycle.targets.seats.iter();
    let (old, _) = targets.find(|(row, _)| !chosen.contains(row))?;
    Some(format!("{} would no longer be selected", name(cycle, *old)).into())
}

fn retry(cycle: &Cycle<'_>, previous: Option<&Previous>) -> Evidence {
    let waiting = previous.map_or(0, Previous::pending);
    if waiting > 0 {
        return Some(format!("{} pending", counted(waiting, "replica")).into());
    }
    let outcome = previous.and_then(|p| p.decision.as_ref()).map(|record| record.outcome);
    let failed = matches!(
        outcome,
        Some(
            Outcome::NoFit
                | Outcome::Unschedulable
                | Outcome::Invalid
                | Outcome::FailoverInfeasible
        )
    );
    let wanted = cycle.intent.requested().is_none_or(|desired| desired > 0);
    (failed || (cycle.targets.is_empty() && wanted))
        .then(|| "the last decision placed nothing".into())
}

/// Collects the facts. The filters of the term in force have run.
pub fn facts(cycle: &mut Cycle<'_>, allowed: &AllowedTriggers) -> TriggerFacts {
    let previous = cycle.request.previous.as_ref();
    let asked = previous.and_then(|previous| previous.reschedule_triggered_at);
    let decided = previous.and_then(Previous::decided_at);
    let rebalance = asked.zip(decided).filter(|(asked, decided)| asked > decided);
    let mut facts = TriggerFacts {
        first: first(cycle, previous),
        rebalance: rebalance.map(|(asked, _)| {
            match previous.is_some_and(|previous| previous.mends_in_background) {
                true => "skew is mended in the background".into(),
                false => format!("requested at {asked}").into(),
            }
        }),
        reconcile: previous.and_then(|previous| reconcile(cycle, previous)),
        scale: None,
        ..TriggerFacts::default()
    };
    if facts.first.is_some() {
        return facts;
    }
    facts.preempted = preempted::evidence(cycle);
    facts.scale = scale(cycle, previous);
    let gone = cycle
        .targets
        .gone
        .first()
        .map(|target| format!("{} is no longer a member", target.name).into());
    let terminating = cycle
        .targets
        .seats
        .iter()
        .find(|(row, _)| cycle.snapshot.row(*row as usize).terminating)
        .map(|(row, _)| format!("{} is being deleted", name(cycle, *row)).into());
    facts.lost = gone.or(terminating);
    facts.outside = refused_target(cycle, Hold::Never, |by| by == cluster_sets::NAME);
    facts.application = refused_target(cycle, Hold::Never, |by| by == application_health::NAME);
    if cycle.as_karmada() {
        let copies = !cycle.intent.strategy.divides();
        facts.cluster_change = copies.then(|| "copies are selected again in every decision".into());
        // Karmada's own eviction tasks do not mean that the cluster failed.
        facts.failed = refused_target(cycle, Hold::Never, |by| by == taint_toleration::NAME);
        facts.retry = retry(cycle, previous);
        return facts;
    }
    facts.failed = refused_target(cycle, Hold::Never, |by| by != application_health::NAME);
    facts.overflow = workload_spread::overflow(cycle).map(Into::into);
    if let Some((why, can)) = migration::find(cycle, allowed) {
        (facts.unschedulable, facts.can_migrate) = (Some(why.into()), can);
    }
    facts.retry = retry(cycle, previous);
    let tasks = previous.map_or(&[][..], |previous| &previous.eviction_tasks);
    facts.eviction_done =
        tasks.iter().find_map(|task| leave::ended(task, cycle.request)).map(Into::into);
    facts.cluster_change = cluster_change(cycle);
    if allowed.has(RescheduleOn::Recovery) && !allowed.sticky {
        let verdicts = cycle.verdicts.clone();
        recovery::hold_back(cycle);
        facts.recover = recovery::find(cycle).map(Into::into);
        cycle.verdicts = verdicts;
    }
    facts
}
