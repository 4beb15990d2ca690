//! Progress of emptying a member, as text: each object that is left, and what it waits for.

use atoll_api::binding::{ObjectReference, Outcome, ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::cluster::{ClusterSpec, ObjectName};
use atoll_api::placement::RescheduleOn;
use atoll_api::policy::PurgeMode;
use atoll_api::{ClusterName, marks};
use atoll_scheduler::has_ended;
use atoll_scheduler::state::supply::tolerates;
use k8s_openapi::api::core::v1::Taint;

use super::pace::{Hold, PaceLimits, ROOM_WINDOW};

/// State of a member that may have to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Emptying {
    /// Not evaluated yet: keep the previous message.
    #[default]
    Unknown,
    /// The member need not be emptied.
    No,
    /// The member must be emptied.
    Yes {
        /// Whether nothing is left.
        done: bool,
        /// CamelCase.
        reason: &'static str,
        /// Text for users.
        message: String,
    },
}

/// Whether a member must be emptied: it is drained, has failed for long enough, or is being deleted. Other taints do
/// not count: users may set them permanently, for workloads that tolerate them.
#[must_use]
pub fn is_wanted(spec: &ClusterSpec, terminating: bool) -> bool {
    terminating || evicting(spec).next().is_some()
}

fn evicting(spec: &ClusterSpec) -> impl Iterator<Item = &Taint> {
    let keys = [marks::TAINT_DRAIN, marks::TAINT_UNREACHABLE, marks::TAINT_NOT_READY];
    spec.taints
        .iter()
        .filter(move |taint| taint.effect == "NoExecute" && keys.contains(&taint.key.as_str()))
}

/// Why a policy keeps a workload permanently on a member that is being emptied.
fn keeps(
    spec: &ResourceBindingSpec,
    cluster: &ClusterSpec,
    terminating: bool,
) -> Option<&'static str> {
    let placement = spec.placement.as_ref()?;
    if spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling) {
        return Some("suspension.scheduling");
    }
    if placement.sticky {
        return Some("placement.sticky");
    }
    if terminating {
        return None;
    }
    let moves = |on: &Vec<RescheduleOn>| on.contains(&RescheduleOn::ClusterFailure);
    if !placement.reschedule_on.as_ref().is_none_or(moves) {
        return Some("placement.rescheduleOn has no ClusterFailure");
    }
    let borne = |taint: &Taint| {
        let mut tolerations = placement.cluster_tolerations.iter();
        tolerations.any(|t| t.toleration_seconds.is_none() && tolerates(t, taint))
    };
    evicting(cluster).all(borne).then_some("placement.clusterTolerations")
}

/// Objects of a group that a message names; the others are only counted.
const NAMED: usize = 10;
/// Limit in characters of an object's reason: a decision's reason may list hundreds of clusters.
const MAX_WHY: usize = 300;

/// Objects that wait for the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Group {
    count: usize,
    /// The first of them.
    first: Vec<String>,
}

impl Group {
    fn add(&mut self, object: &ObjectReference, why: Option<&str>) {
        self.count += 1;
        if self.first.len() >= NAMED {
            return;
        }
        let name = object_name(object);
        self.first.push(match why {
            None => name.to_string(),
            Some(why) if why.chars().count() <= MAX_WHY => format!("{name} ({why})"),
            Some(why) => {
                format!("{name} ({}...)", why.chars().take(MAX_WHY).collect::<String>())
            }
        });
    }

    /// `2 being moved: ConfigMap/shop/a, ConfigMap/shop/b`. `what` fits one object and several.
    fn say(&self, what: &str) -> String {
        let more = match self.count - self.first.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{} {what}: {}{more}", self.count, self.first.join(", "))
    }
}

fn object_name(object: &ObjectReference) -> ObjectName {
    ObjectName {
        group: group(object).to_owned(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

fn group(object: &ObjectReference) -> &str {
    object.api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Whether an object uses no capacity of a cluster: configuration, access rules, a Job that has ended, a DaemonSet
/// (whose pods belong to the nodes; `kubectl drain` ignores them too). For kinds outside Kubernetes this is unknown.
#[must_use]
pub fn takes_no_room(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    cluster: &str,
) -> bool {
    let object = &spec.resource;
    match (group(object), object.kind.as_str()) {
        ("apps", "DaemonSet") => true,
        ("batch", "Job") => is_ended_job(spec, status, cluster),
        ("", "Pod") | ("batch", "CronJob") => false,
        (group, _) => match spec.replicas {
            Some(replicas) => replicas == 0,
            None => ["", "policy", "autoscaling"].contains(&group) || group.ends_with(".k8s.io"),
        },
    }
}

/// Whether the object is a Job that has ended on a member. It is not moved, because its copy would run again.
#[must_use]
pub fn is_ended_job(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    cluster: &str,
) -> bool {
    let mut items = status.aggregated_status.iter();
    let item = items.find(|item| item.cluster_name == cluster);
    (group(&spec.resource), spec.resource.kind.as_str()) == ("batch", "Job")
        && item.and_then(|item| item.status.as_ref()).is_some_and(has_ended)
}

/// A member that must be emptied.
#[derive(Debug, Clone, Copy)]
pub struct Leaving<'a> {
    /// Its name.
    pub name: &'a ClusterName,
    /// Its taints are the reason.
    pub spec: &'a ClusterSpec,
    /// Its Cluster is being deleted.
    pub terminating: bool,
}

/// Objects left on a member, by what they wait for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Bindings that wait for the rate limit.
    rate: Group,
    /// Bindings that wait for the limit on the remaining clusters' capacity.
    room: Group,
    /// Bindings that no other cluster can take.
    stuck: Group,
    /// Bindings with a share there that no limit blocks: a decision is about to be made.
    placed: Group,
    /// Bindings whose policies keep them there.
    kept_by_policy: Group,
    /// Copies that stay until their replacements are healthy.
    replacing: Group,
    /// Copies that the member has not confirmed as removed.
    unconfirmed: Group,
    /// Copies that are never purged.
    kept: Group,
    /// Bindings without another place that use no capacity: they block nothing.
    staying: Group,
}

impl Left {
    /// Counts a binding. `hold` is the pace limit that it waits for.
    pub fn count(
        &mut self,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        leaving: Leaving<'_>,
        hold: Option<Hold>,
    ) {
        let object = &spec.resource;
        if spec.clusters.iter().any(|target| target.name == *leaving.name) {
            // Deleting a Cluster removes everything on it, so then every object counts.
            let light = !leaving.terminating && takes_no_room(spec, status, leaving.name);
            let ended = light && is_ended_job(spec, status, leaving.name);
            let stays = no_place(spec);
            match (hold, stays, keeps(spec, leaving.spec, leaving.terminating)) {
                _ if ended => self.staying.add(object, None),
                (Some(Hold::Rate), ..) => self.rate.add(object, None),
                (Some(Hold::Room), ..) => self.room.add(object, None),
                (None, None, None) => self.placed.add(object, None),
                _ if light => self.staying.add(object, None),
                (None, Some(why), _) => self.stuck.add(object, Some(why)),
                (None, None, Some(field)) => self.kept_by_policy.add(object, Some(field)),
            }
        }
        let tasks = spec.graceful_eviction_tasks.iter();
        for task in tasks.filter(|task| task.from_cluster == *leaving.name) {
            match (task.keep, task.purge_mode) {
                (_, PurgeMode::Never) => self.kept.add(object, None),
                (true, _) => self.replacing.add(object, None),
                (false, _) => self.unconfirmed.add(object, None),
            }
        }
    }

    /// The resulting state. `connected` = the member has a session.
    #[must_use]
    pub fn say(&self, limits: PaceLimits, connected: bool) -> Emptying {
        let rate =
            format!("waiting for the eviction rate ({} a second)", limits.bindings_per_second);
        let room = format!(
            "waiting for the limit on the other clusters' room ({} % in {} s)",
            limits.room_percent,
            ROOM_WINDOW.as_secs()
        );
        let unconfirmed = if connected {
            "being removed"
        } else {
            "to be removed when the member is reachable again"
        };
        // Worst first. Objects kept by policies come last: they are the reason only when nothing else is left.
        let groups = [
            (&self.stuck, "NothingTakes", "without another place"),
            (&self.rate, "Paced", &rate),
            (&self.room, "Paced", &room),
            (&self.placed, "Moving", "being moved"),
            (&self.replacing, "WaitingForReplacements", "waiting for healthy replacements"),
            (&self.unconfirmed, "WaitingForMember", unconfirmed),
            (&self.kept_by_policy, "PolicyKeeps", "kept by policy"),
        ];
        let mut held = groups.into_iter().filter(|(group, ..)| group.count > 0).peekable();
        let reason = held.peek().map(|(_, reason, _)| *reason);
        let mut parts: Vec<String> = held.map(|(group, _, what)| group.say(what)).collect();
        if reason.is_none() {
            parts.push("no workload is placed here any more".to_owned());
        }
        if self.staying.count > 0 {
            let what = "may stay (uses no room, or has ended)";
            parts.push(self.staying.say(what));
        }
        if self.kept.count > 0 {
            let what = "never removed (purgeMode: Never)";
            parts.push(self.kept.say(what));
        }
        Emptying::Yes {
            done: reason.is_none(),
            reason: reason.unwrap_or("Emptied"),
            message: parts.join("; "),
        }
    }
}

/// Why no other cluster accepts an object, by its last decision.
fn no_place(spec: &ResourceBindingSpec) -> Option<&str> {
    let last = spec.decision.as_ref().filter(|last| {
        matches!(
            last.outcome,
            Outcome::FailoverInfeasible | Outcome::NoFit | Outcome::Unschedulable
        )
    })?;
    let pending = last.pending.first().map(|pending| pending.reason.as_str());
    Some(last.reason.as_deref().or(pending).unwrap_or("no cluster fits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(extra: serde_json::Value) -> ResourceBindingSpec {
        let mut spec = json!({"replicas": 2, "resource": {"apiVersion": "apps/v1",
            "kind": "Deployment", "namespace": "shop", "name": "web"}});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn there(outcome: &str) -> ResourceBindingSpec {
        spec(json!({
            "clusters": [{"name": "m1", "replicas": 2}],
            "decision": {"id": "1", "trigger": "Failover", "mode": "Steady", "outcome": outcome,
                "reason": "2 replicas stay on m1", "at": "2026-01-01T00:00:00Z"},
        }))
    }

    fn task(keep: bool, purge: &str) -> ResourceBindingSpec {
        spec(json!({"gracefulEvictionTasks": [{
            "fromCluster": "m1", "replicas": 1, "reason": "Failover", "keep": keep,
            "purgeMode": purge, "creationTimestamp": "2026-01-01T00:00:00Z",
        }]}))
    }

    fn on(name: &ClusterName) -> Leaving<'_> {
        static DRAINED: std::sync::OnceLock<ClusterSpec> = std::sync::OnceLock::new();
        let spec = DRAINED.get_or_init(|| tainted(marks::TAINT_DRAIN, "NoExecute"));
        Leaving { name, spec, terminating: false }
    }

    fn count(left: &mut Left, spec: &ResourceBindingSpec, cluster: &str, hold: Option<Hold>) {
        left.count(spec, &ResourceBindingStatus::default(), on(&cluster.into()), hold);
    }

    fn said(left: &Left) -> (bool, &'static str, String) {
        match left.say(PaceLimits::default(), true) {
            Emptying::Yes { done, reason, message } => (done, reason, message),
            other => panic!("{other:?}"),
        }
    }

    /// An object of this kind that no other cluster may run.
    fn pinned(api_version: &str, kind: &str, name: &str) -> ResourceBindingSpec {
        let mut pinned = there("NoFit");
        pinned.replicas = None;
        pinned.resource = serde_json::from_value(
            json!({"apiVersion": api_version, "kind": kind, "namespace": "shop", "name": name}),
        )
        .unwrap();
        pinned
    }

    fn tainted(key: &str, effect: &str) -> ClusterSpec {
        serde_json::from_value(json!({"taints": [{"key": key, "effect": effect}]})).unwrap()
    }

    #[test]
    fn who_stays_by_policy_is_named_when_nothing_else_is_left() {
        for (placement, field) in [
            (json!({"sticky": true}), "placement.sticky"),
            (json!({"rescheduleOn": ["PolicyChange"]}), "placement.rescheduleOn"),
            (json!({"clusterTolerations": [{"operator": "Exists"}]}), "clusterTolerations"),
        ] {
            let mut stays = there("Placed");
            stays.placement = Some(serde_json::from_value(placement).unwrap());
            let mut left = Left::default();
            count(&mut left, &stays, "m1", None);
            let (done, reason, message) = said(&left);
            assert_eq!((done, reason), (false, "PolicyKeeps"));
            assert!(message.contains("Deployment.apps/shop/web (placement."), "{message}");
            assert!(message.contains(field), "{message}");
            count(&mut left, &there("Placed"), "m1", None);
            assert_eq!(said(&left).1, "Moving");
        }
    }

    #[test]
    fn what_holds_a_member_up_is_said_worst_first() {
        let mut left = Left::default();
        count(&mut left, &task(true, "Gracefully"), "m1", None);
        count(&mut left, &there("Placed"), "m2", None);
        assert_eq!(said(&left).1, "WaitingForReplacements");
        count(&mut left, &there("Placed"), "m1", Some(Hold::Rate));
        assert_eq!(said(&left).1, "Paced");
        count(&mut left, &there("FailoverInfeasible"), "m1", None);
        let (done, reason, message) = said(&left);
        assert_eq!((done, reason), (false, "NothingTakes"));
        let stuck = "1 without another place: Deployment.apps/shop/web (2 replicas stay on m1)";
        assert!(message.contains(stuck), "{message}");
        let paced = "1 waiting for the eviction rate (100 a second): Deployment.apps/shop/web";
        assert!(message.contains(paced), "{message}");
    }

    #[test]
    fn every_holder_is_named_up_to_a_limit() {
        let mut left = Left::default();
        for at in 0..12 {
            let mut stays = there("NoFit");
            stays.resource.name = format!("web-{at}");
            stays.decision.as_mut().unwrap().reason = Some("x".repeat(5_000));
            count(&mut left, &stays, "m1", None);
        }
        let message = said(&left).2;
        assert!(message.starts_with("12 without another place"), "{message}");
        assert!(message.contains("Deployment.apps/shop/web-9 (xxx"), "{message}");
        assert!(message.ends_with(" and 2 more") && message.len() < 5_000, "{message}");
    }

    #[test]
    fn what_cannot_move_and_takes_no_room_does_not_hold_a_drain() {
        let light = [
            pinned("v1", "ConfigMap", "settings"),
            pinned("v1", "Secret", "password"),
            pinned("rbac.authorization.k8s.io/v1", "Role", "reader"),
            pinned("apps/v1", "DaemonSet", "logs"),
        ];
        let mut left = Left::default();
        for object in &light {
            count(&mut left, object, "m1", None);
        }
        let mut job = pinned("batch/v1", "Job", "import");
        job.replicas = Some(1);
        let m1 = ClusterName::from("m1");
        let ended = json!({"aggregatedStatus": [{"clusterName": "m1", "applied": true,
            "status": {"conditions": [{"type": "Complete", "status": "True"}]}}]});
        left.count(&job, &serde_json::from_value(ended).unwrap(), on(&m1), None);
        let (done, reason, message) = said(&left);
        assert_eq!((done, reason), (true, "Emptied"), "{message}");
        for name in ["ConfigMap/shop/settings", "DaemonSet.apps/shop/logs", "Job.batch/shop/import"]
        {
            assert!(message.contains(name), "{message}");
        }
        let terminating = Leaving { terminating: true, ..on(&m1) };
        let mut deleted = Left::default();
        deleted.count(&light[0], &ResourceBindingStatus::default(), terminating, None);
        assert!(!said(&deleted).0, "a Cluster that is deleted takes it along");
        for holder in [
            job,
            pinned("v1", "Pod", "shell"),
            pinned("batch/v1", "CronJob", "nightly"),
            pinned("db.example.com/v1", "Postgres", "main"),
        ] {
            let mut left = Left::default();
            count(&mut left, &holder, "m1", None);
            assert_eq!(said(&left).1, "NothingTakes", "{}", holder.resource.kind);
        }
    }

    #[test]
    fn an_empty_member_is_said_to_be() {
        let mut left = Left::default();
        count(&mut left, &task(false, "Never"), "m1", None);
        let (done, _, message) = said(&left);
        assert!(done && message.contains("purgeMode: Never"), "{message}");
    }

    #[test]
    fn drained_tainted_and_deleted_members_are_to_be_emptied() {
        let drained = |effect| tainted(marks::TAINT_DRAIN, effect);
        assert!(is_wanted(&drained("NoExecute"), false));
        assert!(!is_wanted(&drained("NoSchedule"), false));
        assert!(!is_wanted(&tainted("gpu", "NoExecute"), false), "for good, by people");
        assert!(is_wanted(&ClusterSpec::default(), true));
    }
}
