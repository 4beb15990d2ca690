//! Configuration of a member.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::Clock;
use atoll_api::quantity::{Quantity, QuantityError};
use k8s_openapi::api::core::v1::Taint;

/// How long containers take to start, unless an annotation says otherwise: long enough to observe, short enough to wait
/// for.
pub const READY_AFTER: Duration = Duration::from_secs(2);
/// How long containers take to stop, unless an annotation says otherwise.
pub const STOP_AFTER: Duration = Duration::from_secs(1);
/// How long the Pods of Jobs run, unless an annotation says otherwise.
pub const JOB_DURATION: Duration = Duration::from_secs(5);
/// Nodes of a standard member.
pub const STANDARD_NODES: usize = 3;

/// Capacity of a node. All of it is allocatable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Processor time, for example `8` or `1500m`.
    pub cpu: Quantity,
    /// Memory, for example `32Gi`.
    pub memory: Quantity,
    /// Maximum number of Pods.
    pub pods: u32,
    /// Local disk, for example `100Gi`.
    pub ephemeral_storage: Quantity,
}

impl Default for NodeCapacity {
    /// The node of a standard member: cpu 8, memory 32Gi, pods 110, ephemeral-storage 100Gi.
    fn default() -> Self {
        Self {
            cpu: Quantity::new("8"),
            memory: Quantity::new("32Gi"),
            pods: 110,
            ephemeral_storage: Quantity::new("100Gi"),
        }
    }
}

impl NodeCapacity {
    /// Checks the quantities; the error names the first invalid resource.
    pub(crate) fn check(&self) -> Result<(), (&'static str, QuantityError)> {
        for (name, quantity) in [
            ("cpu", &self.cpu),
            ("memory", &self.memory),
            ("ephemeral-storage", &self.ephemeral_storage),
        ] {
            quantity.milli().map_err(|error| (name, error))?;
        }
        Ok(())
    }
}

/// A node that the member registers when it starts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeOptions {
    /// Its name.
    pub name: String,
    /// Its capacity. An existing node of this name gets this capacity too, as a resized machine would.
    pub capacity: NodeCapacity,
    /// Labels in addition to those that every kubelet sets, for example a zone.
    pub labels: BTreeMap<String, String>,
    /// Taints at registration; not restored on an existing node.
    pub taints: Vec<Taint>,
}

impl NodeOptions {
    /// A standard node of this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Configuration of a simulated member.
#[derive(Debug, Clone)]
pub struct MemberOptions {
    /// Its name: used in annotations and as a prefix of its nodes' names.
    pub name: String,
    /// Nodes that it registers.
    pub nodes: Vec<NodeOptions>,
    /// Default [`READY_AFTER`].
    pub ready_after: Duration,
    /// Default [`STOP_AFTER`].
    pub stop_after: Duration,
    /// Default [`JOB_DURATION`].
    pub job_duration: Duration,
    /// Time of day. It must follow `tokio::time`, which the member uses for sleeping.
    pub clock: Clock,
    /// Seed of generated names.
    pub seed: u64,
}

impl MemberOptions {
    /// A member of [`STANDARD_NODES`] standard nodes, `NAME-node1` and so on, each in a zone of its own.
    #[must_use]
    pub fn standard(name: impl Into<String>, clock: Clock) -> Self {
        let name = name.into();
        let nodes = (1..=STANDARD_NODES)
            .map(|number| NodeOptions {
                labels: BTreeMap::from([(
                    "topology.kubernetes.io/zone".to_owned(),
                    format!("zone{number}"),
                )]),
                ..NodeOptions::named(format!("{name}-node{number}"))
            })
            .collect();
        Self {
            name,
            nodes,
            ready_after: READY_AFTER,
            stop_after: STOP_AFTER,
            job_duration: JOB_DURATION,
            clock,
            seed: 0,
        }
    }
}

/// The part of the options that behaviours read.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) member: String,
    pub(crate) seed: u64,
    pub(crate) ready_after: Duration,
    pub(crate) stop_after: Duration,
    pub(crate) job_duration: Duration,
    pub(crate) default_capacity: NodeCapacity,
    capacities: BTreeMap<String, NodeCapacity>,
}

impl Settings {
    pub(crate) fn of(options: &MemberOptions) -> Self {
        Self {
            member: options.name.clone(),
            seed: options.seed,
            ready_after: options.ready_after,
            stop_after: options.stop_after,
            job_duration: options.job_duration,
            default_capacity: NodeCapacity::default(),
            capacities: options
                .nodes
                .iter()
                .map(|node| (node.name.clone(), node.capacity.clone()))
                .collect(),
        }
    }

    /// The configured capacity of a node; `None` for nodes created by others.
    pub(crate) fn capacity_of(&self, node: &str) -> Option<&NodeCapacity> {
        self.capacities.get(node)
    }
}
