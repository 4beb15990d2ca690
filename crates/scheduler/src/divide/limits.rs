//! Rules on groups of candidates that apply to every strategy: skew over domains, minimum groups, bounds of groups.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Marks a candidate without a group.
pub const NONE: u32 = u32::MAX;

/// The rules and their current counts.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// topologySpreadConstraints.
    pub skews: Vec<Skew>,
    /// Minimum groups of spreadConstraints.
    pub minimums: Vec<Minimum>,
    /// Bounds of replicaScheduling.
    pub bounds: Vec<Bound>,
    /// Increases whenever a seat that a skew blocked may be free again.
    pub epoch: u64,
}

/// One topologySpreadConstraint.
#[derive(Debug, Clone, Default)]
pub struct Skew {
    /// The topology key, for reasons.
    pub key: String,
    /// maxSkew.
    pub max: i64,
    /// DoNotSchedule.
    pub hard: bool,
    /// Domain of each candidate; [`NONE`] = it lacks the key.
    pub of: Arc<[u32]>,
    /// Replicas by domain, of all counted bindings.
    pub counts: Vec<i64>,
    /// Whether the minimum counts as 0, because there are fewer domains than `minDomains`.
    pub zero: bool,
    /// Whether a domain without room still counts for the minimum.
    pub count_full: bool,
    /// Candidates with room left, by domain.
    pub open: Vec<u32>,
    pub(crate) low: i64,
    pub(crate) high: i64,
    /// Number of domains at the minimum and at the maximum. Either moves only when its last domain leaves it.
    pub(crate) at_low: usize,
    pub(crate) at_high: usize,
}

/// Minimum groups of one spreadConstraint.
#[derive(Debug, Clone, Default)]
pub struct Minimum {
    /// The topology key, for reasons.
    pub key: String,
    /// Groups that must have a replica.
    pub groups: i64,
    /// Group of each candidate.
    pub of: Vec<u32>,
    /// Own replicas by group.
    pub counts: Vec<i64>,
    /// Groups with a replica.
    pub(crate) used: i64,
}

/// Bounds on the sum of some candidates.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    /// Path of its field, for reasons.
    pub field: String,
    /// Whether each candidate is a member.
    pub member: Vec<bool>,
    /// Minimum sum.
    pub min: i64,
    /// Maximum sum.
    pub max: i64,
    /// Current sum.
    pub sum: i64,
}

/// Why a seat may not be added or removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Never again in this division.
    Never,
    /// Blocked until a minimum rises or a maximum falls. A soft rule yields if every other seat is blocked.
    Skewed {
        /// Whether the rule is DoNotSchedule.
        hard: bool,
    },
}

impl Skew {
    fn counted(&self) -> impl Iterator<Item = i64> + '_ {
        let full = |domain: usize| !self.count_full && self.open.get(domain) == Some(&0);
        (0..self.counts.len())
            .filter(move |domain| !full(*domain))
            .map(|domain| self.counts[domain])
    }

    fn settle(&mut self) {
        let low = self.counted().min().unwrap_or(self.high);
        self.low = if self.zero { 0 } else { low };
        self.high = self.counts.iter().copied().max().unwrap_or(0);
        self.at_low = self.counted().filter(|count| *count == self.low).count();
        self.at_high = self.counts.iter().filter(|count| **count == self.high).count();
    }

    /// Adds `by` to the count of a domain. Returns whether the minimum or maximum moved.
    fn count(&mut self, domain: usize, by: i64, closed: bool) -> bool {
        let before = self.counts[domain];
        let after = before.saturating_add(by);
        self.counts[domain] = after;
        if closed {
            let open = &mut self.open[domain];
            *open = if by > 0 { open.saturating_sub(1) } else { *open + 1 };
        }
        let ends = (self.low, self.high);
        self.at_low -= usize::from(before == self.low && self.at_low > 0);
        self.at_high -= usize::from(before == self.high && self.at_high > 0);
        if after > self.high || after < self.low || self.at_low == 0 || self.at_high == 0 || closed
        {
            self.settle();
        } else {
            self.at_low += usize::from(after == self.low);
            self.at_high += usize::from(after == self.high);
        }
        ends != (self.low, self.high)
    }

    /// The difference between the largest and the smallest domain.
    #[must_use]
    pub fn skew(&self) -> i64 {
        self.high.saturating_sub(self.low)
    }

    fn blocks_add(&self, index: usize) -> bool {
        match self.of[index] {
            NONE => true,
            domain => {
                self.counts[domain as usize].saturating_add(1).saturating_sub(self.low) > self.max
            }
        }
    }

    fn blocks_remove(&self, index: usize) -> bool {
        match self.of[index] {
            NONE => false,
            domain => {
                let left = self.counts[domain as usize] - 1;
                left < self.low && self.high.saturating_sub(left) > self.max
            }
        }
    }
}

impl Limits {
    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skews.is_empty() && self.minimums.is_empty() && self.bounds.is_empty()
    }

    /// Adds the running replicas to the counts. The domain counts of skews must already include other bindings.
    pub fn start(&mut self, seats: &[i64], rooms: &[i64]) {
        for skew in &mut self.skews {
            skew.open = vec![0; skew.counts.len()];
            for (index, domain) in skew.of.iter().enumerate().filter(|(_, d)| **d != NONE) {
                let count = &mut skew.counts[*domain as usize];
                *count = count.saturating_add(seats[index]);
                skew.open[*domain as usize] += u32::from(seats[index] < rooms[index]);
            }
            skew.settle();
        }
        for minimum in &mut self.minimums {
            for (index, group) in minimum.of.iter().enumerate().filter(|(_, g)| **g != NONE) {
                minimum.counts[*group as usize] += seats[index];
            }
            minimum.used = minimum.counts.iter().filter(|count| **count > 0).count() as i64;
        }
        for bound in &mut self.bounds {
            let members = bound.member.iter().zip(seats).filter(|(member, _)| **member);
            bound.sum = members.fold(0, |sum, (_, seats)| sum.saturating_add(*seats));
        }
    }

    /// Assigns candidates to cells: candidates with the same groups in all rules share a cell.
    #[must_use]
    pub fn cells(&self, len: usize) -> Vec<u32> {
        let mut cells = vec![0_u32; len];
        // Only looked up, never iterated over: the numbers follow the order of the candidates.
        let mut ids: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        // Refines the cells rule by rule: candidates stay together if this rule also puts them in the same group.
        let mut split = |group: &dyn Fn(usize) -> u32| {
            ids.clear();
            for (index, cell) in cells.iter_mut().enumerate() {
                let next = ids.len() as u32;
                *cell = *ids.entry((*cell, group(index))).or_insert(next);
            }
        };
        if let ([skew], [], []) = (&self.skews[..], &self.minimums[..], &self.bounds[..]) {
            return skew.of.iter().map(|of| (*of).min(skew.counts.len() as u32)).collect();
        }
        self.skews.iter().for_each(|skew| split(&|index| skew.of[index]));
        self.minimums.iter().for_each(|minimum| split(&|index| minimum.of[index]));
        self.bounds.iter().for_each(|bound| split(&|index| u32::from(bound.member[index])));
        cells
    }

    /// Whether the candidate may get one more replica.
    pub fn may_add(&self, index: usize) -> Result<(), Block> {
        if self.bounds.iter().any(|bound| bound.member[index] && bound.sum >= bound.max) {
            return Err(Block::Never);
        }
        match self.skews.iter().filter(|skew| skew.blocks_add(index)).map(|skew| skew.hard).max() {
            Some(hard) => Err(Block::Skewed { hard }),
            None => Ok(()),
        }
    }

    /// Whether the candidate may lose a replica.
    pub fn may_remove(&self, index: usize) -> Result<(), Block> {
        let last_of_group = |minimum: &&Minimum| {
            let group = minimum.of[index];
            group != NONE && minimum.counts[group as usize] <= 1 && minimum.used <= minimum.groups
        };
        if self.minimums.iter().any(|minimum| last_of_group(&minimum))
            || self.bounds.iter().any(|bound| bound.member[index] && bound.sum <= bound.min)
        {
            return Err(Block::Never);
        }
        match self.skews.iter().filter(|s| s.blocks_remove(index)).map(|s| s.hard).max() {
            Some(hard) => Err(Block::Skewed { hard }),
            None => Ok(()),
        }
    }

    /// Counts one added (`by` = 1) or removed (-1) replica. `closed`: the candidate became full, or is no longer full.
    pub fn count(&mut self, index: usize, by: i64, closed: bool) {
        for skew in &mut self.skews {
            if skew.of[index] == NONE {
                continue;
            }
            let moved = skew.count(skew.of[index] as usize, by, closed);
            self.epoch += u64::from(moved);
        }
        for minimum in &mut self.minimums {
            if minimum.of[index] != NONE {
                let count = &mut minimum.counts[minimum.of[index] as usize];
                let was = *count > 0;
                *count += by;
                minimum.used += i64::from(*count > 0) - i64::from(was);
            }
        }
        for bound in self.bounds.iter_mut().filter(|bound| bound.member[index]) {
            bound.sum += by;
        }
    }

    /// Counts many replicas at once, from the seats `before` to the seats `after`.
    pub fn shift(&mut self, before: &[i64], after: &[i64], caps: &[i64]) {
        let moved: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        for skew in &mut self.skews {
            for index in moved.iter().filter(|index| skew.of[**index] != NONE) {
                let domain = skew.of[*index] as usize;
                let count = &mut skew.counts[domain];
                *count = count.saturating_add(after[*index] - before[*index]);
                let (was, is) = (before[*index] < caps[*index], after[*index] < caps[*index]);
                skew.open[domain] = skew.open[domain] + u32::from(is) - u32::from(was);
            }
            skew.settle();
        }
        for minimum in &mut self.minimums {
            for index in moved.iter().filter(|index| minimum.of[**index] != NONE) {
                minimum.counts[minimum.of[*index] as usize] += after[*index] - before[*index];
            }
            minimum.used = minimum.counts.iter().filter(|count| **count > 0).count() as i64;
        }
        for bound in &mut self.bounds {
            for index in moved.iter().filter(|index| bound.member[**index]) {
                bound.sum = bound.sum.saturating_add(after[*index] - before[*index]);
            }
        }
        self.epoch += 1;
    }

    /// How much a seat for this candidate would violate the soft skews.
    #[must_use]
    pub fn strain(&self, index: usize) -> i64 {
        let soft = self.skews.iter().filter(|skew| !skew.hard);
        soft.map(|skew| match skew.of[index] {
            // Candidates without the key come last.
            NONE => i64::MAX / 4,
            domain => skew.counts[domain as usize] - skew.low,
        })
        .fold(0, i64::saturating_add)
    }
}

impl Minimum {
    /// Groups that still lack a replica.
    #[must_use]
    pub fn missing(&self) -> i64 {
        (self.groups - self.used).max(0)
    }

    /// Whether the candidate's group has no replica yet.
    #[must_use]
    pub fn is_new(&self, index: usize) -> bool {
        self.of[index] != NONE && self.counts[self.of[index] as usize] == 0
    }
}
