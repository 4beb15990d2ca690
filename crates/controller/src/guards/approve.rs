//! The approval of a plan. Any controller may serve it: it is written to the guards, from which the leader reads it.

use std::time::Duration;

use atoll_api::change_guard::{MAX_RELEASED, ReleasedPlan};
use atoll_api::{ChangeGuard, marks};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams, Patch};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::release::after;
use crate::manager;

/// Limit of one request to the hub.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a write is tried when the leader writes the same status.
const ATTEMPTS: u32 = 8;
/// Longest name of a user that is stored.
const LONGEST_USER: usize = 256;

/// A plan that somebody approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The plan.
    pub plan: String,
    /// The guards that held it.
    pub guards: Vec<String>,
    /// Its workloads.
    pub workloads: i64,
    /// Replicas that it moves.
    pub replicas: i64,
}

/// Why a plan was not approved.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// No guard holds a plan of this name.
    #[error("no ChangeGuard holds plan {plan}: {}", if .held.is_empty() { "nothing waits".to_owned() } else { format!("waiting: {}. A plan that changed has a new id", .held.join(", ")) })]
    NotHeld {
        /// The plan.
        plan: String,
        /// The plans that wait.
        held: Vec<String>,
    },
    /// A guard has too many releases.
    #[error(
        "ChangeGuard {0} has {MAX_RELEASED} plans in status.released: try again when some of them are finished"
    )]
    Full(String),
    /// The hub refused, or did not answer.
    #[error("{doing}: {why}")]
    Hub {
        /// The request.
        doing: String,
        /// The problem.
        why: String,
    },
}

/// Approves a plan that is held, for this user. Approving it again changes nothing.
///
/// # Errors
/// No guard holds the plan, or the hub cannot be written.
pub async fn approve(
    client: &Client,
    plan: &str,
    user: &str,
    now: impl Fn() -> Timestamp,
) -> Result<Approval, ApproveError> {
    let api: Api<ChangeGuard> = Api::all(client.clone());
    let all = call("list the ChangeGuards", api.list(&ListParams::default())).await?.items;
    let is_held = |guard: &&ChangeGuard| held(guard).any(|one| one.plan == plan);
    let holding: Vec<&ChangeGuard> = all.iter().filter(is_held).collect();
    let Some(listed) = holding.first().and_then(|guard| held(guard).find(|one| one.plan == plan))
    else {
        let mut held: Vec<String> = all.iter().flat_map(held).map(|one| one.plan.clone()).collect();
        held.sort_unstable();
        held.dedup();
        return Err(ApproveError::NotHeld { plan: plan.to_owned(), held });
    };
    let mut approval = Approval {
        plan: plan.to_owned(),
        guards: Vec::new(),
        workloads: listed.workloads,
        replicas: listed.replicas,
    };
    let user: String = user.chars().take(LONGEST_USER).collect();
    for guard in &holding {
        let name = guard.name_any();
        let entry = ReleasedPlan {
            plan: plan.to_owned(),
            by: Some(user.clone()),
            at: Time(after(listed.since.0, now())),
            replicas: listed.replicas,
            workloads: listed.workloads,
        };
        write(&api, &name, &entry, listed.since.0).await?;
        approval.guards.push(name);
    }
    Ok(approval)
}

fn held(guard: &ChangeGuard) -> impl Iterator<Item = &atoll_api::change_guard::HeldPlan> {
    guard.status.iter().flat_map(|status| &status.held)
}

async fn write(
    api: &Api<ChangeGuard>,
    name: &str,
    entry: &ReleasedPlan,
    since: Timestamp,
) -> Result<(), ApproveError> {
    let doing = format!("write the status of ChangeGuard {name}");
    let mut attempts = 0;
    loop {
        let guard = call(&format!("read ChangeGuard {name}"), api.get(name)).await?;
        let status = guard.status.clone().unwrap_or_default();
        let known =
            |one: &ReleasedPlan| one.plan == entry.plan && one.by.is_some() && one.at.0 > since;
        if status.released.iter().any(known) {
            return Ok(());
        }
        if status.released.len() >= MAX_RELEASED {
            return Err(ApproveError::Full(name.to_owned()));
        }
        let mut released = status.released;
        released.push(entry.clone());
        let patch = json!({
            "metadata": {"resourceVersion": guard.metadata.resource_version},
            "status": {"released": released},
        });
        let (params, patch) = (manager::patch(marks::MANAGER_STATUS), Patch::Merge(&patch));
        attempts += 1;
        match tokio::time::timeout(TIMEOUT, api.patch_status(name, &params, &patch)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() && attempts < ATTEMPTS => {}
            Ok(Err(error)) => {
                return Err(ApproveError::Hub { doing, why: error.to_string() });
            }
            Err(_) => return Err(unanswered(doing)),
        }
    }
}

async fn call<T>(
    doing: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApproveError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(ApproveError::Hub { doing: doing.to_owned(), why: error.to_string() })
        }
        Err(_) => Err(unanswered(doing.to_owned())),
    }
}

fn unanswered(doing: String) -> ApproveError {
    ApproveError::Hub { doing, why: format!("no answer from the hub within {TIMEOUT:?}") }
}
