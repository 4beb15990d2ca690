//! `atoll status`: the federation on one screen: its leader, its members, and the workloads that need attention.

pub(crate) mod concern;

use std::collections::BTreeMap;

use atoll_api::{Cluster, MemberState, conditions};
use atoll_history::api::text::age;
use clap::Args;
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use serde::Serialize;

use self::concern::{Concern, State};
use crate::args::Format;
use crate::args::{HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::leader::{self, Leader};
use crate::print::{Printer, Text, Tone, counted, note};
use crate::read::{bindings, get};

/// Rows of a table without `--all`: both tables fit a terminal of 50 lines.
const ROWS: usize = 20;
/// Longest explanation in a row; `-o json` has it whole.
const WHY: usize = 160;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// List all members and workloads, not only the first 20 of each
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Absent: no controller leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Leader>,
    members: Vec<Member>,
    workloads: Counts,
    /// The most urgent first.
    concerns: Vec<Concern>,
}

/// One member.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    name: String,
    /// `Ready`, `NotReady` or `Unknown`, and what else applies, separated by commas.
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Since when it is or is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    replicas: i64,
}

/// Workloads by their most urgent state.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    all: usize,
    failing: usize,
    waiting: usize,
    held: usize,
    moving: usize,
}

pub(crate) async fn run(flags: &HubFlags, args: StatusArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let status = read(&hub, flags.namespace.as_deref()).await?;
    match args.output.output {
        Format::Table => print(&status, args.all, out),
        format => out.object(format, &status),
    }
}

async fn read(hub: &Hub, namespace: Option<&str>) -> anyhow::Result<Status> {
    let now = Timestamp::now();
    // Users of a namespace may not read the Lease, and need no leader to see their workloads.
    let leader = leader::find(hub).await.unwrap_or_else(|error| {
        note(format!("the leader is not shown: {error:#}"));
        None
    });
    let clusters = get::list(hub, &Api::all(hub.client.clone())).await?;
    let mut status = Status {
        leader: leader.filter(|leader| leader.leads(now)),
        members: clusters.iter().map(Member::of).collect(),
        workloads: Counts::default(),
        concerns: clusters.iter().flat_map(concern::of_member).collect(),
    };
    let mut replicas: BTreeMap<String, i64> = BTreeMap::new();
    bindings::each(hub, namespace, |binding| {
        for target in &binding.spec.clusters {
            *replicas.entry(target.name.clone()).or_default() += target.replicas;
        }
        status.take(&binding.spec, binding.status.as_ref());
    })
    .await?;
    for member in &mut status.members {
        member.replicas = replicas.remove(&member.name).unwrap_or_default();
    }
    status.concerns.sort_by_key(Concern::urgency);
    Ok(status)
}

impl Status {
    fn take(
        &mut self,
        spec: &atoll_api::binding::ResourceBindingSpec,
        status: Option<&atoll_api::binding::ResourceBindingStatus>,
    ) {
        self.workloads.all += 1;
        let found = concern::of_binding(spec, status);
        if let Some(worst) = found.iter().map(|concern| concern.state).min() {
            *self.workloads.of(worst) += 1;
        }
        self.concerns.extend(found);
    }
}

impl Counts {
    fn of(&mut self, state: State) -> &mut usize {
        match state {
            State::Failing => &mut self.failing,
            State::Waiting => &mut self.waiting,
            State::Held => &mut self.held,
            State::Moving => &mut self.moving,
        }
    }

    fn text(&self) -> String {
        let states = [
            (self.failing, "failing"),
            (self.waiting, "waiting"),
            (self.held, "held"),
            (self.moving, "moving"),
        ];
        let shown: Vec<String> = states
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        let all = counted(self.all as u64, "workload", "workloads");
        match shown.is_empty() {
            true if self.all == 0 => "No workloads.".to_owned(),
            true => format!("{all}, all as they should be."),
            false => format!("{all}: {}.", shown.join(", ")),
        }
    }
}

impl Member {
    fn of(cluster: &Cluster) -> Self {
        let held = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let said =
            MemberState::of(&cluster.spec, held, cluster.metadata.deletion_timestamp.is_some());
        Self {
            name: cluster.name_any(),
            state: said.state,
            reason: said.reason,
            since: conditions::find(held, conditions::READY).map(|c| c.last_transition_time.0),
            replicas: 0,
        }
    }

    fn is_fine(&self) -> bool {
        self.state == "Ready"
    }
}

fn print(status: &Status, all: bool, out: &Printer) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let most = if all { usize::MAX } else { ROWS };
    let leader = match &status.leader {
        Some(leader) => Text::from(format!("Leader {}, term {}. ", leader.holder, leader.term)),
        None => Text::toned("No controller leads: nothing is decided. ", Tone::Bad),
    };
    let fine = status.members.iter().filter(|member| member.is_fine()).count();
    let members = match status.members.len() {
        0 => "No members. ".to_owned(),
        count => format!("{}, {fine} ready. ", counted(count as u64, "member", "members")),
    };
    out.styled_line(&[leader, members.into(), status.workloads.text().into()])?;
    if !status.members.is_empty() {
        out.line("")?;
        // Those that are not fine first.
        let mut members: Vec<&Member> = status.members.iter().collect();
        members.sort_by_key(|member| member.is_fine());
        let rows = members.iter().take(most).map(|member| member_row(member, now)).collect();
        out.table_keeping(1, &["MEMBER", "STATUS", "SINCE", "REPLICAS", "REASON"], rows)?;
        more(members.len(), most, "members", out)?;
    }
    if !status.concerns.is_empty() {
        out.line("")?;
        let rows = status.concerns.iter().take(most).map(|c| concern_row(c, now)).collect();
        out.table_keeping(2, &["STATE", "SINCE", "WORKLOAD", "MEMBERS", "WHY"], rows)?;
        more(status.concerns.len(), most, "lines", out)?;
    }
    Ok(())
}

fn more(count: usize, most: usize, what: &str, out: &Printer) -> anyhow::Result<()> {
    match count.checked_sub(most) {
        None | Some(0) => Ok(()),
        Some(left) => out.line(format!("{left} more {what}: --all lists them")),
    }
}

pub(crate) fn since(time: Option<Timestamp>, now: Timestamp) -> Text {
    time.map_or_else(|| "-".into(), |time| age(time, now).into())
}

fn member_row(member: &Member, now: Timestamp) -> Vec<Text> {
    let tone = match member.state.split(',').next() {
        _ if member.is_fine() => Tone::Good,
        Some("NotReady") => Tone::Bad,
        _ => Tone::Warn,
    };
    vec![
        member.name.as_str().into(),
        Text::toned(member.state.replace(',', "\n"), tone),
        since(member.since, now),
        member.replicas.into(),
        member.reason.replace(',', "\n").into(),
    ]
}

fn concern_row(concern: &Concern, now: Timestamp) -> Vec<Text> {
    let tone = if concern.state == State::Failing { Tone::Bad } else { Tone::Warn };
    let mut why = concern.why.clone();
    if let Some((end, _)) = why.char_indices().nth(WHY) {
        why.truncate(end);
        why.push('…');
    }
    vec![
        Text::toned(format!("{:?}", concern.state), tone),
        since(concern.since, now),
        concern.workload.as_deref().unwrap_or("-").into(),
        concern.shown_members().into(),
        why.into(),
    ]
}
