//! `atoll rebalance`: asks for new decisions on workloads, after it printed what they would move.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use atoll_api::WorkloadRebalancer;
use atoll_api::binding::{ObjectReference, ResourceBindingSpec};
use atoll_api::rebalancer::{RebalanceMode, WorkloadRebalancerSpec, WorkloadReference};
use atoll_scheduler::detect::TemplateKey;
use atoll_scheduler::offline::{Answer, Fate, Settings};
use atoll_scheduler::{Decision, Profiles, Scheduler};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::args::{Format, HubFlags, OutputFlag, TenancyFlag};
use crate::hub::Hub;
use crate::plan::hub::{self, Rules, WhatIf};
use crate::plan::leader;
use crate::plan::request::key;
use crate::plan::what_if::Assumed;
use crate::print::{self, Printer, Text};
use crate::read::workload;

/// Seconds for which the WorkloadRebalancer stays after it finished: long enough to look at it.
const TTL: i64 = 600;

#[derive(Debug, Args)]
#[command(
    after_help = "A rebalance divides a workload again from zero: replicas may move, and ordered clusterAffinities start at the \
                  first term. With --mend-skew it only moves what the topologySpreadConstraints need. Nothing leaves before its replacement is healthy. The verb creates a WorkloadRebalancer; \
                  the controller asks for the decisions."
)]
pub(crate) struct RebalanceArgs {
    /// The workloads: TYPE/NAME, for example deploy/nginx
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Only print what would move, as the scheduler decides now
    #[arg(long)]
    dry_run: bool,
    /// Move as few replicas as possible, until the topologySpreadConstraints hold, instead of dividing again from zero
    #[arg(long)]
    mend_skew: bool,
    #[command(flatten)]
    tenancy: TenancyFlag,
    #[command(flatten)]
    output: OutputFlag,
}

/// A rebalance of these workloads, asked for now.
struct Rebalance {
    workloads: BTreeSet<WorkloadReference>,
    mode: RebalanceMode,
    now: Timestamp,
}

impl WhatIf for Rebalance {
    fn binding(&self, spec: &mut ResourceBindingSpec) {
        if self.concerns(spec) {
            spec.reschedule_triggered_at = Some(Box::new(Time(self.now)));
            spec.reschedule_mode = Some(self.mode);
        }
    }

    fn concerns(&self, spec: &ResourceBindingSpec) -> bool {
        self.workloads.iter().any(|workload| is_of(&spec.resource, workload))
    }
}

fn is_of(resource: &ObjectReference, workload: &WorkloadReference) -> bool {
    resource.group() == workload.group()
        && (&resource.kind, &resource.namespace, &resource.name)
            == (&workload.kind, &workload.namespace, &workload.name)
}

pub(crate) async fn run(
    flags: &HubFlags,
    args: RebalanceArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let mut workloads = BTreeSet::new();
    for word in &args.workloads {
        workloads.insert(reference(workload::resolve(&hub, std::slice::from_ref(word)).await?));
    }
    let mode = if args.mend_skew { RebalanceMode::MendSkew } else { RebalanceMode::Anew };
    let change = Rebalance { workloads, mode, now: Timestamp::now() };
    let (answers, problems) = decide(&hub, &change, args.tenancy).await?;
    for problem in &problems {
        print::note(format!("warning: {problem}"));
    }
    if matches!(args.output.output, Format::Table) {
        out.table(&["WORKLOAD", "MOVES", "RESULT"], answers.iter().map(cells).collect())?;
    }
    let unread = print::counted(problems.len(), "object", "objects");
    let created = match args.dry_run {
        true => None,
        false => Some(create(&hub, change).await?),
    };
    match args.output.output {
        Format::Table => {
            if let Some(name) = created {
                print::note(format!(
                    "WorkloadRebalancer {name} created: the controller asks for the decisions."
                ));
            }
        }
        format => out.object(
            format,
            &json!({"rebalancer": created, "items": answers.iter().map(item).collect::<Vec<_>>()}),
        )?,
    }
    ensure!(
        problems.is_empty() || !args.dry_run,
        "{unread} could not be read: the moves may be incomplete"
    );
    if !problems.is_empty() {
        print::note(format!("warning: {unread} could not be read: the moves may be incomplete"));
    }
    Ok(())
}

fn reference(found: workload::Workload) -> WorkloadReference {
    WorkloadReference {
        api_version: found.kind.api_version(),
        kind: found.kind.kind,
        namespace: found.namespace,
        name: found.name,
    }
}

/// What the rebalance would do, and what could not be read.
async fn decide(
    hub: &Hub,
    change: &Rebalance,
    tenancy: TenancyFlag,
) -> anyhow::Result<(Vec<Answer>, Vec<String>)> {
    if !tenancy.require_cluster_sets {
        let workloads: Vec<WorkloadReference> = change.workloads.iter().cloned().collect();
        let assumed = Assumed::rebalance(workloads, change.mode);
        if let Some(decided) = leader::decisions(hub, assumed).await? {
            let keys: BTreeSet<TemplateKey> = change.workloads.iter().map(key).collect();
            let mut answers = decided.answers;
            answers.retain(|answer| keys.contains(&answer.object));
            return Ok((answers, decided.problems));
        }
    }
    let rules = Rules { tenancy, ..Rules::default() };
    let (world, problems) = hub::read(hub, change, &rules).await?;
    for workload in &change.workloads {
        let mut bindings = world.bindings.values();
        if !bindings.any(|binding| is_of(&binding.spec.resource, workload)) {
            let WorkloadReference { kind, name, .. } = workload;
            bail!(
                "{kind} {name} is not placed: it does not exist, or no policy claims it (`atoll explain` says why)"
            );
        }
    }
    let settings = Settings { profile: None, now: change.now };
    Ok((world.decide(&mut Scheduler::new(Profiles::default()), &settings), problems))
}

/// A rebalance that the console shows or asks for.
pub(crate) struct Shown {
    /// Workload, what moves, and the result.
    pub(crate) rows: Vec<(String, Vec<String>, String)>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
    /// Name of the WorkloadRebalancer.
    pub(crate) created: Option<String>,
}

/// Shows what a rebalance of one workload would move; `really` asks for it.
///
/// # Errors
/// When the workload is not placed, or the hub refuses.
pub(crate) async fn of_console(
    hub: &Hub,
    found: workload::Workload,
    tenancy: TenancyFlag,
    really: bool,
) -> anyhow::Result<Shown> {
    let workloads = BTreeSet::from([reference(found)]);
    let change = Rebalance { workloads, mode: RebalanceMode::Anew, now: Timestamp::now() };
    let (answers, problems) = decide(hub, &change, tenancy).await?;
    let row = |answer: &Answer| {
        let (moves, result) = told(answer);
        (answer.object.to_string(), moves, result)
    };
    let rows = answers.iter().map(row).collect();
    let created = if really { Some(create(hub, change).await?) } else { None };
    Ok(Shown { rows, problems, created })
}

async fn create(hub: &Hub, change: Rebalance) -> anyhow::Result<String> {
    let spec = WorkloadRebalancerSpec {
        workloads: change.workloads.into_iter().collect(),
        mode: change.mode,
        ttl_seconds_after_finished: Some(TTL),
    };
    let mut object = WorkloadRebalancer::new("", spec);
    object.metadata.name = None;
    object.metadata.generate_name = Some("rebalance-".to_owned());
    let api: Api<WorkloadRebalancer> = Api::all(hub.client.clone());
    let params = PostParams::default();
    let created = hub.call("create a WorkloadRebalancer", api.create(&params, &object)).await?;
    created.metadata.name.context("the hub returned a WorkloadRebalancer without a name")
}

fn decision(answer: &Answer) -> Result<&Decision, &str> {
    match &answer.fate {
        Fate::Decided(decision) => Ok(decision),
        Fate::Attached(_) => Err(Fate::ATTACHED),
        Fate::NotClaimed(why) | Fate::Unusable(why) => Err(why),
    }
}

/// What moves, as text.
fn moves(decision: &Decision) -> Vec<String> {
    if decision.desired.is_some() && !decision.moves().is_empty() {
        let moves = decision.moves().iter();
        return moves.map(|step| format!("{} -> {}: {}", step.from, step.to, step.count)).collect();
    }
    // Copies and duplicated workloads: clusters are added and removed.
    let names = |shares: &[atoll_api::binding::TargetCluster]| -> BTreeSet<String> {
        shares.iter().map(|share| share.name.clone()).collect()
    };
    let (before, after) = (names(decision.before()), names(decision.clusters()));
    let new = after.difference(&before).map(|name| format!("+ {name}"));
    let old = before.difference(&after).map(|name| format!("- {name}"));
    new.chain(old).collect()
}

/// What moves, and the result.
fn told(answer: &Answer) -> (Vec<String>, String) {
    match decision(answer) {
        Err(why) => (Vec::new(), why.to_owned()),
        Ok(decision) if decision.reason.is_empty() => {
            (moves(decision), format!("{:?}", decision.outcome()))
        }
        Ok(decision) => (moves(decision), format!("{:?}: {}", decision.outcome(), decision.reason)),
    }
}

fn cells(answer: &Answer) -> Vec<Text> {
    let (moves, result) = told(answer);
    let moves = if moves.is_empty() { "-".to_owned() } else { moves.join("\n") };
    vec![Text::from(answer.object.to_string()), Text::from(moves), Text::from(result)]
}

fn item(answer: &Answer) -> Value {
    let object = answer.object.to_string();
    match decision(answer) {
        Err(why) => json!({"object": object, "moves": [], "error": why}),
        Ok(decision) => json!({
            "object": object,
            "outcome": decision.outcome(),
            "reason": decision.reason,
            "before": decision.before(),
            "after": decision.clusters(),
            "moves": decision.moves().iter().map(|step| {
                json!({"from": step.from, "to": step.to, "count": step.count})
            }).collect::<Vec<_>>(),
        }),
    }
}
