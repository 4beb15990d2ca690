//! One cluster as the scheduler sees it: parsed once, when the Cluster or its figures change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::cluster::SessionState;
use atoll_api::{Cluster, conditions};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use super::needs::Amounts;
use super::supply::{Capacity, Supply};

/// Whether the member's agent has a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Session {
    /// It is connected.
    Connected,
    /// It was, and is not.
    Lost,
    /// Nobody knows; nothing is held against the cluster.
    #[default]
    Unknown,
}

impl From<SessionState> for Session {
    fn from(state: SessionState) -> Self {
        match state {
            SessionState::Connected => Self::Connected,
            SessionState::Lost => Self::Lost,
            SessionState::Unknown => Self::Unknown,
        }
    }
}

/// What is known of a member beyond its Cluster object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LiveCluster {
    /// The agent's session.
    pub session: Session,
    /// Free room by node. `None` = `Cluster.status` says what is known.
    pub capacity: Option<Capacity>,
}

impl LiveCluster {
    /// What the status of a Cluster itself says, for readers that have no sessions.
    #[must_use]
    pub fn from_status(cluster: &Cluster) -> Self {
        let state = cluster.status.as_ref().and_then(|s| s.session.as_ref()).map(|s| s.state);
        Self { session: state.map_or(Session::Unknown, Session::from), capacity: None }
    }
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// Name of the Cluster.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Field `provider`.
    pub provider: Option<String>,
    /// Field `region`.
    pub region: Option<String>,
    /// Field `zones`.
    pub zones: Vec<String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The agent's session.
    pub session: Session,
    /// Since when the member is Ready; `None` while it is not, or nobody says.
    pub ready_since: Option<Timestamp>,
    /// (group/version, kind) that it serves.
    pub apis: Arc<BTreeSet<(String, String)>>,
    /// Its room.
    pub supply: Supply,
    /// What decisions promised there and the member does not report yet.
    pub reserved: Amounts,
    /// What could not be read.
    pub problems: Vec<String>,
}

/// The label by which Kubernetes names a region.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// The label by which Kubernetes names a zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

impl Row {
    /// Reads a Cluster.
    #[must_use]
    pub fn read(cluster: &Cluster, live: LiveCluster) -> Self {
        let mut problems = Vec::new();
        let supply = Supply::read(cluster, live.capacity, &mut problems);
        let apis = cluster.status.iter().flat_map(|s| &s.api_enablements).flat_map(|enabled| {
            let group_version = enabled.group_version.clone();
            enabled.resources.iter().map(move |r| (group_version.clone(), r.kind.clone()))
        });
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        Self {
            name: cluster.metadata.name.clone().unwrap_or_default().into(),
            labels: cluster.metadata.labels.clone().unwrap_or_default(),
            provider: given(&cluster.spec.provider),
            region: given(&cluster.spec.region),
            zones: cluster.spec.zones.iter().filter(|zone| !zone.is_empty()).cloned().collect(),
            taints: cluster.spec.taints.clone(),
            terminating: cluster.metadata.deletion_timestamp.is_some(),
            session: live.session,
            ready_since: cluster
                .status
                .as_ref()
                .and_then(|status| conditions::find(&status.conditions, conditions::READY))
                .filter(|ready| ready.status == "True")
                .map(|ready| ready.last_transition_time.0),
            apis: Arc::new(apis.collect()),
            supply,
            reserved: Amounts::new(),
            problems,
        }
    }

    /// The cluster's domain under a topology key: a label of that name, else the field that the key stands for.
    /// A cluster in several zones is a domain of its own, `a+b`: its replicas may run in either.
    #[must_use]
    pub fn domain(&self, key: &str) -> Option<std::borrow::Cow<'_, str>> {
        if let Some(value) = self.labels.get(key) {
            return Some(value.into());
        }
        match key {
            "cluster" => Some((&*self.name).into()),
            "provider" => self.provider.as_deref().map(Into::into),
            "region" | REGION_LABEL => self.region.as_deref().map(Into::into),
            "zone" | ZONE_LABEL => match self.zones.as_slice() {
                [] => None,
                [zone] => Some(zone.into()),
                zones => Some(zones.join("+").into()),
            },
            _ => None,
        }
    }
}
