//! Divides by reported capacity: the weights are capacities.

use super::input::{Division, DivisionInput};
use super::{Dealt, Start, to_u64, up, why_left};

/// Divides by capacity. Scaling up deals only the difference, by remaining capacity, and moves nothing. Scaling down
/// divides in proportion to the running replicas. A division from zero uses the full capacity.
#[must_use]
pub fn divide(input: &DivisionInput, desired: i64, start: Start) -> Division {
    let every: Vec<bool> = vec![true; input.len()];
    divide_among(input, &every, desired, start)
}

/// Divides over some of the candidates. The others lose all replicas when scaling down and get none when scaling up.
pub(super) fn divide_among(
    input: &DivisionInput,
    among: &[bool],
    desired: i64,
    start: Start,
) -> Division {
    let n = input.len();
    let running = input.running();
    let zero = vec![0; n];
    let rooms: Vec<i64> = (0..n).map(|index| input.room(index)).collect();
    // Unknown capacity counts as the running replicas, at least 1.
    let by = |weight: &dyn Fn(usize) -> Option<i64>| -> Vec<u64> {
        let one = |index| weight(index).unwrap_or_else(|| input.seats[index].max(1));
        (0..n).map(|index| if among[index] { to_u64(one(index)) } else { 0 }).collect()
    };
    let result = match start {
        Start::Zero => {
            let room = |index: usize| input.more[index].map(|_| rooms[index]);
            let weights = by(&room);
            up(input, &weights, zero.clone(), rooms, &zero, desired)
        }
        Start::Running if running < desired => {
            let weights = by(&|index| input.more[index]);
            let base = input.seats.clone();
            up(input, &weights, base.clone(), rooms, &base, desired - running)
        }
        Start::Running if running > desired => {
            let weights = by(&|index| Some(input.seats[index]));
            let dealt = up(input, &weights, zero.clone(), input.seats.clone(), &zero, desired);
            if dealt.left == 0 {
                dealt
            } else {
                // The total must shrink: rules choose which replicas go, but no more than necessary are removed.
                let free = DivisionInput { limits: Default::default(), ..input.clone() };
                up(&free, &weights, dealt.seats, input.seats.clone(), &zero, dealt.left)
            }
        }
        Start::Running => Dealt::new(input.seats.clone(), 0),
    };
    Division::of(result, || why_left(&input.limits, true))
}
