//! A plan that the leader computes, as `atoll plan` and the console ask for it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;

use super::hub::Kinds;
use super::objects::Identity;
use super::request::{PlanObject, PlanSpec};
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
    };
    let body = serde_json::to_vec(&PlanObject::new(spec)).context("write the request")?;
    let request = http::Request::post(review_api::plans())
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .context("make the request")?;
    let asked = hub.client.request::<PlanObject>(request);
    let answered = hub.call_within(ANSWER, "plan on the leader", asked).await;
    let planned = match answered {
        Ok(planned) => planned.status.context("the leader's answer has no status")?,
        Err(error) if status(&error).is_some_and(|code| ELSEWHERE.contains(&code)) => {
            print::note(format!(
                "note: {error:#}; the plan is computed here, without what the leader is placing at this moment"
            ));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut all = problems;
    all.extend(planned.problems);
    let (plan, manifests) = (planned.plan, planned.manifests);
    Ok(Some(show::Answer { plan, manifests, problems: all, diff: args.diff }))
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
