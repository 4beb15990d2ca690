//! Summaries of nodes and pods, and the figures computed from them. Synchronous; no I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use atoll_protocol::v1;

use super::amounts::Amounts;
use super::fault::PodFault;
use super::node::{NodeFacts, Taint};
use super::pod::{PodFacts, Unscheduled};
use super::quota::Quotas;
use crate::key::Key;

/// Limit of the different free vectors sent. Those of a larger member are rounded down until they fit: the estimate is
/// then slightly low, and never high.
const MAX_VECTORS: usize = 1_024;
/// Significant bits kept by the first rounding; 8 bits are an error of at most 0.8 %.
const FIRST_BITS: u32 = 8;

type PodName = (String, String);

/// Replicas of a workload that found no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unschedulable {
    /// Number of replicas.
    pub count: i64,
    /// Since when the first of them waits, Unix seconds.
    pub since: i64,
    /// The scheduler's message for that one.
    pub reason: String,
}

/// Report about a workload's pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pods {
    /// Those that found no node.
    pub unschedulable: Option<Unschedulable>,
    /// The most frequent fault among its failing pods.
    pub fault: Option<PodFault>,
}

impl Pods {
    /// Whether there is nothing to report.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.unschedulable.is_none() && self.fault.is_none()
    }
}

/// What goes into `Facts`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Figures {
    /// All nodes.
    pub nodes: i64,
    /// Nodes that are Ready.
    pub ready: i64,
    /// Thousandths allocatable on ready, schedulable nodes.
    pub allocatable: BTreeMap<String, i128>,
    /// Thousandths requested by pods on any node.
    pub allocated: BTreeMap<String, i128>,
    /// Thousandths requested by pods without a node.
    pub allocating: BTreeMap<String, i128>,
    /// Free room.
    pub classes: Vec<v1::NodeClass>,
    /// What ResourceQuotas leave, by namespace.
    pub quotas: Vec<v1::NamespaceQuota>,
}

/// Nodes and pods.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) quotas: Quotas,
    nodes: BTreeMap<String, NodeFacts>,
    pods: BTreeMap<PodName, PodFacts>,
    /// Summed requests of the pods on each node; i128, so that additions and subtractions cannot overflow.
    used: BTreeMap<String, BTreeMap<String, i128>>,
    allocating: BTreeMap<String, i128>,
    waiting: BTreeMap<Key, BTreeMap<PodName, Unscheduled>>,
    /// How many pods of a workload have which fault.
    faults: BTreeMap<Key, BTreeMap<PodFault, usize>>,
    changed: BTreeSet<Key>,
}

impl Table {
    /// Stores a node, or removes it.
    pub(super) fn put_node(&mut self, name: &str, node: Option<NodeFacts>) {
        match node {
            Some(node) => self.nodes.insert(name.to_owned(), node),
            None => self.nodes.remove(name),
        };
    }

    /// Stores a pod, or removes it when deleted or ended.
    pub(super) fn put_pod(&mut self, name: PodName, pod: Option<PodFacts>) {
        let before = match &pod {
            Some(pod) => self.pods.insert(name.clone(), pod.clone()),
            None => self.pods.remove(&name),
        };
        if before == pod {
            return;
        }
        if let Some(before) = &before {
            self.count(before, -1);
            self.count_fault(before, false);
            if before.unschedulable.is_some() {
                self.changed.insert(before.workload.clone());
                if let Some(waiting) = self.waiting.get_mut(&before.workload) {
                    waiting.remove(&name);
                    if waiting.is_empty() {
                        self.waiting.remove(&before.workload);
                    }
                }
            }
        }
        if let Some(pod) = pod {
            self.count(&pod, 1);
            self.count_fault(&pod, true);
            if let Some(unschedulable) = pod.unschedulable {
                self.changed.insert(pod.workload.clone());
                self.waiting.entry(pod.workload).or_default().insert(name, unschedulable);
            }
        }
    }

    fn count(&mut self, pod: &PodFacts, sign: i128) {
        let sums = match &pod.node {
            Some(node) => self.used.entry(node.clone()).or_default(),
            None => &mut self.allocating,
        };
        for (resource, milli) in &pod.requests {
            *sums.entry(resource.clone()).or_default() += sign * i128::from(*milli);
        }
        sums.retain(|_, milli| *milli != 0);
        if let Some(node) = &pod.node
            && self.used[node].is_empty()
        {
            self.used.remove(node);
        }
    }

    fn count_fault(&mut self, pod: &PodFacts, more: bool) {
        let Some(fault) = &pod.fault else { return };
        self.changed.insert(pod.workload.clone());
        let faults = self.faults.entry(pod.workload.clone()).or_default();
        if more {
            *faults.entry(fault.clone()).or_default() += 1;
        } else if let Some(count) = faults.get_mut(fault) {
            *count -= 1;
            faults.retain(|_, count| *count > 0);
        }
        if faults.is_empty() {
            self.faults.remove(&pod.workload);
        }
    }

    /// Keeps only these nodes.
    pub(super) fn retain_nodes(&mut self, keep: impl Fn(&str) -> bool) {
        self.nodes.retain(|name, _| keep(name));
    }

    /// Keeps only these pods.
    pub(super) fn retain_pods(&mut self, keep: impl Fn(&PodName) -> bool) {
        let gone: Vec<_> = self.pods.keys().filter(|name| !keep(name)).cloned().collect();
        for name in gone {
            self.put_pod(name, None);
        }
    }

    /// Workloads whose pod report changed since the last call.
    pub(super) fn changed_workloads(&mut self) -> Vec<(Key, Pods)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|key| {
                let unschedulable = self.waiting.get(&key).and_then(|pods| {
                    let first = pods.values().min()?;
                    Some(Unschedulable {
                        count: i64::try_from(pods.len()).unwrap_or(i64::MAX),
                        since: first.since,
                        reason: first.reason.clone(),
                    })
                });
                let faults = self.faults.get(&key).into_iter().flatten();
                // The most frequent fault; ties go to the first by name, so that the result is stable.
                let fault = faults.max_by_key(|(fault, count)| (**count, Reverse(*fault)));
                let fault = fault.map(|(fault, _)| fault.clone());
                (key, Pods { unschedulable, fault })
            })
            .collect()
    }

    /// The figures, with node classes defined by these label keys.
    #[must_use]
    pub(super) fn figures(&self, labels: &BTreeSet<String>) -> Figures {
        let mut figures = Figures {
            nodes: i64::try_from(self.nodes.len()).unwrap_or(i64::MAX),
            ready: self.nodes.values().filter(|node| node.ready).map(|_| 1).sum(),
            allocating: self.allocating.clone(),
            ..Figures::default()
        };
        for (resource, milli) in self.used.values().flatten() {
            *figures.allocated.entry(resource.clone()).or_default() += milli;
        }
        let mut room: Vec<(Class<'_>, Amounts)> = Vec::new();
        for (name, node) in &self.nodes {
            if !node.ready || !node.schedulable {
                continue;
            }
            for (resource, milli) in &node.allocatable {
                *figures.allocatable.entry(resource.clone()).or_default() += i128::from(*milli);
            }
            let class = (
                &node.taints[..],
                labels.iter().filter_map(|key| node.labels.get_key_value(key)).collect(),
            );
            room.push((class, self.free(name, node)));
        }
        figures.classes = classes(&room);
        figures.quotas = self.quotas.to_wire();
        figures
    }

    fn free(&self, name: &str, node: &NodeFacts) -> Amounts {
        let used = self.used.get(name);
        node.allocatable
            .iter()
            .map(|(resource, milli)| {
                let used = used.and_then(|used| used.get(resource)).copied().unwrap_or(0);
                // Negative room counts as zero: a node can be overcommitted by pods that it ran before its kubelet
                // reserved more.
                let free = (i128::from(*milli) - used).max(0);
                (resource.clone(), i64::try_from(free).unwrap_or(i64::MAX))
            })
            .collect()
    }
}

/// Taints and the values of the class labels.
type Class<'a> = (&'a [Taint], Vec<(&'a String, &'a String)>);

/// Groups equal free vectors of a class, rounding down as little as needed.
fn classes(room: &[(Class<'_>, Amounts)]) -> Vec<v1::NodeClass> {
    let mut bits = None;
    loop {
        let mut counted: BTreeMap<&Class<'_>, BTreeMap<Amounts, i64>> = BTreeMap::new();
        for (class, free) in room {
            let free = match bits {
                None => free.clone(),
                Some(bits) => free
                    .iter()
                    .map(|(resource, milli)| (resource.clone(), round_down(*milli, bits)))
                    .collect(),
            };
            *counted.entry(class).or_default().entry(free).or_default() += 1;
        }
        if bits == Some(1) || counted.values().map(BTreeMap::len).sum::<usize>() <= MAX_VECTORS {
            return counted.into_iter().map(|(class, free)| to_wire(class, free)).collect();
        }
        bits = Some(bits.map_or(FIRST_BITS, |bits| bits - 1));
    }
}

/// The number with only its most significant bits.
fn round_down(milli: i64, bits: u32) -> i64 {
    let length = i64::BITS - milli.max(0).leading_zeros();
    let drop = length.saturating_sub(bits);
    (milli.max(0) >> drop) << drop
}

fn to_wire(class: &Class<'_>, free: BTreeMap<Amounts, i64>) -> v1::NodeClass {
    v1::NodeClass {
        taints: class
            .0
            .iter()
            .map(|taint| v1::NodeTaint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
            })
            .collect(),
        labels: class.1.iter().map(|(key, value)| ((*key).clone(), (*value).clone())).collect(),
        free: free.into_iter().map(|(milli, nodes)| v1::FreeVector { nodes, milli }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::GroupKind;
    use atoll_api::Jitter;
    use std::time::Duration;

    struct Random(Jitter);

    impl Random {
        fn below(&self, bound: u64) -> i64 {
            let draw = self.0.between(Duration::ZERO, Duration::from_millis(bound - 1));
            i64::try_from(draw.as_millis()).unwrap()
        }
    }

    fn amounts(cpu: i64, memory: i64, pods: i64) -> Amounts {
        [("cpu", cpu), ("memory", memory), ("pods", pods * 1000)]
            .map(|(name, milli)| (name.to_owned(), milli))
            .into()
    }

    fn key(name: &str) -> Key {
        Key {
            kind: GroupKind::new("apps", "Deployment"),
            namespace: "shop".into(),
            name: name.into(),
        }
    }

    fn pod(node: Option<&str>, requests: Amounts, waits_since: Option<i64>) -> PodFacts {
        PodFacts {
            node: node.map(str::to_owned),
            requests,
            unschedulable: waits_since
                .map(|since| Unscheduled { since, reason: format!("since {since}") }),
            fault: None,
            workload: key("web"),
        }
    }

    fn name(name: impl ToString) -> PodName {
        ("shop".to_owned(), name.to_string())
    }

    /// What the scheduler computes from the classes: replicas that fit, node by node.
    fn estimate(figures: &Figures, request: &Amounts) -> i64 {
        let fits = |free: &v1::FreeVector| {
            let each = request
                .iter()
                .map(|(resource, milli)| free.milli.get(resource).copied().unwrap_or(0) / milli);
            free.nodes * each.min().unwrap_or(0)
        };
        figures.classes.iter().flat_map(|class| &class.free).map(fits).sum()
    }

    /// First fit, replica by replica: as replicas are equal, nodes fill up one after the other.
    fn simulate(table: &Table, request: &Amounts) -> i64 {
        let mut placed = 0;
        for (name, node) in table.nodes.iter().filter(|(_, n)| n.ready && n.schedulable) {
            let mut free = table.free(name, node);
            let fits = |free: &Amounts| request.iter().all(|(of, milli)| free[of] >= *milli);
            while fits(&free) {
                for (resource, milli) in request {
                    *free.get_mut(resource).unwrap() -= milli;
                }
                placed += 1;
            }
        }
        placed
    }

    #[test]
    fn the_estimate_is_never_above_a_first_fit_and_hardly_below() {
        let mut off = 0.0;
        for seed in 0..1000 {
            let random = Random(Jitter::new(seed));
            let mut table = Table::default();
            let nodes = 1 + random.below(30);
            for n in 0..nodes {
                let node = NodeFacts {
                    ready: random.below(10) > 0,
                    schedulable: random.below(10) > 0,
                    labels: [("zone".to_owned(), random.below(3).to_string())].into(),
                    allocatable: amounts(
                        1000 * (1 + random.below(64)),
                        (1 << 30) * 1000 * (1 + random.below(64)),
                        10 + random.below(100),
                    ),
                    ..NodeFacts::default()
                };
                table.put_node(&n.to_string(), Some(node));
            }
            for p in 0..random.below(300) {
                let node = random.below(40).to_string();
                let requests = amounts(random.below(4000), random.below(8) * (1 << 30) * 1000, 1);
                table.put_pod(name(p), Some(pod(Some(&node), requests, None)));
            }
            for p in 0..random.below(100) {
                table.put_pod(name(p), None);
            }
            let request = amounts(1 + random.below(3000), (1 + random.below(4096)) << 30, 1);
            let figures = table.figures(&BTreeSet::from(["zone".to_owned()]));
            let (estimated, fitting) = (estimate(&figures, &request), simulate(&table, &request));
            assert!(estimated <= fitting, "seed {seed}: {estimated} of {fitting}");
            off += (fitting - estimated) as f64 / (fitting.max(1)) as f64;
        }
        assert!(off / 1000.0 <= 0.02, "{off}");
    }

    #[test]
    fn many_different_nodes_are_rounded_down_to_few_vectors() {
        let mut table = Table::default();
        for n in 0..5_000_i64 {
            let node = NodeFacts {
                ready: true,
                schedulable: true,
                allocatable: amounts(64_000 - n, (256 << 30) * 1000 - n * 1_000_003, 110),
                ..NodeFacts::default()
            };
            table.put_node(&n.to_string(), Some(node));
        }
        let figures = table.figures(&BTreeSet::new());
        let vectors: usize = figures.classes.iter().map(|class| class.free.len()).sum();
        let nodes: i64 =
            figures.classes.iter().flat_map(|class| &class.free).map(|f| f.nodes).sum();
        assert!(vectors <= MAX_VECTORS, "{vectors}");
        assert_eq!(nodes, 5_000);
        let request = amounts(250, 1 << 30, 1);
        let (estimated, fitting) = (estimate(&figures, &request), simulate(&table, &request));
        assert!(
            estimated <= fitting && estimated * 100 >= fitting * 98,
            "{estimated} of {fitting}"
        );
    }

    #[test]
    fn classes_are_told_apart_by_taints_and_asked_for_labels_only() {
        let mut table = Table::default();
        let node = |zone: &str, host: &str, tainted: bool| NodeFacts {
            ready: true,
            schedulable: true,
            taints: tainted
                .then(|| Taint {
                    key: "gpu".into(),
                    value: String::new(),
                    effect: "NoSchedule".into(),
                })
                .into_iter()
                .collect(),
            labels: [("zone".to_owned(), zone.to_owned()), ("host".to_owned(), host.to_owned())]
                .into(),
            allocatable: amounts(1000, 1000, 10),
        };
        table.put_node("a", Some(node("1", "a", false)));
        table.put_node("b", Some(node("1", "b", false)));
        table.put_node("c", Some(node("2", "c", false)));
        table.put_node("d", Some(node("1", "d", true)));
        table.put_node("e", Some(NodeFacts { schedulable: false, ..node("1", "e", false) }));
        table.put_node("f", Some(NodeFacts { ready: false, ..node("1", "f", false) }));
        let count = |keys: &[&str]| {
            let figures = table.figures(&keys.iter().map(|key| (*key).to_owned()).collect());
            figures
                .classes
                .iter()
                .map(|c| c.free.iter().map(|f| f.nodes).sum())
                .collect::<Vec<i64>>()
        };
        assert_eq!(count(&[]), [3, 1]);
        assert_eq!(count(&["zone"]), [2, 1, 1]);
        let figures = table.figures(&BTreeSet::new());
        assert_eq!((figures.nodes, figures.ready), (6, 5));
        assert_eq!(figures.allocatable["cpu"], 4000);
    }

    #[test]
    fn sums_and_waiting_replicas_follow_the_pods() {
        let mut table = Table::default();
        let ready = NodeFacts {
            ready: true,
            schedulable: true,
            allocatable: amounts(4000, 4000, 10),
            ..NodeFacts::default()
        };
        table.put_node("n", Some(ready));
        table.put_pod(name("a"), Some(pod(Some("n"), amounts(1000, 0, 1), None)));
        table.put_pod(name("b"), Some(pod(None, amounts(500, 0, 1), Some(20))));
        table.put_pod(name("c"), Some(pod(None, amounts(500, 0, 1), Some(10))));
        let waiting = Unschedulable { count: 2, since: 10, reason: "since 10".into() };
        let pods = Pods { unschedulable: Some(waiting), fault: None };
        assert_eq!(table.changed_workloads(), [(key("web"), pods)]);
        assert_eq!(table.changed_workloads(), []);
        let figures = table.figures(&BTreeSet::new());
        assert_eq!((figures.allocated["cpu"], figures.allocating["cpu"]), (1000, 1000));
        assert_eq!(figures.classes[0].free[0].milli, amounts(3000, 4000, 9));
        // One pod is bound, one is deleted.
        table.put_pod(name("b"), Some(pod(Some("n"), amounts(500, 0, 1), None)));
        table.retain_pods(|(_, name)| name != "c");
        assert_eq!(table.changed_workloads(), [(key("web"), Pods::default())]);
        let figures = table.figures(&BTreeSet::new());
        assert_eq!((figures.allocated["cpu"], figures.allocating.len()), (1500, 0));
        table.retain_pods(|_| false);
        assert!(table.used.is_empty() && table.waiting.is_empty() && table.pods.is_empty());
    }

    #[test]
    fn the_fault_of_most_pods_stands_for_a_workload() {
        let mut table = Table::default();
        let fault = |reason: &str| PodFault { reason: reason.into(), message: String::new() };
        let faulty = |reason: &str| PodFacts {
            fault: Some(fault(reason)),
            ..pod(Some("n"), amounts(1, 1, 1), None)
        };
        table.put_pod(name("a"), Some(faulty("B")));
        table.put_pod(name("b"), Some(faulty("A")));
        let told = |table: &mut Table| {
            let changed = table.changed_workloads();
            changed.into_iter().map(|(_, pods)| pods.fault).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut table), [Some(fault("A"))]);
        table.put_pod(name("c"), Some(faulty("B")));
        assert_eq!(told(&mut table), [Some(fault("B"))]);
        table.put_pod(name("d"), Some(pod(Some("n"), amounts(1, 1, 1), None)));
        assert_eq!(told(&mut table), [], "a pod that is well changes nothing");
        table.retain_pods(|(_, name)| name == "d");
        assert_eq!(told(&mut table), [None]);
        assert!(table.faults.is_empty());
    }
}
