//! Groups of workloads for `placement.workloadAffinity`: which clusters their placed members use.
//!
//! A group is a side (affinity or anti-affinity) and a label with its value, within a namespace. A binding is a member
//! of the groups that its own placement names, as in Karmada. Members that only prefer a group do not bind the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::ClusterName;
use atoll_api::placement::Placement;
use atoll_api::selector::Labelled;
use atoll_api::workload_affinity::WorkloadGroup;
use atoll_decision::BindingKey;
use serde::{Deserialize, Serialize};

use super::binding_tree::BindingTree;
use super::tables::BindingFacts;

/// Whether members of a group want to run on the same clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Side {
    /// On the same clusters.
    Affinity,
    /// On different clusters.
    AntiAffinity,
}

/// A group of workloads of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AffinityGroup {
    /// Affinity or anti-affinity.
    pub side: Side,
    /// Key of the label.
    pub label: String,
    /// Value of the label.
    pub value: String,
}

impl std::fmt::Display for AffinityGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.label, self.value)
    }
}

/// That a binding belongs to a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The group.
    pub group: AffinityGroup,
    /// Whether the placement requires it. Otherwise it only prefers it.
    pub required: bool,
}

impl AffinityGroup {
    /// The group that a template belongs to by one term of its placement. `None` if it lacks the label.
    #[must_use]
    pub fn by(side: Side, term: &WorkloadGroup, labels: &impl Labelled) -> Option<Self> {
        let value = labels.value_of(&term.group_by_label_key)?.to_owned();
        Some(Self { side, label: term.group_by_label_key.clone(), value })
    }
}

/// The groups of a template with these labels under a placement.
#[must_use]
pub fn memberships(placement: &Placement, labels: &impl Labelled) -> Arc<[Membership]> {
    let Some(rules) = &placement.workload_affinity else { return Arc::default() };
    let sides = |near: &Option<WorkloadGroup>, apart: &Option<WorkloadGroup>| {
        let by = |side, term: &Option<WorkloadGroup>| {
            term.as_ref().and_then(|term| AffinityGroup::by(side, term, labels))
        };
        [by(Side::Affinity, near), by(Side::AntiAffinity, apart)].into_iter().flatten()
    };
    // A group that is both required and preferred counts as required.
    let mut all: BTreeMap<AffinityGroup, bool> = BTreeMap::new();
    for wish in &rules.preferred {
        all.extend(sides(&wish.affinity, &wish.anti_affinity).map(|group| (group, false)));
    }
    all.extend(sides(&rules.affinity, &rules.anti_affinity).map(|group| (group, true)));
    all.into_iter().map(|(group, required)| Membership { group, required }).collect()
}

/// Numbers of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    /// Members whose placement requires the group.
    required: u32,
    /// All members.
    all: u32,
}

impl Counts {
    fn of(self, required: bool) -> u32 {
        if required { self.required } else { self.all }
    }

    fn change(&mut self, required: bool, by: impl Fn(u32) -> u32) {
        self.all = by(self.all);
        if required {
            self.required = by(self.required);
        }
    }
}

/// The members of a group.
#[derive(Debug, Clone, Default)]
pub struct GroupMembers {
    bindings: BindingTree,
    /// Members with a share on any cluster.
    placed: Counts,
    /// Members by cluster.
    on: BTreeMap<ClusterName, Counts>,
}

/// The names of the clusters where a binding has a share.
fn clusters(facts: &BindingFacts) -> BTreeSet<&str> {
    facts.shares.iter().map(|share| share.name.as_str()).collect()
}

impl GroupMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<BindingFacts>> {
        self.bindings.iter()
    }

    pub(super) fn add(&mut self, facts: &Arc<BindingFacts>, required: bool) {
        self.bindings.insert(facts.clone());
        let clusters = clusters(facts);
        if !clusters.is_empty() {
            self.placed.change(required, |n| n.saturating_add(1));
        }
        for name in clusters {
            let counts = self.on.entry(name.into()).or_default();
            counts.change(required, |n| n.saturating_add(1));
        }
    }

    /// Takes a member out. `facts` are those that it was added with.
    pub(super) fn take(&mut self, facts: &Arc<BindingFacts>, required: bool) {
        self.bindings.remove(&facts.key);
        let clusters = clusters(facts);
        if !clusters.is_empty() {
            self.placed.change(required, |n| n.saturating_sub(1));
        }
        for name in clusters {
            let Some(counts) = self.on.get_mut(name) else { continue };
            counts.change(required, |n| n.saturating_sub(1));
            if *counts == Counts::default() {
                self.on.remove(name);
            }
        }
    }

    /// The placed members other than `except`, if `required` only those that require the group.
    pub fn others<'a>(
        &'a self,
        group: &'a AffinityGroup,
        except: &'a BindingKey,
        required: bool,
    ) -> impl Iterator<Item = &'a Arc<BindingFacts>> {
        self.iter().filter(move |facts| {
            let requires = || facts.groups.iter().any(|of| of.required && of.group == *group);
            facts.key != *except && !facts.shares.is_empty() && (!required || requires())
        })
    }

    /// The number of placed members other than `except`, and how many of them each cluster runs, by name.
    #[must_use]
    pub fn count_others(
        &self,
        group: &AffinityGroup,
        except: &BindingKey,
        required: bool,
    ) -> (u32, BTreeMap<&str, u32>) {
        let mut placed = self.placed.of(required);
        let mut on: BTreeMap<&str, u32> =
            self.on.iter().map(|(name, counts)| (&**name, counts.of(required))).collect();
        if let Some(own) = self.bindings.get(except) {
            let requires = own.groups.iter().any(|of| of.required && of.group == *group);
            let own = if required && !requires { BTreeSet::new() } else { clusters(own) };
            placed = placed.saturating_sub(u32::from(!own.is_empty()));
            for name in own {
                if let Some(count) = on.get_mut(name) {
                    *count = count.saturating_sub(1);
                }
            }
        }
        on.retain(|_, count| *count > 0);
        (placed, on)
    }

    /// How the clusters of a member violate the group's rule.
    #[must_use]
    pub fn violated(
        &self,
        group: &AffinityGroup,
        key: &BindingKey,
        clusters: &[&str],
    ) -> Option<Violation> {
        let (placed, on) = self.count_others(group, key, true);
        let count = |name: &str| on.get(name).copied().unwrap_or(0);
        let breaks = |name: &str| match group.side {
            Side::Affinity => count(name) < placed,
            Side::AntiAffinity => count(name) > 0,
        };
        let cluster = clusters.iter().find(|name| breaks(name))?;
        let there = |facts: &&Arc<BindingFacts>| {
            let there = facts.shares.iter().any(|share| share.name == **cluster);
            there == (group.side == Side::AntiAffinity)
        };
        let other = self.others(group, key, true).find(there)?;
        Some(Violation {
            group: group.clone(),
            cluster: (*cluster).into(),
            other: other.key.clone(),
        })
    }
}

/// A cluster of a binding that violates a required rule of `placement.workloadAffinity`, because its group changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The group.
    pub group: AffinityGroup,
    /// The first such cluster.
    pub cluster: ClusterName,
    /// A workload of the group that runs there (anti-affinity) or does not (affinity).
    pub other: BindingKey,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, cluster, other } = self;
        let verb = match group.side {
            Side::Affinity => "does not run",
            Side::AntiAffinity => "also runs",
        };
        write!(f, "{other} of group {group} {verb} on {cluster}")
    }
}
