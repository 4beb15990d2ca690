//! Draws a script from a seed.

use std::time::Duration;

use atoll_history::Fault as Database;

use super::super::{Events, Fuse, Skew, Way, Who};
use super::action::{Action, Damaged, Fault, Going, Poison, Step, Tampering};
use super::{MEMBERS, health, lease};
use crate::random::Random;

/// Number of workloads that users change.
pub(super) const APPS: u64 = 3;
/// Number of ConfigMaps that workloads refer to.
const CONFIGS: u64 = 2;
/// Number of objects of the customized kind.
const WIDGETS: u64 = 2;
/// Number of values of the members' label `site`.
pub(super) const SITES: u64 = 2;
/// Number of actions after the first workloads exist.
const STEPS: u64 = 8;
/// Longest pause between two of them, in milliseconds.
const PAUSE: u64 = 5_000;

/// Makes the draws of guarded histories differ from the others'.
const GUARDED: u64 = 0x6775_6172_6473;
/// Number of edits and approvals that a guarded history has in addition.
const EDITS: u64 = 6;

/// Where a controller can crash while it handles a decision.
const HUB_GAPS: [&str; 7] = [
    "POST resourcebindings",
    "PATCH resourcebindings",
    "PUT resourcebindings",
    "PATCH resourcebindings/status",
    "PATCH deployments/status",
    "DELETE resourcebindings",
    "INSERT history",
];
/// Where an agent can crash.
const MEMBER_GAPS: [&str; 4] =
    ["PATCH deployments", "DELETE deployments", "PUT leases", "PATCH configmaps"];

/// Faults of the history database.
const BROKEN: [Database; 6] = [
    Database::Unreachable,
    Database::Silent,
    Database::LosesAnswers,
    Database::ReadOnly,
    Database::Full,
    Database::Slow(Duration::from_secs(2)),
];

fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

fn member(random: &mut Random) -> String {
    format!("member{}", 1 + random.below(MEMBERS))
}

/// The single controller, or an agent.
fn anybody(random: &mut Random) -> Who {
    match random.chance(60) {
        true => Who::Controller(1),
        false => Who::Agent(member(random)),
    }
}

/// The script of a seed, with faults of these kinds.
#[must_use]
pub fn script(seed: u64, kinds: &[Fault]) -> Vec<Step> {
    let mut random = Random(seed);
    let mut steps = Vec::new();
    let mut at = Duration::ZERO;
    for number in 0..CONFIGS {
        steps.push(Step { at, action: Action::Config { number, text: random.below(1000) } });
    }
    for app in 0..2 {
        let (replicas, placement) = (1 + random.below(9), random.below(1 << 32));
        steps.push(Step { at, action: Action::Create { app, replicas, placement } });
    }
    for _ in 0..STEPS {
        at += millis(&mut random, 0, PAUSE);
        let action = match kinds.is_empty() || random.chance(45) {
            true => users(&mut random),
            false => {
                let kind = *random.pick(kinds);
                fault(&mut random, kind)
            }
        };
        steps.push(Step { at, action });
    }
    steps
}

/// The script of a seed with a ChangeGuard from the beginning, and more people who edit policies and approve plans.
#[must_use]
pub fn guarded(seed: u64, kinds: &[Fault]) -> Vec<Step> {
    let mut random = Random(seed ^ GUARDED);
    let mut steps = script(seed, kinds);
    let (replicas, freezes) = (random.below(12), random.chance(30));
    let guard = Action::Guard { replicas, freezes };
    let last = steps.last().map_or(Duration::ZERO, |step| step.at);
    let span = u64::try_from(last.as_millis()).unwrap_or(u64::MAX).max(10_000);
    for _ in 0..EDITS {
        let (at, app) = (millis(&mut random, 1_000, span), random.below(APPS));
        let action = match random.chance(65) {
            true => Action::Place { app, placement: random.below(1 << 32) },
            false => Action::Approve,
        };
        steps.push(Step { at, action });
    }
    steps.sort_by_key(|step| step.at);
    steps.insert(0, Step { at: Duration::ZERO, action: guard });
    steps
}

/// When an action ends, if it does.
fn ends(random: &mut Random) -> Option<Duration> {
    random.chance(50).then(|| millis(random, 500, 20_000))
}

fn users(random: &mut Random) -> Action {
    let app = random.below(APPS);
    match random.below(33) {
        0 => Action::Delete { app },
        1 | 2 => {
            Action::Create { app, replicas: random.below(10), placement: random.below(1 << 32) }
        }
        3..=5 => Action::Scale { app, replicas: random.below(13) },
        6 => Action::Image { app, tag: random.below(1000) },
        7..=9 => Action::Place { app, placement: random.below(1 << 32) },
        10 | 11 => Action::Override { app, rules: random.below(1 << 32) },
        12 => Action::NoOverride { app },
        13 => Action::Label { member: member(random), site: random.below(SITES) },
        14 => Action::Config { number: random.below(CONFIGS), text: random.below(1000) },
        15 => Action::Missing { number: random.below(CONFIGS), span: millis(random, 100, 15_000) },
        18 | 19 => Action::Widget {
            number: random.below(WIDGETS),
            size: random.below(10),
            placement: random.below(1 << 32),
        },
        20 => Action::NoWidget { number: random.below(WIDGETS) },
        21 | 22 => Action::Quota { tenths: random.below(100), span: millis(random, 500, 20_000) },
        23 => Action::Tenancy { site: random.below(SITES), span: millis(random, 500, 20_000) },
        24 => Action::Together {
            app,
            apart: random.chance(40),
            placement: random.below(1 << 32),
            span: millis(random, 500, 20_000),
        },
        27 => {
            let left_out = random.below(MEMBERS + 1);
            Action::Everything { left_out, span: ends(random) }
        }
        28 | 29 => {
            let amounts = random.below(1 << 32);
            Action::Assign { amounts, span: ends(random) }
        }
        30 | 31 => Action::Follow {
            replicas: 1 + random.below(6),
            placement: random.below(1 << 32),
            member: member(random),
            runs: 1 + random.below(4),
            later: millis(random, 500, 20_000),
        },
        32 => Action::NoFollow,
        25 | 26 => Action::Cordon { member: member(random), span: millis(random, 500, 40_000) },
        _ => Action::Depend { app, number: random.below(CONFIGS), propagate: random.chance(80) },
    }
}

fn fault(random: &mut Random, kind: Fault) -> Action {
    let times = health();
    match kind {
        Fault::Crash => {
            let who = anybody(random);
            let fuse =
                Fuse { site: None, nth: 1 + random.below(6) as u32, after: random.chance(50) };
            die(random, who, fuse)
        }
        Fault::Gap => {
            let who = anybody(random);
            let sites = match who {
                Who::Controller(_) => &HUB_GAPS[..],
                Who::Agent(_) => &MEMBER_GAPS[..],
            };
            let site = (*random.pick(sites)).to_owned();
            let fuse = Fuse {
                site: Some(site),
                nth: 1 + random.below(2) as u32,
                after: random.chance(50),
            };
            die(random, who, fuse)
        }
        Fault::LostEvents => Action::Watches {
            who: anybody(random),
            events: Events::Lost,
            span: millis(random, 500, 6_000),
        },
        Fault::OddEvents => Action::Watches {
            who: anybody(random),
            events: match random.chance(40) {
                true => Events::Twice,
                false => Events::Late(millis(random, 5, 1_500)),
            },
            span: millis(random, 500, 10_000),
        },
        Fault::Stale => Action::Watches {
            who: anybody(random),
            events: Events::Behind,
            span: millis(random, 500, 25_000),
        },
        Fault::TimeTravel => {
            let after = millis(random, 100, 15_000);
            Action::Older { who: anybody(random), after, span: after + millis(random, 500, 15_000) }
        }
        Fault::Clock => {
            let hour = Duration::from_secs(3_600);
            Action::Clock {
                who: anybody(random),
                skew: *random.pick(&[
                    Skew::Ahead(hour),
                    Skew::Behind(hour),
                    Skew::Ahead(Duration::from_secs(20)),
                    Skew::Frozen,
                ]),
                span: millis(random, 1_000, 40_000),
            }
        }
        Fault::Damage => Action::Damage {
            member: member(random),
            what: *random.pick(&[
                Damaged::Index,
                Damaged::IndexUnreadable,
                Damaged::Hashes,
                Damaged::Lease,
            ]),
        },
        Fault::LateAnswers => Action::Answers {
            who: anybody(random),
            late: millis(random, 10, 2_500),
            span: millis(random, 500, 10_000),
        },
        Fault::Drift => Action::Tamper {
            member: member(random),
            what: *random.pick(&[Tampering::Delete, Tampering::Edit, Tampering::Unset]),
            times: 1 + random.below(6) as u32,
            pause: millis(random, 50, 1_500),
        },
        Fault::Partition if random.chance(40) => {
            let edge = *random.pick(&[
                times.silent_after,
                times.silent_after + times.failover_after,
                times.heartbeat,
                times.settle,
            ]);
            let tick = Duration::from_millis(1);
            Action::Flap {
                member: member(random),
                down: if random.chance(50) { edge + tick } else { edge - tick },
                up: *random.pick(&[tick, times.heartbeat, times.settle + tick]),
                times: 2 + random.below(3) as u32,
            }
        }
        Fault::Partition => Action::Cut {
            member: member(random),
            way: *random.pick(&[Way::Both, Way::ToController, Way::ToAgent]),
            span: millis(random, 100, 25_000),
        },
        Fault::TwoLeaders => {
            let past = lease().duration + Duration::from_secs(2);
            Action::Hold { span: past + millis(random, 0, 8_000) }
        }
        Fault::History => {
            Action::History { how: *random.pick(&BROKEN), span: millis(random, 500, 40_000) }
        }
        Fault::Slow => Action::Slow {
            member: member(random),
            bytes: 1 << random.below(12),
            pause: millis(random, 10, 2_000),
            span: millis(random, 1_000, 15_000),
        },
        Fault::Poison => Action::Poisoned {
            what: *random.pick(&[
                Poison::Large,
                Poison::Huge,
                Poison::Crowd,
                Poison::Greedy,
                Poison::Taken,
                Poison::Inapplicable,
            ]),
            span: millis(random, 1_000, 20_000),
        },
        Fault::Restored => Action::Restore {
            member: member(random),
            wiped: random.chance(40),
            later: millis(random, 500, 15_000),
        },
        Fault::Mass => {
            let first = random.below(MEMBERS);
            let count = 1 + random.below(MEMBERS);
            let number = |offset: u64| 1 + (first + offset) % MEMBERS;
            Action::Gone {
                members: (0..count).map(|offset| format!("member{}", number(offset))).collect(),
                how: if random.chance(60) { Going::Dark } else { Going::Cut },
                span: millis(random, 1_000, 30_000),
            }
        }
        Fault::Break => {
            Action::Break { member: member(random), after: random.below(4_000) as usize }
        }
    }
}

fn die(random: &mut Random, who: Who, fuse: Fuse) -> Action {
    Action::Die { who, fuse, within: millis(random, 500, 8_000), away: millis(random, 1, 9_000) }
}
