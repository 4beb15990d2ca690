//! The objects' form. Fields are only added; a reader takes a missing one as empty.

use std::borrow::Cow;
use std::collections::BTreeMap;

use atoll_api::binding::{Component, ReplicaRequirements, TargetCluster};
use atoll_api::{ClusterName, Few, PodLabels};
use atoll_decision::BindingKey;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::request::Request;
use crate::state::affinity_group::Membership;
use crate::state::row::{Apis, Ready, Row, Session};
use crate::state::standing::{Links, Standing};
use crate::state::tables::BindingFacts;

/// A value as JSON text.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("inputs are plain values with text keys")
}

#[derive(Serialize)]
pub(super) struct StoredRequest<'a> {
    pub(super) snapshot: u64,
    pub(super) request: &'a Request,
}

#[derive(Deserialize)]
pub(super) struct ReadRequest {
    pub(super) snapshot: u64,
    pub(super) request: Request,
}

/// A cluster without its room and reservations.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredCluster<'a> {
    labels: Cow<'a, BTreeMap<String, String>>,
    provider: Option<Cow<'a, str>>,
    region: Option<Cow<'a, str>>,
    zones: Cow<'a, [String]>,
    taints: Cow<'a, [Taint]>,
    terminating: bool,
    session: Session,
    ready: Ready,
    apis: Cow<'a, Apis>,
    problems: Cow<'a, [String]>,
}

impl<'a> From<&'a Row> for StoredCluster<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            labels: Cow::Borrowed(&row.labels),
            provider: row.provider.as_deref().map(Cow::Borrowed),
            region: row.region.as_deref().map(Cow::Borrowed),
            zones: Cow::Borrowed(&row.zones),
            taints: Cow::Borrowed(&row.taints),
            terminating: row.terminating,
            session: row.session,
            ready: row.ready,
            apis: Cow::Borrowed(&row.apis),
            problems: Cow::Borrowed(&row.problems),
        }
    }
}

impl StoredCluster<'_> {
    /// The row, without room and reservations.
    pub(super) fn read(self, name: &str) -> Row {
        Row {
            name: name.into(),
            labels: self.labels.into_owned(),
            provider: self.provider.map(Cow::into_owned),
            region: self.region.map(Cow::into_owned),
            zones: self.zones.into_owned(),
            taints: self.taints.into_owned(),
            terminating: self.terminating,
            session: self.session,
            ready: self.ready,
            apis: self.apis.into_owned().into(),
            problems: self.problems.into_owned(),
            ..Row::default()
        }
    }
}

/// What others see of a binding.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredBinding<'a> {
    key: Cow<'a, BindingKey>,
    pod_labels: Cow<'a, PodLabels>,
    requirements: Option<Cow<'a, ReplicaRequirements>>,
    components: Cow<'a, [Component]>,
    groups: Cow<'a, [Membership]>,
    priority: i32,
    preemptible: bool,
    links: Option<Cow<'a, Links>>,
    shares: Cow<'a, [TargetCluster]>,
    reported: Cow<'a, Few<ClusterName, i64>>,
}

impl<'a> From<&'a BindingFacts> for StoredBinding<'a> {
    fn from(facts: &'a BindingFacts) -> Self {
        Self {
            key: Cow::Borrowed(&facts.key),
            pod_labels: Cow::Borrowed(&facts.pod_labels),
            requirements: facts.requirements.as_deref().map(Cow::Borrowed),
            components: Cow::Borrowed(&facts.components),
            groups: Cow::Borrowed(&facts.groups),
            priority: facts.standing.priority,
            preemptible: facts.standing.preemptible,
            links: facts.standing.links.as_deref().map(Cow::Borrowed),
            shares: Cow::Borrowed(&facts.shares),
            reported: Cow::Borrowed(&facts.reported),
        }
    }
}

impl From<StoredBinding<'_>> for BindingFacts {
    fn from(stored: StoredBinding<'_>) -> Self {
        Self {
            key: stored.key.into_owned(),
            pod_labels: stored.pod_labels.into_owned().into(),
            requirements: stored.requirements.map(|needs| needs.into_owned().into()),
            components: stored.components.into_owned().into(),
            groups: stored.groups.into_owned().into(),
            standing: Standing {
                priority: stored.priority,
                preemptible: stored.preemptible,
                links: stored.links.map(|links| links.into_owned().into()),
            },
            shares: stored.shares.into_owned(),
            reported: stored.reported.into_owned(),
        }
    }
}
