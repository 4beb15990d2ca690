//! Mends skew: moves as few running replicas as possible until every hard topologySpreadConstraint holds.
//!
//! Every move goes from the fullest domain that can give a replica to the emptiest one that can take it, so for one
//! constraint no smaller number of moves mends it. A move that would make another hard constraint worse is not made. A
//! division from zero would mend the skew too, but move more.

use std::cmp::Reverse;

use super::input::DivisionInput;
use super::limits::{Block, Limits, NONE, Skew};

/// Most clusters that are tried as the source of a move, and as its destination. Only several constraints need more than
/// the first.
const MOST_TRIED: usize = 64;

/// The seats after mending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mended {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Number of moved replicas.
    pub moved: i64,
    /// Topology keys of constraints that still do not hold.
    pub unmended: Vec<String>,
}

/// Moves replicas between candidates until every hard skew is within its maximum, or no move helps. The sum of replicas
/// stays the same; frozen candidates keep theirs.
#[must_use]
pub fn mend(input: &DivisionInput, seats: &[i64]) -> Mended {
    let rooms: Vec<i64> = (0..input.len()).map(|index| input.room(index)).collect();
    let mut limits = input.limits.clone();
    limits.start(seats, &rooms);
    let mut mended = Mended { seats: seats.to_vec(), ..Mended::default() };
    let total = |limits: &Limits| limits.skews.iter().map(excess).fold(0, i64::saturating_add);
    let before = total(&limits);
    // Every move lowers the sum of squares of a domain's counts, so this ends; the bound is a second line of defence.
    let most = seats.iter().fold(0_i64, |sum, seats| sum.saturating_add(*seats));
    while mended.moved < most {
        let violated: Vec<usize> =
            (0..limits.skews.len()).filter(|at| excess(&limits.skews[*at]) > 0).collect();
        let mut steps = violated
            .into_iter()
            .filter_map(|at| step(input, &mut limits, &mended.seats, &rooms, at));
        let step = steps.next();
        let Some((from, to)) = step else { break };
        mended.seats[from] -= 1;
        mended.seats[to] += 1;
        mended.moved += 1;
    }
    let violated = limits.skews.iter().filter(|skew| excess(skew) > 0);
    if before > 0 && total(&limits) >= before {
        // Several emptiest domains must all rise before the skew falls. They could not, so nothing moves.
        (mended.seats, mended.moved) = (seats.to_vec(), 0);
    }
    mended.unmended = violated.map(|skew| skew.key.clone()).collect();
    mended
}

/// By how much a hard constraint is violated.
fn excess(skew: &Skew) -> i64 {
    if skew.hard { skew.skew().saturating_sub(skew.max).max(0) } else { 0 }
}

/// Makes the best move for one constraint in `limits`. `None` if none helps.
fn step(
    input: &DivisionInput,
    limits: &mut Limits,
    seats: &[i64],
    rooms: &[i64],
    at: usize,
) -> Option<(usize, usize)> {
    let skew = &limits.skews[at];
    let count = |index: usize| skew.counts[skew.of[index] as usize];
    let movable = |index: &usize| !input.frozen[*index] && skew.of[*index] != NONE;
    let mut from: Vec<usize> = (0..seats.len()).filter(|i| movable(i) && seats[*i] > 0).collect();
    from.sort_by_key(|i| (Reverse((count(*i), seats[*i])), input.ties.get(*i), Reverse(*i)));
    let mut to: Vec<usize> =
        (0..seats.len()).filter(|i| movable(i) && seats[*i] < rooms[*i]).collect();
    to.sort_by_key(|i| (count(*i), seats[*i], Reverse(input.ties.get(*i)), *i));
    let pairs: Vec<(usize, usize)> = from
        .iter()
        .take(MOST_TRIED)
        .flat_map(|from| to.iter().take(MOST_TRIED).map(|to| (*from, *to)))
        // A smaller difference would only swap the two domains.
        .filter(|(from, to)| count(*from) - count(*to) >= 2)
        .collect();
    pairs.into_iter().find(|(from, to)| try_move(limits, seats, rooms, *from, *to))
}

/// Makes a move in `limits`, unless it breaks a minimum or a bound, or makes a hard constraint worse.
fn try_move(limits: &mut Limits, seats: &[i64], rooms: &[i64], from: usize, to: usize) -> bool {
    if limits.may_remove(from) == Err(Block::Never) {
        return false;
    }
    let before: Vec<i64> = limits.skews.iter().map(excess).collect();
    let closes = |index: usize, left: i64| seats[index].saturating_add(left) >= rooms[index];
    limits.count(from, -1, closes(from, 0));
    let fits = limits.may_add(to) != Err(Block::Never);
    limits.count(to, 1, closes(to, 1));
    let no_worse = limits.skews.iter().map(excess).zip(before).all(|(now, was)| now <= was);
    if !(fits && no_worse) {
        limits.count(to, -1, closes(to, 1));
        limits.count(from, 1, closes(from, 0));
        return false;
    }
    true
}
