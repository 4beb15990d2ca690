//! The desired status of a Cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::cluster::{
    ApiEnablement, ClusterStatus, MAX_ORPHANED_OBJECTS, ResourceSummary, Revocation, SessionState,
    SessionStatus, TaintSince,
};
use atoll_api::quantity::ResourceList;
use atoll_api::{Cluster, MemberState as ShownState, conditions};
use atoll_render::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::conditions::{self as show, ConditionList};
use super::heartbeats::HealthState;
use super::taints::seconds;
use super::terms::{self, Refusal};
use crate::enrolment::departure_progress::{Departure, name};
use crate::enrolment::identity::Certificate;
use crate::lifecycle::emptying::Emptying;
use crate::member::state::Epoch;
use crate::member::types::{LimitReason, MemberFacts};

/// Facts about a member from which its Cluster's status follows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusInput<'a> {
    pub(crate) health: &'a HealthState,
    pub(crate) connected: bool,
    /// Version of the connected agent.
    pub(crate) agent_version: Option<&'a str>,
    pub(crate) facts: Option<&'a MemberFacts>,
    pub(crate) cluster_id: Option<&'a str>,
    pub(crate) epoch: Epoch,
    /// Why the member's last Hello was refused.
    pub(crate) refusal: Option<Refusal>,
    /// `None` before the first agreement on an inventory.
    pub(crate) orphans: Option<&'a BTreeSet<Key>>,
    /// Removals that are held back by their limit; `None` before the first agreement on an inventory.
    pub(crate) held_back: Option<&'a BTreeMap<Key, LimitReason>>,
    /// Progress of emptying it.
    pub(crate) emptying: &'a Emptying,
    /// Progress of its departure from the federation.
    pub(crate) departure: Option<&'a Departure>,
    /// Which certificates are refused.
    pub(crate) revocation: Option<&'a Revocation>,
    /// The certificate of the agent in its last session with this controller.
    pub(crate) certificate: Option<Certificate>,
}

/// The desired status of a Cluster, based on the existing one: unknown parts stay.
pub(crate) fn status(cluster: &Cluster, input: &StatusInput<'_>, now: Timestamp) -> ClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    if let Some(id) = input.cluster_id {
        status.cluster_id = Some(id.to_owned());
    }
    if let Some(facts) = input.facts {
        set_facts(&mut status, facts);
    }
    status.free_pods = status.resource_summary.as_ref().and_then(free_pods);
    status.taints_since = taints_since(cluster, &status.taints_since, now);
    let left = input.departure.and_then(Departure::left);
    let first =
        |orphans: &BTreeSet<Key>| orphans.iter().take(MAX_ORPHANED_OBJECTS).map(name).collect();
    let orphans = input.orphans.map(|orphans| (orphans.len(), first(orphans)));
    if let Some((number, objects)) = left.map(|left| (left.len(), left)).or(orphans) {
        status.orphans = Some(count(number));
        status.orphaned_objects = objects;
        status.orphaned_objects.truncate(MAX_ORPHANED_OBJECTS);
    }
    if let Some(held) = input.held_back {
        status.removals_held = (!held.is_empty()).then(|| count(held.len()));
        status.held_objects = held.keys().take(MAX_ORPHANED_OBJECTS).map(name).collect();
    }
    if let Some(revocation) = input.revocation {
        status.revocation = Some(revocation.clone());
    }
    status.session = session(status.session.take(), input, now);
    set_conditions(cluster, &mut status, input, now);
    let terminating = cluster.metadata.deletion_timestamp.is_some();
    let shown = ShownState::of(&cluster.spec, &status.conditions, terminating);
    (status.state, status.reason) = (shown.state, shown.reason);
    status
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn set_facts(status: &mut ClusterStatus, facts: &MemberFacts) {
    if !facts.kubernetes_version.is_empty() {
        status.kubernetes_version = Some(facts.kubernetes_version.clone());
    }
    status.api_enablements = if facts.apis_complete {
        facts.apis.clone()
    } else {
        merged(&status.api_enablements, &facts.apis)
    };
    if let Some(counted) = &facts.counted {
        status.node_summary = Some(counted.nodes);
        let allocatable_modelings =
            status.resource_summary.take().map(|old| old.allocatable_modelings).unwrap_or_default();
        let resources = counted.resources.clone();
        status.resource_summary = Some(ResourceSummary { allocatable_modelings, ..resources });
    }
}

fn set_conditions(
    cluster: &Cluster,
    status: &mut ClusterStatus,
    input: &StatusInput<'_>,
    now: Timestamp,
) {
    use conditions::Status::True;
    // A member with unknown kinds is not ready.
    let kinds_known = input.facts.is_some() || !status.api_enablements.is_empty();
    let generation = cluster.metadata.generation;
    let mut list = ConditionList { list: &mut status.conditions, generation, now };
    let unchanged = matches!(input.health, HealthState::Joining | HealthState::Disconnected);
    if !unchanged || !list.has(conditions::READY) {
        let (ready, reason, message) = match input.health {
            HealthState::Healthy if !kinds_known => {
                show::ready(&HealthState::Joining, input.connected)
            }
            health => show::ready(health, input.connected),
        };
        list.set(conditions::READY, ready, reason, &message);
    }
    match input.emptying {
        Emptying::Unknown => {}
        Emptying::No => list.remove(conditions::EMPTIED),
        Emptying::Yes { done, reason, message } => {
            list.set(conditions::EMPTIED, conditions::Status::from(*done), reason, message);
        }
    }
    if let Some(departure) = input.departure {
        list.set(conditions::LEAVING, True, departure.reason(), &departure.message());
    }
    if let Some(held) = input.held_back {
        match show::removals_held(&cluster.name_any(), held) {
            Some((reason, message)) => list.set(conditions::PRUNE_HELD, True, reason, &message),
            None => list.remove(conditions::PRUNE_HELD),
        }
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    terms::show(list.list, input.refusal, input.connected, name, generation, now);
    show::show_unlisted(&mut list, input.facts);
}

/// Pods that the nodes can still run, by their pod limit.
fn free_pods(summary: &ResourceSummary) -> Option<i64> {
    const PODS: &str = "pods";
    let count = |list: &ResourceList| list.get(PODS).map(|quantity| quantity.milli());
    let all = count(&summary.allocatable)?.ok()?;
    let taken = count(&summary.allocated).and_then(Result::ok).unwrap_or_default();
    i64::try_from((all - taken).max(0) / 1000).ok()
}

/// When each NoExecute taint without `timeAdded` was first seen: tolerationSeconds need a start time, and `spec`
/// belongs to users.
fn taints_since(cluster: &Cluster, seen: &[TaintSince], now: Timestamp) -> Vec<TaintSince> {
    let undated = |taint: &&Taint| taint.effect == "NoExecute" && taint.time_added.is_none();
    let since = |taint: &Taint| {
        let known = seen.iter().find(|seen| seen.is_of(taint));
        known.cloned().unwrap_or_else(|| TaintSince {
            key: taint.key.clone(),
            effect: taint.effect.clone(),
            since: Time(seconds(now)),
        })
    };
    cluster.spec.taints.iter().filter(undated).map(since).collect()
}

fn session(
    old: Option<SessionStatus>,
    input: &StatusInput<'_>,
    now: Timestamp,
) -> Option<SessionStatus> {
    let before = old.as_ref().map(|session| session.epoch).unwrap_or_default();
    let epoch = i64::try_from(input.epoch.highest).unwrap_or(i64::MAX);
    let epoch = if input.epoch.restarted { epoch } else { epoch.max(before) };
    let state = match input.health {
        HealthState::Lost { .. } if input.connected => SessionState::Connected,
        HealthState::Lost { .. } => SessionState::Lost,
        // The loss of a session shows only once it counts.
        HealthState::Disconnected => {
            old.as_ref().map_or(SessionState::Unknown, |session| session.state)
        }
        HealthState::NotJoined { .. } => SessionState::Unknown,
        HealthState::Joining | HealthState::Healthy | HealthState::ApiUnhealthy { .. } => {
            SessionState::Connected
        }
    };
    // A member that is not connected keeps the version of its last session.
    let named = input.agent_version.filter(|version| !version.is_empty()).map(str::to_owned);
    let agent_version = named.or_else(|| old.as_ref()?.agent_version.clone());
    // The same for its certificate.
    let (authority, certificate_until) = match (input.certificate, &old) {
        (Some(Certificate { authority, until }), _) => {
            (Some(authority.to_string()), Some(Time(seconds(until))))
        }
        (None, Some(old)) => (old.authority.clone(), old.certificate_until.clone()),
        (None, None) => (None, None),
    };
    let since = match &old {
        Some(old) if old.state == state && old.epoch == epoch => old.since.clone(),
        None if state == SessionState::Unknown && authority.is_none() => return None,
        _ => Some(Time(seconds(now))),
    };
    Some(SessionStatus { state, epoch, since, agent_version, authority, certificate_until })
}

/// Known kinds plus the current ones: part of the member's API is not available now.
fn merged(old: &[ApiEnablement], fresh: &[ApiEnablement]) -> Vec<ApiEnablement> {
    let mut apis: Vec<_> = fresh.to_vec();
    let known =
        |api: &ApiEnablement| fresh.iter().any(|new| new.group_version == api.group_version);
    apis.extend(old.iter().filter(|api| !known(api)).cloned());
    apis.sort_by(|a, b| a.group_version.cmp(&b.group_version));
    apis
}
