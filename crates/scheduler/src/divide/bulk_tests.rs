//! Compares bulk division with the reference implementation, which deals seat by seat.

use super::allocation::{self, Allocation};
use super::claims::{Claims, SeatClaim};
use super::input::{DivisionInput, Ties, UNBOUNDED};
use super::limits::{Bound, Limits, Minimum, NONE, Skew};
use super::workload_policy::{self, Domain, DomainRules};
use super::{Start, aggregated, dynamic_weight, static_weight};
use crate::hash::splitmix64;

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix64(self.0.wrapping_mul(0x9e37_79b9)) % most
    }

    fn upto(&mut self, most: i64) -> i64 {
        self.below(most as u64 + 1) as i64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn skew(random: &mut Random, n: usize) -> Skew {
    let domains = 1 + random.below(4);
    let lacks = random.chance(30);
    let of = |random: &mut Random| match lacks && random.chance(20) {
        true => NONE,
        false => random.below(domains) as u32,
    };
    Skew {
        key: "zone".to_owned(),
        max: 1 + random.upto(4),
        hard: random.chance(60),
        of: (0..n).map(|_| of(random)).collect(),
        counts: (0..domains).map(|_| if random.chance(30) { random.upto(6) } else { 0 }).collect(),
        zero: random.chance(10),
        count_full: random.chance(60),
        ..Skew::default()
    }
}

fn limits(random: &mut Random, n: usize, skews: u64) -> Limits {
    let some = |random: &mut Random, percent: u64| usize::from(random.chance(percent));
    let minimums = (0..some(random, 30))
        .map(|_| {
            let groups = 1 + random.below(4);
            Minimum {
                key: "region".to_owned(),
                groups: 1 + random.upto(3),
                of: (0..n).map(|_| random.below(groups) as u32).collect(),
                counts: vec![0; groups as usize],
                ..Minimum::default()
            }
        })
        .collect();
    let bounds = (0..random.below(3) as usize * some(random, 40))
        .map(|_| {
            let min = random.upto(12) * random.upto(1);
            Bound {
                field: "bounds[0]".to_owned(),
                member: (0..n).map(|_| random.chance(50)).collect(),
                min,
                max: if random.chance(60) { min + random.upto(40) } else { UNBOUNDED },
                sum: 0,
            }
        })
        .collect();
    Limits { skews: (0..skews).map(|_| skew(random, n)).collect(), minimums, bounds, epoch: 0 }
}

fn division_input(random: &mut Random, skews: u64) -> DivisionInput {
    let n = 1 + random.below(8) as usize;
    division_input_of(random, skews, n)
}

/// A division over `n` candidates.
fn division_input_of(random: &mut Random, skews: u64, n: usize) -> DivisionInput {
    let (runs, bounded) = (random.chance(50), random.chance(60));
    let ties: Vec<u64> = (0..n).map(|_| random.below(3)).collect();
    DivisionInput {
        seats: (0..n).map(|_| if runs { random.upto(9) } else { 0 }).collect(),
        more: (0..n).map(|_| (bounded && random.chance(60)).then(|| random.upto(30))).collect(),
        frozen: (0..n).map(|_| random.chance(8)).collect(),
        ties: if random.chance(80) { Ties::Given(ties) } else { Ties::Same },
        limits: limits(random, n, skews),
    }
}

fn claims(random: &mut Random, input: &DivisionInput, based: bool) -> Claims {
    let (ranked, heavy) = (random.chance(30), random.chance(30));
    let claim = |random: &mut Random, seats: i64| SeatClaim {
        rank: if ranked { random.upto(2) } else { 0 },
        weight: 1 + random.below(if heavy { 1 << 62 } else { 5 }),
        base: if based { seats } else { 0 },
    };
    let list = (0..input.len())
        .map(|at| (!random.chance(8)).then(|| claim(random, input.seats[at])))
        .collect();
    Claims::new(list, input.ties.clone())
}

/// An allocation that is divided in bulk whenever possible, or never. The second also examines only the first candidates of
/// each cell, and keeps the cells in a queue.
fn allocation(input: &DivisionInput, bulk: bool) -> Allocation {
    let caps = (0..input.len()).map(|at| input.room(at)).collect();
    let mut allocation = Allocation::new(input, input.seats.clone(), caps);
    allocation.min_bulk = if bulk { 0 } else { i64::MAX / 4 };
    if !bulk {
        (allocation.few_candidates, allocation.few_cells) = (0, 0);
    }
    allocation
}

#[test]
fn scaling_up_in_bulk_equals_single_steps() {
    for seed in 0..30_000_u64 {
        let random = &mut Random(seed << 20);
        let input = division_input(random, [0, 1, 1, 1, 2][(seed % 5) as usize]);
        let based = random.chance(20);
        let claims = claims(random, &input, based);
        let take = random.upto(120);
        let (mut bulk, mut steps) = (allocation(&input, true), allocation(&input, false));
        let left = allocation::deal(&mut bulk, take, &claims);
        assert_eq!(
            left,
            allocation::deal(&mut steps, take, &claims),
            "seed {seed}: {input:?} {claims:?}"
        );
        assert_eq!(bulk.seats, steps.seats, "seed {seed}: take {take} {input:?} {claims:?}");
    }
}

/// Fewer seats than candidates: only the first of each cell are examined.
#[test]
fn a_few_seats_go_where_they_go_if_all_candidates_are_examined() {
    for seed in 0..30_000_u64 {
        let random = &mut Random(seed << 20);
        let (skews, n) = (1 + seed as usize % 2, 2 + random.below(40) as usize);
        let input = division_input_of(random, skews as u64, n);
        let claims = claims(random, &input, seed % 5 == 0);
        let take = random.upto(n as i64 - 1);
        let (mut few, mut all) = (allocation(&input, false), allocation(&input, false));
        let dealt = allocation::deal_stepwise(&mut few, take, &claims);
        let keys = (0..n).filter_map(|at| claims.key(at, all.seats[at])).collect();
        let expected = allocation::deal_to(&mut all, take, &claims, keys);
        assert_eq!(
            (dealt, &few.seats),
            (expected, &all.seats),
            "seed {seed}: {input:?} {claims:?}"
        );
    }
}

#[test]
fn scaling_down_in_bulk_equals_single_steps() {
    for seed in 0..30_000_u64 {
        let random = &mut Random(seed << 20);
        let mut input = division_input(random, [0, 1, 1, 1, 2][(seed % 5) as usize]);
        let mut claims = claims(random, &input, false);
        if random.chance(60) {
            // The state after dealing.
            let mut dealt = allocation(&input, false);
            allocation::deal(&mut dealt, random.upto(120), &claims);
            input.seats = dealt.seats;
        } else {
            input.seats.iter_mut().for_each(|seats| *seats *= random.upto(9));
        }
        let weights: Vec<u64> = (0..input.len()).map(|_| random.below(5)).collect();
        if random.chance(40) {
            claims = Claims::down(&weights, input.ties.clone());
        }
        let take = random.upto(input.running());
        let (mut bulk, mut steps) = (allocation(&input, true), allocation(&input, false));
        let left = allocation::take_back(&mut bulk, take, &claims);
        assert_eq!(
            left,
            allocation::take_back(&mut steps, take, &claims),
            "seed {seed}: {input:?}"
        );
        assert_eq!(bulk.seats, steps.seats, "seed {seed}: back {take} of {input:?} {claims:?}");
    }
}

#[test]
fn a_workload_policy_in_bulk_is_its_sequence() {
    for seed in 0..30_000_u64 {
        let random = &mut Random(seed << 20);
        let mut input = division_input(random, [0, 0, 1, 2][(seed % 4) as usize]);
        if seed % 4 == 0 {
            input.limits = Limits::default();
        }
        let count = 1 + random.below(4) as usize;
        let home: Vec<u64> = (0..input.len()).map(|_| random.below(count as u64 + 1)).collect();
        let domains: Vec<Domain> = (0..count)
            .map(|at| Domain {
                name: format!("d{at}"),
                target: 1 + random.upto(12),
                others: random.upto(8) * random.upto(1),
                members: (0..input.len()).filter(|i| home[*i] == at as u64).collect(),
            })
            .collect();
        let start = if random.chance(70) { Start::Running } else { Start::Zero };
        let rules = DomainRules {
            domains: &domains,
            required: random.chance(40),
            fill: random.chance(50),
            desired: random.upto(90),
            start,
            recover: random.chance(20),
        };
        let bulk = workload_policy::divide(&input, &rules);
        let steps = workload_policy::tests::step_by_step(&input, &rules);
        assert_eq!(bulk, steps, "seed {seed}: {rules:?} {input:?}");
    }
}

/// Clusters in three zones, round-robin, with one skew rule.
fn zones(n: usize, hard: bool, seats: i64) -> DivisionInput {
    let of: Vec<u32> = (0..n as u32).map(|at| at % 3).collect();
    let skew = Skew {
        max: 2,
        hard,
        of: of.into(),
        counts: vec![0; 3],
        count_full: true,
        ..Skew::default()
    };
    DivisionInput {
        seats: vec![seats; n],
        more: vec![None; n],
        frozen: vec![false; n],
        ties: Ties::Same,
        limits: Limits { skews: vec![skew], ..Limits::default() },
    }
}

#[test]
fn billions_of_replicas_under_rules_take_no_longer_than_a_few() {
    let all = i64::from(i32::MAX);
    for hard in [true, false] {
        let input = zones(10, hard, 0);
        let weights: Vec<u64> = (1..=10).map(|at| at * at).collect();
        let up = static_weight::divide(&input, &weights, all, Start::Running, false);
        assert_eq!((up.seats.iter().sum::<i64>(), up.pending.len()), (all, 0));
        let zone = |seats: &[i64], of: usize| seats.iter().skip(of).step_by(3).sum::<i64>();
        let counts = [0, 1, 2].map(|of| zone(&up.seats, of));
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 2, "{counts:?}");
        let dealt = DivisionInput { seats: up.seats, ..input };
        for desired in [all - 1, all / 3, 5] {
            let down = static_weight::divide(&dealt, &weights, desired, Start::Running, false);
            assert_eq!(down.seats.iter().sum::<i64>(), desired);
        }
        for divide in [dynamic_weight::divide, |input: &DivisionInput, desired, start| {
            aggregated::divide(input, &|_| 0, desired, start)
        }] {
            assert_eq!(divide(&dealt, all / 7, Start::Running).seats.iter().sum::<i64>(), all / 7);
        }
    }
}

#[test]
fn a_bound_that_is_reached_late_ends_the_bulk_step_there() {
    let mut input = zones(4, true, 0);
    input.limits.skews.clear();
    let (member, max) = (vec![true, true, false, false], 1_000_000_007);
    input.limits.bounds = vec![Bound { member, max, ..Bound::default() }];
    let all = i64::from(i32::MAX);
    let up = static_weight::divide(&input, &[5, 4, 1, 1], all, Start::Running, false);
    assert_eq!(up.seats[0] + up.seats[1], max);
    assert_eq!(up.seats.iter().sum::<i64>(), all);
}
