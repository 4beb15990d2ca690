//! The Pod scheduler: kube-scheduler's default filters that matter here, least-allocated first, stable ties.
//!
//! One pass takes all Pods without a node, ordered by priority and age, and books the resources it assigns, so that it
//! never overcommits a node.

pub(crate) mod affinity;
mod neighbours;
mod spread;
pub(crate) mod taints;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::engine::brain::View;
use crate::index::fields::{list, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::pod::{Amounts, add, amounts};
use crate::writes::conditions::{Condition, Conditions, Custom};
use crate::writes::{Plan, Write};
use neighbours::Neighbourhood;
use spread::Spread;

/// The simulated scheduler; Pods of other schedulers are skipped.
const NAME: &str = "default-scheduler";
/// Assumed cpu of a container without requests when nodes are compared (`DefaultMilliCPURequest`, in thousandths).
const NOMINAL_CPU: i128 = 100;
/// The same for memory (`DefaultMemoryRequest`, 200 MiB in thousandths of a byte).
const NOMINAL_MEMORY: i128 = 200 * 1024 * 1024 * 1000;

/// A node and the resources booked on it.
#[derive(Debug)]
struct Room<'a> {
    node: &'a Object,
    allocatable: Amounts,
    booked: Amounts,
    /// As `booked`, with nominal amounts for Pods without requests: only for comparing nodes.
    nominal: Amounts,
    pods: Vec<Arc<Object>>,
}

impl<'a> Room<'a> {
    fn of(view: &View<'_>, node: &'a Object) -> Self {
        let mut room = Self {
            node,
            allocatable: amounts(&node.data, "/status/allocatable"),
            booked: Amounts::new(),
            nominal: Amounts::new(),
            pods: Vec::new(),
        };
        for pod in view.index.on_node(&node.key.name).filter(|pod| !pod.pod().is_finished()) {
            room.book(pod);
        }
        room
    }

    fn book(&mut self, pod: &Arc<Object>) {
        add(&mut self.booked, &pod.pod().requests);
        add(&mut self.nominal, &nominal(pod));
        self.pods.push(Arc::clone(pod));
    }

    /// The resources that the node lacks (`NodeResourcesFit`).
    fn lacks(&self, pod: &Object) -> Vec<String> {
        let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(0);
        let mut reasons = Vec::new();
        let slots = of(&self.allocatable, "pods") / 1000;
        if i128::try_from(self.pods.len()).unwrap_or(i128::MAX) >= slots {
            reasons.push("Too many pods".to_owned());
        }
        for (name, amount) in pod.pod().requests.iter().filter(|(_, amount)| **amount > 0) {
            if amount + of(&self.booked, name) > of(&self.allocatable, name) {
                reasons.push(format!("Insufficient {name}"));
            }
        }
        reasons
    }

    /// Free share of the node with the Pod, 0 to 100, cpu and memory weighted equally (`LeastAllocated`).
    fn score(&self, pod: &Object) -> i128 {
        let asked = nominal(pod);
        let scores = ["cpu", "memory"].map(|name| {
            let capacity = self.allocatable.get(name).copied().unwrap_or(0);
            let used = self.nominal.get(name).copied().unwrap_or(0)
                + asked.get(name).copied().unwrap_or(0);
            if capacity == 0 || used > capacity { 0 } else { (capacity - used) * 100 / capacity }
        });
        scores.iter().sum::<i128>() / 2
    }
}

fn nominal(pod: &Object) -> Amounts {
    let mut requests = pod.pod().requests.clone();
    let containers = list(&pod.data, "/spec/containers").len();
    let containers = i128::try_from(containers).unwrap_or(1);
    for (name, amount) in [("cpu", NOMINAL_CPU), ("memory", NOMINAL_MEMORY)] {
        let entry = requests.entry(name.to_owned()).or_default();
        if *entry == 0 {
            *entry = amount * containers;
        }
    }
    requests
}

/// Schedules all Pods without a node.
pub(crate) fn reconcile(view: &View<'_>) -> Plan {
    let mut queue: Vec<_> = view
        .index
        .unbound()
        .filter(|pod| !pod.is_deleting() && !pod.pod().is_finished())
        .filter(|pod| {
            pod.text("/spec/schedulerName").is_none_or(|name| name == NAME || name.is_empty())
        })
        .collect();
    queue.sort_by_key(|pod| (-pod.pod().priority, pod.created(), pod.key.clone()));
    let mut rooms: Vec<_> = view.index.all(Kind::Node).map(|node| Room::of(view, node)).collect();
    let mut plan = Plan::default();
    let mut waiting = Vec::new();
    for pod in queue {
        match view.memory.assumed(&pod.uid) {
            Some(node) => {
                let room = rooms.iter_mut().find(|room| room.node.key.name == node);
                room.into_iter().for_each(|room| room.book(pod));
            }
            None => waiting.push(pod),
        }
    }
    for pod in waiting {
        plan.push(match place(view, pod, &mut rooms) {
            Ok(node) => Some(Write::Bind { target: (&**pod).into(), node }),
            Err(refusal) => refuse(view, pod, &refusal),
        });
    }
    plan
}

/// Why a Pod cannot be scheduled.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: &'static str,
    message: String,
}

/// Finds the best node for a Pod and books it.
fn place(view: &View<'_>, pod: &Arc<Object>, rooms: &mut [Room<'_>]) -> Result<String, Refusal> {
    if !list(&pod.data, "/spec/schedulingGates").is_empty() {
        return Err(Refusal {
            reason: "SchedulingGated",
            message: "Scheduling is blocked due to non-empty scheduling gates".to_owned(),
        });
    }
    let unschedulable = |message| Refusal { reason: "Unschedulable", message };
    if let Some(problem) = volumes_missing(view, pod) {
        let all = rooms.len();
        return Err(unschedulable(format!("0/{all} nodes are available: {problem}.")));
    }
    if rooms.is_empty() {
        return Err(unschedulable("no nodes available to schedule pods".to_owned()));
    }
    let placed = rooms.iter().flat_map(|room| room.pods.iter().map(|pod| (&**pod, room.node)));
    let neighbourhood = Neighbourhood::of(pod, placed.clone());
    let nodes = rooms.iter().map(|room| room.node);
    let spread = Spread::of(pod, nodes, placed);
    let mut best: Option<(i128, usize)> = None;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (position, room) in rooms.iter().enumerate() {
        let refusals = filter(pod, room, &spread, &neighbourhood);
        if refusals.is_empty() {
            let score = room.score(pod);
            // Nodes are sorted by name: the first of equal ones wins.
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, position));
            }
        }
        for reason in refusals {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    match best {
        Some((_, position)) => {
            rooms[position].book(pod);
            Ok(rooms[position].node.key.name.clone())
        }
        None => {
            let mut parts: Vec<_> =
                reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            parts.sort();
            let all = rooms.len();
            Err(unschedulable(format!("0/{all} nodes are available: {}.", parts.join(", "))))
        }
    }
}

/// Messages of the first filter that refuses a node; empty if none does.
fn filter(
    pod: &Object,
    room: &Room<'_>,
    spread: &Spread,
    neighbourhood: &Neighbourhood,
) -> Vec<String> {
    let spec = &pod.data["spec"];
    if taints::is_cordoned(spec, room.node) {
        return vec!["node(s) were unschedulable".to_owned()];
    }
    if let Some(taint) = taints::untolerated(spec, room.node) {
        return vec![format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)];
    }
    if !affinity::allows(spec, room.node) {
        return vec!["node(s) didn't match Pod's node affinity/selector".to_owned()];
    }
    let lacks = room.lacks(pod);
    if !lacks.is_empty() {
        return lacks;
    }
    let labels = room.node.labels();
    let refusal = spread
        .refusal(labels)
        .or_else(|| neighbourhood.clash(labels).map(neighbours::Clash::message));
    refusal.map(str::to_owned).into_iter().collect()
}

/// A volume claim that does not exist or is not bound yet.
fn volumes_missing(view: &View<'_>, pod: &Object) -> Option<String> {
    let claims = list(&pod.data, "/spec/volumes")
        .iter()
        .filter_map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    for name in claims {
        let key = Key::new(&pod.key.namespace, name);
        match view.index.get(Kind::PersistentVolumeClaim, &key) {
            None => return Some(format!("persistentvolumeclaim \"{name}\" not found")),
            Some(claim) if claim.text("/status/phase") != Some("Bound") => {
                return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            Some(_) => {}
        }
    }
    None
}

fn refuse(view: &View<'_>, pod: &Object, refusal: &Refusal) -> Option<Write> {
    let mut conditions = Conditions::of(pod, Custom::Exact, view.now);
    conditions.set(Condition {
        type_: "PodScheduled",
        status: "False",
        reason: refusal.reason,
        message: &refusal.message,
    });
    let mut status: Value = pod.status();
    status["phase"] = json!("Pending");
    status["conditions"] = conditions.into_value();
    Write::status(pod, status)
}
