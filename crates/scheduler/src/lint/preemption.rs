//! Checks preemptions from both sides: what a decision may take from others, and what it must give to others.

use std::collections::BTreeMap;

use atoll_api::binding::Trigger;

use super::check::Check;
use crate::state::standing::divides_by_room;
use crate::state::tables::BindingFacts;
use atoll_decision::BindingKey;

/// Most victims of a decision, whatever the profile says.
const MOST: usize = 64;

impl Check<'_> {
    /// What committed decisions leave of the shares before this decision, by cluster. Only clusters that lose something.
    pub(super) fn remaining(&self) -> BTreeMap<&str, i64> {
        let mut remaining = BTreeMap::new();
        for claim in self.snapshot.claims(&self.request.key).iter().filter(|claim| claim.committed)
        {
            let previous = self.request.previous.as_ref();
            if previous.is_some_and(|p| p.preempted_by.contains(&claim.taken.decision)) {
                continue;
            }
            let cluster = claim.taken.cluster.as_str();
            let before = self.before.get(cluster).copied().unwrap_or(0);
            if before > claim.taken.remaining && self.rows.contains_key(cluster) {
                let least = remaining.entry(cluster).or_insert(before);
                *least = claim.taken.remaining.min(*least);
            }
        }
        remaining
    }

    /// Room that others took is given up, exactly once, and does not come back in the same decision.
    pub(super) fn gives_room(&mut self) {
        let remaining: Vec<(String, i64)> =
            self.remaining().into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        let quiet = matches!(self.decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        if !remaining.is_empty() && quiet && !self.request.suspended {
            self.fault("preempted", "the binding keeps room that another decision took");
        }
        if self.request.suspended {
            return;
        }
        for (name, most) in remaining {
            let after = self.after.get(name.as_str()).copied().unwrap_or(0);
            if after > most {
                self.fault(
                    "preempted",
                    format!("{name} keeps {after} replicas, {most} may remain"),
                );
            }
        }
        let claims = self.snapshot.claims(&self.request.key);
        for claim in claims.iter().filter(|claim| claim.committed) {
            if !self.decision.preempted_by.contains(&claim.taken.decision) {
                let what = format!("decision {} is not followed", claim.taken.decision);
                self.fault("preempted", what);
            }
        }
        if self.decision.preempted_by.len() > MOST {
            self.fault("preempted", format!("more than {MOST} decisions are followed"));
        }
    }

    /// Only room of lower priority is taken, only what is there, and only where it is used.
    pub(super) fn takes_room(&mut self) {
        let new: Vec<_> = self.decision.new_preemptions().cloned().collect();
        if self.decision.preempts.len() > MOST {
            self.fault("preempts", format!("more than {MOST} victims"));
        }
        if new.is_empty() {
            return;
        }
        let class = self.request.priority.class.as_ref();
        if class.is_some_and(|class| class.never_preempts) {
            self.fault("preempts", "the class never preempts");
        }
        if self.still || self.karmada || !self.divided() {
            self.fault("preempts", "nothing is placed, and room is taken");
        }
        for taken in &new {
            let key = BindingKey::of(taken.namespace.as_deref(), &taken.name);
            let Some(facts) = self.snapshot.binding(&key).cloned() else {
                self.fault("preempts", format!("{key} does not exist"));
                continue;
            };
            if key == self.request.key || facts.standing.priority >= self.request.priority.value {
                self.fault("preempts", format!("{key} has no lower priority"));
            }
            if !facts.standing.preemptible {
                self.fault("preempts", format!("{key} cannot be preempted"));
            }
            let there = self.unclaimed(&facts, &taken.cluster);
            if taken.replicas <= 0 || taken.replicas + taken.remaining != there {
                let what = format!("{key} has {there} unclaimed replicas on {}", taken.cluster);
                self.fault("preempts", what);
            }
            let (before, after) = (&self.before, &self.after);
            let of =
                |shares: &BTreeMap<&str, i64>| shares.get(&*taken.cluster).copied().unwrap_or(0);
            if of(after) <= of(before) {
                self.fault("preempts", format!("nothing is placed on {}", taken.cluster));
            }
        }
    }

    /// Replicas of another binding on a cluster that no decision took yet.
    fn unclaimed(&self, facts: &BindingFacts, cluster: &str) -> i64 {
        let shares = facts.shares.iter().filter(|share| share.name == cluster);
        let mut there = shares.map(|share| share.replicas).sum::<i64>();
        for claim in self.snapshot.claims(&facts.key) {
            let links = facts.standing.links.as_ref();
            let done = links.is_some_and(|l| l.preempted_by.contains(&claim.taken.decision));
            if claim.taken.cluster == cluster && !done {
                there = there.min(claim.taken.remaining);
            }
        }
        there
    }

    /// Pods that may be placed on a cluster with this difference of free and promised ones: next to them, what the
    /// decision takes. What leaves anyway only makes up for promises beyond the free ones.
    pub(super) fn pods_with_victims(&self, cluster: &str, left: i64) -> i64 {
        let new = self.decision.new_preemptions().filter(|taken| taken.cluster == cluster);
        let new: i64 = new.map(|taken| taken.replicas).sum();
        if new == 0 && self.decision.new_preemptions().next().is_none() {
            return left;
        }
        let others = self.snapshot.all_bindings().filter(|facts| facts.key != self.request.key);
        let leaving = others.map(|facts| {
            let share = facts.shares.iter().find(|share| share.name == cluster);
            let share = share.map_or(0, |share| share.replicas);
            let reported = facts.reported.get(cluster).copied().unwrap_or(0);
            (share - self.unclaimed(facts, cluster)) + (reported - share).max(0)
        });
        new + if left < 0 { (left + leaving.sum::<i64>()).min(0) } else { left }
    }

    /// Whether the placement places nothing beyond the free room.
    pub(super) fn by_room(&self) -> bool {
        self.steered() || divides_by_room(&self.request.placement)
    }
}
