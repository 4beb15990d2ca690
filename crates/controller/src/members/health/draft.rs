//! The desired status and taints of a Cluster, and when a change is worth a write. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::cluster::{
    ApiEnablement, ClusterStatus, MAX_ORPHANED_OBJECTS, ObjectName, ResourceSummary, Revocation,
    SessionState, SessionStatus, TaintSince,
};
use atoll_api::conditions::LEAVING;
use atoll_api::quantity::ResourceList;
use atoll_api::{Cluster, MemberState, conditions, marks};
use atoll_render::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tokio::time::Instant;

use super::times::HealthTimes;
use super::vitals::Standing;
use crate::lifecycle::emptying::Emptying;
use crate::members::departure::Departure;
use crate::members::terms::{self, Refusal};
use crate::members::types::{LimitReason, MemberFacts};

/// Condition: the member may have objects of ours that its agent cannot see.
const INVENTORY_INCOMPLETE: &str = "InventoryIncomplete";
/// Limit of kinds named in [`INVENTORY_INCOMPLETE`]; the others are counted.
const KINDS_NAMED: usize = 10;
/// A figure that changed by more than this percentage of the capacity is written at once.
const NOTABLE_PERCENT: i128 = 5;

/// Interval of progress updates while a member is being emptied.
const EMPTYING: Duration = Duration::from_secs(10);

/// What is known of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) standing: &'a Standing,
    pub(crate) connected: bool,
    pub(crate) facts: Option<&'a MemberFacts>,
    pub(crate) cluster_id: Option<&'a str>,
    pub(crate) epoch: u64,
    /// The epoch restarts: ignore the one in the Cluster.
    pub(crate) epoch_anew: bool,
    /// Why the member's last Hello was refused.
    pub(crate) refusal: Option<Refusal>,
    /// `None` before the first agreement on an inventory.
    pub(crate) orphans: Option<&'a [&'a Key]>,
    /// Removals that are held back by their limit; `None` before the first agreement on an inventory.
    pub(crate) held_back: Option<&'a BTreeMap<Key, LimitReason>>,
    /// Progress of emptying it.
    pub(crate) emptying: &'a Emptying,
    /// Progress of its departure from the federation.
    pub(crate) departure: Option<&'a Departure>,
    /// Which certificates are refused.
    pub(crate) revocation: Option<&'a Revocation>,
}

/// The desired status of a Cluster, based on the existing one: unknown parts stay.
pub(crate) fn status(cluster: &Cluster, known: &Known<'_>, now: Timestamp) -> ClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    if let Some(id) = known.cluster_id {
        status.cluster_id = Some(id.to_owned());
    }
    if let Some(facts) = known.facts {
        if !facts.kubernetes_version.is_empty() {
            status.kubernetes_version = Some(facts.kubernetes_version.clone());
        }
        status.api_enablements = if facts.apis_complete {
            facts.apis.clone()
        } else {
            merged(&status.api_enablements, &facts.apis)
        };
    }
    if let Some(counted) = known.facts.and_then(|facts| facts.counted.as_ref()) {
        status.node_summary = Some(counted.nodes);
        let modelings =
            status.resource_summary.take().map(|old| old.allocatable_modelings).unwrap_or_default();
        status.resource_summary =
            Some(ResourceSummary { allocatable_modelings: modelings, ..counted.resources.clone() });
    }
    status.free_pods = status.resource_summary.as_ref().and_then(free_pods);
    status.taints_since = taints_since(cluster, &status.taints_since, now);
    let left = known.departure.and_then(Departure::left);
    if let Some(orphans) = left.or_else(|| known.orphans.map(names)) {
        status.orphans = Some(i64::try_from(orphans.len()).unwrap_or(i64::MAX));
        status.orphaned_objects = orphans;
        status.orphaned_objects.truncate(MAX_ORPHANED_OBJECTS);
    }
    if let Some(revocation) = known.revocation {
        status.revocation = Some(revocation.clone());
    }
    let old = status.session.take();
    status.session = session(old, known, now);
    let generation = cluster.metadata.generation;
    let list = &mut status.conditions;
    // A member with unknown kinds is not ready.
    let told = known.facts.is_some() || !status.api_enablements.is_empty();
    let unchanged = matches!(known.standing, Standing::Joining | Standing::Away);
    if !unchanged || conditions::find(list, conditions::READY).is_none() {
        let (ready, reason, message) = match known.standing {
            Standing::Well if !told => ready(&Known { standing: &Standing::Joining, ..*known }),
            _ => ready(known),
        };
        conditions::set(list, conditions::READY, ready, reason, &message, generation, now);
    }
    match known.emptying {
        Emptying::Unknown => {}
        Emptying::No => list.retain(|condition| condition.type_ != conditions::EMPTIED),
        Emptying::Yes { done, reason, message } => {
            let holds = conditions::Status::from(*done);
            conditions::set(list, conditions::EMPTIED, holds, reason, message, generation, now);
        }
    }
    if let Some(departure) = known.departure {
        let (reason, message) = (departure.reason(), departure.message());
        let holds = conditions::Status::True;
        conditions::set(list, LEAVING, holds, reason, &message, generation, now);
    }
    if let Some(held) = known.held_back {
        status.removals_held =
            (!held.is_empty()).then(|| i64::try_from(held.len()).unwrap_or(i64::MAX));
        status.held_objects = held.keys().take(MAX_ORPHANED_OBJECTS).map(name).collect();
        match removals_held(&cluster.name_any(), held) {
            Some((reason, message)) => {
                let (holds, type_) = (conditions::Status::True, conditions::PRUNE_HELD);
                conditions::set(list, type_, holds, reason, &message, generation, now);
            }
            None => list.retain(|condition| condition.type_ != conditions::PRUNE_HELD),
        }
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    terms::show(list, known.refusal, known.connected, name, generation, now);
    match known.facts {
        Some(facts) if !facts.unlisted.is_empty() => {
            let (count, holds) = (facts.unlisted.len(), conditions::Status::True);
            let named = facts.unlisted.iter().take(KINDS_NAMED).cloned().collect::<Vec<_>>();
            let others = count - named.len();
            let message = format!(
                "the agent cannot list {}{}: what it applied of them earlier it neither reports nor removes; give it the right to list them, or see its log",
                named.join(", "),
                if others > 0 { format!(" and {others} other kinds") } else { String::new() }
            );
            let reason = "KindsNotListed";
            conditions::set(list, INVENTORY_INCOMPLETE, holds, reason, &message, generation, now);
        }
        Some(_) => list.retain(|condition| condition.type_ != INVENTORY_INCOMPLETE),
        // Without a report from the agent, the last one stays.
        None => {}
    }
    let terminating = cluster.metadata.deletion_timestamp.is_some();
    let said = MemberState::of(&cluster.spec, &status.conditions, terminating);
    (status.state, status.reason) = (said.state, said.reason);
    status
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

/// Objects in the form of a Cluster's status.
pub(crate) fn names(keys: &[&Key]) -> Vec<ObjectName> {
    keys.iter().map(|key| name(key)).collect()
}

fn name(key: &Key) -> ObjectName {
    ObjectName {
        group: key.group.clone(),
        kind: key.kind.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

/// Reason and message of held back removals, if any.
pub(crate) fn removals_held(
    cluster: &str,
    held: &BTreeMap<Key, LimitReason>,
) -> Option<(&'static str, String)> {
    let reason = held.values().min()?;
    let count = held.len();
    let message = format!(
        "{count} objects that belong elsewhere still run here: their removal is limited to the larger of 100 objects and \
         30 % of the member's in 10 minutes, because {reason}; `atoll orphans {cluster}` lists them, `atoll prune --confirm \
         {cluster}` removes them now"
    );
    Some((reason.name(), message))
}

fn session(old: Option<SessionStatus>, known: &Known<'_>, now: Timestamp) -> Option<SessionStatus> {
    let before = old.as_ref().map(|session| session.epoch).unwrap_or_default();
    let epoch = i64::try_from(known.epoch).unwrap_or(i64::MAX);
    let epoch = if known.epoch_anew { epoch } else { epoch.max(before) };
    let state = match known.standing {
        Standing::Lost { .. } if known.connected => SessionState::Connected,
        Standing::Lost { .. } => SessionState::Lost,
        // The loss of a session shows only once it counts.
        Standing::Away => old.as_ref().map_or(SessionState::Unknown, |session| session.state),
        Standing::NotJoined { .. } => SessionState::Unknown,
        Standing::Joining | Standing::Well | Standing::Sick { .. } => SessionState::Connected,
    };
    match old {
        Some(old) if old.state == state && old.epoch == epoch => Some(old),
        None if state == SessionState::Unknown => None,
        _ => Some(SessionStatus { state, epoch, since: Some(Time(seconds(now))) }),
    }
}

fn ready(known: &Known<'_>) -> (conditions::Status, &'static str, String) {
    use conditions::Status::{False, True, Unknown};
    match known.standing {
        Standing::NotJoined { .. } => (Unknown, "NotJoined", "no agent has come yet".to_owned()),
        Standing::Joining | Standing::Away => {
            (Unknown, "Joining", "the agent has not said yet what the member is".to_owned())
        }
        Standing::Well => {
            (True, "MemberReady", "the agent is connected and the member's API answers".to_owned())
        }
        Standing::Sick { message, .. } => (False, "MemberApiUnhealthy", message.clone()),
        Standing::Lost { .. } if known.connected => {
            (Unknown, "Settling", "the agent is back; it must stay for a moment".to_owned())
        }
        Standing::Lost { .. } => (Unknown, "SessionLost", "the agent is silent".to_owned()),
    }
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

/// Whether `new` should be written now over `old`, given the time since the last write.
pub(crate) fn is_due(
    old: &ClusterStatus,
    new: &ClusterStatus,
    age: Duration,
    times: &HealthTimes,
) -> bool {
    if old == new {
        return false;
    }
    let brief = |status: &ClusterStatus| {
        status
            .conditions
            .iter()
            .map(|c| {
                // Users watch a departure, and which kinds cannot be listed.
                let told = [LEAVING, INVENTORY_INCOMPLETE].contains(&c.type_.as_str())
                    || terms::CONDITIONS.contains(&c.type_.as_str());
                let message = told.then(|| c.message.clone());
                (c.type_.clone(), c.status.clone(), c.reason.clone(), message)
            })
            .collect::<Vec<_>>()
    };
    let orphans = |status: &ClusterStatus| status.orphans.unwrap_or_default();
    let resources = |status: &ClusterStatus| status.resource_summary.clone().unwrap_or_default();
    let held = |status: &ClusterStatus| status.removals_held.unwrap_or_default();
    let emptied = |status: &ClusterStatus| {
        conditions::find(&status.conditions, conditions::EMPTIED).map(|held| held.message.clone())
    };
    age >= times.status_interval
        || (age >= EMPTYING && (emptied(old) != emptied(new) || held(old) != held(new)))
        || brief(old) != brief(new)
        || (&old.state, &old.reason) != (&new.state, &new.reason)
        || old.cluster_id != new.cluster_id
        || old.kubernetes_version != new.kubernetes_version
        || old.api_enablements != new.api_enablements
        || old.node_summary != new.node_summary
        || old.session != new.session
        || old.revocation != new.revocation
        || old.taints_since != new.taints_since
        || old.free_pods.is_some() != new.free_pods.is_some()
        || (new.free_pods == Some(0)) != (old.free_pods == Some(0))
        || orphans(old) != orphans(new)
        || old.orphaned_objects != new.orphaned_objects
        || old.resource_summary.is_some() != new.resource_summary.is_some()
        || is_notable(&resources(old), &resources(new))
}

/// Whether a sum changed by more than a twentieth of the resource's capacity.
fn is_notable(old: &ResourceSummary, new: &ResourceSummary) -> bool {
    let value = |list: &ResourceList, name: &str| {
        list.get(name).and_then(|quantity| quantity.milli().ok()).unwrap_or_default()
    };
    let lists = |summary: &ResourceSummary| {
        [summary.allocatable.clone(), summary.allocated.clone(), summary.allocating.clone()]
    };
    lists(old).iter().zip(&lists(new)).any(|(before, after)| {
        before.keys().chain(after.keys()).any(|name| {
            let room = value(&old.allocatable, name).max(value(&new.allocatable, name));
            let change = (value(before, name) - value(after, name)).abs();
            change > 0 && change * 100 > room * NOTABLE_PERCENT
        })
    })
}

/// The desired taints of ours. Existing ones keep `timeAdded`. While `frozen`, none is added.
pub(crate) fn taints(
    cluster: &Cluster,
    standing: &Standing,
    times: &HealthTimes,
    frozen: bool,
    now: (Instant, Timestamp),
) -> Vec<Taint> {
    let (key, since) = match standing {
        Standing::NotJoined { overdue: true } => (marks::TAINT_UNREACHABLE, None),
        Standing::Lost { since } => (marks::TAINT_UNREACHABLE, Some(*since)),
        Standing::Sick { since, .. } => (marks::TAINT_NOT_READY, Some(*since)),
        Standing::NotJoined { overdue: false }
        | Standing::Joining
        | Standing::Well
        | Standing::Away => return keep_while_away(cluster, standing),
    };
    let evict =
        since.is_some_and(|since| now.0.saturating_duration_since(since) >= times.failover_after);
    let wanted = [Some("NoSchedule"), evict.then_some("NoExecute")];
    wanted
        .into_iter()
        .flatten()
        .filter_map(|effect| {
            let existing =
                own(cluster).find(|taint| taint.key == key && taint.effect == effect).cloned();
            // A differently read clock does not revert an eviction that has begun.
            existing.or_else(|| (!frozen).then(|| taint(key, effect, now.1)))
        })
        .chain(began(cluster, key, evict))
        .collect()
}

/// A `NoExecute` taint that another controller set for the same loss stays.
fn began(cluster: &Cluster, key: &str, evict: bool) -> Option<Taint> {
    own(cluster).find(|taint| !evict && taint.key == key && taint.effect == "NoExecute").cloned()
}

/// Without a session the member's state is unknown, so the Cluster's taints stay; with one, they are removed.
fn keep_while_away(cluster: &Cluster, standing: &Standing) -> Vec<Taint> {
    match standing {
        Standing::Away | Standing::NotJoined { .. } => own(cluster).cloned().collect(),
        _ => Vec::new(),
    }
}

/// The taints of a Cluster that this module manages.
pub(crate) fn own(cluster: &Cluster) -> impl Iterator<Item = &Taint> {
    cluster.spec.taints.iter().filter(|taint| {
        taint.key == marks::TAINT_UNREACHABLE || taint.key == marks::TAINT_NOT_READY
    })
}

fn taint(key: &str, effect: &str, now: Timestamp) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: Some(Time(seconds(now))),
    }
}

/// Kubernetes writes times in whole seconds.
fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use atoll_api::cluster::{ClusterSpec, NodeSummary};
    use atoll_api::quantity::Quantity;

    use super::*;
    use crate::members::types::Counted;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn known<'a>(standing: &'a Standing, facts: Option<&'a MemberFacts>) -> Known<'a> {
        let connected = matches!(standing, Standing::Well | Standing::Joining);
        Known {
            standing,
            connected,
            facts,
            cluster_id: Some("kube-system-uid"),
            epoch: 3,
            epoch_anew: false,
            refusal: None,
            orphans: Some(&[]),
            held_back: None,
            emptying: &Emptying::Unknown,
            departure: None,
            revocation: None,
        }
    }

    fn facts(allocated: i128) -> MemberFacts {
        let list = |milli| ResourceList::from([("cpu".to_owned(), Quantity::from_milli(milli))]);
        MemberFacts {
            kubernetes_version: "v1.33.0".into(),
            api_healthy: true,
            api_message: String::new(),
            apis: vec![ApiEnablement { group_version: "apps/v1".into(), resources: Vec::new() }],
            apis_complete: true,
            unlisted: Vec::new(),
            counted: Some(Counted {
                nodes: NodeSummary { total_num: 1, ready_num: 1 },
                resources: ResourceSummary {
                    allocatable: list(10_000),
                    allocated: list(allocated),
                    ..ResourceSummary::default()
                },
                node_classes: Vec::new(),
                taken_at: at(0),
            }),
        }
    }

    fn with(cluster: &Cluster, status: ClusterStatus) -> Cluster {
        Cluster { status: Some(status), ..cluster.clone() }
    }

    #[tokio::test]
    async fn nothing_is_written_per_beat() {
        let cluster = Cluster::new("member1", ClusterSpec::default());
        let times = HealthTimes::default();
        let first = status(&cluster, &known(&Standing::Well, Some(&facts(1000))), at(0));
        let written = with(&cluster, first.clone());
        let due = |standing: &Standing, allocated, age| {
            let new = status(&written, &known(standing, Some(&facts(allocated))), at(60));
            is_due(&first, &new, Duration::from_secs(age), &times)
        };
        assert!(is_due(&ClusterStatus::default(), &first, Duration::ZERO, &times));
        assert!(!due(&Standing::Well, 1000, 10_000), "nothing changed");
        assert!(!due(&Standing::Well, 1500, 10), "5 % of the capacity is no more than 5 %");
        assert!(due(&Standing::Well, 1501, 10));
        assert!(due(&Standing::Well, 1001, 300), "small changes now and then");
        assert!(!due(&Standing::Away, 1000, 10), "the end of a session is no loss");
        let since = Instant::now();
        assert!(due(&Standing::Lost { since }, 1000, 0));
        assert!(due(&Standing::Sick { message: "down".into(), since }, 1000, 0));
    }

    #[tokio::test]
    async fn a_taint_without_a_time_is_dated_when_it_is_first_seen() {
        let mut cluster = Cluster::new("member1", ClusterSpec::default());
        let taint = |key: &str, effect: &str, added: Option<i64>| Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            value: None,
            time_added: added.map(|second| Time(at(second))),
        };
        let look = |cluster: &Cluster, second| {
            status(cluster, &known(&Standing::Well, Some(&facts(0))), at(second))
        };
        let seen = |status: &ClusterStatus| -> Vec<(String, i64)> {
            let of = |seen: &TaintSince| seen.since.0.as_second() - 1_700_000_000;
            status.taints_since.iter().map(|seen| (seen.key.clone(), of(seen))).collect()
        };
        let first = look(&cluster, 0);
        cluster.spec.taints = vec![
            taint("maintenance", "NoExecute", None),
            taint("maintenance", "NoSchedule", None),
            taint("dated", "NoExecute", Some(5)),
        ];
        let second = look(&with(&cluster, first.clone()), 10);
        assert_eq!(seen(&second), [("maintenance".to_owned(), 10)]);
        assert!(is_due(&first, &second, Duration::ZERO, &HealthTimes::default()));
        let dated = with(&cluster, second.clone()).dated_taints();
        let times: Vec<_> = dated.iter().map(|t| t.time_added.as_ref().map(|at| at.0)).collect();
        assert_eq!(times, [Some(at(10)), None, Some(at(5))]);
        // A new leader reads it from the status.
        cluster.spec.taints.push(taint("other", "NoExecute", None));
        let third = look(&with(&cluster, second), 70);
        let both = [("maintenance".to_owned(), 10), ("other".to_owned(), 70)];
        assert_eq!(seen(&third), both);
        cluster.spec.taints.remove(0);
        assert_eq!(seen(&look(&with(&cluster, third), 80)), [("other".to_owned(), 70)]);
    }

    #[tokio::test]
    async fn free_pods_are_counted() {
        let cluster = Cluster::new("member1", ClusterSpec::default());
        let free = |allocatable: i128, allocated: i128| {
            let list =
                |count| ResourceList::from([("pods".to_owned(), Quantity::from_units(count))]);
            let mut facts = facts(0);
            let resources = &mut facts.counted.as_mut().unwrap().resources;
            (resources.allocatable, resources.allocated) = (list(allocatable), list(allocated));
            status(&cluster, &known(&Standing::Well, Some(&facts)), at(0)).free_pods
        };
        assert_eq!((free(330, 20), free(330, 400)), (Some(310), Some(0)));
        let unknown = status(&cluster, &known(&Standing::Well, None), at(0));
        assert_eq!(unknown.free_pods, None);
    }

    #[tokio::test]
    async fn what_is_not_known_stays() {
        let cluster = Cluster::new("member1", ClusterSpec::default());
        let early = status(&cluster, &known(&Standing::Well, None), at(0));
        assert_eq!(early.conditions[0].reason, "Joining", "not ready before its kinds are known");
        let first = status(&cluster, &known(&Standing::Well, Some(&facts(1000))), at(0));
        let written = with(&cluster, first.clone());
        let mut lesser = Known { epoch: 0, orphans: None, ..known(&Standing::Away, None) };
        lesser.cluster_id = None;
        assert_eq!(status(&written, &lesser, at(60)), first, "a controller that just started");
        let uncounted = MemberFacts { counted: None, ..facts(1000) };
        let known_room = status(&written, &known(&Standing::Well, Some(&uncounted)), at(60));
        assert_eq!(known_room, first, "an agent that has not counted yet reports no empty member");
        let mut partial = facts(1000);
        partial.apis_complete = false;
        partial.apis = vec![ApiEnablement { group_version: "v1".into(), resources: Vec::new() }];
        let merged = status(&written, &known(&Standing::Well, Some(&partial)), at(60));
        let names: Vec<_> =
            merged.api_enablements.iter().map(|a| a.group_version.as_str()).collect();
        assert_eq!(names, ["apps/v1", "v1"]);
    }

    #[tokio::test]
    async fn a_cordon_and_a_drain_show_in_the_status_at_once() {
        let mut cluster = Cluster::new("member1", ClusterSpec::default());
        let first = status(&cluster, &known(&Standing::Well, Some(&facts(1000))), at(0));
        assert_eq!((first.state.as_str(), first.reason.as_str()), ("Ready", ""));
        let taints = [(marks::TAINT_CORDONED, "NoSchedule"), (marks::TAINT_DRAIN, "NoExecute")];
        cluster.spec.taints = taints.map(|(key, effect)| taint(key, effect, at(1))).to_vec();
        let moving =
            Emptying::Yes { done: false, reason: "Moving", message: "1 is being moved".into() };
        let facts = facts(1000);
        let told = Known { emptying: &moving, ..known(&Standing::Well, Some(&facts)) };
        let second = status(&with(&cluster, first.clone()), &told, at(1));
        assert_eq!(second.state, "Ready,SchedulingDisabled,Draining");
        assert_eq!(second.reason, "Moving");
        assert!(is_due(&first, &second, Duration::ZERO, &HealthTimes::default()));
        cluster.spec.taints.clear();
        let over = status(&with(&cluster, second.clone()), &known(&Standing::Well, None), at(2));
        assert_eq!(over.state, "Ready", "the drain is over, whatever the condition still says");
    }

    #[tokio::test]
    async fn taints_follow_the_loss_and_keep_their_time() {
        let times = HealthTimes::default();
        let mut cluster = Cluster::new("member1", ClusterSpec::default());
        let since = Instant::now();
        let lost = Standing::Lost { since };
        let look = |cluster: &Cluster, standing: &Standing, second: u64, frozen| {
            let now = (since + Duration::from_secs(second), at(i64::try_from(second).unwrap()));
            taints(cluster, standing, &times, frozen, now)
        };
        let brief = |taints: &[Taint]| {
            taints
                .iter()
                .map(|t| {
                    (t.effect.clone(), t.time_added.as_ref().unwrap().0.as_second() - 1_700_000_000)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(look(&cluster, &lost, 15, true), [], "the controller suspects itself");
        cluster.spec.taints = look(&cluster, &lost, 15, false);
        assert_eq!(brief(&cluster.spec.taints), [("NoSchedule".into(), 15)]);
        assert_eq!(brief(&look(&cluster, &lost, 299, false)), [("NoSchedule".into(), 15)]);
        assert_eq!(brief(&look(&cluster, &lost, 300, true)), [("NoSchedule".into(), 15)]);
        cluster.spec.taints = look(&cluster, &lost, 300, false);
        let both = [("NoSchedule".into(), 15), ("NoExecute".into(), 300)];
        assert_eq!(brief(&cluster.spec.taints), both);
        // Another controller with a different start time.
        assert_eq!(brief(&look(&cluster, &lost, 10, false)), both);
        assert_eq!(brief(&look(&cluster, &Standing::Away, 310, false)), both, "nobody knows");
        assert_eq!(look(&cluster, &Standing::Well, 320, false), []);
        let sick = Standing::Sick { message: String::new(), since };
        let taints = look(&cluster, &sick, 320, false);
        assert!(taints.iter().all(|taint| taint.key == marks::TAINT_NOT_READY), "{taints:?}");
        assert_eq!(taints.len(), 2);
    }
}
