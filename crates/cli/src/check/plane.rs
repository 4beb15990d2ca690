//! Facts about the control plane and its members.

use std::collections::BTreeSet;

use atoll_api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::cluster::SessionState;
use atoll_api::{Cluster, HISTORY_GROUP, VERSION, conditions};
use atoll_controller::members;
use atoll_history::api::text::age;
use atoll_protocol::ca::CertificateFacts;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{Fact, State};
use crate::hub::Hub;
use crate::install::record::{self, Record};
use crate::leader::{self, Leader};
use crate::read::{bindings, get};
use crate::status::concern::waiting;
use crate::version;

/// A certificate authority that ends sooner is a warning: its replacement is planned work.
const EARLY: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Most names in one line.
const NAMES: usize = 5;
/// Part of the messages of agents about a missing right.
const LACKS: &str = "lacks this ClusterRole on the member";
/// How to see why there is no leader.
const LOGS: &str = "look at the controllers' logs";

/// All of them, in the order in which they depend on each other.
pub(super) async fn facts(hub: &Hub) -> Vec<Fact> {
    let now = Timestamp::now();
    let mut facts = Vec::new();
    match record::find(hub).await {
        Err(error) => facts.push(Fact::unknown("installation", &error)),
        Ok(None) => {}
        Ok(Some(record)) => facts.extend(installation(hub, &record).await),
    }
    let mut running = version::OWN.to_owned();
    facts.push(match leader::find(hub).await {
        Err(error) => Fact::unknown("leader", &error),
        Ok(leader) => {
            running = leader.as_ref().and_then(|leader| leader.version.clone()).unwrap_or(running);
            leads(leader.as_ref(), now)
        }
    });
    facts.push(authority(hub, now).await);
    facts.push(history(hub).await);
    let clusters = get::list(hub, &Api::all(hub.client.clone())).await;
    let mut work = Work::default();
    let looked = work.look(hub).await;
    match clusters {
        Err(error) => facts.push(Fact::unknown("members", &error)),
        Ok(clusters) => {
            facts.push(sessions(&clusters, now));
            facts.push(agents(&clusters, &running));
            facts.push(removals(&clusters));
        }
    }
    match looked {
        Err(error) => facts.push(Fact::unknown("workloads", &error)),
        Ok(()) => facts.extend(work.facts()),
    }
    facts
}

/// Version of the manifests, and the state of their Deployment.
async fn installation(hub: &Hub, record: &Record) -> Vec<Fact> {
    let own = version::OWN;
    let versions = match record.version.as_deref() {
        Some(version) if version == own => {
            Fact::ok("versions", format!("client and manifests {own}"))
        }
        other => Fact::new(
            "versions",
            State::Warning,
            format!("client {own}, manifests {}", other.unwrap_or("unknown")),
            "use the client of the installed version, or upgrade the installation",
        ),
    };
    let (namespace, name) = (&record.namespace, atoll_install::CONTROLLER);
    if record.bundled {
        // Their cluster is another one than the hub; the leader says whether one of them works.
        let text = format!("they run beside the bundled hub, in namespace {namespace}");
        return vec![versions, Fact::ok("controllers", text)];
    }
    // As JSON: code that reads every field of a Deployment takes long to compile.
    let kind = ApiResource::erase::<Deployment>(&());
    let deployments: Api<DynamicObject> =
        Api::namespaced_with(hub.client.clone(), namespace, &kind);
    let doing = format!("read Deployment {namespace}/{name}");
    let fix =
        format!("kubectl -n {namespace} describe deployment,pod -l app.kubernetes.io/name={name}");
    let pods = match hub.call(&doing, deployments.get_opt(name)).await {
        Err(error) => Fact::unknown("controllers", &error),
        Ok(None) => {
            let text = format!("there is no Deployment {namespace}/{name}");
            Fact::new("controllers", State::Failed, text, "install again: `atoll install`")
        }
        Ok(Some(deployment)) => {
            let wanted = deployment.data["spec"]["replicas"].as_i64().unwrap_or(1);
            let ready = deployment.data["status"]["readyReplicas"].as_i64().unwrap_or(0);
            let text = format!("{ready} of {wanted} ready");
            match ready {
                ready if ready >= wanted => Fact::ok("controllers", text),
                0 => Fact::new("controllers", State::Failed, text, fix),
                _ => Fact::new("controllers", State::Warning, text, fix),
            }
        }
    };
    vec![versions, pods]
}

fn leads(leader: Option<&Leader>, now: Timestamp) -> Fact {
    match leader {
        Some(leader) if leader.leads(now) => {
            Fact::ok("leader", format!("{}, term {}", leader.holder, leader.term))
        }
        Some(leader) => {
            let text = format!("none; {} stopped {} ago", leader.holder, age(leader.renewed, now));
            Fact::new("leader", State::Failed, text, format!("start a controller, or {LOGS}"))
        }
        None => {
            Fact::new("leader", State::Failed, "none", format!("start a controller, or {LOGS}"))
        }
    }
}

/// Agents renew their certificates themselves; to replace the authority takes a person.
async fn authority(hub: &Hub, now: Timestamp) -> Fact {
    let check = "certificates";
    let found =
        tokio::time::timeout(std::time::Duration::from_secs(30), members::load(&hub.client));
    let authority = match found.await {
        Err(_) => return Fact::new(check, State::Unknown, "no answer within 30 s", "repeat"),
        Ok(Err(error)) => return Fact::unknown(check, &error.into()),
        Ok(Ok(None)) => {
            let fix = "the first controller that leads makes one";
            return Fact::new(check, State::Failed, "there is no certificate authority", fix);
        }
        Ok(Ok(Some(authority))) => authority,
    };
    match CertificateFacts::read(authority.signing().certificate()) {
        Err(error) => Fact::unknown(check, &error.into()),
        Ok(facts) => life(facts.not_after, now),
    }
}

fn life(end: Timestamp, now: Timestamp) -> Fact {
    let left = end.duration_since(now);
    let days = left.as_hours() / 24;
    let fix = "`atoll ca rotate` replaces it while the members stay connected";
    match left {
        left if left <= SignedDuration::ZERO => {
            let fix = "`atoll ca rotate --at-once`, then `atoll rejoin` every member";
            Fact::new("certificates", State::Failed, "the certificate authority has expired", fix)
        }
        left if left < EARLY => {
            let text = format!("the certificate authority ends in {days} days");
            Fact::new("certificates", State::Warning, text, fix)
        }
        _ => Fact::ok("certificates", format!("the certificate authority ends in {days} days")),
    }
}

/// A list of one decision reads the database with the schema of the controller.
async fn history(hub: &Hub) -> Fact {
    let path = format!("/apis/{HISTORY_GROUP}/{VERSION}/decisions?limit=1");
    let ask = async {
        let request = http::Request::get(path).body(Vec::new());
        hub.client.request::<Value>(request.map_err(kube::Error::HttpError)?).await
    };
    match hub.call("read history", ask).await {
        Ok(_) => Fact::ok("history", "the database is reachable and has this schema"),
        Err(error) => {
            let status = error.downcast_ref::<kube::Error>();
            let absent = matches!(status, Some(kube::Error::Api(status)) if status.code == 404);
            match absent {
                true => Fact::new(
                    "history",
                    State::Warning,
                    format!("the hub does not serve {HISTORY_GROUP}"),
                    "run the controller with --api-address and apply deploy/controller/api.yaml",
                ),
                false => Fact::new(
                    "history",
                    State::Failed,
                    crate::print::causes(&error),
                    "check the database and the URL in --history; decisions wait in their bindings",
                ),
            }
        }
    }
}

fn sessions(clusters: &[Cluster], now: Timestamp) -> Fact {
    let session = |cluster: &Cluster| cluster.status.as_ref().and_then(|s| s.session.clone());
    let connected = |cluster: &&Cluster| {
        session(cluster).is_some_and(|session| session.state == SessionState::Connected)
    };
    let silent: Vec<String> = clusters
        .iter()
        .filter(|cluster| !connected(cluster))
        .map(|cluster| match session(cluster).and_then(|session| session.since) {
            Some(since) => format!("{} for {}", cluster.name_any(), age(since.0, now)),
            None => format!("{} never connected", cluster.name_any()),
        })
        .collect();
    match (clusters.len(), silent.is_empty()) {
        (0, _) => Fact::new("sessions", State::Warning, "no members", "`atoll join NAME`"),
        (count, true) => Fact::ok("sessions", format!("{count} of {count} members connected")),
        (count, false) => {
            let text =
                format!("{} of {count} members are not connected: {}", silent.len(), some(&silent));
            let fix =
                "look at the agent's log on the member, and whether it reaches the controller";
            Fact::new("sessions", State::Failed, text, fix)
        }
    }
}

/// Whether the agents are of the version of the controller that runs.
fn agents(clusters: &[Cluster], running: &str) -> Fact {
    let others: Vec<String> = version::agents(clusters)
        .into_iter()
        .filter(|agents| agents.version != running)
        .map(|agents| format!("{} on {}", agents.version, some(&agents.members)))
        .collect();
    match others.is_empty() {
        true => Fact::ok("agents", format!("all have the controller's version, {running}")),
        false => Fact::new(
            "agents",
            State::Warning,
            format!("the controller has version {running}; agents: {}", others.join("; ")),
            "set the image of the Deployment atoll-system/atoll-agent on these members",
        ),
    }
}

fn removals(clusters: &[Cluster]) -> Fact {
    let held = |cluster: &&Cluster| {
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        conditions::is_true(conditions.unwrap_or_default(), conditions::PRUNE_HELD)
    };
    let names: Vec<String> = clusters.iter().filter(held).map(ResourceExt::name_any).collect();
    match names.is_empty() {
        true => Fact::ok("removals", "none are held"),
        false => {
            let text = format!("removals are held on {}", some(&names));
            let fix =
                "`atoll work MEMBER` lists them, `atoll prune MEMBER --confirm` releases them";
            Fact::new("removals", State::Warning, text, fix)
        }
    }
}

/// What the bindings say.
#[derive(Debug, Default)]
struct Work {
    all: usize,
    unrecorded: usize,
    pending: usize,
    /// Members whose agent lacks a right.
    lacking: BTreeSet<String>,
}

impl Work {
    async fn look(&mut self, hub: &Hub) -> anyhow::Result<()> {
        bindings::each(hub, None, |binding| self.take(&binding.spec, binding.status.as_ref())).await
    }

    fn take(&mut self, spec: &ResourceBindingSpec, status: Option<&ResourceBindingStatus>) {
        self.all += 1;
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let recorded = conditions::find(conditions, conditions::RECORDED);
        self.unrecorded += usize::from(recorded.is_some_and(|c| c.status == "False"));
        // A dependency has neither a placement nor a decision: it goes where its workload is.
        let undecided = spec.placement.is_some() && spec.decision.is_none();
        self.pending += usize::from(undecided || waiting(spec, status).is_some());
        for report in status.into_iter().flat_map(|status| &status.aggregated_status) {
            if report.applied_message.as_ref().is_some_and(|message| message.contains(LACKS)) {
                self.lacking.insert(report.cluster_name.clone());
            }
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let all = self.all;
        let backlog = match self.unrecorded {
            0 => Fact::ok("backlog", "history has every decision"),
            count => Fact::new(
                "backlog",
                State::Warning,
                format!("decisions of {count} workloads wait for the history database"),
                "check the database; nothing is lost while the bindings exist",
            ),
        };
        let placed = match self.pending {
            0 => Fact::ok("workloads", format!("{all} of {all} placed")),
            count => Fact::new(
                "workloads",
                State::Warning,
                format!("{count} of {all} are not placed, or not completely"),
                "`atoll status` lists them, `atoll explain WORKLOAD` says why",
            ),
        };
        let names: Vec<String> = self.lacking.iter().cloned().collect();
        let rights = match names.is_empty() {
            true => Fact::ok("members' rights", "no agent lacks a right for what was sent to it"),
            false => Fact::new(
                "members' rights",
                State::Warning,
                format!("agents lack rights on {}", some(&names)),
                "`atoll work MEMBER` prints the ClusterRole to apply on the member",
            ),
        };
        vec![backlog, placed, rights]
    }
}

/// The first names, and how many more there are.
fn some(names: &[String]) -> String {
    match names.len().checked_sub(NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMES].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_reported_before_they_end() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let days = |days: i64| life(now + SignedDuration::from_hours(24 * days), now);
        assert_eq!(days(400).state, State::Ok);
        assert!(days(20).state == State::Warning && days(20).text.contains("20 days"));
        assert_eq!(days(-1).state, State::Failed);
        assert!(days(-1).fix.unwrap().contains("atoll rejoin"));
    }

    #[test]
    fn bindings_show_the_backlog_pending_work_and_members_that_lack_rights() {
        let spec = |pending: bool| -> ResourceBindingSpec {
            let pending =
                if pending { json!([{"replicas": 1, "reason": "no room"}]) } else { json!([]) };
            serde_json::from_value(json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "decision": {"id": "0", "trigger": "First", "mode": "Steady", "outcome": "Placed", "desired": 1,
                    "term": 1, "pending": pending, "at": "2026-01-03T00:00:00Z"},
            }))
            .unwrap()
        };
        let mut work = Work::default();
        work.take(&spec(false), None);
        assert!(work.facts().iter().all(|fact| fact.state == State::Ok), "{:?}", work.facts());
        let status = serde_json::from_value(json!({
            "conditions": [{"type": "Recorded", "status": "False", "reason": "Waits", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "aggregatedStatus": [{"clusterName": "east", "applied": false, "health": "Unknown",
                "appliedMessage": "forbidden. The agent lacks this ClusterRole on the member: {}"}],
        }))
        .unwrap();
        work.take(&spec(true), Some(&status));
        let texts: Vec<String> = work.facts().into_iter().map(|fact| fact.text).collect();
        assert!(
            texts[0].contains("1 workloads wait") && texts[1].starts_with("1 of 2"),
            "{texts:?}"
        );
        assert!(texts[2].contains("east"), "{texts:?}");
    }

    #[test]
    fn a_dependency_needs_no_decision_of_its_own_and_a_workload_does() {
        let resource = json!({"apiVersion": "v1", "kind": "Secret", "name": "payment"});
        let placed = |spec: Value, status: Value| {
            let spec = serde_json::from_value(spec).unwrap();
            let status = serde_json::from_value(status).unwrap();
            let mut work = Work::default();
            work.take(&spec, Some(&status));
            work.pending == 0
        };
        let scheduled = |status: &str| {
            json!({"conditions": [{"type": "Scheduled", "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let dependency = json!({"resource": resource});
        assert!(placed(dependency.clone(), scheduled("True")));
        assert!(!placed(dependency, scheduled("False")));
        let workload = json!({"resource": resource, "placement": {}});
        assert!(!placed(workload, json!({})));
    }
}
