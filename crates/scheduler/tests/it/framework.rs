//! The guarantees of the framework, tested with custom plugins.

use std::sync::{Arc, Mutex};

use atoll_api::binding::Outcome;
use atoll_scheduler::cycle::state::Cycle;
use atoll_scheduler::framework::plugin::{Plugin, Point};
use atoll_scheduler::framework::scores::{Scores, Values};
use atoll_scheduler::framework::status::{Code, Status};
use atoll_scheduler::framework::verdicts::{Hold, Verdicts};
use atoll_scheduler::{Decision, Profiles, Scheduler};
use serde_json::json;

use crate::support::*;

type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
struct Test {
    name: &'static str,
    log: Log,
    skip_filter: bool,
    fail_reserve: bool,
    limit: Option<i64>,
    score: i64,
    reject: bool,
}

impl Test {
    fn new(name: &'static str, log: &Log) -> Self {
        Self {
            name,
            log: log.clone(),
            skip_filter: false,
            fail_reserve: false,
            limit: None,
            score: 0,
            reject: false,
        }
    }

    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Plugin for Test {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pre_filter(&self, _: &mut Cycle<'_>) -> Status {
        if self.skip_filter { Status::skip() } else { Status::success() }
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        self.note("filter");
        if self.reject && !cycle.extras.contains_key("helped") {
            let all = cycle.snapshot.all();
            verdicts.reject(self.name, Code::Unschedulable, "by the test", all, Hold::Never);
        }
        let Some(limit) = self.limit else { return Status::success() };
        verdicts.limit(self.name, 0, limit, "by the test".into());
        Status::new(Code::Partial(limit), "by the test")
    }

    fn post_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        self.note("postFilter");
        cycle.extras.insert("helped", Box::new(()));
        Status::success()
    }

    fn score(&self, _: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        scores.values = Values::Each(vec![self.score; scores.candidates.len()].into());
        Status::success()
    }

    fn reserve(&self, _: &mut Cycle<'_>) -> Status {
        self.note("reserve");
        if self.fail_reserve {
            return Status::new(Code::Unschedulable, "the ledger says no");
        }
        Status::success()
    }

    fn unreserve(&self, _: &mut Cycle<'_>) {
        self.note("unreserve");
    }
}

fn decide(plugins: &[(Point, Test)]) -> Decision {
    let mut profiles = Profiles::default();
    let mut profile = (**profiles.get("default").unwrap()).clone();
    profile.name = "test".into();
    for (point, plugin) in plugins {
        profile.add(*point, Arc::new(plugin.clone()), 1);
    }
    profiles.insert(profile);
    let mut world = World::new([cluster("a", &[], Some(9)), cluster("b", &[], Some(9))]);
    let mut request = workload(
        "web",
        6,
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}}),
    );
    request.scheduler_name = "test".into();
    let snapshot = world.tables.snapshot();
    let decision = Scheduler::new(profiles).decide(&snapshot, &request);
    assert_eq!(atoll_scheduler::lint::lint(&snapshot, &request, &decision), []);
    decision
}

fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

#[test]
fn a_failed_reserve_unreserves_all_in_reverse_and_places_nothing() {
    let log = Log::default();
    let (first, last) = (Test::new("First", &log), Test::new("Last", &log));
    let failing = Test { fail_reserve: true, ..Test::new("Failing", &log) };
    let reserve = Point::Reserve;
    let decision = decide(&[(reserve, first.clone()), (reserve, failing), (reserve, last.clone())]);
    assert_eq!(decision.outcome(), Outcome::Unschedulable);
    assert_eq!(decision.reason, "Failing: the ledger says no");
    assert!(decision.clusters().is_empty());
    let calls = taken(&log);
    assert_eq!(
        calls,
        [
            "First reserve",
            "Failing reserve",
            "Last unreserve",
            "Failing unreserve",
            "First unreserve"
        ]
    );
    decide(&[(reserve, first), (reserve, last)]);
    assert_eq!(taken(&log), ["First reserve", "Last reserve"]);
}

#[test]
fn skip_from_pre_filter_skips_the_filter() {
    let log = Log::default();
    let skipping = Test { skip_filter: true, ..Test::new("Skipping", &log) };
    decide(&[(Point::PreFilter, skipping.clone()), (Point::Filter, skipping.clone())]);
    assert_eq!(taken(&log), [""; 0]);
    decide(&[(Point::Filter, skipping)]);
    assert_eq!(taken(&log), ["Skipping filter"]);
}

#[test]
fn partial_limits_what_a_cluster_takes() {
    let log = Log::default();
    let limiting = Test { limit: Some(1), ..Test::new("Limiting", &log) };
    let decision = decide(&[(Point::Filter, limiting)]);
    assert_eq!(shares(&decision), map(&[("a", 1), ("b", 5)]));
}

#[test]
fn scores_out_of_range_are_clamped_and_said() {
    let log = Log::default();
    let wild = Test { score: 900, ..Test::new("Wild", &log) };
    let decision = decide(&[(Point::Score, wild)]);
    assert!(
        decision.notes.iter().any(|note| note.starts_with("Wild: scores clamped to 0..=100: 2")),
        "{:?}",
        decision.notes
    );
    let (verdict, at) = decision.verdict("a").unwrap();
    assert_eq!(verdict.scores["Wild"].get(at), Some(100));
    assert_eq!(decision.outcome(), Outcome::Placed, "it never aborts the decision");
}

#[test]
fn post_filter_runs_when_nothing_fits_and_the_filters_run_again() {
    let log = Log::default();
    let closing = Test { reject: true, ..Test::new("Closing", &log) };
    let decision = decide(&[(Point::Filter, closing.clone())]);
    assert_eq!(decision.outcome(), Outcome::NoFit);
    taken(&log);
    let decision = decide(&[(Point::Filter, closing.clone()), (Point::PostFilter, closing)]);
    assert_eq!(taken(&log), ["Closing filter", "Closing postFilter", "Closing filter"]);
    assert_eq!(decision.outcome(), Outcome::Placed);
}
