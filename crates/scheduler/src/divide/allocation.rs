//! Division under rules on groups, one seat at a time. One seat costs O(log N), whatever the rules.
//!
//! Candidates with the same groups share a cell. A queue keeps its cells ordered by their best candidate. A cell that a
//! skew blocks is parked until the minimum or maximum of that skew changes. Strategies only define the [`SeatKey`] by
//! which candidates compete. This is the reference implementation; for many seats, [`super::bulk`] skips steps whose
//! result is certain.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::bulk;
use super::claims::Claims;
use super::input::DivisionInput;
use super::limits::{Block, Limits};
use super::seat_key::SeatKey;

/// Most seats that are dealt one by one if no shortcut applies: with several skews at once, or a WorkloadPolicy under
/// rules of the placement. It limits a decision to seconds and still allows a million replicas.
pub const MOST_STEPS: i64 = 2_000_000;

/// The state of a division.
#[derive(Debug, Clone)]
pub struct Allocation {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Maximum replicas by candidate.
    pub caps: Vec<i64>,
    /// The rules, with their current counts.
    pub limits: Limits,
    /// Whether dealing stopped at [`MOST_STEPS`].
    pub exhausted: bool,
    /// Minimum number of seats for which a bulk step is tried.
    pub min_bulk: i64,
    /// Most candidates that all compete: a choice among them would cost more.
    pub few_candidates: usize,
    /// Most cells that are searched one by one. A skew parks nearly all of its cells in each round.
    pub few_cells: usize,
    cells: Vec<u32>,
}

const FEW_CANDIDATES: usize = 64;
const FEW_CELLS: usize = 64;

impl Allocation {
    /// An allocation that starts with these seats.
    #[must_use]
    pub fn new(input: &DivisionInput, seats: Vec<i64>, caps: Vec<i64>) -> Self {
        let mut limits = input.limits.clone();
        limits.start(&seats, &caps);
        let cells =
            if limits.is_empty() { vec![0; seats.len()] } else { limits.cells(seats.len()) };
        let min_bulk = 4 * seats.len() as i64 + 64;
        let (few_candidates, few_cells) = (FEW_CANDIDATES, FEW_CELLS);
        Self { seats, caps, limits, exhausted: false, min_bulk, few_candidates, few_cells, cells }
    }

    /// Sets the seats.
    pub fn set_seats(&mut self, seats: Vec<i64>) {
        self.limits.shift(&self.seats, &seats, &self.caps);
        self.seats = seats;
    }

    /// Whether the candidate may get one more replica.
    pub fn may_add(&self, index: usize) -> Result<(), Block> {
        if self.seats[index] >= self.caps[index] {
            return Err(Block::Never);
        }
        self.limits.may_add(index)
    }

    /// Whether the candidate may lose a replica.
    pub fn may_remove(&self, index: usize) -> Result<(), Block> {
        if self.seats[index] <= 0 {
            return Err(Block::Never);
        }
        self.limits.may_remove(index)
    }

    /// Gives the candidate a replica.
    pub fn add(&mut self, index: usize) {
        self.seats[index] += 1;
        self.limits.count(index, 1, self.seats[index] == self.caps[index]);
    }

    /// Takes a replica from the candidate.
    pub fn remove(&mut self, index: usize) {
        let full = self.seats[index] == self.caps[index];
        self.seats[index] -= 1;
        self.limits.count(index, -1, full);
    }

    /// Total number of replicas.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.seats.iter().fold(0, |sum, seats| sum.saturating_add(*seats))
    }
}

/// Candidates in one competition order. `E` is [`SeatKey`] when scaling up and [`RemovalKey`] when scaling down.
#[derive(Debug)]
pub struct CandidateQueue<E: DirectedKey> {
    cells: Vec<BinaryHeap<E>>,
    open: BinaryHeap<(E, u32)>,
    parked: Vec<u32>,
    is_parked: Vec<bool>,
    epoch: u64,
    /// Whether the few cells are searched one by one, without `open` and `parked`.
    few: bool,
}

/// A key, ordered for one direction.
pub trait DirectedKey: Ord + Copy + From<SeatKey> {
    /// The key.
    fn key(&self) -> &SeatKey;
    /// Whether the candidate may gain or lose a replica in this direction.
    fn check(allocation: &Allocation, index: usize) -> Result<(), Block>;
}

impl DirectedKey for SeatKey {
    fn key(&self) -> &SeatKey {
        self
    }

    fn check(allocation: &Allocation, index: usize) -> Result<(), Block> {
        allocation.may_add(index)
    }
}

/// The order of removal: the last seat first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemovalKey(Reverse<SeatKey>);

impl From<SeatKey> for RemovalKey {
    fn from(key: SeatKey) -> Self {
        Self(Reverse(key))
    }
}

impl DirectedKey for RemovalKey {
    fn key(&self) -> &SeatKey {
        &self.0.0
    }

    fn check(allocation: &Allocation, index: usize) -> Result<(), Block> {
        allocation.may_remove(index)
    }
}

impl<E: DirectedKey> CandidateQueue<E> {
    /// Creates a queue for these keys.
    pub fn new(allocation: &Allocation, keys: Vec<SeatKey>) -> Self {
        let count = allocation.cells.iter().max().map_or(0, |last| *last as usize + 1);
        let cell = |key: &SeatKey| allocation.cells[key.index as usize] as usize;
        let mut sizes = vec![0; count];
        keys.iter().for_each(|key| sizes[cell(key)] += 1);
        let mut heaps: Vec<Vec<E>> = sizes.into_iter().map(Vec::with_capacity).collect();
        keys.into_iter().for_each(|key| heaps[cell(&key)].push(key.into()));
        let cells: Vec<BinaryHeap<E>> = heaps.into_iter().map(BinaryHeap::from).collect();
        let few = cells.len() <= allocation.few_cells;
        let top = |(at, cell): (u32, &BinaryHeap<E>)| Some((*cell.peek()?, at));
        let open =
            if few { BinaryHeap::new() } else { (0..).zip(&cells).filter_map(top).collect() };
        let is_parked = if few { Vec::new() } else { vec![false; cells.len()] };
        Self { cells, open, parked: Vec::new(), is_parked, epoch: allocation.limits.epoch, few }
    }

    /// The next candidate, or `None` when all are done or blocked. If only soft rules block, the candidate that
    /// violates them least. Callers must call [`CandidateQueue::requeue`] before the next call.
    pub fn next(&mut self, allocation: &Allocation) -> Option<usize> {
        if self.few {
            return self.best_of_few(allocation);
        }
        if self.epoch != allocation.limits.epoch {
            self.epoch = allocation.limits.epoch;
            for at in std::mem::take(&mut self.parked) {
                self.is_parked[at as usize] = false;
                self.offer(at);
            }
        }
        while let Some((entry, at)) = self.open.pop() {
            let index = entry.key().index as usize;
            match E::check(allocation, index) {
                Ok(()) => return Some(index),
                Err(Block::Skewed { .. }) => {
                    self.is_parked[at as usize] = true;
                    self.parked.push(at);
                }
                Err(Block::Never) => {
                    // Only this candidate is finished. Its cell may hold others with room.
                    self.cells[at as usize].pop();
                    self.offer(at);
                }
            }
        }
        let top = |cell: &BinaryHeap<E>| cell.peek().map(|entry| entry.key().index as usize);
        for at in &self.parked {
            // Removes finished candidates in front of the others in the cell.
            let cell = &mut self.cells[*at as usize];
            while top(cell).is_some_and(|index| E::check(allocation, index) == Err(Block::Never)) {
                cell.pop();
            }
        }
        let soft = |at: &&u32| {
            let index = top(&self.cells[**at as usize]);
            index.is_some_and(|index| {
                E::check(allocation, index) == Err(Block::Skewed { hard: false })
            })
        };
        let easiest = self.parked.iter().filter(soft).filter_map(|at| {
            let entry = self.cells[*at as usize].peek()?;
            let index = entry.key().index as usize;
            Some((Reverse(allocation.limits.strain(index)), *entry, index))
        });
        easiest.max().map(|(_, _, index)| index)
    }

    fn best_of_few(&mut self, allocation: &Allocation) -> Option<usize> {
        let (mut best, mut yielding): (Option<E>, Option<(Reverse<i64>, E)>) = (None, None);
        for cell in &mut self.cells {
            while let Some(top) = cell.peek().copied().filter(|top| Some(*top) > best) {
                match E::check(allocation, top.key().index as usize) {
                    Ok(()) => best = Some(top),
                    Err(Block::Skewed { hard: true }) => {}
                    Err(Block::Skewed { hard: false }) => {
                        let strain = allocation.limits.strain(top.key().index as usize);
                        yielding = yielding.max(Some((Reverse(strain), top)));
                    }
                    // Only this candidate is finished. Its cell may hold others with room.
                    Err(Block::Never) => {
                        cell.pop();
                        continue;
                    }
                }
                break;
            }
        }
        let best = best.or(yielding.map(|(_, top)| top))?;
        Some(best.key().index as usize)
    }

    /// Reinserts the candidate with its next key, or removes it.
    pub fn requeue(&mut self, allocation: &Allocation, index: usize, key: Option<SeatKey>) {
        let at = allocation.cells[index];
        let cell = &mut self.cells[at as usize];
        debug_assert!(cell.peek().is_some_and(|top| top.key().index as usize == index));
        cell.pop();
        if let Some(key) = key {
            cell.push(key.into());
        }
        // A cell that moved despite a soft rule stays parked, with its next candidate in front.
        if !self.few && !self.is_parked[at as usize] {
            self.offer(at);
        }
    }

    fn offer(&mut self, at: u32) {
        if let Some(entry) = self.cells[at as usize].peek() {
            self.open.push((*entry, at));
        }
    }
}

/// Deals up to `take` replicas in the order of the claims, after minimum groups and minimum bounds are met. Returns the
/// number that could not be placed.
pub fn deal(allocation: &mut Allocation, mut take: i64, claims: &Claims) -> i64 {
    if allocation.limits.is_empty() {
        let all: Vec<usize> = (0..allocation.seats.len()).collect();
        return claims.deal(&mut allocation.seats, &allocation.caps, &all, take);
    }
    take -= fill_groups(allocation, take, claims);
    take -= fill_bounds(allocation, take, claims);
    take - deal_within(allocation, take, claims)
}

/// Deals in bulk while that advances far, otherwise by single steps. Returns the number dealt.
fn deal_within(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let mut budget = StepBudget::new(allocation.min_bulk);
    let mut dealt = 0;
    while dealt < take {
        let in_bulk = if budget.allows_bulk(take - dealt) {
            bulk::up(allocation, claims, take - dealt)
        } else {
            0
        };
        dealt += in_bulk;
        let steps = budget.steps(in_bulk, take - dealt);
        let stepped = deal_stepwise(allocation, steps, claims);
        dealt += stepped;
        if stepped < steps {
            break;
        }
        if budget.is_exhausted() {
            allocation.exhausted = dealt < take;
            break;
        }
    }
    dealt
}

/// Alternates bulk and single steps. The less a bulk step achieves, the more single steps follow before the next one.
#[derive(Debug)]
pub struct StepBudget {
    min_bulk: i64,
    now: i64,
    left: i64,
}

impl StepBudget {
    /// At most [`MOST_STEPS`] single steps in total; `min_bulk` after a successful bulk step.
    #[must_use]
    pub fn new(min_bulk: i64) -> Self {
        Self { min_bulk, now: min_bulk, left: MOST_STEPS }
    }

    /// Whether this many seats justify a bulk step.
    #[must_use]
    pub fn allows_bulk(&self, seats: i64) -> bool {
        seats > self.min_bulk
    }

    /// Number of single steps after a bulk step.
    pub fn steps(&mut self, in_bulk: i64, open: i64) -> i64 {
        self.now = if in_bulk >= self.now { self.min_bulk } else { self.now.saturating_mul(2) };
        let steps = self.now.max(1).min(open).min(self.left);
        self.left -= steps;
        steps
    }

    /// Whether no steps are left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left <= 0
    }
}

/// The keys of the candidates that can get one of the next `take` seats: the first of each cell. Candidates of a cell are
/// blocked together, so each of those before another one in its cell gets a seat first.
fn contenders(allocation: &Allocation, claims: &Claims, take: i64) -> Vec<SeatKey> {
    let open = |at: &usize| allocation.seats[*at] < allocation.caps[*at];
    let keys = (0..allocation.seats.len())
        .filter(open)
        .filter_map(|at| claims.key_before_ties(at, allocation.seats[at]));
    let most = usize::try_from(most_of_a_cell(allocation, take)).unwrap_or(0);
    if most.max(allocation.few_candidates) >= allocation.seats.len() {
        return keys.map(|key| claims.with_tie(key)).collect();
    }
    let keys: Vec<SeatKey> = keys.collect();
    let count = allocation.cells.iter().max().map_or(0, |last| *last as usize + 1);
    let cell = |index: u32| allocation.cells[index as usize] as usize;
    let mut first = Vec::new();
    let alike = |key: &SeatKey| (key.rank, key.seats) == (keys[0].rank, keys[0].seats);
    if keys.iter().all(alike) {
        // Only the weights differ, as in a first division.
        let mut cells: Vec<Vec<(u64, u32)>> = vec![Vec::new(); count];
        (0..).zip(&keys).for_each(|(at, key)| cells[cell(key.index)].push((key.weight, at)));
        for cell in cells {
            let key = |(_, at): (u64, u32)| claims.with_tie(keys[at as usize]);
            keep_first(cell, most, |a, b| a.0.cmp(&b.0), key, &mut first);
        }
        return first;
    }
    let mut cells: Vec<Vec<SeatKey>> = vec![Vec::new(); count];
    keys.iter().for_each(|key| cells[cell(key.index)].push(*key));
    for cell in cells {
        keep_first(cell, most, SeatKey::claim_cmp, |key| claims.with_tie(key), &mut first);
    }
    first
}

/// Adds the keys of the greatest `most` of a cell. Ties are only broken where they decide.
fn keep_first<K: Copy>(
    mut cell: Vec<K>,
    most: usize,
    order: impl Fn(&K, &K) -> Ordering,
    key: impl Fn(K) -> SeatKey,
    first: &mut Vec<SeatKey>,
) {
    if cell.len() <= most || most == 0 {
        return first.extend(cell.into_iter().take(most).map(key));
    }
    cell.select_nth_unstable_by(most - 1, |a, b| order(b, a));
    let last = cell[most - 1];
    let kept = first.len();
    first.extend(cell[..most].iter().filter(|one| order(one, &last).is_gt()).map(|one| key(*one)));
    let missing = most - (first.len() - kept);
    let equal = cell.iter().filter(|one| order(one, &last).is_eq());
    let mut equal: Vec<SeatKey> = equal.map(|one| key(*one)).collect();
    if missing < equal.len() {
        equal.select_nth_unstable_by(missing - 1, |a, b| b.cmp(a));
        equal.truncate(missing);
    }
    first.extend(equal);
}

/// Most of the next `take` seats that the candidates of one cell can get.
fn most_of_a_cell(allocation: &Allocation, take: i64) -> i64 {
    let [skew] = &allocation.limits.skews[..] else { return take };
    if !skew.hard || skew.counts.is_empty() {
        return take;
    }
    // A domain that becomes full would no longer hold the minimum down.
    let mut room = vec![0_i64; skew.counts.len()];
    for (at, domain) in skew.of.iter().enumerate() {
        if let Some(room) = room.get_mut(*domain as usize) {
            let more = allocation.caps[at].saturating_sub(allocation.seats[at]).max(0);
            *room = room.saturating_add(more);
        }
    }
    let counted = |domain: &usize| skew.count_full || skew.open[*domain] > 0;
    let domains: Vec<usize> = (0..room.len()).filter(counted).collect();
    let stay = skew.count_full || domains.iter().all(|domain| room[*domain] > take);
    if domains.is_empty() || !stay {
        return take;
    }
    // The minimum is at most the mean once all are dealt, and no domain gets further above it than maxSkew.
    let counts = domains.iter().map(|domain| skew.counts[*domain]).fold(take, i64::saturating_add);
    let minimum = if skew.zero { 0 } else { counts / domains.len() as i64 };
    let emptiest = skew.counts.iter().copied().min().unwrap_or(0);
    minimum.saturating_add(skew.max).saturating_sub(emptiest).clamp(0, take)
}

pub(super) fn deal_stepwise(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let keys = contenders(allocation, claims, take);
    deal_to(allocation, take, claims, keys)
}

/// Deals seat by seat to the candidates of these keys.
pub(super) fn deal_to(
    allocation: &mut Allocation,
    take: i64,
    claims: &Claims,
    keys: Vec<SeatKey>,
) -> i64 {
    let mut queue = CandidateQueue::<SeatKey>::new(allocation, keys);
    let mut dealt = 0;
    while dealt < take {
        let Some(index) = queue.next(allocation) else { break };
        allocation.add(index);
        let next = claims.key(index, allocation.seats[index]);
        queue.requeue(allocation, index, next);
        dealt += 1;
    }
    dealt
}

/// Deals one replica to each further group that spreadConstraints require.
fn fill_groups(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let mut dealt = 0;
    for constraint in 0..allocation.limits.minimums.len() {
        if allocation.limits.minimums[constraint].missing() == 0 {
            continue;
        }
        let mut heap: BinaryHeap<SeatKey> = (0..allocation.seats.len())
            .filter_map(|at| claims.key(at, allocation.seats[at]))
            .collect();
        while let Some(best) = heap.pop() {
            let minimum = &allocation.limits.minimums[constraint];
            if minimum.missing() == 0 || dealt >= take {
                break;
            }
            let index = best.index as usize;
            let allowed =
                matches!(allocation.may_add(index), Ok(()) | Err(Block::Skewed { hard: false }));
            if minimum.is_new(index) && allowed {
                allocation.add(index);
                dealt += 1;
            }
        }
    }
    dealt
}

/// Deals the replicas that `bounds[].min` requires.
fn fill_bounds(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let mut dealt = 0;
    for at in 0..allocation.limits.bounds.len() {
        let bound = &allocation.limits.bounds[at];
        let lacks = (bound.min - bound.sum).min(take - dealt);
        if lacks > 0 {
            let members: Vec<usize> =
                (0..allocation.seats.len()).filter(|index| bound.member[*index]).collect();
            dealt += deal_within(allocation, lacks, &claims.among(&members));
        }
    }
    dealt
}

/// Takes back up to `take` replicas, the last seat first. Returns the number that could not be taken.
pub fn take_back(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let mut left = take;
    if !allocation.limits.is_empty() {
        left = take_back_within(allocation, take, claims);
        if left == 0 {
            return 0;
        }
        // The total must shrink: rules choose which replicas go, but cannot prevent it.
        allocation.limits = Limits::default();
        allocation.cells = vec![0; allocation.seats.len()];
    }
    let all: Vec<usize> = (0..allocation.seats.len()).collect();
    let floors = vec![0; allocation.seats.len()];
    claims.take_back(&mut allocation.seats, &floors, &all, left)
}

fn take_back_within(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let mut budget = StepBudget::new(allocation.min_bulk);
    let mut left = take;
    while left > 0 {
        let in_bulk =
            if budget.allows_bulk(left) { bulk::down(allocation, claims, left) } else { 0 };
        left -= in_bulk;
        let steps = budget.steps(in_bulk, left);
        let stepped = take_back_stepwise(allocation, steps, claims);
        left -= stepped;
        if stepped < steps || budget.is_exhausted() {
            break;
        }
    }
    left
}

fn take_back_stepwise(allocation: &mut Allocation, take: i64, claims: &Claims) -> i64 {
    let keys: Vec<SeatKey> = (0..allocation.seats.len())
        .filter_map(|at| claims.last(at, allocation.seats[at]))
        .collect();
    let mut queue = CandidateQueue::<RemovalKey>::new(allocation, keys);
    let mut taken = 0;
    while taken < take {
        let Some(index) = queue.next(allocation) else { break };
        allocation.remove(index);
        let next = claims.last(index, allocation.seats[index]);
        queue.requeue(allocation, index, next);
        taken += 1;
    }
    taken
}
