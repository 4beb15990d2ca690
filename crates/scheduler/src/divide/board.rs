//! Division under rules on groups, one seat at a time. One seat costs O(log N), whatever the rules.
//!
//! Candidates with the same groups share a cell. A lane keeps its cells ordered by their best candidate. A cell that a
//! skew blocks is parked until the minimum or maximum of that skew changes. Strategies only define the [`Key`] by which
//! candidates compete. This is the reference implementation; for many seats, [`super::leap`] skips steps whose result
//! is certain.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::claims::Claims;
use super::ground::Ground;
use super::key::Key;
use super::leap;
use super::limits::{Block, Limits};

/// Most seats that are dealt one by one if no shortcut applies: with several skews at once, or a WorkloadPolicy under
/// rules of the placement. It limits a decision to seconds and still allows a million replicas.
pub const MOST_STEPS: i64 = 2_000_000;

/// The state of a division.
#[derive(Debug, Clone)]
pub struct Board {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Maximum replicas by candidate.
    pub caps: Vec<i64>,
    /// The rules, with their current counts.
    pub limits: Limits,
    /// Whether dealing stopped at [`MOST_STEPS`].
    pub exhausted: bool,
    /// Minimum number of seats for which a leap is tried.
    pub patch: i64,
    cells: Vec<u32>,
}

impl Board {
    /// A board that starts with these seats.
    #[must_use]
    pub fn new(ground: &Ground, seats: Vec<i64>, caps: Vec<i64>) -> Self {
        let mut limits = ground.limits.clone();
        limits.start(&seats, &caps);
        let cells =
            if limits.is_empty() { vec![0; seats.len()] } else { limits.cells(seats.len()) };
        let patch = 4 * seats.len() as i64 + 64;
        Self { seats, caps, limits, exhausted: false, patch, cells }
    }

    /// Sets the seats.
    pub fn settle(&mut self, seats: Vec<i64>) {
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

/// Candidates in one competition order. `E` is [`Key`] when scaling up and [`Back`] when scaling down.
#[derive(Debug)]
pub struct Lane<E: Entry> {
    cells: Vec<BinaryHeap<E>>,
    open: BinaryHeap<(E, u32)>,
    parked: Vec<u32>,
    is_parked: Vec<bool>,
    epoch: u64,
}

/// A key, ordered for one direction.
pub trait Entry: Ord + Copy + From<Key> {
    /// The key.
    fn key(&self) -> &Key;
    /// Whether the candidate may gain or lose a replica in this direction.
    fn check(board: &Board, index: usize) -> Result<(), Block>;
}

impl Entry for Key {
    fn key(&self) -> &Key {
        self
    }

    fn check(board: &Board, index: usize) -> Result<(), Block> {
        board.may_add(index)
    }
}

/// The order of removal: the last seat first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Back(Reverse<Key>);

impl From<Key> for Back {
    fn from(key: Key) -> Self {
        Self(Reverse(key))
    }
}

impl Entry for Back {
    fn key(&self) -> &Key {
        &self.0.0
    }

    fn check(board: &Board, index: usize) -> Result<(), Block> {
        board.may_remove(index)
    }
}

impl<E: Entry> Lane<E> {
    /// Creates a lane for these keys.
    pub fn new(board: &Board, keys: impl IntoIterator<Item = Key>) -> Self {
        let count = board.cells.iter().max().map_or(0, |last| *last as usize + 1);
        let mut heaps: Vec<Vec<E>> = vec![Vec::new(); count];
        for key in keys {
            heaps[board.cells[key.index as usize] as usize].push(key.into());
        }
        let cells: Vec<BinaryHeap<E>> = heaps.into_iter().map(BinaryHeap::from).collect();
        let open = (0..).zip(&cells).filter_map(|(at, cell)| Some((*cell.peek()?, at))).collect();
        let is_parked = vec![false; cells.len()];
        Self { cells, open, parked: Vec::new(), is_parked, epoch: board.limits.epoch }
    }

    /// The next candidate, or `None` when all are done or blocked. If only soft rules block, the candidate that
    /// violates them least. Callers must call [`Lane::settle`] before the next call.
    pub fn next(&mut self, board: &Board) -> Option<usize> {
        if self.epoch != board.limits.epoch {
            self.epoch = board.limits.epoch;
            for at in std::mem::take(&mut self.parked) {
                self.is_parked[at as usize] = false;
                self.offer(at);
            }
        }
        while let Some((entry, at)) = self.open.pop() {
            let index = entry.key().index as usize;
            match E::check(board, index) {
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
            while top(cell).is_some_and(|index| E::check(board, index) == Err(Block::Never)) {
                cell.pop();
            }
        }
        let soft = |at: &&u32| {
            let index = top(&self.cells[**at as usize]);
            index.is_some_and(|index| E::check(board, index) == Err(Block::Skewed { hard: false }))
        };
        let easiest = self.parked.iter().filter(soft).filter_map(|at| {
            let entry = self.cells[*at as usize].peek()?;
            let index = entry.key().index as usize;
            Some((Reverse(board.limits.strain(index)), *entry, index))
        });
        easiest.max().map(|(_, _, index)| index)
    }

    /// Reinserts the candidate with its next key, or removes it.
    pub fn settle(&mut self, board: &Board, index: usize, key: Option<Key>) {
        let at = board.cells[index];
        let cell = &mut self.cells[at as usize];
        debug_assert!(cell.peek().is_some_and(|top| top.key().index as usize == index));
        cell.pop();
        if let Some(key) = key {
            cell.push(key.into());
        }
        // A cell that moved despite a soft rule stays parked, with its next candidate in front.
        if !self.is_parked[at as usize] {
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
pub fn deal(board: &mut Board, mut take: i64, claims: &Claims) -> i64 {
    let all: Vec<usize> = (0..board.seats.len()).collect();
    if board.limits.is_empty() {
        return claims.deal(&mut board.seats, &board.caps, &all, take);
    }
    take -= fill_groups(board, take, claims);
    take -= fill_bounds(board, take, claims);
    take - run(board, take, claims)
}

/// Deals by leaps while they advance far, otherwise by steps. Returns the number dealt.
fn run(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let mut pace = Pace::new(board.patch);
    let mut dealt = 0;
    while dealt < take {
        let leapt =
            if pace.leaps(take - dealt) { leap::up(board, claims, take - dealt) } else { 0 };
        dealt += leapt;
        let steps = pace.steps(leapt, take - dealt);
        let walked = walk(board, steps, claims);
        dealt += walked;
        if walked < steps {
            break;
        }
        if pace.is_exhausted() {
            board.exhausted = dealt < take;
            break;
        }
    }
    dealt
}

/// Alternates leaps and steps. The less a leap achieves, the more steps follow before the next one.
#[derive(Debug)]
pub struct Pace {
    patch: i64,
    now: i64,
    left: i64,
}

impl Pace {
    /// At most [`MOST_STEPS`] steps in total; `patch` steps after a successful leap.
    #[must_use]
    pub fn new(patch: i64) -> Self {
        Self { patch, now: patch, left: MOST_STEPS }
    }

    /// Whether this many seats justify a leap.
    #[must_use]
    pub fn leaps(&self, seats: i64) -> bool {
        seats > self.patch
    }

    /// Number of steps after a leap.
    pub fn steps(&mut self, leapt: i64, open: i64) -> i64 {
        self.now = if leapt >= self.now { self.patch } else { self.now.saturating_mul(2) };
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

fn walk(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let keys: Vec<Key> =
        (0..board.seats.len()).filter_map(|at| claims.key(at, board.seats[at])).collect();
    let mut lane = Lane::<Key>::new(board, keys);
    let mut dealt = 0;
    while dealt < take {
        let Some(index) = lane.next(board) else { break };
        board.add(index);
        let next = claims.key(index, board.seats[index]);
        lane.settle(board, index, next);
        dealt += 1;
    }
    dealt
}

/// Deals one replica to each further group that spreadConstraints require.
fn fill_groups(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let mut dealt = 0;
    for constraint in 0..board.limits.minimums.len() {
        if board.limits.minimums[constraint].missing() == 0 {
            continue;
        }
        let mut heap: BinaryHeap<Key> =
            (0..board.seats.len()).filter_map(|at| claims.key(at, board.seats[at])).collect();
        while let Some(best) = heap.pop() {
            let minimum = &board.limits.minimums[constraint];
            if minimum.missing() == 0 || dealt >= take {
                break;
            }
            let index = best.index as usize;
            let allowed =
                matches!(board.may_add(index), Ok(()) | Err(Block::Skewed { hard: false }));
            if minimum.is_new(index) && allowed {
                board.add(index);
                dealt += 1;
            }
        }
    }
    dealt
}

/// Deals the replicas that `bounds[].min` requires.
fn fill_bounds(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let mut dealt = 0;
    for at in 0..board.limits.bounds.len() {
        let bound = &board.limits.bounds[at];
        let lacks = (bound.min - bound.sum).min(take - dealt);
        if lacks > 0 {
            let members: Vec<usize> =
                (0..board.seats.len()).filter(|index| bound.member[*index]).collect();
            dealt += run(board, lacks, &claims.among(&members));
        }
    }
    dealt
}

/// Takes back up to `take` replicas, the last seat first. Returns the number that could not be taken.
pub fn take_back(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let mut left = take;
    if !board.limits.is_empty() {
        left = take_back_within(board, take, claims);
        if left == 0 {
            return 0;
        }
        // The total must shrink: rules choose which replicas go, but cannot prevent it.
        board.limits = Limits::default();
        board.cells = vec![0; board.seats.len()];
    }
    let all: Vec<usize> = (0..board.seats.len()).collect();
    let floors = vec![0; board.seats.len()];
    claims.take_back(&mut board.seats, &floors, &all, left)
}

fn take_back_within(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let mut pace = Pace::new(board.patch);
    let mut left = take;
    while left > 0 {
        let leapt = if pace.leaps(left) { leap::down(board, claims, left) } else { 0 };
        left -= leapt;
        let steps = pace.steps(leapt, left);
        let walked = walk_back(board, steps, claims);
        left -= walked;
        if walked < steps || pace.is_exhausted() {
            break;
        }
    }
    left
}

fn walk_back(board: &mut Board, take: i64, claims: &Claims) -> i64 {
    let keys: Vec<Key> =
        (0..board.seats.len()).filter_map(|at| claims.last(at, board.seats[at])).collect();
    let mut lane = Lane::<Back>::new(board, keys);
    let mut taken = 0;
    while taken < take {
        let Some(index) = lane.next(board) else { break };
        board.remove(index);
        let next = claims.last(index, board.seats[index]);
        lane.settle(board, index, next);
        taken += 1;
    }
    taken
}
