//! Divided by what clusters report: weights are capacities.

use super::ground::{Division, Ground};
use super::{Dealt, Start, to_u64, up, why_left};

/// Divides by capacity. Scaling up gives only the difference out, by what still fits, and moves nothing; scaling down
/// divides again in proportion to what runs; from zero, by room.
#[must_use]
pub fn divide(ground: &Ground, desired: i64, start: Start) -> Division {
    let every: Vec<bool> = vec![true; ground.len()];
    divide_among(ground, &every, desired, start)
}

/// The same over some of the candidates only; the others keep nothing on the way down and get nothing on the way up.
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
    // Unknown capacity weighs what is there already, at least 1.
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
                // Rules choose what goes; they take nothing beyond what was asked for.
                let free = Ground { limits: Default::default(), ..ground.clone() };
                up(&free, &weights, dealt.seats, ground.seats.clone(), &zero, dealt.left)
            }
        }
        Start::Running => Dealt::new(ground.seats.clone(), 0),
    };
    Division::of(result, || why_left(&ground.limits, true))
}
