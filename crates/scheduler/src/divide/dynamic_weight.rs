//! Divides by reported capacity: the weights are capacities.

use super::ground::{Division, Ground};
use super::{Dealt, Start, to_u64, up, why_left};

/// Divides by capacity. Scaling up deals only the difference, by remaining capacity, and moves nothing. Scaling down
/// divides in proportion to the running replicas. A division from zero uses the full capacity.
#[must_use]
pub fn divide(ground: &Ground, desired: i64, start: Start) -> Division {
    let every: Vec<bool> = vec![true; ground.len()];
    divide_among(ground, &every, desired, start)
}

/// Divides over some of the candidates. The others lose all replicas when scaling down and get none when scaling up.
pub(super) fn divide_among(
    ground: &Ground,
    among: &[bool],
    desired: i64,
    start: Start,
) -> Division {
    let n = ground.len();
    let running = ground.running();
    let zero = vec![0; n];
    let rooms: Vec<i64> = (0..n).map(|index| ground.room(index)).collect();
    // Unknown capacity counts as the running replicas, at least 1.
    let by = |weight: &dyn Fn(usize) -> Option<i64>| -> Vec<u64> {
        let one = |index| weight(index).unwrap_or_else(|| ground.seats[index].max(1));
        (0..n).map(|index| if among[index] { to_u64(one(index)) } else { 0 }).collect()
    };
    let result = match start {
        Start::Zero => {
            let room = |index: usize| ground.more[index].map(|_| rooms[index]);
            let weights = by(&room);
            up(ground, &weights, zero.clone(), rooms, &zero, desired)
        }
        Start::Running if running < desired => {
            let weights = by(&|index| ground.more[index]);
            let base = ground.seats.clone();
            up(ground, &weights, base.clone(), rooms, &base, desired - running)
        }
        Start::Running if running > desired => {
            let weights = by(&|index| Some(ground.seats[index]));
            let dealt = up(ground, &weights, zero.clone(), ground.seats.clone(), &zero, desired);
            if dealt.left == 0 {
                dealt
            } else {
                // The total must shrink: rules choose which replicas go, but no more than necessary are removed.
                let free = Ground { limits: Default::default(), ..ground.clone() };
                up(&free, &weights, dealt.seats, ground.seats.clone(), &zero, dealt.left)
            }
        }
        Start::Running => Dealt::new(ground.seats.clone(), 0),
    };
    Division::of(result, || why_left(&ground.limits, true))
}
