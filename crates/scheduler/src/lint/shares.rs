//! Checks shares and movement: all desired replicas are accounted for, and every move has a reason.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{Mode, Outcome, Trigger};
use atoll_api::policy::PurgeMode;

use super::Fault;
use super::check::Check;
use atoll_decision::ClusterOutcome;

impl Check<'_> {
    /// I2: one share per cluster, none negative, none on a missing cluster.
    pub(super) fn shares(&mut self) {
        if self.after.len() != self.decision.after.len() {
            self.fault("I2", "a cluster has two shares");
        }
        for (name, replicas) in self.after.clone() {
            if replicas < 0 {
                self.fault("I2", format!("{name} has {replicas} replicas"));
            }
            if !self.rows.contains_key(name) && !self.still {
                self.fault("I8", format!("{name} is no cluster"));
            }
        }
    }

    /// I1: shares and pending replicas add up to the desired number, whatever the outcome. With Duplicated every share
    /// is the desired number.
    pub(super) fn conservation(&mut self) {
        let Some(desired) = self.decision.desired else { return };
        let quiet = matches!(self.decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        let invalid = self.decision.outcome == Outcome::Invalid;
        if quiet || (invalid && !self.was_divided(desired)) {
            return;
        }
        if self.duplicated() {
            let moot = invalid || self.karmada && self.still;
            // A quota holds copies at the number that they had.
            let held = || self.after.values().all(|n| *n <= desired) && self.is_short_of_quota();
            if !moot && self.after.values().any(|replicas| *replicas != desired) && !held() {
                self.fault("I1", format!("Duplicated, but not every share is {desired}"));
            }
            return;
        }
        let job = self.request.template.kind == "Job";
        let placed: i64 = self.after.values().sum();
        let total = placed + self.decision.pending_replicas();
        // Karmada keeps the running replicas if there is no result.
        let kept = self.karmada && self.still && placed > desired;
        // Karmada removes a workload that fits no cluster, and counts none of its replicas as pending.
        let cleared = self.karmada
            && self.decision.outcome == Outcome::NoFit
            && self.after.is_empty()
            && self.decision.pending.is_empty();
        if total != desired && !kept && !cleared && !job {
            self.fault("I1", format!("{placed} placed + pending = {total}, asked for {desired}"));
        }
    }

    /// Whether the last decision divided an invalid request, and its replica number is valid.
    fn was_divided(&self, desired: i64) -> bool {
        let Some(previous) = &self.request.previous else { return false };
        let Some(record) = &previous.decision else { return false };
        let accounted = self.before.values().sum::<i64>() + previous.pending();
        accounted == record.desired && (0..=i64::from(i32::MAX)).contains(&desired)
    }

    /// I6: replicas that need not move stay.
    pub(super) fn movement(&mut self) {
        let quiet = matches!(self.decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        // A changed replica number applies even if nothing else moves.
        let desired = self.decision.desired.unwrap_or(0);
        let follows = if self.duplicated() {
            self.after.keys().eq(self.before.keys()) && self.after.values().all(|n| *n == desired)
        } else {
            self.before.values().sum::<i64>() > desired
                && self.after.keys().all(|name| self.did_not_grow(name))
        };
        let follows = follows && !quiet;
        let held = if quiet { self.before.clone() } else { self.held() };
        if (quiet || self.still) && held != self.after && !self.karmada && !follows {
            self.fault("I6", "nothing was to move, and something did");
        }
        let steady = self.decision.mode == Mode::Steady && self.divided() && !self.karmada;
        if !steady || self.still {
            return;
        }
        if matches!(
            self.decision.trigger,
            Trigger::Failover | Trigger::ApplicationFailure | Trigger::OutsideClusterSet
        ) {
            // A failover moves only replicas of lost clusters: clusters that are not rejected lose nothing.
            for (name, before) in self.before.clone() {
                let refused = self.decision.verdict(name).is_some_and(|(verdict, _)| {
                    matches!(verdict.outcome, ClusterOutcome::Refused | ClusterOutcome::Gone)
                });
                let after = self.after.get(name).copied().unwrap_or(0);
                let fewer = self.before.values().sum::<i64>() > self.decision.desired.unwrap_or(0);
                if !refused && after < before && !fewer {
                    self.fault("I6", format!("{name} went from {before} to {after} in a failover"));
                }
            }
        }
        if self.decision.trigger == Trigger::Unschedulable {
            self.migration();
        }
        if self.decision.trigger == Trigger::Scale {
            let sum = |shares: &BTreeMap<&str, i64>| shares.values().sum::<i64>();
            let (old, new) = (sum(&self.before), sum(&self.after));
            let (mut up, mut down) = (0, 0);
            let names: BTreeSet<&str> =
                self.before.keys().chain(self.after.keys()).copied().collect();
            for name in names {
                let lost = self.decision.verdict(name).is_some_and(|(verdict, _)| {
                    matches!(verdict.outcome, ClusterOutcome::Refused | ClusterOutcome::Gone)
                });
                let of = |shares: &BTreeMap<&str, i64>| shares.get(name).copied().unwrap_or(0);
                let change = of(&self.after) - of(&self.before);
                if change > 0 {
                    up += change;
                } else if !lost {
                    down -= change;
                }
            }
            if new > old && down > 0 {
                self.fault("I6", format!("scaling up took {down} replicas away"));
            }
            if new < old && up > 0 && self.lost() == 0 {
                self.fault("I6", format!("scaling down gave {up} replicas"));
            }
        }
    }

    /// Only clusters with unschedulable replicas lose replicas, at most those, and as many as the others gain.
    fn migration(&mut self) {
        for (name, before) in self.before.clone() {
            let report = self.request.reports.get(name);
            let stuck = report.map_or(0, |report| report.unschedulable.max(0));
            let after = self.after.get(name).copied().unwrap_or(0);
            let fewer = self.before.values().sum::<i64>() > self.decision.desired.unwrap_or(0);
            if after < before - stuck && !fewer {
                let what = format!("{name} went from {before} to {after} with {stuck} stuck");
                self.fault("I6", what);
            }
        }
        let sum = |shares: &BTreeMap<&str, i64>| shares.values().sum::<i64>();
        let (old, new) = (sum(&self.before), sum(&self.after));
        if new < old.min(self.decision.desired.unwrap_or(0)) {
            self.fault("I6", format!("{old} replicas became {new} while unschedulable ones moved"));
        }
    }

    fn lost(&self) -> i64 {
        let lost = self.before.iter().filter(|(name, _)| {
            self.decision.verdict(name).is_none_or(|(verdict, _)| {
                matches!(verdict.outcome, ClusterOutcome::Refused | ClusterOutcome::Gone)
            })
        });
        lost.map(|(_, replicas)| *replicas).sum()
    }

    /// Eviction tasks: one per cluster, only for replicas that left for a reason other than scaling, and for no more
    /// than left.
    pub(super) fn evictions(&mut self) {
        let old: BTreeMap<&str, i64> = self
            .request
            .previous
            .iter()
            .flat_map(|previous| &previous.eviction_tasks)
            .map(|task| (task.from_cluster.as_str(), task.replicas))
            .collect();
        let mut seen = BTreeSet::new();
        for task in &self.decision.evictions.clone() {
            let name = task.from_cluster.as_str();
            if !seen.insert(name.to_owned()) {
                self.fault("I2", format!("two eviction tasks for {name}"));
            }
            let known = old.get(name).copied();
            let left = self.before.get(name).copied().unwrap_or(0)
                - self.after.get(name).copied().unwrap_or(0);
            let most = known.unwrap_or(0) + left.max(0);
            if task.replicas > most {
                self.fault(
                    "I1",
                    format!("{name} keeps {} replicas, {most} left it", task.replicas),
                );
            }
            if task.unplaced > task.replicas {
                let (unplaced, replicas) = (task.unplaced, task.replicas);
                self.fault("I1", format!("{name}: {unplaced} of {replicas} had no place"));
            }
            if known.is_none() && !self.before.contains_key(name) {
                self.fault("I2", format!("{name} is left but was no target"));
            }
            if task.keep && task.purge_mode == PurgeMode::Directly {
                self.fault("I2", format!("{name}: Directly keeps nothing"));
            }
        }
        // What is unschedulable does not run, so nothing waits for its replacement.
        let shrinks = matches!(self.decision.trigger, Trigger::Scale | Trigger::Unschedulable);
        if shrinks || self.still {
            return;
        }
        // A cluster that keeps a share gives up room for others as when scaling down.
        let shrinks: BTreeSet<String> = self.remaining().into_keys().map(str::to_owned).collect();
        for (name, before) in self.before.clone() {
            let after = self.after.get(name);
            if after.is_some() && shrinks.contains(name) {
                continue;
            }
            let leaves = after.is_none_or(|after| *after < before);
            if leaves && self.rows.contains_key(name) && !seen.contains(name) && !self.karmada {
                self.fault("I1", format!("{name} loses replicas without an eviction task"));
            }
        }
    }

    /// The decision has exactly one verdict per cluster.
    pub(super) fn report(&mut self) {
        if self.decision.outcome == Outcome::Invalid {
            return;
        }
        let mut seen = BTreeSet::new();
        for verdict in &self.decision.verdicts {
            for name in verdict.clusters.iter() {
                if !seen.insert(name.to_string()) {
                    self.faults.push(Fault { rule: "report", what: format!("{name} twice") });
                }
            }
        }
        let missing: Vec<&str> =
            self.rows.keys().copied().filter(|name| !seen.contains(*name)).collect();
        if !missing.is_empty() {
            self.fault("report", format!("no verdict on {missing:?}"));
        }
        if self.decision.pending.iter().any(|group| group.reason.is_empty() || group.replicas <= 0)
        {
            self.fault("report", "a pending group without number or reason");
        }
    }
}
