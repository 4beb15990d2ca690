//! The scheduling cycle: read the intent, filter, find the trigger, then for each affinity term filter, score, select
//! and assign, and build one Decision from the result.

pub mod check;
pub mod division_input;
pub mod intent;
pub mod leave;
pub mod mending;
pub mod migration;
pub mod observe;
pub mod parsed_placement;
pub mod preempted;
pub mod preserve;
pub mod quota;
pub mod recovery;
pub mod report;
pub mod shrink;
pub mod state;
pub mod triggers;
pub mod verdicts;
pub mod wake_conditions;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{Mode, Outcome, Trigger};
use atoll_api::placement::RescheduleOn;

use self::intent::Intent;
use self::report::Draft;
use self::state::{Cycle, Rules, Targets, Term};
use self::triggers::{AllowedTriggers, Evidence, TriggerFacts};
use crate::framework::plugin::Point;
use crate::framework::profile::{Profile, Semantics};
use crate::framework::scores::{PluginScores, Scores, Values};
use crate::framework::status::Code;
use crate::framework::verdicts::Verdicts;
use crate::plugins::{application_health, cluster_eviction, cluster_sets, taint_toleration};
use crate::request::Request;
use crate::state::cache::Cache;
use crate::state::snapshot::Snapshot;
use atoll_decision::{BitSet, Decision};

/// Why an affinity term gives no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The outcome of the decision.
    pub outcome: Outcome,
    /// The reason.
    pub reason: String,
}

impl Failure {
    fn new(outcome: Outcome, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into() }
    }
}

/// Makes a decision.
pub fn decide(
    snapshot: &Snapshot,
    request: &Request,
    profile: &Profile,
    cache: &RefCell<Cache>,
) -> Decision {
    let targets = targets(snapshot, request);
    let (parsed, needs) = {
        let mut cache = cache.borrow_mut();
        let needs = cache.needs(request.template.requirements.as_deref());
        (cache.placements.get(&request.placement), needs)
    };
    let mut intent = match Intent::read(snapshot, request, profile, &parsed, needs) {
        Ok(intent) => intent,
        Err(mistake) => {
            return report::invalid(snapshot, request, &profile.name, &mistake.to_string());
        }
    };
    if let Some(allowance) = quota::allowance(snapshot, request, &intent, &targets) {
        allowance.cap(&mut intent);
        intent.quota = Some(allowance);
    }
    let terms = &parsed.terms;
    let in_force = in_force(request, terms);
    let new =
        |term: &Arc<Term>| Cycle::new(snapshot, request, profile, &intent, &targets, cache, term);
    let karmada = profile.semantics == Semantics::Karmada;
    let allowed = if karmada {
        AllowedTriggers::everything()
    } else {
        let sticky = request.placement.sticky && !targets.is_empty();
        let given = request.placement.reschedule_on.as_deref();
        AllowedTriggers::new(given, intent.strategy.divides(), sticky)
    };

    let mut cycle = new(&terms[in_force]);
    let filtered = filter(&mut cycle);
    let mut facts = observe::facts(&mut cycle, &allowed);
    if facts.recover.is_none() && in_force > 0 && may_recover(&facts, &allowed, profile) {
        facts.recover = earlier_term(&terms[..in_force], &new);
    }
    if request.suspended {
        let held = Draft::held(facts, "suspension.scheduling: no decision is made");
        return report::finish(cycle, held);
    }
    let (trigger, triggers) = triggers::first_allowed(&facts, &allowed);
    if matches!(trigger, Trigger::Avoid | Trigger::EvictionDone) {
        return report::finish(cycle, Draft::unchanged(trigger, triggers));
    }
    let mends = mending::is_requested(request, trigger, &intent);
    let mode = if mends {
        Mode::Steady
    } else {
        triggers::mode(&facts, &allowed, intent.strategy.replans() && !karmada)
    };
    let change = may_change(&facts, &allowed, trigger, mode, &intent);

    let mut first = Some((cycle, filtered));
    let mut best: Option<Attempt<'_>> = None;
    for at in order(terms, in_force, trigger, mode, karmada) {
        let reuse = first.take().filter(|_| at == in_force && mode != Mode::Fresh);
        let (mut cycle, filtered) = match reuse {
            Some(filtered) => filtered,
            None => {
                let mut cycle = new(&terms[at]);
                cycle.mode = mode;
                let filtered = filter(&mut cycle);
                (cycle, filtered)
            }
        };
        if trigger == Trigger::Recover {
            recovery::hold_back(&mut cycle);
        }
        cycle.reset(trigger, mode, change);
        let result = filtered.and_then(|()| run(&mut cycle));
        let attempt = Attempt { cycle, result };
        if attempt.is_complete() {
            best = Some(attempt);
            break;
        }
        // Karmada reports the failure of the first term.
        let better = best.as_ref().is_none_or(|best| !karmada && attempt.rank() > best.rank());
        if better {
            best = Some(attempt);
        }
    }
    if let Some(attempt) = best.as_mut().filter(|_| !karmada && !mends) {
        take_room(attempt);
    }
    match best {
        Some(attempt) => report::finish(
            attempt.cycle,
            Draft { trigger, mode, triggers, failure: attempt.result.err(), held: None },
        ),
        // Unreachable: there is always at least one term.
        None => report::invalid(snapshot, request, &profile.name, "placement: no affinity term"),
    }
}

/// The attempt for one affinity term.
struct Attempt<'a> {
    cycle: Cycle<'a>,
    result: Result<(), Failure>,
}

impl Attempt<'_> {
    fn is_complete(&self) -> bool {
        self.result.is_ok()
            && self.cycle.assignment.as_ref().is_some_and(|assignment| {
                assignment.refused.is_none() && assignment.pending.is_empty()
            })
    }

    /// Ranks incomplete attempts: the first term that places replicas wins, then the first that has a candidate.
    fn rank(&self) -> u8 {
        let assignment = self.cycle.assignment.as_ref().filter(|_| self.result.is_ok());
        match (&self.result, assignment) {
            (Ok(()), Some(a)) if a.refused.is_none() && a.seats.iter().any(|n| *n > 0) => 3,
            (Ok(()), _) => 2,
            (Err(failure), _) if failure.outcome != Outcome::NoFit => 1,
            _ => 0,
        }
    }
}

impl<'a> Cycle<'a> {
    fn new(
        snapshot: &'a Snapshot,
        request: &'a Request,
        profile: &'a Profile,
        intent: &'a Intent,
        targets: &'a Targets,
        cache: &'a RefCell<Cache>,
        term: &Arc<Term>,
    ) -> Self {
        Self {
            snapshot,
            request,
            profile,
            intent,
            targets,
            cache,
            term: term.clone(),
            trigger: Trigger::Avoid,
            mode: Mode::Steady,
            change: false,
            keeps_all: false,
            verdicts: Verdicts::new(snapshot.len()),
            tiers: None,
            leaving: Vec::new(),
            tried: None,
            subsets: Vec::new(),
            capacity: None,
            kept: BitSet::empty(snapshot.len()),
            candidates: Arc::default(),
            scores: Vec::new(),
            scored: Arc::default(),
            scored_set: Arc::default(),
            rules: Rules::default(),
            assignment: None,
            withheld: None,
            preempts: Vec::new(),
            undivided: None,
            groups: Vec::new(),
            notes: intent.notes.clone(),
            extras: BTreeMap::new(),
        }
    }

    /// Targets that stay although they fail a rule.
    fn kept(&self, change: bool) -> BitSet {
        if self.as_karmada() {
            return BitSet::empty(self.snapshot.len());
        }
        if self.keeps_all {
            let mut all = self.targets.rows.clone();
            all.minus(&self.verdicts.passing);
            return all;
        }
        self.verdicts.kept(&self.targets.rows, change)
    }

    /// Makes every passing and every kept cluster a candidate.
    pub(crate) fn take_all(&mut self) {
        self.candidates = self.scored.clone();
        if !self.kept.is_empty() {
            let mut all = self.verdicts.passing.clone();
            all.or(&self.kept);
            self.candidates = all.iter().map(|row| row as u32).collect();
        }
    }

    /// Discards the results of finding the trigger, except those of the filters, and the division if it is the same.
    fn reset(&mut self, trigger: Trigger, mode: Mode, change: bool) {
        self.trigger = trigger;
        self.mode = mode;
        self.change = change;
        self.kept = self.kept(change);
        let same = trigger == Trigger::Unschedulable && mode == Mode::Steady && !change;
        if let Some(tried) = self.tried.take().filter(|_| same) {
            self.assignment = Some(tried.assignment);
            self.withheld = tried.withheld;
            self.rules = tried.rules;
            self.groups = tried.groups;
            self.leaving = tried.leaving;
            self.notes.extend(tried.notes);
            return;
        }
        self.candidates = Arc::default();
        self.rules = Rules::default();
        self.assignment = None;
        self.withheld = None;
        self.groups.clear();
    }
}

fn targets(snapshot: &Snapshot, request: &Request) -> Targets {
    let mut targets = Targets { rows: BitSet::empty(snapshot.len()), ..Targets::default() };
    let mut seats: BTreeMap<u32, i64> = BTreeMap::new();
    for target in request.previous.iter().flat_map(|previous| &previous.clusters) {
        // Clamped to the range that the CRD schema allows.
        let replicas = target.replicas.clamp(0, i64::from(i32::MAX));
        match snapshot.find(&target.name) {
            Some(row) => {
                targets.rows.insert(row);
                let seats = seats.entry(row as u32).or_default();
                *seats = seats.saturating_add(replicas);
            }
            None => targets
                .gone
                .push(atoll_api::binding::TargetCluster { name: target.name.clone(), replicas }),
        }
    }
    targets.lost = preempted::lost(snapshot, request);
    for lost in &targets.lost {
        let Some(row) = snapshot.find(&lost.cluster) else { continue };
        if lost.remaining > 0 {
            seats.insert(row as u32, lost.remaining);
        } else {
            seats.remove(&(row as u32));
            targets.rows.remove(row);
        }
    }
    targets.seats = seats.into_iter().collect();
    targets
}

fn in_force(request: &Request, terms: &[Arc<Term>]) -> usize {
    let name = request.previous.as_ref().and_then(|previous| previous.term());
    name.and_then(|name| terms.iter().position(|term| term.name.as_deref() == Some(name)))
        .unwrap_or(0)
}

fn may_recover(facts: &TriggerFacts, allowed: &AllowedTriggers, profile: &Profile) -> bool {
    profile.semantics != Semantics::Karmada
        && facts.first.is_none()
        && !allowed.sticky
        && allowed.has(RescheduleOn::Recovery)
}

/// The first earlier term that could take all replicas.
fn earlier_term<'a>(terms: &[Arc<Term>], new: &dyn Fn(&Arc<Term>) -> Cycle<'a>) -> Evidence {
    terms.iter().find_map(|term| {
        let mut cycle = new(term);
        let filtered = filter(&mut cycle);
        recovery::hold_back(&mut cycle);
        cycle.reset(Trigger::Recover, Mode::Steady, true);
        let result = filtered.and_then(|()| run(&mut cycle));
        let complete = Attempt { cycle, result }.is_complete();
        complete.then(|| {
            format!(
                "clusterAffinities term {} has room again",
                term.name.as_deref().unwrap_or_default()
            )
            .into()
        })
    })
}

/// The terms to try, in order. A division from scratch starts with the first term. Otherwise the current term comes
/// first, then the later ones, then the earlier ones.
fn order(
    terms: &[Arc<Term>],
    in_force: usize,
    trigger: Trigger,
    mode: Mode,
    karmada: bool,
) -> Vec<usize> {
    let all = 0..terms.len();
    if karmada {
        let from = if mode == Mode::Fresh { 0 } else { in_force };
        return (from..terms.len()).collect();
    }
    let scratch = matches!(trigger, Trigger::First | Trigger::Reconcile | Trigger::Recover);
    if scratch || mode == Mode::Fresh {
        return all.collect();
    }
    (in_force..terms.len()).chain(0..in_force).collect()
}

/// Whether targets that fail a rule for new targets must leave.
fn may_change(
    facts: &TriggerFacts,
    allowed: &AllowedTriggers,
    trigger: Trigger,
    mode: Mode,
    intent: &Intent,
) -> bool {
    if allowed.sticky {
        return mode == Mode::Fresh;
    }
    mode != Mode::Steady
        || matches!(trigger, Trigger::First | Trigger::Reconcile | Trigger::Recover)
        || (facts.reconcile.is_some() && allowed.has(RescheduleOn::PolicyChange))
        || trigger == Trigger::ClusterChange
        || (facts.cluster_change.is_some()
            && intent.strategy.divides()
            && allowed.has(RescheduleOn::ClusterChange))
}

/// Runs PreFilter and Filter of all plugins. All filters run, and every rejection is kept.
fn filter(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    let profile = cycle.profile;
    let mut skipped = Vec::new();
    for (enabled, plugin) in profile.core(Point::PreFilter) {
        let status = plugin.pre_filter(cycle);
        if status.code == Code::Skip {
            skipped.push(enabled.name);
        } else if !status.goes_on() {
            return Err(Failure::new(
                Outcome::Unschedulable,
                format!("{}: {}", enabled.name, status.reason),
            ));
        }
    }
    let mut verdicts = Verdicts::new(cycle.snapshot.len());
    let mut failure = None;
    for (enabled, plugin) in profile.core(Point::Filter) {
        if skipped.contains(&enabled.name) {
            continue;
        }
        let status = plugin.filter(cycle, &mut verdicts);
        if !status.goes_on() && failure.is_none() {
            let reason = format!("{}: {}", enabled.name, status.reason);
            failure = Some(Failure::new(Outcome::Unschedulable, reason));
        }
    }
    evict(cycle, &mut verdicts);
    preempted::limit(cycle.targets, cycle.snapshot, &mut verdicts);
    cycle.verdicts = verdicts;
    failure.map_or(Ok(()), Err)
}

/// Evictions do not depend on the profile: applies the eviction rules of filters that the profile does not enable.
fn evict(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    type Rule = fn(&Cycle<'_>, &mut Verdicts);
    let rules: [(&str, Rule); 4] = [
        (cluster_sets::NAME, cluster_sets::evict),
        (taint_toleration::NAME, taint_toleration::evict),
        (cluster_eviction::NAME, cluster_eviction::evict),
        (application_health::NAME, application_health::evict),
    ];
    for (name, rule) in rules {
        if !cycle.profile.core(Point::Filter).any(|(enabled, _)| enabled.name == name) {
            rule(cycle, verdicts);
        }
    }
}

/// Runs the cycle from the filters' results to an assignment.
fn run(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    if cycle.verdicts.passing.is_empty() && cycle.kept.is_empty() {
        let profile = cycle.profile;
        let helped = profile
            .core(Point::PostFilter)
            .any(|(_, plugin)| plugin.post_filter(cycle).code == Code::Success);
        if helped {
            filter(cycle)?;
        }
        if cycle.verdicts.passing.is_empty() {
            return Err(Failure::new(Outcome::NoFit, report::why_no_fit(cycle)));
        }
    }
    if cycle.assignment.is_none() {
        score_and_select(cycle)?;
        if cycle.candidates.is_empty() {
            return Err(Failure::new(Outcome::NoFit, report::why_no_fit(cycle)));
        }
        match cycle.trigger {
            Trigger::Unschedulable => migration::assign(cycle)?,
            _ => assign(cycle)?,
        }
    }
    if mending::is_requested(cycle.request, cycle.trigger, cycle.intent) {
        mending::mend(cycle);
    }
    reserve(cycle)
}

/// Runs PreScore, Score, NormalizeScore and Select.
pub(crate) fn score_and_select(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    (cycle.scored_set, cycle.scored) = cycle.cache.borrow_mut().rows(&cycle.verdicts.passing);
    cycle.scores.clear();
    cycle.rules = Rules::default();
    let profile = cycle.profile;
    let mut skipped = Vec::new();
    for (enabled, plugin) in profile.core(Point::PreScore) {
        if plugin.pre_score(cycle).code == Code::Skip {
            skipped.push(enabled.name);
        }
    }
    for (enabled, plugin) in profile.core(Point::Score) {
        if skipped.contains(&enabled.name) {
            continue;
        }
        let mut scores = Scores { candidates: &cycle.scored, values: Values::Same(0) };
        if plugin.score(cycle, &mut scores).code == Code::Skip {
            continue;
        }
        plugin.normalize(cycle, &mut scores);
        let mut values = scores.values;
        let clamped = values.clamp();
        if clamped > 0 {
            let note = format!("{}: scores clamped to 0..=100: {clamped}", enabled.name);
            cycle.notes.push(note);
        }
        cycle.scores.push(PluginScores { plugin: enabled.name, weight: enabled.weight, values });
    }
    for (enabled, plugin) in profile.core(Point::Select) {
        let status = plugin.select(cycle);
        match status.code {
            Code::Skip => {}
            _ if status.goes_on() => return Ok(()),
            _ => {
                let reason = format!("{}: {}", enabled.name, status.reason);
                return Err(Failure::new(Outcome::Unschedulable, reason));
            }
        }
    }
    cycle.take_all();
    Ok(())
}

/// Runs Assign. The first plugin that does not skip divides.
pub(crate) fn assign(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    let profile = cycle.profile;
    if !profile.at(Point::PostFilter).is_empty() {
        cycle.undivided = Some(cycle.rules.clone());
    }
    for (enabled, plugin) in profile.core(Point::Assign) {
        let status = plugin.assign(cycle);
        match status.code {
            Code::Skip => {}
            _ if status.goes_on() && cycle.assignment.is_some() => {
                quota::limit(cycle);
                return Ok(());
            }
            _ => {
                let reason = format!("{}: {}", enabled.name, status.reason);
                return Err(Failure::new(Outcome::Unschedulable, reason));
            }
        }
    }
    Err(Failure::new(
        Outcome::Unschedulable,
        "no plugin at extension point assign divided the replicas",
    ))
}

/// Divides again, for a plugin that changed the state of others.
pub(crate) fn assign_again(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    cycle.rules = cycle.undivided.take().unwrap_or_default();
    cycle.assignment = None;
    assign(cycle)
}

/// Runs PostFilter where replicas are left without a place. A plugin that succeeds has changed the assignment.
fn take_room(attempt: &mut Attempt<'_>) {
    let pending = |a: &self::state::Assignment| a.refused.is_none() && !a.pending.is_empty();
    let Attempt { cycle, result } = attempt;
    if result.is_err() || !cycle.assignment.as_ref().is_some_and(pending) {
        return;
    }
    let profile = cycle.profile;
    if profile.at(Point::PostFilter).is_empty() {
        if cycle.request.priority.class.is_some() {
            cycle.notes.push(format!(
                "workloads of lower priority keep their room: profile {} enables no plugin at postFilter, for example {}",
                profile.name,
                crate::plugins::preemption::NAME
            ));
        }
        return;
    }
    let mut plugins = profile.core(Point::PostFilter);
    if plugins.any(|(_, plugin)| plugin.post_filter(cycle).code == Code::Success) {
        *result = reserve(cycle);
    }
}

/// Runs Reserve. A failure unreserves all plugins in reverse order.
fn reserve(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    let profile = cycle.profile;
    for (enabled, plugin) in profile.core(Point::Reserve) {
        let status = plugin.reserve(cycle);
        if !status.goes_on() {
            let all: Vec<_> = profile.core(Point::Reserve).collect();
            for (_, plugin) in all.into_iter().rev() {
                plugin.unreserve(cycle);
            }
            let reason = format!("{}: {}", enabled.name, status.reason);
            return Err(Failure::new(Outcome::Unschedulable, reason));
        }
    }
    Ok(())
}
