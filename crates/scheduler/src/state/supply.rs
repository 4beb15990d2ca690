//! Free capacity of a cluster, and the estimate of how many more replicas fit.

use std::collections::BTreeMap;

use atoll_api::cluster::{Cluster, ResourceModel};
use atoll_api::selector::Requirement;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, Taint, Toleration};
use serde::{Deserialize, Serialize};

use super::needs::{Amounts, Needs, PODS, amount, amounts};

/// Label for anti-affinity between nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label for anti-affinity between zones.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Names the bound if the sizes of the nodes limit the estimate.
const MODELS: &str = "resourceModels";
/// Pods on a modeled node, as Karmada assumes.
const PODS_PER_MODELLED_NODE: i64 = 110;

/// Free room by node, as the agent reports it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Classes of equal nodes.
    pub classes: Vec<NodeClass>,
}

/// Nodes with the same taints and labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeClass {
    /// Taints of the nodes.
    pub taints: Vec<Taint>,
    /// Values of the label keys that templates use.
    pub labels: BTreeMap<String, String>,
    /// Free room. Nodes with equal room are counted together.
    pub free: Vec<FreeVector>,
}

/// Free room, and the number of nodes that have it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FreeVector {
    /// Nodes with exactly this room.
    pub nodes: i64,
    /// Thousandths by resource, including `pods`.
    pub milli: BTreeMap<String, i64>,
}

/// What is known about a cluster's free capacity.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Supply {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Sums over the nodes.
    Summary {
        /// allocatable - allocated - allocating.
        free: Amounts,
        /// Modeled node sizes, if the cluster has them: (nodes, minimum free room).
        models: Vec<(i64, Amounts)>,
    },
    /// Free room per node.
    Nodes(Capacity),
}

/// Room on a cluster once replicas of other bindings have left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freed {
    /// Replicas that leave for this decision: their room is free.
    pub victims: Leavers,
    /// Replicas that leave anyway. Their room may be promised: it only makes up for reservations beyond the free room.
    pub awaited: Leavers,
}

/// Replicas that leave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leavers {
    /// What they request in all, including their pods.
    pub amounts: Amounts,
    /// Replicas of the wanted shape that certainly fit in their places, where free room is known by node.
    pub places: i64,
}

impl Leavers {
    /// Adds replicas, each of which makes room for `places` others.
    pub fn add(&mut self, leaves: &Needs, replicas: i64, places: i64) {
        let each = leaves.requests.iter().map(|(resource, value)| (resource.as_str(), *value));
        for (resource, value) in each.chain([(PODS, 1)]) {
            let sum = self.amounts.entry(resource.to_owned()).or_default();
            *sum = sum.saturating_add(value.saturating_mul(replicas));
        }
        self.places = self.places.saturating_add(replicas.saturating_mul(places));
    }

    fn amount(&self, resource: &str) -> i64 {
        self.amounts.get(resource).copied().unwrap_or(0)
    }
}

/// What is left when replicas leave: see [`Freed`].
fn left_with(left: i64, victims: i64, awaited: i64) -> i64 {
    let left = if left < 0 { left.saturating_add(awaited).min(0) } else { left };
    left.saturating_add(victims)
}

/// How many more replicas fit, and what limits them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Estimate {
    /// Additional replicas that fit. `None` = unknown.
    pub more: Option<i64>,
    /// The resource that runs out first, or another limit. Empty if unknown.
    pub bound: std::borrow::Cow<'static, str>,
}

impl Estimate {
    fn unknown() -> Self {
        Self::default()
    }

    fn of(more: i64, bound: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { more: Some(more), bound: bound.into() }
    }
}

impl Supply {
    /// Reads a cluster's status. The agent's own figures take precedence.
    pub fn read(cluster: &Cluster, live: Option<Capacity>, problems: &mut Vec<String>) -> Self {
        if let Some(capacity) = live {
            return Self::Nodes(capacity);
        }
        let Some(summary) = cluster.status.as_ref().and_then(|s| s.resource_summary.as_ref())
        else {
            return Self::Unknown;
        };
        let mut free = Amounts::new();
        amounts(
            &summary.allocatable,
            "status.resourceSummary.allocatable",
            problems,
            |resource, value| {
                free.insert(resource.clone(), value);
            },
        );
        for (field, used) in [
            ("status.resourceSummary.allocated", &summary.allocated),
            ("status.resourceSummary.allocating", &summary.allocating),
        ] {
            amounts(used, field, problems, |resource, value| match free.get_mut(resource) {
                Some(left) => *left = left.saturating_sub(value),
                None => {
                    free.insert(resource.clone(), 0_i64.saturating_sub(value));
                }
            });
        }
        let models = summary
            .allocatable_modelings
            .iter()
            .filter_map(|of| {
                let model = cluster.spec.resource_models.iter().find(|m| m.grade == of.grade)?;
                Some((of.count.max(0), least(model, problems)))
            })
            .collect();
        Self::Summary { free, models }
    }

    /// How many more replicas fit, given the existing reservations.
    #[must_use]
    pub fn estimate(&self, needs: &Needs, reserved: &Amounts) -> Estimate {
        self.estimate_with(needs, reserved, &Freed::default())
    }

    /// How many more replicas fit once other replicas have left.
    #[must_use]
    pub fn estimate_with(&self, needs: &Needs, reserved: &Amounts, freed: &Freed) -> Estimate {
        match self {
            Self::Unknown => Estimate::unknown(),
            Self::Summary { free, models } => {
                let left = |resource: &str| {
                    let reserved = reserved.get(resource).copied().unwrap_or(0);
                    let (victims, awaited) = (&freed.victims, &freed.awaited);
                    let left = free.get(resource)?.saturating_sub(reserved);
                    Some(left_with(left, victims.amount(resource), awaited.amount(resource)))
                };
                let mut best = left(PODS).map(|pods| (pods.max(0), PODS));
                for (resource, request) in &needs.requests {
                    let fits = left(resource).unwrap_or(0).max(0) / request;
                    if best.is_none_or(|(most, _)| fits < most) {
                        best = Some((fits, resource));
                    }
                }
                if !models.is_empty() && needs.given {
                    let fits = fits_models(models, needs)
                        .saturating_sub(reserved_replicas(needs, reserved))
                        .max(0);
                    if best.is_none_or(|(most, _)| fits < most) {
                        best = Some((fits, MODELS));
                    }
                }
                match best {
                    Some((most, bound)) => Estimate::of(most, bound.to_owned()),
                    None => Estimate::unknown(),
                }
            }
            Self::Nodes(capacity) => capacity.estimate(needs, reserved, freed),
        }
    }

    /// How many replicas of this shape certainly fit in the place of one running replica that leaves. Where free room is
    /// known by node, the node that it leaves must admit the new ones, and only its own place counts.
    #[must_use]
    pub fn in_place_of(&self, needs: &Needs, leaves: &Needs) -> i64 {
        let Self::Nodes(capacity) = self else { return 0 };
        let claim = needs.node.clone().unwrap_or_default();
        let admitted =
            needs.node == leaves.node || capacity.classes.iter().all(|c| c.admits(&claim));
        if !admitted || !claim.self_anti_affinity.is_empty() {
            return 0;
        }
        let each = |(resource, request): (&String, &i64)| {
            leaves.requests.get(resource).copied().unwrap_or(0) / request
        };
        needs.requests.iter().map(each).min().unwrap_or(1).max(0)
    }

    /// Karmada's estimate from sums (`pkg/estimator/client/general.go`). A missing summary, pod count or resource
    /// counts as no room. If node sizes are modeled, only they and the pods count.
    #[must_use]
    pub fn estimate_as_karmada(&self, needs: &Needs) -> Estimate {
        match self {
            Self::Unknown => Estimate::of(0, "resourceSummary"),
            Self::Summary { free, .. } if free.get(PODS).copied().unwrap_or(0) <= 0 => {
                Estimate::of(0, PODS)
            }
            Self::Summary { free, models } if !models.is_empty() && needs.given => {
                let pods = free.get(PODS).copied().unwrap_or(0);
                match fits_models(models, needs) {
                    fits if fits < pods => Estimate::of(fits, MODELS),
                    _ => Estimate::of(pods, PODS),
                }
            }
            Self::Summary { .. } | Self::Nodes(_) => self.estimate(needs, &Amounts::new()),
        }
    }
}

fn least(model: &ResourceModel, problems: &mut Vec<String>) -> Amounts {
    let mut read = Amounts::new();
    for range in &model.ranges {
        match amount(&range.name, &range.min) {
            Ok(min) => {
                read.insert(range.name.clone(), min);
            }
            Err(error) => problems.push(format!(
                "spec.resourceModels[grade {}].{}.min: {error}",
                model.grade, range.name
            )),
        }
    }
    read
}

/// Replicas that fit on all modeled nodes.
fn fits_models(models: &[(i64, Amounts)], needs: &Needs) -> i64 {
    let fits = models.iter().map(|(nodes, least)| nodes.saturating_mul(per_node(least, needs)));
    fits.fold(0, i64::saturating_add)
}

/// Replicas that fit on one modeled node.
fn per_node(free: &Amounts, needs: &Needs) -> i64 {
    needs
        .requests
        .iter()
        .map(|(resource, request)| free.get(resource).copied().unwrap_or(0).max(0) / request)
        .fold(PODS_PER_MODELLED_NODE, i64::min)
}

impl Supply {
    /// A resource of which less is left in all than these amounts; `None` if all are there, or nothing is known.
    #[must_use]
    pub fn lacks<'a>(&self, wanted: &'a Amounts, reserved: &Amounts) -> Option<&'a str> {
        let free = match self {
            Self::Unknown => return None,
            Self::Summary { free, .. } => free.clone(),
            Self::Nodes(capacity) => capacity.total(),
        };
        let left = |resource: &str| {
            let promised = reserved.get(resource).copied().unwrap_or(0);
            free.get(resource).map(|free| free.saturating_sub(promised))
        };
        let short = |(resource, amount): &(&String, &i64)| match left(resource) {
            Some(left) => left < **amount,
            // Members may not report pods; another resource that they do not report does not exist there.
            None => *resource != PODS && **amount > 0,
        };
        wanted.iter().find(short).map(|(resource, _)| resource.as_str())
    }

    /// Most replicas, including running ones, that pod anti-affinity allows here: one per usable node or zone. `None` =
    /// no such anti-affinity, or the nodes are unknown.
    #[must_use]
    pub fn most_apart(&self, needs: &Needs) -> Option<i64> {
        let Self::Nodes(capacity) = self else { return None };
        let claim = needs.node.as_ref()?;
        let classes = || capacity.classes.iter().filter(|class| class.admits(claim));
        let nodes = || classes().flat_map(|class| &class.free).map(|free| free.nodes.max(0));
        let domains = |key: &String| match key.as_str() {
            HOSTNAME => nodes().fold(0, i64::saturating_add),
            key => {
                let values: std::collections::BTreeSet<_> =
                    classes().filter_map(|class| class.labels.get(key)).collect();
                values.len() as i64
            }
        };
        claim.self_anti_affinity.iter().map(domains).min()
    }
}

impl Capacity {
    /// Free room of all nodes together.
    fn total(&self) -> Amounts {
        let mut total = Amounts::new();
        for vector in self.classes.iter().flat_map(|class| &class.free) {
            for (resource, milli) in &vector.milli {
                let each = if resource == "cpu" { *milli } else { milli / 1000 };
                let sum = total.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(each.max(0).saturating_mul(vector.nodes.max(0)));
            }
        }
        total
    }

    fn estimate(&self, needs: &Needs, reserved: &Amounts, freed: &Freed) -> Estimate {
        let claim = needs.node.clone().unwrap_or_default();
        let apart_by_node = claim.self_anti_affinity.iter().any(|key| key == HOSTNAME);
        let (mut fits, mut nodes) = (0_i64, 0_i64);
        let (mut any_class, mut short): (bool, BTreeMap<&str, i64>) = (false, BTreeMap::new());
        let mut domains: BTreeMap<&str, std::collections::BTreeSet<&str>> = BTreeMap::new();
        for class in self.classes.iter().filter(|class| class.admits(&claim)) {
            any_class = true;
            for vector in &class.free {
                let count = vector.nodes.max(0);
                let (each, bound) = vector.fits(needs);
                let each = if apart_by_node { each.min(1) } else { each };
                nodes = nodes.saturating_add(count);
                fits = fits.saturating_add(each.saturating_mul(count));
                let seen = short.entry(bound).or_default();
                *seen = seen.saturating_add(count);
                if each > 0 && count > 0 {
                    for (key, value) in &class.labels {
                        domains.entry(key).or_default().insert(value);
                    }
                }
            }
        }
        if !any_class {
            return Estimate::of(
                0,
                "no node matches the pod's node selector, affinity and tolerations",
            );
        }
        // Reserved replicas are not on any node yet, so they are subtracted as replicas of this shape.
        let promised = reserved_replicas(needs, reserved);
        let mut bound: std::borrow::Cow<'static, str> = short
            .iter()
            .max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)))
            .map_or_else(|| PODS.into(), |(name, _)| (*name).to_owned().into());
        let mut most = fits;
        if apart_by_node && most == nodes {
            bound = HOSTNAME.into();
        }
        for key in claim.self_anti_affinity.iter().filter(|key| *key != HOSTNAME) {
            let apart = domains.get(key.as_str()).map_or(0, |values| values.len() as i64);
            if apart < most {
                most = apart;
                bound = if key == ZONE { ZONE.into() } else { key.clone().into() };
            }
        }
        let left = most.saturating_sub(promised);
        let left = left_with(left, freed.victims.places, freed.awaited.places);
        Estimate::of(left.max(0), bound)
    }
}

/// Number of replicas of this shape that the reserved amounts correspond to: the maximum over resources, rounded up.
fn reserved_replicas(needs: &Needs, reserved: &Amounts) -> i64 {
    let by_resource = needs
        .requests
        .iter()
        .filter_map(|(resource, request)| Some((reserved.get(resource)?, request)))
        .map(|(held, request)| held.div_euclid(*request) + i64::from(held.rem_euclid(*request) > 0))
        .max();
    by_resource.unwrap_or_else(|| reserved.get(PODS).copied().unwrap_or(0)).max(0)
}

impl FreeVector {
    fn fits<'a>(&'a self, needs: &'a Needs) -> (i64, &'a str) {
        let mut best = match self.milli.get_key_value(PODS) {
            Some((name, pods)) => ((pods / 1000).max(0), name.as_str()),
            None => (i64::MAX, PODS),
        };
        for (resource, request) in &needs.requests {
            let free = self.milli.get(resource).copied().unwrap_or(0).max(0);
            let unit = if resource == "cpu" { free } else { free / 1000 };
            if unit / request < best.0 {
                best = (unit / request, resource);
            }
        }
        best
    }
}

impl NodeClass {
    fn admits(&self, claim: &NodeClaimRef) -> bool {
        claim.node_selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            && claim.hard_node_affinity.as_ref().is_none_or(|s| selects(s, &self.labels))
            && self
                .taints
                .iter()
                .filter(|taint| taint.effect != "PreferNoSchedule")
                .all(|taint| claim.tolerations.iter().any(|t| tolerates(t, taint)))
    }
}

type NodeClaimRef = atoll_api::binding::NodeClaim;

/// Whether the toleration tolerates the taint, like Kubernetes' `ToleratesTaint`.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given =
        |text: &Option<String>| text.as_deref().filter(|t| !t.is_empty()).map(str::to_owned);
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if given(&toleration.key).is_some_and(|key| key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            given(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        Some("Exists") => true,
        Some(_) => false,
    }
}

/// Whether a node selector matches these labels. Its terms are alternatives.
fn selects(selector: &NodeSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        // Node names are not reported per class, so a term on fields cannot be evaluated and does not exclude nodes.
        (!expressions.is_empty() || term.match_fields.is_some())
            && expressions.iter().all(|expression| accepts(expression, labels))
    })
}

fn accepts(expression: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = expression.values.as_deref().unwrap_or_default();
    let value = labels.get(&expression.key).map(String::as_str);
    Requirement::parse_node(&expression.key, &expression.operator, values)
        .is_ok_and(|requirement| requirement.accepts(value))
}
