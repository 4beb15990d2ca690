//! Which behaviours must look at which objects after a change.

use std::collections::BTreeSet;

use crate::index::fields::selector;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::{Change, Index};
use crate::writes::Writer;

/// One behaviour. The order is the order of work: Pods first, so that simultaneous changes of several Pods lead to one
/// report of their owner; then owners from the bottom up, so that the Pods of a shrunken ReplicaSet are deleted before
/// their Deployment scales another set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concern {
    /// A namespace's default ServiceAccount.
    ServiceAccount,
    /// A node: status, heartbeat, taints, eviction.
    Node,
    /// A PersistentVolumeClaim and its volume.
    Volume,
    /// All Pods without a node, in one task with an empty key.
    Scheduler,
    /// A Pod on its node.
    Kubelet,
    ReplicaSet,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    /// A Service's endpoints and load balancer.
    Service,
}

impl Concern {
    /// The real component that this behaviour simulates.
    pub(crate) fn writer(self) -> Writer {
        match self {
            Self::Scheduler => Writer::Scheduler,
            Self::Kubelet => Writer::Kubelet,
            _ => Writer::ControllerManager,
        }
    }

    /// The controller that owns objects with a controller reference to this kind.
    fn of_owner(kind: &str) -> Option<Self> {
        match kind {
            "Deployment" => Some(Self::Deployment),
            "ReplicaSet" => Some(Self::ReplicaSet),
            "StatefulSet" => Some(Self::StatefulSet),
            "DaemonSet" => Some(Self::DaemonSet),
            "Job" => Some(Self::Job),
            "CronJob" => Some(Self::CronJob),
            _ => None,
        }
    }

    /// The concern whose object is of this kind.
    fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Namespace | Kind::ServiceAccount => Some(Self::ServiceAccount),
            Kind::Node => Some(Self::Node),
            Kind::PersistentVolumeClaim => Some(Self::Volume),
            Kind::Service => Some(Self::Service),
            Kind::Deployment => Some(Self::Deployment),
            Kind::ReplicaSet => Some(Self::ReplicaSet),
            Kind::StatefulSet => Some(Self::StatefulSet),
            Kind::DaemonSet => Some(Self::DaemonSet),
            Kind::Job => Some(Self::Job),
            Kind::CronJob => Some(Self::CronJob),
            Kind::Pod | Kind::PersistentVolume | Kind::EndpointSlice | Kind::ControllerRevision => {
                None
            }
        }
    }
}

/// A behaviour and the object it must look at.
pub(crate) type Task = (Concern, Key);

/// Adds the tasks that this change causes.
pub(crate) fn concerned(index: &Index, change: &Change, tasks: &mut BTreeSet<Task>) {
    let Some(latest) = change.latest() else { return };
    if let Some(concern) = Concern::of_kind(latest.kind) {
        let key = match latest.kind {
            Kind::ServiceAccount => Key::cluster(&latest.key.namespace),
            _ => latest.key.clone(),
        };
        tasks.insert((concern, key));
    }
    for side in change.sides() {
        tasks.extend(owner_of(side));
    }
    match latest.kind {
        Kind::Pod => pod(index, change, latest, tasks),
        Kind::Node => node(index, change, latest, tasks),
        Kind::ReplicaSet => adopters(index, change, &[Kind::Deployment], tasks),
        Kind::PersistentVolumeClaim => wake_scheduler(index, tasks),
        Kind::PersistentVolume => {
            let claim = |field| latest.text(field).unwrap_or_default();
            let key = Key::new(claim("/spec/claimRef/namespace"), claim("/spec/claimRef/name"));
            tasks.insert((Concern::Volume, key));
        }
        Kind::EndpointSlice => {
            if let Some(service) = latest.label("kubernetes.io/service-name") {
                tasks.insert((Concern::Service, Key::new(&latest.key.namespace, service)));
            }
        }
        _ => {}
    }
}

fn owner_of(object: &Object) -> Option<Task> {
    let owner = object.controller()?;
    Some((Concern::of_owner(&owner.kind)?, Key::new(&object.key.namespace, &owner.name)))
}

fn pod(index: &Index, change: &Change, latest: &Object, tasks: &mut BTreeSet<Task>) {
    adopters(index, change, &[Kind::ReplicaSet, Kind::StatefulSet, Kind::DaemonSet], tasks);
    if let Some(new) = &change.new {
        if new.pod().node.is_some() || new.is_deleting() {
            tasks.insert((Concern::Kubelet, new.key.clone()));
        }
    } else if let Some(set) = latest.controller().and_then(|owner| {
        index.get(Kind::ReplicaSet, &Key::new(&latest.key.namespace, &owner.name))
    }) {
        // The strategy Recreate waits until the old Pods are gone, which no ReplicaSet's status shows.
        tasks.extend(owner_of(set));
    }
    if let Some(node) = change.new.as_ref().and_then(|new| new.pod().node.as_deref()) {
        // A taint that existed before the Pod evicts it as well.
        let key = Key::cluster(node);
        if index.get(Kind::Node, &key).is_some_and(|node| !node.list("/spec/taints").is_empty()) {
            tasks.insert((Concern::Node, key));
        }
    }
    let holds = |side: &Object| side.pod().node.is_some() && !side.pod().is_finished();
    let freed =
        change.old.as_deref().is_some_and(holds) && !change.new.as_deref().is_some_and(holds);
    let waits = change.new.as_ref().is_some_and(|new| new.pod().node.is_none());
    if freed || waits {
        wake_scheduler(index, tasks);
    }
    for service in index.in_namespace(Kind::Service, &latest.key.namespace) {
        let selects = |side: &Object| crate::network::selects(service, side);
        if change.sides().any(|side| selects(side)) {
            tasks.insert((Concern::Service, service.key.clone()));
        }
    }
}

fn node(index: &Index, change: &Change, latest: &Object, tasks: &mut BTreeSet<Task>) {
    // No behaviour depends on heartbeats.
    let matters = |side: &Object| {
        (
            side.labels().clone(),
            side.annotations().clone(),
            side.data.get("spec").cloned(),
            side.data.pointer("/status/allocatable").cloned(),
        )
    };
    if change.old.as_deref().map(matters) == change.new.as_deref().map(matters) {
        return;
    }
    tasks.extend(index.all(Kind::DaemonSet).map(|set| (Concern::DaemonSet, set.key.clone())));
    tasks.extend(index.on_node(&latest.key.name).map(|pod| (Concern::Kubelet, pod.key.clone())));
    wake_scheduler(index, tasks);
}

fn wake_scheduler(index: &Index, tasks: &mut BTreeSet<Task>) {
    if index.unbound().next().is_some() {
        tasks.insert((Concern::Scheduler, Key::default()));
    }
}

/// Workloads that may adopt an object without a controller, because their selector matches it.
fn adopters(index: &Index, change: &Change, kinds: &[Kind], tasks: &mut BTreeSet<Task>) {
    let Some(orphan) = change.new.as_ref().filter(|new| new.controller().is_none()) else {
        return;
    };
    for kind in kinds {
        for candidate in index.in_namespace(*kind, &orphan.key.namespace) {
            let matches = selector(&candidate.data, "/spec/selector")
                .is_some_and(|selector| selector.matches(orphan.labels()));
            if matches && let Some(concern) = Concern::of_kind(*kind) {
                tasks.insert((concern, candidate.key.clone()));
            }
        }
    }
}
