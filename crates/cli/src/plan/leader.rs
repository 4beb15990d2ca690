//! A plan that the leader computes, as `atoll plan` and the console ask for it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use atoll_scheduler::offline::{Answer, Fate, World};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;

use super::hub::Kinds;
use super::objects::Identity;
use super::request::{self, PlanObject, PlanSpec, PlanStatus, Shown};
use super::what_if::Assumed;
use super::{PlanArgs, apply, show};
use crate::hub::{Hub, status};
use crate::input::title;
use crate::print;
use crate::review_api;

/// Limit of the wait for a plan: for those before it, and for its decisions.
const ANSWER: Duration = Duration::from_secs(65);
/// Answers after which the plan is computed by the command: no such API, no right to use it, no leader, too many plans.
const ELSEWHERE: [u16; 6] = [403, 404, 405, 429, 502, 503];

/// The leader's plan; `None`, with a note, where it cannot be asked.
///
/// # Errors
/// A file cannot be planned, or the hub does not answer.
pub(super) async fn plan(
    hub: &Hub,
    args: &PlanArgs,
    files: &[Value],
) -> anyhow::Result<Option<show::Answer>> {
    let (objects, problems) = applied(hub, files).await?;
    let configuration = args.scheduler_config.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .with_context(|| format!("--scheduler-config {}", path.display()))
    });
    let spec = PlanSpec {
        objects,
        assumed: args.what_if.read()?,
        scheduler_configuration: configuration.transpose()?,
        manifests: args.diff,
        decisions: false,
    };
    let Some(planned) = ask(hub, spec).await? else { return Ok(None) };
    let mut all = problems;
    all.extend(planned.problems);
    let (plan, manifests) = (planned.plan, planned.manifests);
    Ok(Some(show::Answer { plan, manifests, problems: all, diff: args.diff }))
}

/// The leader's decisions under an assumption.
pub(crate) struct Decided {
    /// The bindings of the workloads.
    pub(crate) world: World,
    /// The decisions on them.
    pub(crate) answers: Vec<Answer>,
    /// What could not be read or decided.
    pub(crate) problems: Vec<String>,
}

/// The leader's decisions under an assumption; `None`, with a note, where it cannot be asked. Workloads that the user may
/// not read are missing, and a note says how many.
///
/// # Errors
/// The assumption is wrong, or the hub does not answer.
pub(crate) async fn decisions(hub: &Hub, assumed: Assumed) -> anyhow::Result<Option<Decided>> {
    let spec = PlanSpec { assumed, decisions: true, ..PlanSpec::default() };
    let Some(planned) = ask(hub, spec).await? else { return Ok(None) };
    if planned.plan.hidden > 0 {
        let workloads = print::counted(planned.plan.hidden, "workload", "workloads");
        print::note(format!("note: {workloads} that you may not read would change, too"));
    }
    let (mut world, mut answers) = (World::default(), Vec::new());
    for Shown { workload, decision, problem, binding } in planned.decisions {
        let object = request::key(&workload);
        if let Some(binding) = binding {
            world.bindings.insert(object.binding(), binding);
        }
        let fate = match decision {
            Some(decision) => Fate::Decided(decision),
            None => Fate::Unusable(problem.unwrap_or_default()),
        };
        answers.push(Answer { object, fate });
    }
    answers.sort_by_key(|answer| answer.object.to_string());
    Ok(Some(Decided { world, answers, problems: planned.problems }))
}

async fn ask(hub: &Hub, spec: PlanSpec) -> anyhow::Result<Option<PlanStatus>> {
    let body = serde_json::to_vec(&PlanObject::new(spec)).context("write the request")?;
    let request = http::Request::post(review_api::plans())
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .context("make the request")?;
    let asked = hub.client.request::<PlanObject>(request);
    match hub.call_within(ANSWER, "plan on the leader", asked).await {
        Ok(planned) => planned.status.context("the leader's answer has no status").map(Some),
        Err(error) if status(&error).is_some_and(|code| ELSEWHERE.contains(&code)) => {
            print::note(format!(
                "note: {error:#}; the plan is computed here, without what the leader is placing at this moment"
            ));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The objects of files as the hub would store them, and those that it would refuse.
async fn applied(hub: &Hub, files: &[Value]) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let mut new_namespaces = BTreeSet::new();
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());
    for of in files.iter().map(Identity::of) {
        if of.group.is_empty() && of.kind == "Namespace" {
            let doing = format!("get Namespace {}", of.name);
            if hub.call(&doing, namespaces.get_opt(&of.name)).await?.is_none() {
                new_namespaces.insert(of.name);
            }
        }
    }
    let (mut objects, mut problems) = (Vec::new(), Vec::new());
    let runs = apply::dry_runs(hub, files, &new_namespaces, &mut Kinds::default()).await;
    for (file, answer) in files.iter().zip(runs) {
        match answer {
            Ok(object) => objects.push(object),
            Err(error) => problems.push(format!("{}: {error:#}", title(file))),
        }
    }
    Ok((objects, problems))
}
