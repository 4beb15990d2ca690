//! The tables: the hub's objects, with secondary indexes for look-ups.
//!
//! Synchronous, without I/O and clock; owned by one task. Events of one object arrive in order, those of different
//! objects and kinds in any: the tables depend only on the newest version of each object. Every change returns a
//! [`Touched`], so that no scan is needed to find what to process again.

pub(crate) mod binding_object;
mod configurations;
mod customizations;
mod dependencies;
pub(crate) mod extract;
pub(crate) mod guard_rules;
mod guards;
mod hub_workloads;
mod intake;
pub(crate) mod key;
pub(crate) mod meanings;
pub(crate) mod meta;
mod override_table;
mod overrides;
pub(crate) mod pod_resources;
mod quotas;
pub(crate) mod received;
mod references;
pub(crate) mod rows;
pub(crate) mod rules;
mod secondary;
mod served;
mod source;
pub(crate) mod status_text;
pub(crate) mod template;
mod tenancy;
mod tenancy_table;
mod unchecked;
mod update;
pub(crate) mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::{
    BindingUid, Cluster, ClusterName, ReservedNamespaces, WorkloadPolicy, WorkloadSpread,
};
use serde_json::Value;

use key::{BindingKey, GroupKind, KindRef, NamespacedName, PolicyKey, TemplateKey};

use hub_workloads::HubWorkloads;
use override_table::OverrideTable;
use received::Received;
use references::Dependencies;
use rows::{Binding, Policy, RowError};
use rules::CustomizationTable;
use secondary::Secondary;
pub(crate) use source::Source;
use template::{RecentlyParsed, Template, TemplateTable};
use tenancy_table::Tenancy;
pub(crate) use tenancy_table::TenancyTouched;

use crate::detect::refusal::{self, Refusal};
use crate::leader::LeaderTerm;

/// What to process again after a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Bindings, existing or to be created.
    pub keys: BTreeSet<BindingKey>,
    /// Policies whose status may change.
    pub policies: BTreeSet<PolicyKey>,
    /// Override policies whose status may change.
    pub override_policies: BTreeSet<PolicyKey>,
    /// Rules of users.
    pub interpreters: InterpretersTouched,
    /// WorkloadPolicies whose status may change.
    pub workload_policies: BTreeSet<NamespacedName>,
    /// Clusters that changed.
    pub clusters: ClustersTouched,
    /// Bindings that changed or were deleted.
    pub bindings: BTreeSet<BindingKey>,
    /// Of them, those whose row is of another binding of the same name now.
    pub replaced: BTreeSet<BindingKey>,
    /// WorkloadSpreads whose status may change.
    pub spreads: BTreeSet<NamespacedName>,
    /// WorkloadPolicies and WorkloadSpreads that changed or were deleted.
    pub rows: DividerRows,
    /// Changes of namespaces, ClusterSets, FederatedResourceQuotas and ChangeGuards.
    pub tenancy: TenancyTouched,
    /// Bindings where only the status changed, or that of their template: an earlier leader may have written it.
    pub statuses: BTreeSet<BindingKey>,
    /// Bindings that may have waited for a binding that their template refers to.
    pub waiting: BTreeSet<BindingKey>,
    /// The set of kinds that are watched may have to change.
    pub kinds: bool,
    /// Objects that could not be parsed, and why.
    pub unreadable: Vec<(String, RowError)>,
}

/// Clusters that changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClustersTouched {
    /// Those with a change that matters to the scheduler or `members`.
    pub names: BTreeSet<ClusterName>,
    /// Bindings that may choose one of them. Those that run on it are in [`Touched::keys`], too.
    pub following: BTreeSet<BindingKey>,
}

/// Rules of users about what kinds mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterpretersTouched {
    /// Customizations whose status may change. All that changed or were deleted are among them.
    pub customizations: BTreeSet<String>,
    /// Configurations of webhooks that changed or were deleted.
    pub webhooks: BTreeSet<String>,
}

/// Objects that divide replicas and changed or were deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DividerRows {
    /// WorkloadPolicies.
    pub workload_policies: BTreeSet<NamespacedName>,
    /// WorkloadSpreads.
    pub spreads: BTreeSet<NamespacedName>,
}

impl Touched {
    /// Bindings that may choose a cluster that changed, and do not have to be processed for another reason.
    pub(crate) fn rechecks(&self) -> impl Iterator<Item = &BindingKey> {
        self.clusters.following.difference(&self.keys)
    }

    /// Adds what another change touched.
    pub fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.policies.extend(other.policies);
        self.override_policies.extend(other.override_policies);
        self.interpreters.customizations.extend(other.interpreters.customizations);
        self.interpreters.webhooks.extend(other.interpreters.webhooks);
        self.workload_policies.extend(other.workload_policies);
        self.clusters.names.extend(other.clusters.names);
        self.clusters.following.extend(other.clusters.following);
        self.bindings.extend(other.bindings);
        self.replaced.extend(other.replaced);
        self.spreads.extend(other.spreads);
        self.rows.workload_policies.extend(other.rows.workload_policies);
        self.rows.spreads.extend(other.rows.spreads);
        self.tenancy.merge(other.tenancy);
        self.waiting.extend(other.waiting);
        self.kinds |= other.kinds;
        self.unreadable.extend(other.unreadable);
    }
}

/// State of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// A whole list arrived once.
    pub complete: bool,
    /// It cannot be read now, and why. Its rows stay as they were.
    pub unreadable: Option<String>,
}

/// The tables. A clone shares their rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    clusters: BTreeMap<ClusterName, Arc<Cluster>>,
    policies: BTreeMap<PolicyKey, Arc<Policy>>,
    templates: TemplateTable,
    bindings: BTreeMap<BindingKey, Arc<Binding>>,
    workload_policies: BTreeMap<NamespacedName, Arc<WorkloadPolicy>>,
    spreads: BTreeMap<NamespacedName, Arc<WorkloadSpread>>,
    tenancy: Tenancy,
    /// PriorityClasses by name: value, and whether they never preempt.
    priority_classes: BTreeMap<String, (i32, bool)>,
    hub_workloads: HubWorkloads,
    readings: BTreeMap<Source, Reading>,
    reserved: ReservedNamespaces,
    by: Secondary,
    dependencies: Dependencies,
    overrides: OverrideTable,
    customizations: CustomizationTable,
}

impl Index {
    /// Sets the namespaces whose objects are never propagated; before the first object arrives.
    pub fn reserve(&mut self, namespaces: ReservedNamespaces) {
        self.reserved = namespaces;
    }

    /// Namespaces whose objects are never propagated.
    #[must_use]
    pub fn reserved(&self) -> &ReservedNamespaces {
        &self.reserved
    }

    /// Why a binding is not processed, if so.
    #[must_use]
    pub fn refusal(&self, binding: &Binding) -> Option<Refusal> {
        refusal::refusal(binding, &self.reserved)
    }

    /// The name of a member as the tables have it, so that all share one text.
    #[must_use]
    pub fn cluster_name(&self, name: ClusterName) -> ClusterName {
        let known = self.clusters.get_key_value(&name).map(|(known, _)| known.clone());
        known.unwrap_or(name)
    }

    /// A member.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&Arc<Cluster>> {
        self.clusters.get(name)
    }

    /// All members, by name.
    pub fn clusters(&self) -> impl Iterator<Item = (&ClusterName, &Arc<Cluster>)> {
        self.clusters.iter()
    }

    /// A policy.
    #[must_use]
    pub fn policy(&self, key: &PolicyKey) -> Option<&Arc<Policy>> {
        self.policies.get(key)
    }

    /// All policies.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// A template.
    #[must_use]
    pub fn template(&self, key: &TemplateKey) -> Option<&Arc<Template>> {
        self.templates.rows.get(key)
    }

    /// All templates.
    pub fn templates(&self) -> impl Iterator<Item = &Arc<Template>> {
        self.templates.rows.values()
    }

    /// The templates of a kind.
    pub fn templates_of(&self, kind: &GroupKind) -> impl Iterator<Item = &Arc<Template>> {
        let first = TemplateKey::new(kind.borrowed(), None, "");
        self.templates
            .rows
            .range(first..)
            .take_while(move |(key, _)| key.group_kind() == *kind)
            .map(|(_, template)| template)
    }

    /// The template of the binding with this name: the one that the binding names, otherwise the first that would get
    /// this name.
    #[must_use]
    pub fn template_for(&self, key: &BindingKey) -> Option<&TemplateKey> {
        match self.bindings.get(key) {
            Some(binding) => Some(&binding.template),
            None => self.by.templates_by_binding.get(key)?.keys().next(),
        }
    }

    /// A binding.
    #[must_use]
    pub fn binding(&self, key: &BindingKey) -> Option<&Arc<Binding>> {
        self.bindings.get(key)
    }

    /// The binding with this uid.
    #[must_use]
    pub fn binding_by_uid(&self, uid: &BindingUid) -> Option<&Arc<Binding>> {
        self.bindings.get(self.by.bindings_by_uid.get(uid)?)
    }

    /// All bindings.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    /// Bindings with a share or an eviction task on this member.
    pub fn bindings_on(&self, cluster: &ClusterName) -> impl Iterator<Item = &Arc<Binding>> {
        let keys = self.by.bindings_by_cluster.get(cluster).into_iter().flatten();
        keys.filter_map(|key| self.bindings.get(key))
    }

    /// Bindings whose marks name this policy.
    pub fn bindings_of(&self, policy: &PolicyKey) -> impl Iterator<Item = &Arc<Binding>> {
        let keys = self.by.bindings_by_policy.get(policy).into_iter().flatten();
        keys.filter_map(|key| self.bindings.get(key))
    }

    /// A WorkloadPolicy.
    #[must_use]
    pub fn workload_policy(&self, key: &NamespacedName) -> Option<&Arc<WorkloadPolicy>> {
        self.workload_policies.get(key)
    }

    /// All WorkloadPolicies.
    pub fn workload_policies(
        &self,
    ) -> impl Iterator<Item = (&NamespacedName, &Arc<WorkloadPolicy>)> {
        self.workload_policies.iter()
    }

    /// Templates whose label names this WorkloadPolicy.
    pub fn templates_with(&self, policy: &NamespacedName) -> impl Iterator<Item = &TemplateKey> {
        self.by.templates_by_workload_policy.get(policy).into_iter().flatten()
    }

    /// A WorkloadSpread.
    #[must_use]
    pub fn spread(&self, key: &NamespacedName) -> Option<&Arc<WorkloadSpread>> {
        self.spreads.get(key)
    }

    /// All WorkloadSpreads.
    pub fn spreads(&self) -> impl Iterator<Item = &NamespacedName> {
        self.spreads.keys()
    }

    /// The WorkloadSpread in force for a template: the oldest that targets it, then by name, as in the scheduler. None is
    /// for a ResourceQuota of `staticAssignments`, which the users of the namespace must not change.
    #[must_use]
    pub fn spread_in_force(&self, template: &TemplateKey) -> Option<&Arc<WorkloadSpread>> {
        if self.template(template).is_some_and(|row| row.is_assigned()) {
            return None;
        }
        let namespace = template.namespace()?.to_owned();
        let names = self.by.spreads_by_target.get(template)?.iter();
        names.filter_map(|name| self.spreads.get(&(namespace.clone(), name.clone()))).min_by_key(
            |spread| {
                let at = spread.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (at, spread.metadata.name.clone())
            },
        )
    }

    /// Names of the WorkloadSpreads that target this template.
    #[must_use]
    pub fn spreads_for(&self, template: &TemplateKey) -> Option<&BTreeSet<String>> {
        self.by.spreads_by_target.get(template)
    }

    /// The value of a PriorityClass.
    #[must_use]
    pub fn priority_class(&self, name: &str) -> Option<i32> {
        self.priority_classes.get(name).map(|(value, _)| *value)
    }

    /// Whether the `preemptionPolicy` of a PriorityClass is `Never`.
    #[must_use]
    pub fn never_preempts(&self, name: &str) -> bool {
        self.priority_classes.get(name).is_some_and(|(_, never)| *never)
    }

    /// State of a source.
    #[must_use]
    pub fn reading(&self, source: &Source) -> Reading {
        self.readings.get(source).cloned().unwrap_or_default()
    }

    /// Why objects of this kind cannot be read now: nothing that depends on them may be sent or removed.
    #[must_use]
    pub fn frozen(&self, kind: KindRef<'_>) -> Option<String> {
        #[cfg(test)]
        if crate::mutants::is(crate::mutants::Mutant::OneBadKindStopsAll)
            && let Some(bad) = self
                .wanted_kinds()
                .into_keys()
                .find(|other| self.reading(&Source::Templates(other.clone())).unreadable.is_some())
        {
            return Some(format!("{bad} cannot be read"));
        }
        let reading = self.reading(&Source::Templates(kind.to_owned()));
        match (reading.unreadable, reading.complete) {
            (Some(why), _) => Some(why),
            (None, true) => None,
            (None, false) => Some(format!("{kind} has not been listed yet")),
        }
    }

    /// Whether the objects of this kind were listed, or cannot be.
    #[must_use]
    pub fn is_read(&self, kind: KindRef<'_>) -> bool {
        self.settled([&Source::Templates(kind.to_owned())])
    }

    /// Whether every one of these sources was listed once or is known to be unreadable.
    pub fn settled<'a>(&self, sources: impl IntoIterator<Item = &'a Source>) -> bool {
        sources.into_iter().all(|source| {
            let reading = self.readings.get(source);
            reading.is_some_and(|reading| reading.complete || reading.unreadable.is_some())
        })
    }

    /// Highest term in any binding, except those more than [`crate::leader::LARGEST_TERM_STEP`] above all others: no
    /// election can have reached them.
    #[must_use]
    pub fn highest_term(&self) -> LeaderTerm {
        let decisions = self.bindings.values().filter_map(|binding| binding.spec.decision.as_ref());
        let terms: BTreeSet<LeaderTerm> =
            decisions.map(|decision| LeaderTerm::from_record(decision.term)).collect();
        let mut terms = terms.into_iter();
        let lowest = terms.next().unwrap_or_default();
        terms
            .try_fold(lowest, |reached, term| match term.is_out_of_range(reached) {
                true => Err(reached),
                false => Ok(term),
            })
            .unwrap_or_else(|reached| reached)
    }

    /// Kinds that must be watched, with the version to read: what policies select, what bindings are for and
    /// refer to, what WorkloadSpreads target, and, if WorkloadPolicies exist, the kinds that can carry their label.
    #[must_use]
    pub fn wanted_kinds(&self) -> BTreeMap<GroupKind, String> {
        let mut wanted: BTreeMap<GroupKind, String> = BTreeMap::new();
        let mut want = |kind: GroupKind, version: &str| {
            if kind.is_own() {
                return;
            }
            let held = wanted.entry(kind).or_insert_with(|| version.to_owned());
            if secondary::newer_version(version, held) {
                version.clone_into(held);
            }
        };
        for selector in self.policies.values().flat_map(|policy| policy.selectors()) {
            if let Some(kind) = &selector.kind {
                want(kind.clone(), &selector.version);
            }
        }
        if self.selects_every_kind() {
            for (kind, version) in self.templates.served.selected() {
                want(kind.clone(), version);
            }
        }
        for (kind, version) in self.by.kinds_of_bindings.keys() {
            want(kind.clone(), version);
        }
        for (kind, version) in self.dependencies.kinds() {
            want(kind.clone(), version);
        }
        for spread in self.spreads.values() {
            let target = &spread.spec.target_ref;
            let version = target.api_version.rsplit_once('/').map_or(&*target.api_version, |v| v.1);
            want(GroupKind::of(&target.api_version, &target.kind), version);
        }
        if !self.workload_policies.is_empty() {
            for (api_version, kind) in secondary::LABELLED_KINDS {
                want(GroupKind::of(api_version, kind), "v1");
            }
        }
        wanted
    }

    /// Node label keys that placed templates use.
    #[must_use]
    pub fn node_labels(&self) -> BTreeSet<String> {
        self.by.node_labels.keys().cloned().collect()
    }

    /// Evidence that something other than Atoll runs templates on the hub: then kinds that create Pods are not claimed.
    #[must_use]
    pub fn hub_runs_workloads(&self) -> Option<String> {
        if let Some(node) = self.hub_workloads.nodes.first() {
            return Some(format!("the hub has a Node ({node})"));
        }
        self.hub_workloads
            .controlled
            .iter()
            .find(|(_, owner)| self.templates.rows.contains_key(*owner))
            .map(|((source, name), owner)| {
                let kind = if *source == Source::Pods { "Pod" } else { "ReplicaSet" };
                format!("the hub has the {kind} {name} of {owner}")
            })
    }

    /// Whether the hub has a Node.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.hub_workloads.nodes.is_empty()
    }

    /// Where templates stay parsed for a while. Rows that are made elsewhere share it.
    pub(crate) fn recently_parsed(&self) -> RecentlyParsed {
        self.templates.parsed.clone()
    }

    /// Stores one object.
    pub fn apply(&mut self, source: &Source, object: impl Into<Received>) -> Touched {
        let mut touched = Touched::default();
        let reading = self.readings.entry(source.clone()).or_default();
        if reading.unreadable.take().is_some() {
            self.touch_source(source, &mut touched);
        }
        self.take_in(source, object.into(), &mut touched);
        touched
    }

    /// A version of a binding that no event brought: in the copy that a plan decides on.
    pub fn put_row(&mut self, binding: Binding) -> Touched {
        let mut touched = Touched::default();
        self.share_and_set_binding(binding, &mut touched);
        touched
    }

    /// Stores a whole list: objects that are not in it are gone.
    pub fn replace(&mut self, source: &Source, objects: Vec<impl Into<Received>>) -> Touched {
        let mut touched = Touched::default();
        let objects: Vec<Received> = objects.into_iter().map(Into::into).collect();
        let names: BTreeSet<_> = objects.iter().map(|object| &object.name).collect();
        for name in self.names(source) {
            if !names.contains(&name) {
                self.take(source, &name, None, &mut touched);
            }
        }
        // A list is the state of the hub, even if it is a restored one with lower versions.
        for object in &objects {
            let (name, uid) = (&object.name, object.uid.as_deref());
            let key = BindingKey::of(name.0.as_deref(), &name.1);
            let is_binding = Source::of_binding(&key) == *source;
            if is_binding && self.binding(&key).is_some_and(|row| Some(row.uid.as_str()) != uid) {
                self.take(source, name, None, &mut touched);
                touched.replaced.insert(key);
            }
        }
        for object in objects {
            self.take_in(source, object, &mut touched);
        }
        let before =
            self.readings.insert(source.clone(), Reading { complete: true, unreadable: None });
        if before.is_none_or(|before| before.unreadable.is_some() || !before.complete) {
            self.touch_source(source, &mut touched);
        }
        touched
    }

    /// An object was deleted.
    pub fn delete(&mut self, source: &Source, object: &Value) -> Touched {
        self.delete_named(source, &secondary::name_of(object), key::uid_of(object))
    }

    /// An object with this namespace and name was deleted.
    pub(crate) fn delete_named(
        &mut self,
        source: &Source,
        name: &(Option<String>, String),
        uid: Option<&str>,
    ) -> Touched {
        let mut touched = Touched::default();
        self.take(source, name, uid, &mut touched);
        touched
    }

    /// A source cannot be read. Its rows stay; what depends on them is frozen.
    pub fn unreadable(&mut self, source: &Source, why: String) -> Touched {
        let mut touched = Touched::default();
        self.readings.entry(source.clone()).or_default().unreadable = Some(why);
        self.touch_source(source, &mut touched);
        touched
    }

    /// A kind is no longer watched. Nothing is concluded from it: its rows are dropped, not deleted.
    pub fn forget_kind(&mut self, kind: &GroupKind) {
        let keys: Vec<_> = self.templates_of(kind).map(|template| template.key.clone()).collect();
        for key in keys {
            self.set_template(&key, None);
        }
        self.readings.remove(&Source::Templates(kind.clone()));
    }
}

#[cfg(test)]
mod tests;
