//! Aggregated: as few clusters as possible.

use std::collections::BTreeSet;

use super::Start;
use super::dynamic_weight::divide_among;
use super::input::{Division, DivisionInput, UNBOUNDED};

/// Candidates to sort at first. Doubled whenever they do not suffice.
const FIRST: usize = 16;

/// Divides over the shortest prefix that holds the desired replicas. Scaling up orders clusters in use first, then by
/// capacity; scaling down orders by running replicas. Within the prefix the shares are proportional.
///
/// `tie` is the tie-break rank of a candidate; the greatest comes first.
#[must_use]
pub fn divide(
    input: &DivisionInput,
    tie: &dyn Fn(usize) -> u64,
    desired: i64,
    start: Start,
) -> Division {
    let n = input.len();
    let running = input.running();
    let (wanted, room): (i64, Vec<i64>) = match start {
        Start::Zero => (desired, (0..n).map(|index| input.room(index)).collect()),
        Start::Running if running < desired => {
            let more = |index: usize| match input.room(index) {
                UNBOUNDED => UNBOUNDED,
                room => room - input.seats[index],
            };
            (desired - running, (0..n).map(more).collect())
        }
        Start::Running => (desired, input.seats.clone()),
    };
    let in_use =
        |index: usize| start == Start::Running && running < desired && input.seats[index] > 0;
    let unknown = |index: usize| room[index] == UNBOUNDED;
    let mut sequence: Vec<usize> = (0..n).collect();
    let key = |index: usize| (in_use(index), !unknown(index), room[index]);
    let order = |a: &usize, b: &usize| {
        key(*b).cmp(&key(*a)).then_with(|| tie(*b).cmp(&tie(*a))).then_with(|| a.cmp(b))
    };
    // Only the prefix must be sorted, unless rules on groups may extend it.
    let mut sorted = 0;
    let mut step = if input.limits.is_empty() { FIRST } else { n };
    let mut among = vec![false; n];
    let mut held = 0_i64;
    let mut length = 0;
    while length < n && held < wanted {
        if length == sorted {
            let end = sorted.saturating_add(step).min(n);
            if end < n {
                sequence[sorted..].select_nth_unstable_by(end - sorted, order);
            }
            sequence[sorted..end].sort_unstable_by(order);
            (sorted, step) = (end, step.saturating_mul(2));
        }
        let index = sequence[length];
        among[index] = true;
        held = held.saturating_add(room[index]);
        length += 1;
    }
    add_groups(input, &sequence, &room, &mut among, desired);
    let mut division = divide_among(input, &among, desired, start);
    // Rules on groups may prevent the prefix from using its full capacity. It grows until all replicas are placed.
    if !input.limits.is_empty() {
        while !division.pending.is_empty() && length < n {
            let step = length.max(1).min(n - length);
            sequence[length..length + step].iter().for_each(|index| among[*index] = true);
            length += step;
            division = divide_among(input, &among, desired, start);
        }
    }
    division
}

/// Adds the best candidate of further groups, until the minimum of spreadConstraints is met.
fn add_groups(
    input: &DivisionInput,
    sequence: &[usize],
    room: &[i64],
    among: &mut [bool],
    desired: i64,
) {
    for minimum in &input.limits.minimums {
        let inside = (0..input.len()).filter(|index| among[*index] || input.seats[*index] > 0);
        let mut groups: BTreeSet<u32> = inside.map(|index| minimum.of[index]).collect();
        for index in sequence.iter().filter(|index| room[**index] > 0) {
            if groups.len() as i64 >= minimum.groups.min(desired) {
                break;
            }
            among[*index] |= groups.insert(minimum.of[*index]);
        }
    }
}
