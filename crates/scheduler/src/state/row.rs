//! A cluster as the scheduler uses it. Parsed once, when the Cluster or its figures change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::cluster::{ApiEnablement, SessionState};
use atoll_api::{Cluster, ClusterName, conditions};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use super::needs::Amounts;
use super::supply::{Capacity, Supply};

/// Whether the member's agent has a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Session {
    /// The agent is connected.
    Connected,
    /// The agent was connected and is not any more.
    Lost,
    /// Unknown. The cluster is not rejected for it.
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

/// The Ready condition of a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Ready {
    /// There is no such condition. The cluster is not rejected for it.
    #[default]
    Unsaid,
    /// Not ready, or unknown.
    No,
    /// Ready since this time.
    Since(Timestamp),
}

impl Ready {
    fn read(cluster: &Cluster) -> Self {
        let held = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        match conditions::find(held.unwrap_or_default(), conditions::READY) {
            None => Self::Unsaid,
            Some(ready) if ready.status == "True" => Self::Since(ready.last_transition_time.0),
            Some(_) => Self::No,
        }
    }
}

/// Facts about a member that are not in its Cluster object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LiveCluster {
    /// The agent's session.
    pub session: Session,
    /// Free room by node. `None` = use `Cluster.status`.
    pub capacity: Option<Capacity>,
}

impl LiveCluster {
    /// Reads the session from the Cluster's status, for readers without sessions.
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
    pub name: ClusterName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Field `provider`.
    pub provider: Option<String>,
    /// Field `region`.
    pub region: Option<String>,
    /// Field `zones`.
    pub zones: Vec<String>,
    /// Its taints. A taint without `timeAdded` has the time when it was first seen, if known.
    pub taints: Vec<Taint>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The agent's session.
    pub session: Session,
    /// Whether the member is Ready, and since when.
    pub ready: Ready,
    /// The kinds that it serves.
    pub apis: Arc<Apis>,
    /// Its capacity.
    pub supply: Supply,
    /// Reservations of decisions that the member does not report yet.
    pub reserved: Amounts,
    /// Problems found while reading the Cluster.
    pub problems: Vec<String>,
}

/// The kinds that a member serves.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Apis {
    /// (group/version, kinds), in the order of the status.
    listed: Vec<(String, Vec<String>)>,
}

impl Apis {
    fn read(enabled: &[ApiEnablement]) -> Self {
        let kinds = |of: &ApiEnablement| of.resources.iter().map(|r| r.kind.clone()).collect();
        Self { listed: enabled.iter().map(|of| (of.group_version.clone(), kinds(of))).collect() }
    }

    /// Whether this equals the status list, in the same order.
    fn is_of(&self, enabled: &[ApiEnablement]) -> bool {
        self.listed.len() == enabled.len()
            && self.listed.iter().zip(enabled).all(|((group_version, kinds), of)| {
                *group_version == of.group_version
                    && kinds.iter().eq(of.resources.iter().map(|resource| &resource.kind))
            })
    }

    /// Pairs of (group/version, kind), in the order of the status.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.listed.iter().flat_map(|(group_version, kinds)| {
            kinds.iter().map(move |kind| (group_version.as_str(), kind.as_str()))
        })
    }

    /// Whether the kind is served.
    #[must_use]
    pub fn serves(&self, api_version: &str, kind: &str) -> bool {
        let of = self.listed.iter().filter(|(group_version, _)| group_version == api_version);
        of.into_iter().any(|(_, kinds)| kinds.iter().any(|served| served == kind))
    }
}

impl PartialEq for Apis {
    fn eq(&self, other: &Self) -> bool {
        self.listed == other.listed
            || self.iter().collect::<BTreeSet<_>>() == other.iter().collect::<BTreeSet<_>>()
    }
}

/// Kubernetes' label for a region.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Kubernetes' label for a zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

impl Row {
    /// Reads a Cluster. Equal parts are shared with the previous row.
    #[must_use]
    pub fn read(cluster: &Cluster, live: LiveCluster, before: Option<&Self>) -> Self {
        let mut problems = Vec::new();
        let supply = Supply::read(cluster, live.capacity, &mut problems);
        let enabled = cluster.status.as_ref().map_or(&[][..], |s| &s.api_enablements);
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        Self {
            name: match before {
                Some(before) => before.name.clone(),
                None => cluster.metadata.name.as_deref().unwrap_or_default().into(),
            },
            labels: cluster.metadata.labels.clone().unwrap_or_default(),
            provider: given(&cluster.spec.provider),
            region: given(&cluster.spec.region),
            zones: cluster.spec.zones.iter().filter(|zone| !zone.is_empty()).cloned().collect(),
            taints: cluster.dated_taints(),
            terminating: cluster.metadata.deletion_timestamp.is_some(),
            session: live.session,
            ready: Ready::read(cluster),
            apis: match before.filter(|before| before.apis.is_of(enabled)) {
                Some(before) => before.apis.clone(),
                None => Arc::new(Apis::read(enabled)),
            },
            supply,
            reserved: Amounts::new(),
            problems,
        }
    }

    /// The cluster's domain for a topology key: the value of the label with that name, otherwise of the matching field.
    /// A cluster in several zones is a domain of its own, `a+b`, because its replicas may run in either zone.
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
