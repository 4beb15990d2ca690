//! Converts rows to the input of a division, and splits it into the parts of tiers and subsets.

use atoll_api::binding::{Mode, Trigger};

use super::migration;
use super::state::Cycle;
use crate::divide::Start;
use crate::divide::input::DivisionInput;
use crate::divide::limits::{Bound, Limits, Minimum, NONE, Skew};
use crate::plugins::workload_affinity;

impl Cycle<'_> {
    /// Whether the division starts from the running replicas.
    #[must_use]
    pub fn start(&self) -> Start {
        if self.mode == Mode::Steady { Start::Running } else { Start::Zero }
    }

    /// The candidates, as the input of a division.
    #[must_use]
    pub fn division_input(&self) -> DivisionInput {
        let rows = &self.candidates;
        let desired = self.intent.desired.unwrap_or(0);
        let once = self.divides_once();
        let mut input = DivisionInput {
            seats: rows.iter().map(|row| self.targets.on(*row as usize)).collect(),
            more: rows.iter().map(|row| self.more(*row as usize)).collect(),
            frozen: vec![false; rows.len()],
            ties: workload_affinity::ranks(self, self.ties(rows)),
            limits: self.limits(desired),
        };
        let apart =
            self.intent.needs.node.as_ref().is_some_and(|n| !n.self_anti_affinity.is_empty());
        for (index, row) in rows.iter().enumerate() {
            let row = *row as usize;
            // Capacity was counted node by node. Anti-affinity with the replicas that already run reduces it.
            if apart
                && let Some(most) = self.snapshot.row(row).supply.most_apart(&self.intent.needs)
            {
                let more = (most - input.seats[index]).max(0);
                input.more[index] = Some(input.more[index].map_or(more, |have| have.min(more)));
            }
            input.frozen[index] =
                self.kept.contains(row) || (once && self.targets.rows.contains(row));
            if let Some((most, _, _)) = self.verdicts.partial.get(&row) {
                let more = (most - input.seats[index]).max(0);
                input.more[index] = Some(input.more[index].map_or(more, |have| have.min(more)));
            }
        }
        if self.trigger == Trigger::Unschedulable {
            migration::restrict(self, &mut input);
        }
        input
    }

    /// Completions of a Job are immutable. A Job is divided once, and a cluster never gets more than its first part.
    #[must_use]
    pub fn divides_once(&self) -> bool {
        let template = &self.request.template;
        template.kind == "Job" && template.group() == "batch" && !self.as_karmada()
    }

    fn limits(&self, desired: i64) -> Limits {
        let pick = |of: &[u32], row: &u32| of.get(*row as usize).copied().unwrap_or(NONE);
        let rows = || self.candidates.iter();
        Limits {
            skews: self
                .rules
                .skews
                .iter()
                .map(|skew| Skew {
                    of: rows().map(|row| pick(&skew.of, row)).collect(),
                    ..skew.clone()
                })
                .collect(),
            minimums: self
                .rules
                .minimums
                .iter()
                .filter(|minimum| minimum.groups > 0)
                .map(|minimum| Minimum {
                    of: rows().map(|row| pick(&minimum.of, row)).collect(),
                    groups: minimum.groups.min(desired),
                    ..minimum.clone()
                })
                .collect(),
            bounds: self
                .rules
                .bounds
                .iter()
                .map(|bound| Bound {
                    member: self
                        .candidates
                        .iter()
                        .map(|row| bound.member.get(*row as usize).copied().unwrap_or(false))
                        .collect(),
                    ..bound.clone()
                })
                .collect(),
            epoch: 0,
        }
    }
}

impl DivisionInput {
    /// The part for these candidates. `others` are the replicas of the other candidates, which the rules still count.
    #[must_use]
    pub fn part(&self, indices: &[usize], others: &[i64]) -> Self {
        let mut inside = vec![false; self.len()];
        indices.iter().for_each(|index| inside[*index] = true);
        let outsiders: Vec<usize> = (0..self.len()).filter(|index| !inside[*index]).collect();
        let mut limits = self.limits.clone();
        for skew in &mut limits.skews {
            for index in outsiders.iter().filter(|index| skew.of[**index] != NONE) {
                skew.counts[skew.of[*index] as usize] += others[*index];
            }
            skew.of = indices.iter().map(|index| skew.of[*index]).collect();
        }
        for minimum in &mut limits.minimums {
            for index in outsiders.iter().filter(|index| minimum.of[**index] != NONE) {
                minimum.counts[minimum.of[*index] as usize] += others[*index];
            }
            minimum.of = indices.iter().map(|index| minimum.of[*index]).collect();
        }
        for bound in &mut limits.bounds {
            let elsewhere: i64 =
                outsiders.iter().filter(|i| bound.member[**i]).map(|i| others[*i]).sum();
            bound.min = bound.min.saturating_sub(elsewhere).max(0);
            bound.max = bound.max.saturating_sub(elsewhere).max(0);
            bound.member = indices.iter().map(|index| bound.member[*index]).collect();
        }
        Self {
            seats: indices.iter().map(|index| self.seats[*index]).collect(),
            more: indices.iter().map(|index| self.more[*index]).collect(),
            frozen: indices.iter().map(|index| self.frozen[*index]).collect(),
            ties: self.ties.part(indices),
            limits,
        }
    }
}
