//! `atoll guards` and `atoll approve`: what ChangeGuards hold, and its release.

use anyhow::{Context, bail};
use atoll_api::ChangeGuard;
use atoll_api::change_guard::HeldPlan;
use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{self, Printer, Text, Tone};
use crate::review_api;
use crate::status;

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing of a plan moves before it fits its guards, or somebody approves it: `atoll approve PLAN`. `kubectl \
                  describe changeguard NAME` shows the workloads of each plan."
)]
pub(crate) struct GuardsArgs {
    #[command(flatten)]
    output: OutputFlag,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exactly this plan goes, also during a freeze. A change that became another one since then has another plan, which \
                  needs its own approval. You need the right to create plans/approval in group review.atoll.dev."
)]
pub(crate) struct ApproveArgs {
    /// The plan, as `atoll guards` shows it
    #[arg(value_name = "PLAN")]
    plan: String,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn guards(
    flags: &HubFlags,
    args: GuardsArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let guards = list(&hub).await?;
    match args.output.output {
        Format::Table if guards.is_empty() => {
            out.line("There is no ChangeGuard: changes by people are not limited.")
        }
        Format::Table => {
            let now = Timestamp::now();
            let rows = guards.iter().flat_map(|guard| rows(guard, now)).collect();
            out.table_keeping(2, &["GUARD", "PLAN", "WORKLOADS", "MOVES", "SINCE", "WHY"], rows)
        }
        format => out.object(format, &json!({"items": guards})),
    }
}

/// All guards of a hub.
pub(crate) async fn list(hub: &Hub) -> anyhow::Result<Vec<ChangeGuard>> {
    let guards: Api<ChangeGuard> = Api::all(hub.client.clone());
    let guards = hub.call("list the ChangeGuards", guards.list(&ListParams::default())).await?;
    Ok(guards.items)
}

/// A row for each plan that waits, or one that says how much of the guard is used.
fn rows(guard: &ChangeGuard, now: Timestamp) -> Vec<Vec<Text>> {
    let name = guard.name_any();
    let status = guard.status.clone().unwrap_or_default();
    if status.held.is_empty() {
        let accepted = status.conditions.iter().find(|one| one.type_ == "Accepted");
        let (why, tone) = match accepted {
            None => ("not read by a controller yet".to_owned(), Tone::Warn),
            Some(accepted) if accepted.status != "True" => (accepted.message.clone(), Tone::Bad),
            Some(_) => {
                let frozen = status.frozen_until.as_ref();
                let frozen = frozen.map(|end| format!("frozen until {}", end.0));
                let moved = format!(
                    "{} of {} moved in {}",
                    print::counted(status.moved_replicas, "replica", "replicas"),
                    print::counted(status.moved_workloads, "workload", "workloads"),
                    guard.spec.window
                );
                (frozen.unwrap_or(moved), Tone::Plain)
            }
        };
        let dash = || Text::from("-");
        return vec![vec![
            Text::from(name),
            dash(),
            Text::from(0),
            Text::from(0),
            dash(),
            Text::toned(why, tone),
        ]];
    }
    let row = |plan: &HeldPlan| {
        vec![
            Text::from(&name),
            Text::toned(&plan.plan, Tone::Warn),
            Text::from(plan.workloads),
            Text::from(plan.replicas),
            status::since(Some(plan.since.0), now),
            Text::from(format!("{}\n{}", plan.causes.join(", "), plan.reason)),
        ]
    };
    status.held.iter().map(row).collect()
}

pub(crate) async fn approve(
    flags: &HubFlags,
    args: ApproveArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    check(&args.plan)?;
    let hub = Hub::find(flags).await?;
    let approved = request(&hub, &args.plan).await?;
    match args.output.output {
        Format::Table => out.line(sentence(&args.plan, &approved)),
        format => out.object(format, &approved),
    }
}

/// Refuses what can be no plan: it becomes part of a path.
pub(crate) fn check(plan: &str) -> anyhow::Result<()> {
    if !review_api::is_id(plan) {
        bail!("{plan:?} is no plan: `atoll guards` lists the plans that wait");
    }
    Ok(())
}

/// Approves a plan as the user of the hub's client. Returns the PlanApproval.
pub(crate) async fn request(hub: &Hub, plan: &str) -> anyhow::Result<Value> {
    let request = http::Request::post(review_api::path(plan))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(b"{}".to_vec())
        .context("make the request")?;
    hub.call("approve the plan", hub.client.request(request)).await
}

/// What a PlanApproval says.
pub(crate) fn sentence(plan: &str, approved: &Value) -> String {
    let status = &approved["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let guards = status["guards"].as_array().into_iter().flatten();
    let guards: Vec<&str> = guards.filter_map(Value::as_str).collect();
    format!(
        "Plan {plan} is approved ({}): {} of {} move now.",
        guards.join(", "),
        print::counted(number("replicas"), "replica", "replicas"),
        print::counted(number("workloads"), "workload", "workloads"),
    )
}
