//! Divides by static weights: Webster over the weights of the candidates.

use super::input::{Division, DivisionInput};
use super::{Dealt, Start, down, up, why_left};

/// Divides by weights. With `respect_capacity`, no cluster gets more than its room.
#[must_use]
pub fn divide(
    input: &DivisionInput,
    weights: &[u64],
    desired: i64,
    start: Start,
    respect_capacity: bool,
) -> Division {
    let n = input.len();
    let caps: Vec<i64> = (0..n)
        .map(|index| if respect_capacity { input.room(index) } else { input.ceiling(index) })
        .collect();
    let zero = vec![0; n];
    let seats = match start {
        Start::Running => input.seats.clone(),
        Start::Zero => zero.clone(),
    };
    let running = seats.iter().fold(0_i64, |sum, s| sum.saturating_add(*s));
    let result = if running <= desired {
        up(input, weights, seats, caps, &zero, desired - running)
    } else {
        Dealt::new(down(input, weights, seats, caps, running - desired), 0)
    };
    Division::of(result, || why_left(&input.limits, respect_capacity))
}
