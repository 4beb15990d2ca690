//! Seat by seat: a division under rules on groups. One seat costs O(log N), whatever the rules.
//!
//! Candidates that all rules treat alike share a cell. A lane keeps its cells ordered by their best candidate; a cell
//! that skew blocks is parked until an end of that skew moves. Strategies say only by which [`Key`] candidates compete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ground::Ground;
use super::key::Key;
use super::limits::{Block, Limits};

/// The state of a division.
#[derive(Debug, Clone)]
pub struct Board {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Most replicas by candidate.
    pub caps: Vec<i64>,
    /// Rules, counting along.
    pub limits: Limits,
    cells: Vec<u32>,
}

impl Board {
    /// A board with these seats taken.
    #[must_use]
    pub fn new(ground: &Ground, seats: Vec<i64>, caps: Vec<i64>) -> Self {
        let mut limits = ground.limits.clone();
        limits.start(&seats, &caps);
        let cells =
            if limits.is_empty() { vec![0; seats.len()] } else { limits.cells(seats.len()) };
        Self { seats, caps, limits, cells }
    }

    /// Whether the candidate may get one more replica.
    pub fn may_add(&self, index: usize) -> Result<(), Block> {
        if self.seats[index] >= self.caps[index] {
            return Err(Block::Never);
        }
        self.limits.may_add(index)
    }

    /// Whether the candidate may give one back.
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

    /// Takes one back.
    pub fn remove(&mut self, index: usize) {
        let full = self.seats[index] == self.caps[index];
        self.seats[index] -= 1;
        self.limits.count(index, -1, full);
    }

    /// Replicas that are dealt.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.seats.iter().fold(0, |sum, seats| sum.saturating_add(*seats))
    }
}

/// Candidates that compete by one order. `E` is [`Key`] on the way up and `Reverse<Key>` on the way down.
#[derive(Debug)]
pub struct Lane<E: Entry> {
    cells: Vec<BinaryHeap<E>>,
    open: BinaryHeap<(E, u32)>,
    parked: Vec<u32>,
    is_parked: Vec<bool>,
    epoch: u64,
}

/// A key in the order of a direction.
pub trait Entry: Ord + Copy + From<Key> {
    /// The key.
    fn key(&self) -> &Key;
    /// Whether its candidate may move in this direction.
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

/// The order of taking back: the last seat first.
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
    /// A lane of these keys.
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

    /// The candidate that moves next, or none when all are done or blocked. Where only soft rules block, the one that
    /// strains them least. Whoever moves it calls [`Lane::settle`] before asking again.
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
                    // Only this candidate is done for sure: its cell may hold others with room.
                    self.cells[at as usize].pop();
                    self.offer(at);
                }
            }
        }
        let soft = |at: &&u32| {
            let index = self.cells[**at as usize].peek().map(|entry| entry.key().index as usize);
            index.is_some_and(|index| E::check(board, index) == Err(Block::Skewed { hard: false }))
        };
        let easiest = self.parked.iter().filter(soft).filter_map(|at| {
            let entry = self.cells[*at as usize].peek()?;
            let index = entry.key().index as usize;
            Some((Reverse(board.limits.strain(index)), *entry, index))
        });
        easiest.max().map(|(_, _, index)| index)
    }

    /// Puts the candidate that moved back in line with its next key, or out of it.
    pub fn settle(&mut self, board: &Board, index: usize, key: Option<Key>) {
        let at = board.cells[index];
        let cell = &mut self.cells[at as usize];
        debug_assert!(cell.peek().is_some_and(|top| top.key().index as usize == index));
        cell.pop();
        if let Some(key) = key {
            cell.push(key.into());
        }
        // A cell that moved although a soft rule blocks it stays parked, with its next candidate in front.
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

/// Deals up to `take` replicas in the order of `key`; least groups and least bounds come first. Returns what found no
/// place.
pub fn deal(board: &mut Board, mut take: i64, key: impl Fn(&Board, usize) -> Option<Key>) -> i64 {
    take -= fill_groups(board, take, &key);
    take -= fill_bounds(board, take, &key);
    let all: Vec<usize> = (0..board.seats.len()).collect();
    take - run(board, take, &all, &key)
}

fn run(
    board: &mut Board,
    take: i64,
    among: &[usize],
    key: &impl Fn(&Board, usize) -> Option<Key>,
) -> i64 {
    let keys: Vec<Key> = among.iter().filter_map(|index| key(board, *index)).collect();
    let mut lane = Lane::<Key>::new(board, keys);
    let mut dealt = 0;
    while dealt < take {
        let Some(index) = lane.next(board) else { break };
        board.add(index);
        let next = key(board, index);
        lane.settle(board, index, next);
        dealt += 1;
    }
    dealt
}

/// One replica for as many further groups as spreadConstraints ask for.
fn fill_groups(board: &mut Board, take: i64, key: &impl Fn(&Board, usize) -> Option<Key>) -> i64 {
    let mut dealt = 0;
    for constraint in 0..board.limits.minimums.len() {
        if board.limits.minimums[constraint].missing() == 0 {
            continue;
        }
        let mut heap: BinaryHeap<Key> =
            (0..board.seats.len()).filter_map(|index| key(board, index)).collect();
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

/// What `bounds[].min` asks for.
fn fill_bounds(board: &mut Board, take: i64, key: &impl Fn(&Board, usize) -> Option<Key>) -> i64 {
    let mut dealt = 0;
    for at in 0..board.limits.bounds.len() {
        let bound = &board.limits.bounds[at];
        let lacks = (bound.min - bound.sum).min(take - dealt);
        if lacks > 0 {
            let members: Vec<usize> =
                (0..board.seats.len()).filter(|index| bound.member[*index]).collect();
            dealt += run(board, lacks, &members, key);
        }
    }
    dealt
}

/// Takes up to `take` replicas back, the last seat first; returns how many there were not.
pub fn take_back(board: &mut Board, take: i64, key: impl Fn(&Board, usize) -> Option<Key>) -> i64 {
    let left = take_back_within(board, take, &key);
    if left == 0 || board.limits.is_empty() {
        return left;
    }
    // Fewer replicas were asked for: rules choose which go, they do not keep them.
    board.limits = Limits::default();
    board.cells = vec![0; board.seats.len()];
    take_back_within(board, left, &key)
}

fn take_back_within(
    board: &mut Board,
    take: i64,
    key: &impl Fn(&Board, usize) -> Option<Key>,
) -> i64 {
    // The key of the seat that a candidate got last is the one it competed with when it had one seat fewer.
    let last = |board: &mut Board, index: usize| {
        if board.seats[index] <= 0 {
            return None;
        }
        board.seats[index] -= 1;
        let key = key(board, index);
        board.seats[index] += 1;
        key
    };
    let keys: Vec<Key> = (0..board.seats.len()).filter_map(|index| last(board, index)).collect();
    let mut lane = Lane::<Back>::new(board, keys);
    let mut left = take;
    while left > 0 {
        let Some(index) = lane.next(board) else { break };
        board.remove(index);
        let next = last(board, index);
        lane.settle(board, index, next);
        left -= 1;
    }
    left
}
