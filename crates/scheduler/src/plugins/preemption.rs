//! Takes room from workloads of lower priority for replicas without a place. No built-in profile enables it.
//!
//! Order of the victims: lowest priority first, then most replicas on the cluster, then name. As many as needed are
//! taken in this order. Then they get back what is not needed, highest priority first, so that no victim loses a replica
//! without which as many replicas would be placed. If more victims remain than a decision may have, the highest ones are
//! left out.

use std::cmp::Reverse;
use std::sync::Arc;

use atoll_api::binding::Preemption as Taken;
use atoll_api::text::counted;
use serde_json::Value;

use crate::cycle::state::{Assignment, Cycle, Rules};
use crate::framework::plugin::{Plugin, Point, Replicas};
use crate::framework::registry::{ArgError, known_args, number_arg};
use crate::framework::status::Status;
use crate::state::cache::CapacityColumn;
use crate::state::standing::{available, leaving};
use crate::state::tables::BindingFacts;
use atoll_decision::GroupReport;

/// See the module documentation.
#[derive(Debug)]
pub struct Preemption {
    most: usize,
    difference: i64,
}

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::PREEMPTION;

/// Victims of a decision, unless arg `maxVictims` sets another number: a victim is a binding on a cluster.
const MAX_VICTIMS: i64 = 16;
/// Most open victims of a binding, as the CRD allows.
const MOST_OPEN: usize = 64;
/// Most decisions that may take room from one binding at a time. Half of what the CRD allows, because a binding also
/// lists those that it has followed.
const MOST_CLAIMS: usize = 32;
/// Victims that are tried. Each trial divides the replicas once.
const MOST_TRIED: usize = 128;

impl Preemption {
    /// Creates the plugin. Args: `maxVictims`, and `minPriorityDifference` between a workload and its victims.
    ///
    /// # Errors
    /// An unknown arg, or a number outside its range.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        known_args(args, &["maxVictims", "minPriorityDifference"])?;
        let most = number_arg(args, "maxVictims", 1..=MOST_OPEN as i64)?.unwrap_or(MAX_VICTIMS);
        let difference = number_arg(args, "minPriorityDifference", 1..=i64::from(u32::MAX))?;
        Ok(Self { most: usize::try_from(most).unwrap_or(1), difference: difference.unwrap_or(1) })
    }
}

impl Plugin for Preemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn post_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(short) = cycle.assignment.as_ref().and_then(waiting) else {
            return Status::skip();
        };
        if cycle.as_karmada() || !cycle.intent.strategy.divides() || cycle.capacity.is_none() {
            return Status::skip();
        }
        let class = cycle.request.priority.class.as_ref();
        if let Some(class) = class.filter(|class| class.never_preempts) {
            let name = &class.name;
            cycle.notes.push(format!(
                "{NAME}: PriorityClass {name} has preemptionPolicy Never, so workloads of lower priority keep their room"
            ));
            return Status::skip();
        }
        let before = Before::of(cycle);
        match self.search(cycle, short) {
            Ok(victims) => {
                cycle.preempts = victims.iter().map(|victim| victim.taken(cycle)).collect();
                Status::success()
            }
            Err(why) => {
                before.restore(cycle);
                if cycle.request.priority.class.is_some() {
                    cycle.notes.push(format!("{NAME}: {why}"));
                }
                Status::skip()
            }
        }
    }
}

/// Replicas without a place. `None` if there are none, or if nothing may be placed.
fn waiting(assignment: &Assignment) -> Option<i64> {
    let pending = assignment.pending.iter().map(|(count, _)| *count).fold(0, i64::saturating_add);
    (pending > 0 && assignment.refused.is_none()).then_some(pending)
}

/// What trials change.
struct Before {
    assignment: Option<Assignment>,
    capacity: Option<Arc<CapacityColumn>>,
    rules: Rules,
    groups: Vec<GroupReport>,
}

impl Before {
    fn of(cycle: &Cycle<'_>) -> Self {
        Self {
            assignment: cycle.assignment.clone(),
            capacity: cycle.capacity.clone(),
            rules: cycle.rules.clone(),
            groups: cycle.groups.clone(),
        }
    }

    fn restore(self, cycle: &mut Cycle<'_>) {
        cycle.assignment = self.assignment;
        cycle.capacity = self.capacity;
        cycle.rules = self.rules;
        cycle.groups = self.groups;
    }
}

/// A binding on a cluster that may lose room.
struct Victim {
    facts: Arc<BindingFacts>,
    row: usize,
    /// Replicas that no other binding has claimed.
    available: i64,
    /// Replicas that it loses.
    taken: i64,
}

impl Victim {
    /// Changes how many replicas it loses.
    fn take(&mut self, cycle: &mut Cycle<'_>, taken: i64) {
        let count = (taken - self.taken).abs();
        let replicas =
            Replicas { facts: &self.facts, row: self.row, count, placed: count, awaited: false };
        if taken > self.taken {
            apply(cycle, &replicas, Change::Remove);
        } else if taken < self.taken {
            apply(cycle, &replicas, Change::Add);
        }
        self.taken = taken;
    }

    /// The entry in the decision.
    fn taken(&self, cycle: &Cycle<'_>) -> Taken {
        Taken {
            decision: String::new(),
            namespace: self.facts.key.namespace().map(str::to_owned),
            name: self.facts.key.name().to_owned(),
            priority: self.facts.standing.priority,
            cluster: cycle.snapshot.row(self.row).name.to_string(),
            replicas: self.taken,
            remaining: self.available - self.taken,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Remove,
    Add,
}

/// Runs `remove_binding` or `add_binding` of all plugins.
fn apply(cycle: &mut Cycle<'_>, replicas: &Replicas<'_>, change: Change) {
    let profile = cycle.profile;
    for (_, plugin) in profile.core(Point::PreFilter) {
        match change {
            Change::Remove => plugin.remove_binding(cycle, replicas),
            Change::Add => plugin.add_binding(cycle, replicas),
        }
    }
}

/// Divides again and returns how many replicas have no place.
fn again(cycle: &mut Cycle<'_>) -> i64 {
    let all = cycle.intent.desired.unwrap_or(0);
    let notes = cycle.notes.len();
    let divided = crate::cycle::assign_again(cycle);
    cycle.notes.truncate(notes);
    match &cycle.assignment {
        Some(assignment) if divided.is_ok() && assignment.refused.is_none() => {
            waiting(assignment).unwrap_or(0)
        }
        _ => all,
    }
}

impl Preemption {
    /// Finds the victims, and leaves the division without them in the cycle.
    ///
    /// # Errors
    /// Why there are none, for users.
    fn search(&self, cycle: &mut Cycle<'_>, short: i64) -> Result<Vec<Victim>, String> {
        let priority = cycle.request.priority.value;
        let open = open(cycle).count();
        let most = self.most.min(MOST_OPEN.saturating_sub(open));
        if most == 0 {
            return Err(format!("{open} earlier victims have not been decided again yet"));
        }
        let mut victims = self.candidates(cycle);
        if victims.is_empty() {
            return Err(format!(
                "no workload of lower priority than {priority} has room that it could lose on a candidate cluster"
            ));
        }
        await_leaving(cycle);
        let without = again(cycle);
        for victim in &mut victims {
            victim.take(cycle, victim.available);
        }
        let least = again(cycle);
        if least >= without.min(short) {
            return Err(format!(
                "no victims would help: {} of lower priority could leave, and no more replicas would be placed",
                counted(victims.len(), "workload")
            ));
        }
        shorten(cycle, &mut victims, least);
        reprieve(cycle, &mut victims, least);
        if victims.len() > most {
            for mut victim in victims.drain(most..) {
                victim.take(cycle, 0);
            }
            let least = again(cycle);
            reprieve(cycle, &mut victims, least);
        }
        let left = again(cycle);
        if left >= without.min(short) {
            return Err(format!("{} would not place one more replica", counted(most, "victim")));
        }
        if left > 0 && !cycle.intent.partially {
            return Err(format!(
                "insufficientCapacity is Refuse, and {left} replicas would still have no place"
            ));
        }
        Ok(victims)
    }

    /// The bindings that may lose room on a candidate cluster, in the order in which they are taken.
    fn candidates(&self, cycle: &Cycle<'_>) -> Vec<Victim> {
        let own = i64::from(cycle.request.priority.value);
        let mut victims = Vec::new();
        for facts in cycle.snapshot.all_bindings() {
            let lower = own - i64::from(facts.standing.priority) >= self.difference;
            if !lower || !facts.standing.preemptible || facts.key == cycle.request.key {
                continue;
            }
            let claims = cycle.snapshot.claims(&facts.key);
            if claims.len() >= MOST_CLAIMS {
                continue;
            }
            for share in &facts.shares {
                let Some(row) = cycle.snapshot.find(&share.name) else { continue };
                let available = available(facts, &share.name, claims);
                if available > 0 && is_candidate(cycle, row) {
                    victims.push(Victim { facts: facts.clone(), row, available, taken: 0 });
                }
            }
        }
        let order = |victim: &Victim| (victim.facts.standing.priority, Reverse(victim.available));
        victims.sort_by(|a, b| {
            let names = || (&a.facts.key, a.row).cmp(&(&b.facts.key, b.row));
            order(a).cmp(&order(b)).then_with(names)
        });
        victims.truncate(MOST_TRIED);
        victims
    }
}

/// Whether a cluster may get more replicas, if it has room.
fn is_candidate(cycle: &Cycle<'_>, row: usize) -> bool {
    let among = u32::try_from(row).is_ok_and(|row| cycle.candidates.binary_search(&row).is_ok());
    among && !cycle.kept.contains(row)
}

/// Preemptions of earlier decisions that their victims have not followed yet.
pub(crate) fn open<'c>(cycle: &'c Cycle<'_>) -> impl Iterator<Item = &'c Taken> {
    let previous = cycle.request.previous.iter();
    previous.flat_map(|previous| &previous.preempts).filter(|taken| {
        let key = atoll_decision::BindingKey::of(taken.namespace.as_deref(), &taken.name);
        cycle.snapshot.binding(&key).is_some_and(|facts| {
            let share = facts.shares.iter().find(|share| share.name == taken.cluster);
            !facts.standing.has_followed(&taken.decision)
                && share.is_some_and(|share| share.replicas > taken.remaining)
        })
    })
}

/// Counts replicas that are leaving anyway: where earlier decisions reserved more than is free, they make up for it, so
/// that no victim has to.
fn await_leaving(cycle: &mut Cycle<'_>) {
    let snapshot = cycle.snapshot;
    for facts in snapshot.all_bindings().filter(|facts| facts.key != cycle.request.key) {
        let claims = snapshot.claims(&facts.key);
        let shares = facts.shares.iter().map(|share| share.name.as_str());
        let held = |name: &str| facts.shares.iter().any(|share| share.name == name);
        let others = facts.reported.keys().map(|name| &**name).filter(|name| !held(name));
        for name in shares.chain(others) {
            let (claimed, unplaced) = leaving(facts, name, claims);
            let count = claimed.saturating_add(unplaced);
            let row = snapshot.find(name).filter(|row| count > 0 && is_candidate(cycle, *row));
            if let Some(row) = row {
                let replicas = Replicas { facts, row, count, placed: claimed, awaited: true };
                apply(cycle, &replicas, Change::Remove);
            }
        }
    }
}

/// Keeps the first victims, as many as are needed for `least` pending replicas. The others get everything back.
fn shorten(cycle: &mut Cycle<'_>, victims: &mut Vec<Victim>, least: i64) {
    let (mut enough, mut too_few) = (victims.len(), 0);
    let mut taken = victims.len();
    while enough - too_few > 1 {
        let half = usize::midpoint(enough, too_few);
        set_first(cycle, victims, taken, half);
        taken = half;
        if again(cycle) <= least {
            enough = half;
        } else {
            too_few = half;
        }
    }
    set_first(cycle, victims, taken, enough);
    victims.truncate(enough);
}

/// Changes how many of the victims, from the first, lose everything.
fn set_first(cycle: &mut Cycle<'_>, victims: &mut [Victim], from: usize, to: usize) {
    for victim in &mut victims[from.min(to)..from.max(to)] {
        let taken = if to > from { victim.available } else { 0 };
        victim.take(cycle, taken);
    }
}

/// Gives back what is not needed for `least` pending replicas, from the last victim to the first.
fn reprieve(cycle: &mut Cycle<'_>, victims: &mut Vec<Victim>, least: i64) {
    for victim in victims.iter_mut().rev() {
        // Losing `enough` replicas places as many others as losing all; losing `too_few` does not.
        let (mut enough, mut too_few) = (victim.taken, -1);
        while enough - too_few > 1 {
            let half = i64::midpoint(enough, too_few);
            victim.take(cycle, half);
            if again(cycle) <= least {
                enough = half;
            } else {
                too_few = half;
            }
        }
        victim.take(cycle, enough);
    }
    victims.retain(|victim| victim.taken > 0);
}
