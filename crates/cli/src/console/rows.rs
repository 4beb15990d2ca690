//! What the verbs read, as rows of pages. Pure.

use atoll_api::binding::AggregatedStatusItem;
use atoll_api::cluster::{ResourceSummary, SessionState};
use atoll_api::{Cluster, MemberState, conditions};
use atoll_console::data::{
    Concern, Condition, DecisionRow, MemberTile, Paged, ROWS, Share, Tone, Use, Verdict, When,
    Word, WorkloadId,
};
use atoll_decision::{ClusterOutcome, Decision, explain as texts};
use atoll_history::api::text;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as Held;
use kube::ResourceExt;
use serde_json::Value;

use crate::print;
use crate::read::explain;
use crate::read::get;
use crate::read::item::{self, Item};
use crate::read::work;
use crate::status::concern;

pub(super) fn when(at: Timestamp, now: Timestamp) -> When {
    When { at, age: text::age(at, now) }
}

pub(super) fn tone(tone: print::Tone) -> Tone {
    match tone {
        print::Tone::Good => Tone::Good,
        print::Tone::Warn => Tone::Warn,
        print::Tone::Bad => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// A row of a Decision object, or of a member's event.
pub(super) fn decision(object: &Value, now: Timestamp) -> DecisionRow {
    let item = Item(object);
    let event = object["spec"]["event"].is_string();
    let namespace = Some(item.namespace()).filter(|name| !name.is_empty()).map(str::to_owned);
    let of = &object["spec"]["workload"];
    let part = |field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let workload = of["kind"].is_string().then(|| WorkloadId {
        group: part("apiVersion")
            .split_once('/')
            .map_or_else(String::new, |(group, _)| group.to_owned()),
        kind: part("kind"),
        namespace: namespace.clone(),
        name: part("name"),
    });
    let outcome = item.text("outcome");
    DecisionRow {
        id: if event { String::new() } else { item.id().to_owned() },
        namespace,
        at: item.at().map(|at| when(at, now)),
        workload,
        trigger: item.trigger().to_owned(),
        outcome: match event {
            true => Word::default(),
            false => Word::new(outcome, tone(item::tone(outcome))),
        },
        change: item.change(),
        reason: item.reason(),
    }
}

pub(super) fn conditions(held: &[Held], now: Timestamp) -> Vec<Condition> {
    let row = |held: &Held| {
        // Some conditions are good news when they are True, some when they are not there.
        let bad = [conditions::PRUNE_HELD, conditions::LEAVING, conditions::HELD];
        let wanted = !bad.contains(&held.type_.as_str());
        let fine = held.status == if wanted { "True" } else { "False" };
        Condition {
            kind: held.type_.clone(),
            status: Word::new(&held.status, if fine { Tone::Good } else { Tone::Warn }),
            reason: held.reason.clone(),
            message: held.message.clone(),
            since: Some(when(held.last_transition_time.0, now)),
        }
    };
    held.iter().map(row).collect()
}

pub(super) fn state_word(state: concern::State) -> Word {
    let tone = if state == concern::State::Failing { Tone::Bad } else { Tone::Warn };
    Word::new(format!("{state:?}"), tone)
}

pub(super) fn concern(of: &concern::Concern, id: Option<&WorkloadId>, now: Timestamp) -> Concern {
    Concern {
        state: state_word(of.state),
        since: of.since.map(|since| when(since, now)),
        workload: id.cloned(),
        members: of.members.clone(),
        why: of.why.clone(),
    }
}

/// Health on a member, in short.
pub(super) fn health(report: Option<&AggregatedStatusItem>) -> Word {
    let (text, shade) = work::health(report);
    let good = report.is_some_and(|r| r.health == atoll_api::binding::ResourceHealth::Healthy);
    Word::new(text, if good { Tone::Good } else { tone(shade) })
}

pub(super) fn share(work: &work::Work, of: Option<WorkloadId>) -> Share {
    let report = work.report.as_ref();
    let applied = match report {
        None => Word::new("unknown", Tone::Warn),
        Some(report) if report.applied => Word::new("yes", Tone::Good),
        Some(report) => {
            Word::new(report.applied_message.clone().unwrap_or_else(|| "no".to_owned()), Tone::Bad)
        }
    };
    Share {
        workload: of,
        member: work.member.clone(),
        replicas: work.replicas,
        ready: report.and_then(|report| report.ready_replicas),
        standing: format!("{:?}", work.standing),
        applied,
        health: health(report),
    }
}

/// The state of a member, one word each.
fn states(state: &str) -> Vec<Word> {
    let word = |word: &str| {
        let tone = match word {
            "Ready" | "Drained" => Tone::Good,
            "NotReady" => Tone::Bad,
            _ => Tone::Warn,
        };
        Word::new(word, tone)
    };
    state.split(',').map(word).collect()
}

pub(super) fn tile(
    cluster: &Cluster,
    replicas: i64,
    workloads: usize,
    now: Timestamp,
) -> MemberTile {
    let status = cluster.status.as_ref();
    let held = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let said = MemberState::of(&cluster.spec, held, cluster.metadata.deletion_timestamp.is_some());
    let session = status.and_then(|status| status.session.as_ref());
    let (state, since) = session
        .map_or((SessionState::Unknown, None), |session| (session.state, session.since.as_ref()));
    let age = since.map_or(String::new(), |since| format!(" for {}", text::age(since.0, now)));
    let tone = match state {
        SessionState::Connected => Tone::Good,
        SessionState::Lost => Tone::Bad,
        SessionState::Unknown => Tone::Warn,
    };
    MemberTile {
        name: cluster.name_any(),
        state: states(&said.state),
        reason: said.reason.replace(',', ", "),
        since: conditions::find(held, conditions::READY)
            .map(|ready| when(ready.last_transition_time.0, now)),
        session: Word::new(format!("{state:?}{age}"), tone),
        replicas,
        workloads,
        use_: uses(status.and_then(|status| status.resource_summary.as_ref())),
    }
}

fn uses(summary: Option<&ResourceSummary>) -> Vec<Use> {
    let resources: [(&str, i128, &str); 3] =
        [("cpu", 1, ""), ("memory", 1 << 30, "Gi"), ("pods", 1, "")];
    let use_ = |(resource, unit, suffix): (&'static str, i128, &str)| {
        let free = get::free(summary, resource, unit, suffix);
        Use {
            resource,
            percent: summary.and_then(|summary| summary.requested_percent(resource)),
            text: format!("{free} free"),
        }
    };
    resources.into_iter().map(use_).collect()
}

/// What a decision says about each cluster: those with a share first.
pub(super) fn verdicts(decision: &Decision, page: usize) -> Paged<Verdict> {
    let mut all: Vec<_> = decision
        .verdicts
        .iter()
        .flat_map(|verdict| {
            let names = verdict.clusters.iter().enumerate();
            names.map(move |(place, name)| (verdict, place, name))
        })
        .collect();
    all.sort_by_key(|(verdict, place, name)| {
        let placed = verdict.after.get(*place).is_some() || verdict.before.get(*place).is_some();
        (!placed, verdict.outcome, *name)
    });
    Paged::of(&all, page, ROWS, |(verdict, place, name)| {
        let tone = match verdict.outcome {
            ClusterOutcome::Selected => Tone::Good,
            ClusterOutcome::Kept | ClusterOutcome::Gone => Tone::Warn,
            ClusterOutcome::NotSelected | ClusterOutcome::Refused => Tone::Plain,
        };
        let scores = verdict
            .scores
            .iter()
            .filter_map(|(plugin, scores)| Some(format!("{plugin} {}", scores.get(*place)?)));
        let refused = verdict.rejections.iter().map(|r| format!("{}: {}", r.plugin, r.reason));
        Verdict {
            cluster: name.to_string(),
            fate: Word::new(explain::fate(verdict.outcome), tone),
            before: verdict.before.get(*place),
            after: verdict.after.get(*place),
            room: match verdict.capacity.is_empty() {
                true => "not computed".to_owned(),
                false => explain::room(verdict, *place),
            },
            refused: refused.collect(),
            scores: scores.collect(),
            remedies: texts::remedies(decision, name),
        }
    })
}
