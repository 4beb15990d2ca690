//! DaemonSet: one Pod on every eligible node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::children::{PodDraft, claim, is_active, next_available, put_count};
use super::names;
use super::revisions::{self, REVISION_LABEL, revisions};
use crate::engine::brain::View;
use crate::index::fields::{list, scaled, selector, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::scheduler::affinity::{self, node_affinity_terms};
use crate::scheduler::taints;
use crate::writes::{Plan, Write};

/// Label of a Pod: the generation of the DaemonSet that created it.
const GENERATION_LABEL: &str = "pod-template-generation";
/// Taints that the Pods of every DaemonSet tolerate, because many of them must run on nodes in trouble.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The Pods of a set on one node.
#[derive(Debug, Default)]
struct OnNode {
    /// Of the current template.
    new: Vec<Arc<Object>>,
    old: Vec<Arc<Object>>,
}

/// A DaemonSet as its controller reads it.
#[derive(Debug)]
struct Set<'a> {
    object: &'a Object,
    spec: Value,
    hash: String,
    min_ready_seconds: i64,
    /// Nodes that should have a Pod.
    eligible: BTreeSet<String>,
    nodes: BTreeMap<String, OnNode>,
}

/// Reconciles a DaemonSet.
pub(crate) fn reconcile(view: &View<'_>, object: &Object) -> Plan {
    let Some(selector) = selector(&object.data, "/spec/selector") else {
        return Plan::default();
    };
    let claim = claim(view, object, Kind::Pod, &selector, |_| true);
    if !claim.writes.is_empty() {
        return Plan::of(claim.writes);
    }
    let revisions = revisions(view, object);
    let Some(update) = revisions.update.clone().filter(|_| !object.is_deleting()) else {
        return if object.is_deleting() { Plan::default() } else { Plan::of(revisions.writes) };
    };
    let set = Set::read(view, object, revision_hash(&update), &claim.owned);
    let mut plan = Plan::of(set.place(view));
    if plan.writes.is_empty() {
        plan.push(set.roll(view));
    }
    if plan.writes.is_empty() {
        plan.push(set.report(view));
    }
    if plan.writes.is_empty() {
        let hashes: BTreeSet<_> =
            claim.owned.iter().filter_map(|pod| pod.label(REVISION_LABEL)).collect();
        let in_use: Vec<_> = revisions
            .all
            .iter()
            .filter(|revision| {
                hashes.contains(revision_hash(revision).as_str()) || revision.uid == update.uid
            })
            .map(|revision| revision.key.name.as_str())
            .collect();
        plan.push(revisions::clean_up(object, &revisions, &in_use));
    }
    if let Some(at) = next_available(claim.owned.iter(), set.min_ready_seconds, view.now) {
        plan.again_at(at);
    }
    plan
}

/// A DaemonSet's Pods carry only the hash, which is the suffix of the revision's name.
fn revision_hash(revision: &Object) -> String {
    revision.key.name.rsplit('-').next().unwrap_or_default().to_owned()
}

/// The node of a Pod, or the node that its `metadata.name` affinity targets.
fn node_of(pod: &Object) -> Option<String> {
    pod.pod().node.clone().or_else(|| {
        node_affinity_terms(&pod.data["spec"])
            .iter()
            .flat_map(|term| list(term, "/matchFields"))
            .find_map(|field| text(field, "/values/0").map(str::to_owned))
    })
}

impl<'a> Set<'a> {
    fn read(view: &View<'_>, object: &'a Object, hash: String, pods: &[Arc<Object>]) -> Self {
        let spec = daemon_spec(object.data.pointer("/spec/template/spec"));
        let eligible = view
            .index
            .all(Kind::Node)
            .filter(|node| {
                affinity::allows(&spec, node) && taints::untolerated(&spec, node).is_none()
            })
            .map(|node| node.key.name.clone())
            .collect();
        let mut nodes: BTreeMap<String, OnNode> = BTreeMap::new();
        for pod in pods {
            let Some(node) = node_of(pod) else { continue };
            let entry = nodes.entry(node).or_default();
            let is_new = pod.label(REVISION_LABEL) == Some(hash.as_str());
            if is_new { entry.new.push(Arc::clone(pod)) } else { entry.old.push(Arc::clone(pod)) }
        }
        let min_ready_seconds = object.count("/spec/minReadySeconds");
        Self { object, spec, hash, min_ready_seconds, eligible, nodes }
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.nodes.get(node).into_iter().flat_map(|pods| pods.new.iter().chain(&pods.old))
    }

    fn is_available(&self, pod: &Object, now: Timestamp) -> bool {
        !pod.is_deleting() && pod.pod().is_available(self.min_ready_seconds, now)
    }

    /// Creates missing Pods, deletes unwanted ones, replaces failed ones.
    fn place(&self, view: &View<'_>) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut number = 0;
        for node in &self.eligible {
            writes.extend(
                self.on(node)
                    .filter(|pod| pod.pod().is_finished() && !pod.is_deleting())
                    .map(|p| Write::delete(p)),
            );
            if self.on(node).next().is_none() {
                writes.push(self.create(view, node, &mut number));
            } else if let Some(pods) = self.nodes.get(node) {
                // Of several Pods of one template the oldest is kept.
                for twins in [&pods.new, &pods.old] {
                    let mut active: Vec<_> = twins.iter().filter(|pod| is_active(pod)).collect();
                    active.sort_by_key(|pod| {
                        (pod.pod().node.is_none(), pod.created(), pod.key.clone())
                    });
                    writes.extend(active.into_iter().skip(1).map(|pod| Write::delete(pod)));
                }
            }
        }
        for (node, pods) in self.nodes.iter().filter(|(node, _)| !self.eligible.contains(*node)) {
            let stays = |pod: &Object| {
                view.index.get(Kind::Node, &Key::cluster(node)).is_some_and(|node| {
                    // NoExecute taints and selectors evict a running Pod, NoSchedule taints do not.
                    affinity::allows(&self.spec, node)
                        && taints::evicting(&self.spec, node).is_empty()
                        && pod.pod().node.is_some()
                })
            };
            let all = pods.new.iter().chain(&pods.old);
            writes.extend(
                all.filter(|pod| !pod.is_deleting() && !stays(pod)).map(|pod| Write::delete(pod)),
            );
        }
        writes
    }

    /// The rolling update: within `maxUnavailable` old Pods are deleted before their successors exist, within
    /// `maxSurge` after.
    fn roll(&self, view: &View<'_>) -> Vec<Write> {
        if self.object.text("/spec/updateStrategy/type") == Some("OnDelete") {
            return Vec::new();
        }
        let desired = i64::try_from(self.eligible.len()).unwrap_or(i64::MAX);
        let one = json!(1);
        let margin = |field: &str, default: Option<&Value>| {
            scaled(self.object.data.pointer(field).or(default), desired, true).unwrap_or(0)
        };
        let max_surge = margin("/spec/updateStrategy/rollingUpdate/maxSurge", None);
        let max_unavailable =
            margin("/spec/updateStrategy/rollingUpdate/maxUnavailable", Some(&one));
        if max_surge > 0 {
            self.surge(view, max_surge)
        } else {
            self.replace(view, max_unavailable.max(1))
        }
    }

    fn replace(&self, view: &View<'_>, max_unavailable: i64) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut candidates = Vec::new();
        let mut unavailable = 0;
        for node in &self.eligible {
            let up = self.on(node).any(|pod| self.is_available(pod, view.now));
            let old = self
                .nodes
                .get(node)
                .into_iter()
                .flat_map(|pods| &pods.old)
                .find(|pod| !pod.is_deleting());
            match old {
                Some(old) if up => candidates.push(old),
                // A Pod that is not ready can be deleted at once, whatever the margin.
                Some(old) => {
                    unavailable += 1;
                    writes.push(Write::delete(old));
                }
                None if up => {}
                None => unavailable += 1,
            }
        }
        let room = usize::try_from(max_unavailable - unavailable).unwrap_or(0);
        writes.extend(candidates.into_iter().take(room).map(|pod| Write::delete(pod)));
        writes
    }

    fn surge(&self, view: &View<'_>, max_surge: i64) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut candidates = Vec::new();
        let mut surging = 0;
        for node in &self.eligible {
            let Some(pods) = self.nodes.get(node) else { continue };
            let Some(old) = pods.old.iter().find(|pod| !pod.is_deleting()) else { continue };
            let old_is_up = self.is_available(old, view.now);
            match pods.new.iter().find(|pod| !pod.is_deleting()) {
                Some(new) if self.is_available(new, view.now) || !old_is_up => {
                    writes.push(Write::delete(old))
                }
                Some(_) => surging += 1,
                None if old_is_up => candidates.push(node),
                None => writes.push(Write::delete(old)),
            }
        }
        let room = usize::try_from(max_surge - surging).unwrap_or(0);
        let mut number = 0;
        writes.extend(
            candidates.into_iter().take(room).map(|node| self.create(view, node, &mut number)),
        );
        writes
    }

    /// A Pod that fits only this node; the scheduler binds it.
    fn create(&self, view: &View<'_>, node: &str, number: &mut u64) -> Write {
        let template = self.object.data.pointer("/spec/template").unwrap_or(&Value::Null);
        let prefix = format!("{}-", self.object.key.name);
        let owner = format!("{}/{node}", self.object.uid);
        let name = loop {
            let name = names::generated(&prefix, view.settings.seed, &owner, view.now, *number);
            *number += 1;
            let key = Key::new(&self.object.key.namespace, name.as_str());
            if view.index.get(Kind::Pod, &key).is_none() {
                break name;
            }
        };
        let mut draft = PodDraft::from_template(template, name);
        draft.generate_name = Some(prefix);
        draft.labels.insert(REVISION_LABEL.to_owned(), json!(self.hash));
        let generation = self.object.generation().to_string();
        draft.labels.insert(GENERATION_LABEL.to_owned(), json!(generation));
        draft.spec = self.spec.clone();
        let term =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        // Terms are alternatives: the node's name replaces them all, since its labels have been checked already.
        draft.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [term]});
        draft.create(self.object)
    }

    fn report(&self, view: &View<'_>) -> Option<Write> {
        let (mut current, mut ready, mut available, mut updated, mut misscheduled) =
            (0, 0, 0, 0, 0);
        for (node, pods) in &self.nodes {
            let active: Vec<_> =
                pods.new.iter().chain(&pods.old).filter(|pod| is_active(pod)).collect();
            if !self.eligible.contains(node) {
                misscheduled += i64::from(!active.is_empty());
                continue;
            }
            current += i64::from(!active.is_empty());
            ready += i64::from(active.iter().any(|pod| pod.pod().ready_since.is_some()));
            available += i64::from(active.iter().any(|pod| self.is_available(pod, view.now)));
            updated += i64::from(pods.new.iter().any(|pod| is_active(pod)));
        }
        let desired = i64::try_from(self.eligible.len()).unwrap_or(i64::MAX);
        let mut status = self.object.status();
        status["currentNumberScheduled"] = json!(current);
        status["desiredNumberScheduled"] = json!(desired);
        status["numberMisscheduled"] = json!(misscheduled);
        status["numberReady"] = json!(ready);
        put_count(&mut status, "updatedNumberScheduled", updated);
        put_count(&mut status, "numberAvailable", available);
        put_count(&mut status, "numberUnavailable", desired - available);
        put_count(&mut status, "observedGeneration", self.object.generation());
        Write::status(self.object, status)
    }
}

/// The template's Pod spec with the tolerations of every DaemonSet.
fn daemon_spec(spec: Option<&Value>) -> Value {
    let mut spec = spec.cloned().unwrap_or_else(|| json!({}));
    let mut tolerations = list(&spec, "/tolerations").to_vec();
    let host_network = crate::index::fields::flag(&spec, "/hostNetwork");
    let network = host_network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
    spec
}
