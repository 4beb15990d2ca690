//! Capacity: how many more replicas fit, from the members' reports minus reservations of earlier decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_decision::{Amounts, BindingKey};
use serde_json::Value;

use crate::cycle::intent::ComponentNeeds;
use crate::cycle::state::Cycle;
use crate::framework::plugin::{Plugin, Replicas};
use crate::framework::registry::{ArgError, known_args, word_arg};
use crate::framework::scores::{Scores, Values};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::state::cache::{CapacityColumn, CapacityKey, RowClasses};
use crate::state::needs::{Needs, PODS};
use crate::state::supply::Freed;
use crate::state::tables::BindingFacts;

/// See the module documentation.
#[derive(Debug)]
pub struct ResourceFit {
    most_allocated: bool,
}

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::RESOURCE_FIT;

impl ResourceFit {
    /// Creates the plugin. Arg `strategy`: `LeastAllocated` (default) prefers clusters with the most room,
    /// `MostAllocated` those with the least.
    ///
    /// # Errors
    /// An unknown arg or word.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        known_args(args, &["strategy"])?;
        let words = [("LeastAllocated", false), ("MostAllocated", true)];
        Ok(Self { most_allocated: word_arg(args, "strategy", &words)?.unwrap_or(false) })
    }
}

/// Rejects clusters on which some components of a set do not fit, or all of them together. A cluster that runs the set
/// keeps it.
fn reject_too_small(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    let components = &cycle.intent.components;
    let columns: Vec<Arc<CapacityColumn>> = components.iter().map(|c| column(cycle, c)).collect();
    let total = total(components);
    let namespace = cycle.request.key.namespace().unwrap_or_default();
    let quotas = cycle.snapshot.lacking_in_member_quotas(namespace, &total);
    let mut classes = RowClasses::new(cycle.snapshot.len());
    for (at, row) in cycle.snapshot.rows() {
        let short = components.iter().zip(&columns).find_map(|(component, column)| {
            let fit = column.more(at).filter(|fit| *fit < component.replicas)?;
            let (bound, _) = &column.bounds[usize::from(column.bounded[at])];
            let limit = if bound.is_empty() { String::new() } else { format!(" ({bound})") };
            let ComponentNeeds { name, replicas, .. } = component;
            Some(format!("component {name}: {fit} of {replicas} fit{limit}"))
        });
        let lacks = || {
            let resource = row.supply.lacks(&total, &row.reserved)?;
            Some(format!("its components together do not fit ({resource})"))
        };
        let limited = || {
            let resource = quotas.get(&row.name)?;
            Some(format!("its components together do not fit (ResourceQuota: {resource})"))
        };
        let answer = short.or_else(lacks).or_else(limited).map_or(Ok(()), Err);
        classes.set(at, answer, "its components do not fit");
    }
    let running = &cycle.targets.rows;
    verdicts.reject_classes(NAME, Code::Unschedulable, &classes, Some(running), Hold::Always);
}

/// What all components need together, including their pods.
pub(crate) fn total(components: &[ComponentNeeds]) -> Amounts {
    let mut total = Amounts::new();
    for ComponentNeeds { replicas, needs, .. } in components {
        let pods = total.entry(PODS.to_owned()).or_default();
        *pods = pods.saturating_add(*replicas);
        for (resource, each) in &needs.requests {
            let sum = total.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(each.saturating_mul(*replicas));
        }
    }
    total
}

/// How many replicas of a component fit, by row.
pub(crate) fn column(cycle: &Cycle<'_>, component: &ComponentNeeds) -> Arc<CapacityColumn> {
    let key = CapacityKey { needs: component.needs.clone(), as_karmada: false };
    cycle.cache.borrow_mut().capacity.get(cycle.snapshot, &key)
}

/// Replicas of other bindings that are taken as gone, by row, binding and whether they leave anyway.
type Leaving = BTreeMap<usize, BTreeMap<(BindingKey, bool), (Arc<BindingFacts>, i64)>>;

/// Counts replicas of another binding as gone, or back, and estimates the row again.
fn count_leaving(cycle: &mut Cycle<'_>, replicas: &Replicas<'_>, count: i64) {
    if cycle.capacity.is_none() {
        return;
    }
    let state = cycle.extras.entry(NAME).or_insert_with(|| Box::new(Leaving::new()));
    let Some(leaving) = state.downcast_mut::<Leaving>() else { return };
    let row = leaving.entry(replicas.row).or_default();
    let entry = row.entry((replicas.facts.key.clone(), replicas.awaited));
    let entry = entry.or_insert_with(|| (replicas.facts.clone(), 0));
    entry.1 = entry.1.saturating_add(count).max(0);
    row.retain(|_, (_, count)| *count > 0);
    let cluster = cycle.snapshot.row(replicas.row);
    let needs = &cycle.intent.needs;
    let mut freed = Freed::default();
    for ((_, awaited), (facts, count)) in row.iter() {
        // As for reservations: a binding with unreadable requirements takes only pods.
        let leaves = Needs::read(facts.requirements.as_deref()).unwrap_or_default();
        let places = cluster.supply.in_place_of(needs, &leaves);
        let leavers = if *awaited { &mut freed.awaited } else { &mut freed.victims };
        leavers.add(&leaves, *count, places);
    }
    let more = cluster.supply.estimate_with(needs, &cluster.reserved, &freed).more;
    // What leaves another namespace makes room on nodes, but none in the quotas of this one.
    let namespace = cycle.request.key.namespace().unwrap_or_default();
    let leaving = row.values().map(|(facts, count)| (&**facts, *count));
    let most = cycle.snapshot.allowed_by_member_quotas(namespace, &cluster.name, needs, leaving);
    let more = match (more, most) {
        (Some(more), Some(most)) => Some(more.min(most)),
        (more, most) => more.or(most),
    };
    if let Some(column) = &mut cycle.capacity {
        Arc::make_mut(column).set_more(replicas.row, more);
    }
}

impl Plugin for ResourceFit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        if !cycle.intent.components.is_empty() {
            return Status::success();
        }
        let Some(desired) = cycle.intent.desired else { return Status::skip() };
        if cycle.as_karmada() && desired == 0 {
            return Status::skip();
        }
        let key = CapacityKey { needs: cycle.intent.needs.clone(), as_karmada: cycle.as_karmada() };
        let column = cycle.cache.borrow_mut().capacity.get(cycle.snapshot, &key);
        let namespace = cycle.request.key.namespace().unwrap_or_default();
        let needs = &cycle.intent.needs;
        let column = cycle.snapshot.within_member_quotas(namespace, needs, column);
        cycle.capacity = Some(column);
        Status::success()
    }

    fn remove_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_leaving(cycle, replicas, replicas.count);
    }

    fn add_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_leaving(cycle, replicas, replicas.count.saturating_neg());
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        if !cycle.intent.components.is_empty() {
            reject_too_small(cycle, verdicts);
            return Status::success();
        }
        // A cluster with too little room is not rejected: the capacity column limits what it takes. Only a cluster with
        // unreadable figures is limited here, to its running replicas.
        let Some(column) = cycle.capacity.as_ref().filter(|_| !cycle.as_karmada()) else {
            return Status::skip();
        };
        let mut unreadable = column.unreadable.clone();
        unreadable.and(&verdicts.passing);
        for row in unreadable.iter() {
            let problem = cycle.snapshot.row(row).problems.first().cloned().unwrap_or_default();
            verdicts.limit(NAME, row, cycle.targets.on(row), problem);
        }
        Status::success()
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let Some(column) = &cycle.capacity else { return Status::skip() };
        let scored =
            cycle.cache.borrow_mut().room_scores(column, &cycle.scored_set, self.most_allocated);
        if let Some(values) = scored {
            scores.values = Values::Each(values);
        }
        Status::success()
    }

    fn reserve(&self, cycle: &mut Cycle<'_>) -> Status {
        // Reservations are derived from committed shares when those enter the tables. Here only the amounts are
        // checked: they must be representable.
        let needs: &Needs = &cycle.intent.needs;
        let Some(assignment) = &cycle.assignment else { return Status::success() };
        let total = assignment.seats.iter().fold(0_i64, |sum, seats| sum.saturating_add(*seats));
        match needs.countable(total).map_err(crate::cycle::check::request) {
            Ok(()) => Status::success(),
            Err(mistake) => Status::new(Code::Unschedulable, mistake.to_string()),
        }
    }
}
