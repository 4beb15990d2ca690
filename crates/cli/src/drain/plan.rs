//! `atoll drain --dry-run`: the decisions that a drain would cause, by the leader, or if it cannot be asked by the scheduler
//! core here from the objects of the hub.

use anyhow::ensure;
use atoll_api::Cluster;
use atoll_api::binding::{ResourceBindingSpec, TargetCluster};
use atoll_controller::emptying::{is_ended_job, takes_no_room};
use atoll_controller::pace;
use atoll_scheduler::offline::{Answer, Fate, Settings, World};
use atoll_scheduler::{Decision, Profiles, Scheduler};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{Format, TenancyFlag};
use crate::cordon;
use crate::hub::Hub;
use crate::plan::hub::{self, Rules, WhatIf};
use crate::plan::leader::{self, Decided};
use crate::plan::what_if::Assumed;
use crate::print::{self, Printer, Text, Tone};

/// The effect of a drain on one workload.
struct Row<'a> {
    object: String,
    decision: Option<&'a Decision>,
    /// Where its replicas go.
    moves: Vec<(String, i64)>,
    /// Why it stays; `None` if it moves.
    stays: Option<String>,
    /// Whether the drain waits for it.
    holds: bool,
}

pub(super) async fn run(
    hub: &Hub,
    member: &str,
    tenancy: TenancyFlag,
    format: Format,
    out: &Printer,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let asked = match tenancy.require_cluster_sets {
        true => None,
        false => leader::decisions(hub, Assumed::drain(member)).await?,
    };
    let Decided { world, answers, problems } = match asked {
        Some(decided) => decided,
        None => {
            let rules = Rules { tenancy, ..Rules::default() };
            let (world, problems) = hub::read(hub, &Drain { member, now }, &rules).await?;
            let settings = Settings { profile: None, now };
            let answers = world.decide(&mut Scheduler::new(Profiles::default()), &settings);
            Decided { world, answers, problems }
        }
    };
    let rows: Vec<Row<'_>> =
        answers.iter().filter_map(|answer| row(answer, &world, member)).collect();
    for problem in &problems {
        print::note(format!("error: {problem}"));
    }
    let staying = rows.iter().filter(|row| row.stays.is_some()).count();
    let moving = rows.len() - staying;
    let light = rows.iter().filter(|row| row.stays.is_some() && !row.holds).count();
    if !rows.is_empty() {
        print::note(format!(
            "Of the workloads on {member}, {moving} would move and {staying} would stay{}. The controller limits the pace: at\n\
             most {} a second (--eviction-rate), and within 10 s at most {} % of a member's room (--eviction-room-percent),\n\
             unless it was started with other limits.\n",
            match light {
                0 => String::new(),
                light => format!(
                    ", {light} of them without blocking the drain because they take no room"
                ),
            },
            pace::BINDINGS_PER_SECOND,
            pace::ROOM_PERCENT,
        ));
    }
    print_rows(&rows, member, format, out)?;
    ensure!(
        problems.is_empty(),
        "{} could not be read: the plan may be incomplete",
        print::counted(problems.len(), "object", "objects")
    );
    Ok(())
}

fn print_rows(rows: &[Row<'_>], member: &str, format: Format, out: &Printer) -> anyhow::Result<()> {
    let staying = rows.iter().filter(|row| row.stays.is_some()).count();
    let moving = rows.len() - staying;
    match format {
        Format::Table if rows.is_empty() => out.line(format!("Nothing runs on {member}.")),
        Format::Table => {
            out.table(&["WORKLOAD", "MOVES TO", "STAYS BECAUSE"], rows.iter().map(cells).collect())
        }
        format => out.object(
            format,
            &json!({"member": member, "moving": moving, "staying": staying, "items": rows.iter().map(item).collect::<Vec<_>>()}),
        ),
    }
}

/// A drain of a member since a time.
struct Drain<'a> {
    member: &'a str,
    now: Timestamp,
}

impl WhatIf for Drain<'_> {
    fn cluster(&self, cluster: &mut Cluster) {
        if cluster.metadata.name.as_deref() == Some(self.member) {
            cluster.spec.taints.retain(|taint| !cordon::is_drain(taint));
            cluster.spec.taints.push(cordon::drain_taint(self.now));
        }
    }

    fn concerns(&self, spec: &ResourceBindingSpec) -> bool {
        spec.clusters.iter().any(|target| target.name == self.member)
            || spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == self.member)
    }
}

/// The row of a workload on the member; `None` for any other workload.
fn row<'a>(answer: &'a Answer, world: &World, member: &str) -> Option<Row<'a>> {
    let object = answer.object.to_string();
    let binding = world.bindings.get(&answer.object.binding());
    let holds = binding.is_none_or(|binding| {
        let status = binding.status.clone().unwrap_or_default();
        !takes_no_room(&binding.spec, &status, member)
    });
    let decision = match &answer.fate {
        Fate::Decided(decision) => decision,
        Fate::Unusable(why) => {
            return Some(Row {
                object,
                decision: None,
                moves: Vec::new(),
                stays: Some(why.clone()),
                holds,
            });
        }
        // What is attached follows its workloads.
        Fate::NotClaimed(_) | Fate::Attached(_) => return None,
    };
    let on = |shares: &[TargetCluster]| {
        shares.iter().find(|share| share.name == member).map(|share| share.replicas)
    };
    on(decision.before())?;
    let mut moves: Vec<(String, i64)> = decision
        .moves()
        .iter()
        .filter(|step| step.from == member)
        .map(|step| (step.to.to_string(), step.count))
        .collect();
    let left = on(decision.clusters());
    if left.is_none() && moves.is_empty() {
        // Without replicas, or duplicated everywhere: new members take its place.
        let before = |name: &str| decision.before().iter().any(|share| share.name == name);
        let new = decision.clusters().iter().filter(|share| !before(&share.name));
        moves = new.map(|share| (share.name.clone(), share.replicas)).collect();
    }
    let leaving = decision.evictions().iter().filter(|task| task.from_cluster == member);
    let waiting: i64 = leaving.map(|task| task.unplaced).sum();
    let ended = binding.is_some_and(|binding| {
        let status = binding.status.clone().unwrap_or_default();
        is_ended_job(&binding.spec, &status, member)
    });
    let stays = match left {
        Some(_) if ended => Some("the Job has ended; a copy elsewhere would run again".to_owned()),
        Some(_) => Some(why(decision)),
        None if waiting > 0 => {
            let replicas = print::counted(waiting, "replica has", "replicas have");
            Some(format!("{replicas} no other place: {}", why(decision)))
        }
        None => None,
    };
    Some(Row { object, decision: Some(decision), moves, stays, holds })
}

/// Why a workload stays.
fn why(decision: &Decision) -> String {
    if !decision.reason.is_empty() {
        return decision.reason.clone();
    }
    let forbidden = decision.triggers.iter().find(|check| check.holds && !check.allowed);
    if let Some(check) = forbidden {
        return format!("its policy does not allow {}: {}", check.trigger, check.why);
    }
    let note = decision.notes.first().cloned();
    note.unwrap_or_else(|| "its policy tolerates the taint".to_owned())
}

fn cells(row: &Row<'_>) -> Vec<Text> {
    let replicas = row.decision.is_some_and(|decision| decision.desired.is_some());
    let moves = row.moves.iter().map(|(to, count)| match replicas {
        true => format!("{to}: {count}"),
        false => to.clone(),
    });
    let moves: Vec<String> = moves.collect();
    let moves = if moves.is_empty() { "-".to_owned() } else { moves.join("\n") };
    let stays = match &row.stays {
        Some(why) if row.holds => Text::toned(why, Tone::Warn),
        Some(why) => Text::from(format!("(does not block the drain) {why}")),
        None => Text::from(""),
    };
    vec![Text::from(&row.object), Text::from(moves), stays]
}

fn item(row: &Row<'_>) -> Value {
    let moves = row.moves.iter().map(|(to, replicas)| json!({"to": to, "replicas": replicas}));
    json!({
        "object": row.object,
        "moves": moves.collect::<Vec<_>>(),
        "stays": row.stays,
        "holds": row.stays.is_some() && row.holds,
        "decision": row.decision,
    })
}
