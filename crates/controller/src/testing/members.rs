//! Members that carry out orders while connected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_api::customization::Operation;
use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Cluster, ClusterName, ManifestHash};
use atoll_render::Rendered;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;

use crate::lifecycle::emptying::Emptying;
use crate::members::{
    AgentCustomizations, AgentRuleFailed, ApplyResult, HealthReport, HeldObject, Key, LimitReason,
    LostReason, MemberEvent, ObjectHealth, Oracle, Proof, Report, Withdrawal,
};
use crate::mutants::{self, Mutant};
use crate::packed::Packed;
use crate::placements::outlet::Outlet;

/// How long a member needs to apply, and then until its pods are ready.
const APPLY: Duration = Duration::from_millis(30);
const START: Duration = Duration::from_secs(1);

/// An order as received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    Set { cluster: ClusterName, claim: BindingUid, hash: ManifestHash, replicas: Option<i64> },
    Withdraw { cluster: ClusterName, how: Withdrawal, proof: Proof },
}

#[derive(Default)]
struct State {
    orders: Vec<Order>,
    held: BTreeMap<(ClusterName, BindingUid), Arc<Rendered>>,
    /// What came to members and left them: `m1 +ConfigMap/settings`, `m1 -ConfigMap/settings`.
    moves: Vec<String>,
    to_remove: BTreeSet<(ClusterName, BindingUid)>,
    lost: BTreeSet<ClusterName>,
    sick: BTreeSet<ClusterName>,
    /// The faults of pods on sick members: reason and message.
    faults: BTreeMap<ClusterName, (String, String)>,
    slow: BTreeSet<ClusterName>,
    /// Replicas that members' autoscalers set, where the template's label lets them.
    scaled: BTreeMap<ClusterName, i64>,
    /// What the ResourceQuotas of members report as used.
    used: BTreeMap<ClusterName, serde_json::Value>,
    /// Members whose nodes accept only this many replicas of anything, since when.
    full: BTreeMap<ClusterName, (i64, Timestamp)>,
    /// Hashes that run and are ready, by member.
    ready: BTreeSet<(ClusterName, ManifestHash)>,
    labels: BTreeSet<String>,
    customizations: Arc<AgentCustomizations>,
    deleted: BTreeSet<ClusterName>,
    /// Verdicts of the leader, once its state is complete.
    oracle: Option<Arc<dyn Oracle>>,
    emptying: BTreeMap<ClusterName, Emptying>,
    /// Called with the next order that sets something.
    at_next: Option<Box<dyn FnOnce() + Send>>,
}

#[derive(Clone)]
pub(crate) struct FakeMembers {
    state: Arc<Mutex<State>>,
    events: mpsc::Sender<MemberEvent>,
    /// Called before an order is accepted, to check invariants.
    check: Arc<dyn Fn() + Send + Sync>,
}

impl FakeMembers {
    pub(crate) fn new(
        events: mpsc::Sender<MemberEvent>,
        check: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { state: Arc::default(), events, check: Arc::new(check) }
    }

    /// The same members with another controller: they keep their objects.
    pub(crate) fn rewire(&self, events: mpsc::Sender<MemberEvent>) -> Self {
        self.state.lock().unwrap().oracle = None;
        Self { state: self.state.clone(), events, check: Arc::new(|| ()) }
    }

    pub(crate) fn orders(&self) -> Vec<Order> {
        self.state.lock().unwrap().orders.clone()
    }

    /// Calls this when the next order that sets something arrives.
    pub(crate) fn at_next_order(&self, act: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().at_next = Some(Box::new(act));
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state.lock().unwrap().oracle.is_some()
    }

    /// Why removals of a binding's objects are limited. Before the leader's state is complete nothing is removed.
    pub(crate) fn limit(&self, uid: &BindingUid) -> Option<LimitReason> {
        let oracle = self.state.lock().unwrap().oracle.clone();
        oracle.map_or(Some(LimitReason::HistoryUnreachable), |oracle| oracle.limit(uid))
    }

    /// The one object that a member holds.
    pub(crate) fn manifest(&self, cluster: &str) -> serde_json::Value {
        let state = self.state.lock().unwrap();
        let mut held = state.held.iter().filter(|((name, _), _)| name == cluster);
        let (_, object) = held.next().unwrap();
        assert!(held.next().is_none(), "more than one object on {cluster}");
        object.manifest.clone()
    }

    /// The manifest of the object of this name that a member holds.
    pub(crate) fn manifest_of(&self, cluster: &str, name: &str) -> serde_json::Value {
        let state = self.state.lock().unwrap();
        let mut held = state.held.iter().filter(|((held, _), _)| held == cluster);
        let found = held.find(|(_, object)| object.key.name() == name);
        found.map(|(_, object)| object.manifest.clone()).unwrap_or_default()
    }

    /// What a member holds: `ConfigMap/settings`.
    pub(crate) fn objects(&self, cluster: &str) -> BTreeSet<String> {
        let state = self.state.lock().unwrap();
        let held = state.held.iter().filter(|((held, _), _)| held == cluster);
        held.map(|(_, object)| name(object)).collect()
    }

    /// What came to members and left them since the last call.
    pub(crate) fn take_moves(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().moves)
    }

    /// Last progress report about emptying a member.
    pub(crate) fn emptying(&self, cluster: &str) -> Emptying {
        self.state.lock().unwrap().emptying.get(cluster).cloned().unwrap_or_default()
    }

    /// Replicas that members hold.
    pub(crate) fn replicas(&self) -> BTreeMap<ClusterName, i64> {
        let state = self.state.lock().unwrap();
        let held = state.held.iter();
        held.map(|((cluster, _), object)| (cluster.clone(), replicas(object).unwrap_or(0)))
            .collect()
    }

    /// The customizations that agents have, and hashes of their specs.
    pub(crate) fn customizations(&self) -> Vec<(String, Arc<str>)> {
        self.state.lock().unwrap().customizations.names()
    }

    pub(crate) fn labels(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().labels.clone()
    }

    /// Pods on this member never become ready.
    pub(crate) fn make_sick(&self, cluster: &str, sick: bool) {
        let mut state = self.state.lock().unwrap();
        if sick {
            state.sick.insert(cluster.into());
            state.ready.retain(|(name, _)| name != cluster);
        } else {
            state.sick.remove(cluster);
            state.faults.remove(cluster);
        }
        let held: Vec<_> =
            state.held.iter().map(|((c, k), o)| (c.clone(), k.clone(), o.clone())).collect();
        drop(state);
        for (name, claim, object) in held {
            if name == cluster {
                self.answer(name, claim, object);
            }
        }
    }

    /// Pods on this member fail for this reason.
    pub(crate) fn make_fail(&self, cluster: &str, reason: &str, message: &str) {
        let fault = (reason.to_owned(), message.to_owned());
        self.state.lock().unwrap().faults.insert(cluster.into(), fault);
        self.make_sick(cluster, true);
    }

    /// An unmanaged object blocks every apply on this member.
    pub(crate) async fn be_in_the_way(&self, cluster: &str) {
        let held: Vec<_> = {
            let state = self.state.lock().unwrap();
            let held = state.held.iter().filter(|((name, _), _)| name == cluster);
            held.map(|((_, claim), object)| (claim.clone(), object.clone())).collect()
        };
        for (claim, object) in held {
            self.send(MemberEvent::Applied {
                cluster: cluster.into(),
                key: object.key.clone(),
                claims: vec![claim],
                hash: object.hash.clone(),
                current: true,
                result: ApplyResult::Conflict,
                reason: "Conflict".to_owned(),
                message: "it exists and is not Atoll's".to_owned(),
                object_uid: "of-another-owner".to_owned(),
                drift: 0,
            })
            .await;
        }
    }

    /// An autoscaler of this member sets its replicas.
    pub(crate) fn autoscale(&self, cluster: &str, replicas: i64) {
        self.state.lock().unwrap().scaled.insert(cluster.into(), replicas);
        self.make_sick(cluster, false);
    }

    /// The ResourceQuotas of this member report this use.
    pub(crate) fn use_quotas(&self, cluster: &str, used: serde_json::Value) {
        self.state.lock().unwrap().used.insert(cluster.into(), used);
        self.make_sick(cluster, false);
    }

    /// From now on replicas above this number find no node on this member.
    pub(crate) fn fill(&self, cluster: &str, room: i64, now: Timestamp) {
        self.state.lock().unwrap().full.insert(cluster.into(), (room, now));
    }

    /// This member stops reporting, which is not detected yet.
    pub(crate) fn silence(&self, cluster: &str) {
        self.state.lock().unwrap().lost.insert(cluster.into());
    }

    pub(crate) async fn lose(&self, cluster: &str) {
        self.silence(cluster);
        let reason = LostReason::Silent(Duration::from_secs(15));
        self.send(MemberEvent::Lost { cluster: cluster.into(), reason }).await;
    }

    /// The controller's self-suspicion because of this member's silence begins or ends.
    pub(crate) async fn suspect(&self, cluster: &str, begins: bool) {
        let message = format!("suspicion of {cluster}");
        self.send(MemberEvent::Suspicion { cluster: cluster.into(), begins, message }).await;
    }

    pub(crate) async fn bring_back(&self, cluster: &str) {
        self.connect(cluster).await;
        self.state.lock().unwrap().lost.remove(cluster);
        self.let_go(cluster).await;
    }

    /// This member delays removals.
    pub(crate) fn hold_removals(&self, cluster: &str, hold: bool) {
        let mut state = self.state.lock().unwrap();
        if hold {
            state.slow.insert(cluster.into());
        } else {
            state.slow.remove(cluster);
        }
    }

    /// It carries out delayed removals.
    pub(crate) async fn let_go(&self, cluster: &str) {
        self.hold_removals(cluster, false);
        let removed: Vec<_> = {
            let mut state = self.state.lock().unwrap();
            let due: Vec<_> =
                state.to_remove.iter().filter(|(name, _)| name == cluster).cloned().collect();
            for key in &due {
                state.to_remove.remove(key);
                state.held.remove(key);
            }
            due
        };
        for (cluster, claim) in removed {
            self.send(MemberEvent::Withdrawn { cluster, claim }).await;
        }
    }

    /// A session starts: the member reports its objects.
    pub(crate) async fn connect(&self, cluster: &str) {
        self.send(MemberEvent::Connected { cluster: cluster.into() }).await;
        let inventory = {
            let state = self.state.lock().unwrap();
            let held = state.held.iter().filter(|((name, _), _)| name == cluster);
            // As sessions report what is not ordered yet.
            let object = |claim: &BindingUid, object: &Rendered| HeldObject {
                key: object.key.clone(),
                hash: object.hash.clone(),
                current: false,
                claims: vec![claim.clone()],
            };
            held.map(|((_, claim), held)| object(claim, held)).collect()
        };
        let (cluster_name, orphans) = (cluster.into(), 0);
        self.send(MemberEvent::Inventory { cluster: cluster_name, held: inventory, orphans }).await;
        let held: Vec<_> = {
            let state = self.state.lock().unwrap();
            let held = state.held.iter().filter(|((name, _), _)| name == cluster);
            held.map(|((name, claim), object)| (name.clone(), claim.clone(), object.clone()))
                .collect()
        };
        for (name, claim, object) in held {
            self.answer(name, claim, object);
        }
    }

    /// The health rule of a customization fails on a member, for `shop/web`.
    pub(crate) async fn fail_rule(&self, cluster: &str, customization: &str, message: &str) {
        let all = self.customizations();
        let found = all.into_iter().find(|(name, _)| name == customization);
        let (customization, spec_hash) = found.expect("agents have the customization");
        let failed = AgentRuleFailed {
            customization,
            spec_hash,
            operation: Operation::InterpretHealth,
            key: Key::new("apps.example.io", "WebApp", Some("shop"), "web"),
            message: message.to_owned(),
        };
        self.send(MemberEvent::RuleFailed { cluster: cluster.into(), failed }).await;
    }

    async fn send(&self, event: MemberEvent) {
        // A stopped controller has dropped the receiver.
        let _ = self.events.send(event).await;
    }

    fn answer(&self, cluster: ClusterName, claim: BindingUid, object: Arc<Rendered>) {
        let members = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(APPLY).await;
            let is_held = |state: &State| {
                let held = state.held.get(&(cluster.clone(), claim.clone()));
                held.is_some_and(|held| held.hash == object.hash) && !state.lost.contains(&cluster)
            };
            if !is_held(&members.state.lock().unwrap()) {
                return;
            }
            let applied = MemberEvent::Applied {
                cluster: cluster.clone(),
                key: object.key.clone(),
                claims: vec![claim.clone()],
                hash: object.hash.clone(),
                current: true,
                result: ApplyResult::Applied,
                reason: String::new(),
                message: String::new(),
                object_uid: "on-the-member".to_owned(),
                drift: 0,
            };
            let was_ready = {
                let key = (cluster.clone(), object.hash.clone());
                members.state.lock().unwrap().ready.contains(&key)
            };
            members.send(applied).await;
            let full = members.state.lock().unwrap().full.get(&cluster).copied();
            let scaled = members.state.lock().unwrap().scaled.get(&cluster).copied();
            let used = members.state.lock().unwrap().used.get(&cluster).cloned();
            let status = |ready| {
                let mut report = report(&object, scaled, ready, full);
                if object.manifest["kind"] == "ResourceQuota" {
                    let hard = &object.manifest["spec"]["hard"];
                    report.status = used.as_ref().map(|used| json!({"hard": hard, "used": used}));
                }
                MemberEvent::Status {
                    cluster: cluster.clone(),
                    key: object.key.clone(),
                    claims: vec![claim.clone()],
                    report,
                }
            };
            members.send(status(was_ready)).await;
            if was_ready {
                return;
            }
            tokio::time::sleep(START).await;
            let well = {
                let mut state = members.state.lock().unwrap();
                let well = is_held(&state) && !state.sick.contains(&cluster);
                if well {
                    state.ready.insert((cluster.clone(), object.hash.clone()));
                }
                well
            };
            let fault = members.state.lock().unwrap().faults.get(&cluster).cloned();
            match fault {
                _ if well => members.send(status(true)).await,
                None => {}
                Some((reason, message)) => {
                    let mut said = status(false);
                    if let MemberEvent::Status { report, .. } = &mut said {
                        report.health.reason = reason;
                        report.health.message = message;
                        report.health.failing = true;
                    }
                    members.send(said).await;
                }
            }
        });
    }
}

fn replicas(object: &Rendered) -> Option<i64> {
    object.manifest["spec"]["replicas"].as_i64()
}

fn report(
    object: &Rendered,
    scaled: Option<i64>,
    ready: bool,
    full: Option<(i64, Timestamp)>,
) -> Report {
    let label = &object.manifest["metadata"]["labels"][atoll_interpreter::RETAIN_REPLICAS];
    let scaled = scaled.filter(|_| *label == "true");
    let replicas = replicas(object).map(|replicas| scaled.unwrap_or(replicas));
    let room = full.map_or(i64::MAX, |(room, _)| room);
    let stuck = (replicas.unwrap_or(0) - room).max(0);
    let up = if ready { replicas.unwrap_or(0) - stuck } else { 0 };
    let status = replicas.map(|replicas| {
        json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": up, "availableReplicas": up, "unavailableReplicas": replicas - up,
        })
    });
    let status = match object.manifest["kind"] == "Job" {
        // Jobs end as soon as they run.
        true => {
            Some(json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}))
        }
        false => status,
    };
    let healthy = ready || replicas.is_none();
    Report {
        hash: object.hash.clone(),
        generation: 1,
        observed_generation: 1,
        replicas,
        ready: replicas.map(|_| up),
        unschedulable: stuck,
        unschedulable_since: full.filter(|_| stuck > 0).map(|(_, since)| since),
        health: HealthReport::of(if healthy {
            ObjectHealth::Healthy
        } else {
            ObjectHealth::Unhealthy
        }),
        status,
        object_uid: "on-the-member".to_owned(),
        ..Report::unknown()
    }
}

fn unpacked(object: &Packed) -> Rendered {
    Rendered {
        key: object.key.clone(),
        api_version: object.api_version.clone(),
        manifest: serde_json::from_slice(&object.manifest()).unwrap(),
        hash: object.hash.clone(),
    }
}

fn name(object: &Rendered) -> String {
    format!("{}/{}", object.key.kind(), object.key.name())
}

impl Outlet for FakeMembers {
    /// They keep their objects.
    fn stepped_down(&self) {
        self.state.lock().unwrap().oracle = None;
    }

    fn set_desired(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        _: ConflictResolution,
    ) {
        (self.check)();
        let object = Arc::new(unpacked(objects.last().unwrap()));
        let key = (cluster.clone(), claim.clone());
        let mut state = self.state.lock().unwrap();
        if let Some(act) = state.at_next.take() {
            act();
        }
        state.orders.push(Order::Set {
            cluster: cluster.clone(),
            claim: claim.clone(),
            hash: object.hash.clone(),
            replicas: replicas(&object),
        });
        state.to_remove.remove(&key);
        let before = state.held.insert(key.clone(), object.clone());
        if before.is_none() {
            state.moves.push(format!("{cluster} +{}", name(&object)));
        }
        drop(state);
        if before.is_none_or(|before| before.hash != object.hash) {
            self.answer(key.0, key.1, object);
        }
    }

    fn manifest(&self, cluster: &ClusterName, claim: &BindingUid, _: &Key) -> Option<Bytes> {
        let state = self.state.lock().unwrap();
        let held = state.held.get(&(cluster.clone(), claim.clone()))?;
        Some(held.manifest.to_string().into())
    }

    fn withdraw(&self, cluster: &ClusterName, claim: &BindingUid, how: Withdrawal, proof: Proof) {
        (self.check)();
        if proof == Proof::NotTargeted && mutants::is(Mutant::LostAreNotTold) {
            return;
        }
        let key = (cluster.clone(), claim.clone());
        let mut state = self.state.lock().unwrap();
        state.orders.push(Order::Withdraw { cluster: cluster.clone(), how, proof });
        if state.lost.contains(cluster) || state.slow.contains(cluster) {
            state.to_remove.insert(key);
            return;
        }
        if let Some(object) = state.held.remove(&key) {
            state.moves.push(format!("{cluster} -{}", name(&object)));
        }
        drop(state);
        let members = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(APPLY).await;
            members.send(MemberEvent::Withdrawn { cluster: key.0, claim: key.1 }).await;
        });
    }

    fn caches_complete(&self, _: crate::leader::LeaderTerm, oracle: Arc<dyn Oracle>) {
        self.state.lock().unwrap().oracle = Some(oracle);
    }

    fn limits_changed(&self) {}

    fn watch_labels(&self, keys: &BTreeSet<String>) {
        self.state.lock().unwrap().labels.clone_from(keys);
    }

    fn set_customizations(&self, customizations: Arc<AgentCustomizations>) {
        self.state.lock().unwrap().customizations = customizations;
    }

    fn emptying(&self, cluster: &ClusterName, emptying: Emptying) {
        self.state.lock().unwrap().emptying.insert(cluster.clone(), emptying);
    }

    fn cluster_changed(&self, cluster: &Cluster) {
        self.state.lock().unwrap().deleted.remove(cluster.metadata.name.as_deref().unwrap());
    }

    fn cluster_deleted(&self, name: &ClusterName) {
        self.state.lock().unwrap().deleted.insert(name.clone());
    }
}
