//! A federation as a source of fixed answers. Names and messages are hostile.

use std::sync::Mutex;

use atoll_console::data::*;
use atoll_console::{Answer, Changes, Fault, Source, Topic};
use futures::{FutureExt, StreamExt, stream};

/// What must never be markup.
pub(crate) const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;";

pub(crate) fn when(second: i64) -> When {
    When {
        at: jiff::Timestamp::from_second(1_800_000_000 + second).unwrap(),
        age: format!("{second}s"),
    }
}

pub(crate) fn workload() -> WorkloadId {
    WorkloadId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
    }
}

pub(crate) fn row() -> DecisionRow {
    DecisionRow {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        namespace: Some("shop".to_owned()),
        at: Some(when(10)),
        workload: Some(workload()),
        trigger: "Failover".to_owned(),
        outcome: Word::new("Partial", Tone::Warn),
        change: "a 2, b 1 -> b 2, pending 1".to_owned(),
        reason: HOSTILE.to_owned(),
    }
}

pub(crate) fn tile(name: &str) -> MemberTile {
    MemberTile {
        name: name.to_owned(),
        state: vec![Word::new("Ready", Tone::Good), Word::new("Draining", Tone::Warn)],
        reason: HOSTILE.to_owned(),
        since: Some(when(60)),
        session: Word::new("Connected for 60s", Tone::Good),
        replicas: 7,
        workloads: 2,
        use_: vec![
            Use { resource: "cpu", percent: Some(85), text: "1.5/10 free".to_owned() },
            Use { resource: "memory", percent: None, text: "-".to_owned() },
        ],
    }
}

pub(crate) fn concern() -> Concern {
    Concern {
        state: Word::new("Failing", Tone::Bad),
        since: Some(when(5)),
        workload: Some(workload()),
        members: (1..7).map(|n| format!("member{n}")).collect(),
        why: HOSTILE.to_owned(),
    }
}

fn held(plan: &str) -> HeldPlan {
    HeldPlan {
        plan: plan.to_owned(),
        guards: vec!["production".to_owned(), HOSTILE.to_owned()],
        workloads: 14,
        replicas: 120,
        since: when(40),
        causes: vec!["PropagationPolicy shop/web".to_owned(), HOSTILE.to_owned()],
        why: vec!["ChangeGuard production: frozen".to_owned(), HOSTILE.to_owned()],
    }
}

fn paged<T>(rows: Vec<T>) -> Paged<T> {
    let all = rows.len();
    Paged { rows, page: 0, size: ROWS, all }
}

pub(crate) fn verdicts() -> Paged<Verdict> {
    let chosen = Verdict {
        cluster: "member1".to_owned(),
        fate: Word::new("selected", Tone::Good),
        before: Some(2),
        after: Some(5),
        room: "12, bounded by cpu".to_owned(),
        scores: vec!["Locality 100".to_owned()],
        ..Verdict::default()
    };
    let refused = Verdict {
        cluster: "member2".to_owned(),
        fate: Word::new("refused", Tone::Plain),
        room: "not computed".to_owned(),
        refused: vec![format!("Taints: {HOSTILE}")],
        remedies: vec!["tolerate the taint".to_owned()],
        ..Verdict::default()
    };
    Paged { rows: vec![chosen, refused], page: 1, size: 2, all: 6 }
}

fn share(of: Option<WorkloadId>) -> Share {
    Share {
        workload: of,
        member: "member1".to_owned(),
        replicas: Some(5),
        ready: Some(3),
        standing: "Target".to_owned(),
        applied: Word::new(HOSTILE, Tone::Bad),
        health: Word::new("Unhealthy: ImagePullBackOff", Tone::Bad),
    }
}

fn timeline() -> Timeline {
    let span = |from: i64, until: i64, replicas| Span {
        from: when(from).at,
        until: when(until).at,
        replicas,
    };
    Timeline {
        from: when(0).at,
        until: when(100).at,
        lanes: vec![
            Lane {
                member: "member1".to_owned(),
                spans: vec![span(0, 40, Some(2)), span(40, 100, Some(5))],
            },
            Lane { member: HOSTILE.to_owned(), spans: vec![span(10, 40, None)] },
        ],
        marks: vec![Mark {
            at: when(40).at,
            path: row().path(),
            label: HOSTILE.to_owned(),
            tone: Tone::Warn,
        }],
        truncated: true,
    }
}

fn condition() -> Condition {
    Condition {
        kind: "Scheduled".to_owned(),
        status: Word::new("False", Tone::Warn),
        reason: "Unschedulable".to_owned(),
        message: HOSTILE.to_owned(),
        since: Some(when(5)),
    }
}

pub(crate) fn plan() -> Plan {
    Plan {
        summary: "1 of 3 workloads would change.".to_owned(),
        changes: vec![PlanRow {
            object: "Deployment.apps shop/web".to_owned(),
            change: vec!["member1: 2 -> 0".to_owned(), HOSTILE.to_owned()],
            why: HOSTILE.to_owned(),
        }],
        more: 1,
        members: vec![PlanMember {
            name: "member1".to_owned(),
            replicas: "2 -> 0".to_owned(),
            cpu: "40 -> 10 %".to_owned(),
            memory: "-".to_owned(),
        }],
        problems: vec![HOSTILE.to_owned()],
    }
}

/// Answers with fixed data, and remembers what it did.
#[derive(Default)]
pub(crate) struct Fixed {
    pub(crate) done: Mutex<Vec<Action>>,
}

fn answer<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    std::future::ready(Ok(value)).boxed()
}

impl Source for Fixed {
    fn overview(&self, _: usize, _: usize) -> Answer<'_, Overview> {
        answer(Overview {
            leader: Some("atoll-controller-0, term 4".to_owned()),
            members: Paged { rows: vec![tile("member1"), tile(HOSTILE)], page: 0, size: 2, all: 3 },
            ready: 1,
            workloads: 12,
            counts: vec![Count { state: Word::new("Failing", Tone::Bad), count: 3 }],
            concerns: paged(vec![concern()]),
            held: vec![held("5f0c7f0e2a1b9d34"), held(HOSTILE)],
            more_held: 1,
            recent: vec![row()],
            notes: vec![HOSTILE.to_owned()],
        })
    }

    fn placement<'a>(&'a self, _: &'a PlacementFilter) -> Answer<'a, Placement> {
        let cell = |replicas| Some(Cell { replicas, tone: Tone::Bad });
        answer(Placement {
            members: paged(vec!["member1".to_owned(), "member2".to_owned(), HOSTILE.to_owned()]),
            rows: Paged {
                rows: vec![MapRow {
                    workload: workload(),
                    state: Word::new("Failing", Tone::Bad),
                    replicas: Some(9),
                    cells: vec![cell(Some(9)), None, cell(None)],
                    elsewhere: 0,
                }],
                page: 0,
                size: 1,
                all: 2,
            },
            most: 9,
            notes: Vec::new(),
        })
    }

    fn workload<'a>(&'a self, of: &'a WorkloadId, _: usize, _: usize) -> Answer<'a, Workload> {
        if of.name == "absent" {
            return std::future::ready(Err(Fault::NotFound(HOSTILE.to_owned()))).boxed();
        }
        answer(Workload {
            id: of.clone(),
            policy: Some("PropagationPolicy shop/p".to_owned()),
            replicas: Some(5),
            conditions: vec![condition()],
            concerns: vec![concern()],
            shares: paged(vec![share(None)]),
            timeline: Some(timeline()),
            decisions: vec![row()],
            decision: Some(row()),
            verdicts: verdicts(),
            notes: vec![HOSTILE.to_owned()],
        })
    }

    fn copy<'a>(&'a self, of: &'a WorkloadId, member: &'a str) -> Answer<'a, Copy> {
        let line = |added, text: &str| Line { added, text: text.to_owned() };
        answer(Copy {
            id: of.clone(),
            member: member.to_owned(),
            lines: vec![
                line(None, "kind: Deployment"),
                line(Some(false), "replicas: 5"),
                line(Some(true), HOSTILE),
            ],
            status: Some(HOSTILE.to_owned()),
            events: vec![Event {
                at: Some(when(1)),
                reason: Word::new("BackOff", Tone::Warn),
                message: HOSTILE.to_owned(),
                count: 3,
            }],
            notes: vec![HOSTILE.to_owned()],
        })
    }

    fn member<'a>(&'a self, name: &'a str, _: usize) -> Answer<'a, Member> {
        answer(Member {
            name: name.to_owned(),
            tile: Some(tile(name)),
            facts: vec![("Region".to_owned(), HOSTILE.to_owned())],
            taints: vec![HOSTILE.to_owned()],
            conditions: vec![condition()],
            shares: paged(vec![share(Some(workload()))]),
            events: vec![row()],
            uses: ["cpu", HOSTILE]
                .map(|resource| {
                    let steps = vec![(when(2).at, 20), (when(6).at, 54)];
                    (resource.to_owned(), Course { steps, until: when(10).at })
                })
                .into(),
            course: Some(Course {
                steps: vec![(when(1).at, 4), (when(5).at, 12)],
                until: when(10).at,
            }),
            cordoned: true,
            notes: Vec::new(),
        })
    }

    fn decisions<'a>(&'a self, _: &'a DecisionFilter) -> Answer<'a, Decisions> {
        answer(Decisions {
            rows: vec![row()],
            older: Some(when(10).at.to_string()),
            triggers: vec!["Failover".to_owned(), HOSTILE.to_owned()],
            outcomes: vec!["Partial".to_owned()],
        })
    }

    fn decision<'a>(
        &'a self,
        _: Option<&'a str>,
        _: &'a str,
        _: usize,
    ) -> Answer<'a, DecisionPage> {
        answer(DecisionPage {
            row: row(),
            parent: Some("fedcba9876543210fedcba9876543210".to_owned()),
            text: HOSTILE.to_owned(),
            verdicts: verdicts(),
            made_from: vec![HOSTILE.to_owned()],
            followed: vec![HOSTILE.to_owned()],
        })
    }

    fn diff<'a>(&'a self, _: &'a str, _: &'a str) -> Answer<'a, DiffPage> {
        let line = DiffLine { of: HOSTILE.to_owned(), from: None, to: Some(HOSTILE.to_owned()) };
        answer(DiffPage {
            from: row(),
            to: row(),
            sections: vec![("Shares".to_owned(), vec![line])],
            unknown: vec![HOSTILE.to_owned()],
        })
    }

    fn policies(&self, _: usize, _: usize) -> Answer<'_, Policies> {
        answer(Policies {
            rows: paged(vec![Policy {
                name: "PropagationPolicy shop/p".to_owned(),
                priority: 3,
                selects: vec![HOSTILE.to_owned()],
                claims: 5,
                examples: vec![workload()],
                shadowed_by: vec![("ClusterPropagationPolicy all".to_owned(), 2)],
            }]),
            findings: paged(vec![Finding {
                severity: Word::new("Error", Tone::Bad),
                object: "PropagationPolicy shop/p".to_owned(),
                field: "spec.placement".to_owned(),
                problem: HOSTILE.to_owned(),
                fix: HOSTILE.to_owned(),
            }]),
            checked: Some(when(12)),
            notes: Vec::new(),
        })
    }

    fn plan<'a>(&'a self, ask: &'a WhatIf) -> Answer<'a, Plan> {
        match ask.scale.is_empty() {
            true => answer(plan()),
            false => std::future::ready(Err(Fault::Invalid(HOSTILE.to_owned()))).boxed(),
        }
    }

    fn preview<'a>(&'a self, _: &'a Action) -> Answer<'a, Plan> {
        answer(plan())
    }

    fn act<'a>(&'a self, action: &'a Action) -> Answer<'a, String> {
        self.done.lock().unwrap().push(action.clone());
        answer("done".to_owned())
    }

    fn changes(&self, topic: Topic) -> Changes {
        match topic {
            Topic::Fleet => stream::iter([(), ()]).chain(stream::pending()).boxed(),
            Topic::Decisions(_) => stream::empty().boxed(),
        }
    }
}
