//! Inserts and removes rows, and keeps the secondary indexes in step.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::placement::{Placement, ReplicaSchedulingType, RescheduleOn};
use atoll_api::{Cluster, ClusterName, WorkloadPolicy, WorkloadSpread, share_equal};
use atoll_scheduler::lint_policy::named_clusters;
use serde::Deserialize;
use serde_json::Value;

use super::key::{BindingKey, KindRef, NamespacedName, PolicyKey, TemplateKey};
use super::rows::{Binding, Policy, RowError};
use super::secondary::{add, count, name_of, remove};
use super::template::Template;
use super::{Index, Source, Touched, unchecked};
use crate::detect;

/// The node label keys that a replica of a binding uses.
fn node_labels(binding: &Binding) -> BTreeSet<String> {
    let requirements = binding.spec.replica_requirements.as_ref();
    let Some(claim) = requirements.and_then(|needs| needs.node_claim.as_ref()) else {
        return BTreeSet::new();
    };
    let terms = claim.hard_node_affinity.iter().flat_map(|affinity| &affinity.node_selector_terms);
    let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let keys = expressions.map(|expression| expression.key.clone());
    claim.node_selector.keys().cloned().chain(keys).collect()
}

/// Whether two rows have the same references, labels of nodes, kind, and answer of [`follows_clusters`].
fn has_same_links(row: &Binding, other: &Binding) -> bool {
    let (one, other, attached) = (&row.spec, &other.spec, other.is_attached());
    row.is_attached() == attached
        && one.required_by == other.required_by
        && one.replica_requirements == other.replica_requirements
        && one.resource == other.resource
        && one.placement == other.placement
        && one.replicas.is_some() == other.replicas.is_some()
}

/// Whether a new or changed cluster may affect a binding with this placement.
fn follows_clusters(placement: Option<&Placement>, has_replicas: bool) -> bool {
    let Some(placement) = placement else { return true };
    match &placement.reschedule_on {
        Some(on) => {
            on.contains(&RescheduleOn::ClusterChange) || on.contains(&RescheduleOn::Recovery)
        }
        None => {
            !has_replicas
                || placement.replica_scheduling.as_ref().is_none_or(|scheduling| {
                    scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated
                })
        }
    }
}

/// Whether a placement can ever choose this cluster. A placement that names its clusters never chooses another
/// one, so its bindings need no new decision when that one changes.
fn can_choose(placement: Option<&Placement>, cluster: &ClusterName) -> bool {
    let Some(placement) = placement else { return true };
    let terms = placement.cluster_affinities.iter().flatten().flat_map(|term| {
        let overflow = term.overflow_affinities.iter().map(|overflow| &overflow.affinity);
        std::iter::once(&term.affinity).chain(overflow)
    });
    let mut choices = placement.cluster_affinity.iter().chain(terms).peekable();
    choices.peek().is_none()
        || choices.any(|choice| {
            choice.cluster_names.is_empty() || choice.cluster_names.iter().any(|n| n == cluster)
        })
}

/// The parts of a Cluster that matter to bindings that do not wait for capacity.
fn eligibility(cluster: &Cluster) -> impl PartialEq + '_ {
    let status = cluster.status.as_ref();
    (
        &cluster.metadata.labels,
        &cluster.spec,
        cluster.metadata.deletion_timestamp.is_some(),
        status.map(|status| &status.api_enablements),
        status.and_then(|status| status.session.as_ref()).map(|session| session.state),
    )
}

impl Index {
    pub(super) fn put_cluster(
        &mut self,
        object: &Value,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let cluster = Cluster::deserialize(object).map_err(|e| RowError::Shape(e.to_string()))?;
        let cluster = Arc::new(cluster);
        let name = cluster.metadata.name.as_ref().ok_or(RowError::Metadata("name"))?;
        let name = ClusterName::from(name);
        let before = self.clusters.insert(name.clone(), cluster.clone());
        touched.clusters.names.insert(name.clone());
        if before.is_none() {
            self.touch_policies_naming(&name, touched);
        }
        let labels = |cluster: &Cluster| cluster.metadata.labels.clone();
        if before.as_deref().map(labels) != Some(labels(&cluster)) {
            self.touch_attached(touched);
        }
        if before.is_none_or(|before| eligibility(&before) != eligibility(&cluster)) {
            self.touch_cluster(&name, touched);
        }
        Ok(())
    }

    pub(super) fn touch_cluster(&self, name: &ClusterName, touched: &mut Touched) {
        touched.clusters.names.insert(name.clone());
        touched.keys.extend(self.by.bindings_by_cluster.get(name).into_iter().flatten().cloned());
        let following = self.by.bindings_following_clusters.iter();
        let concerned = following.filter(|key| {
            self.bindings.get(key).is_none_or(|row| can_choose(row.spec.placement.as_deref(), name))
        });
        touched.clusters.following.extend(concerned.cloned());
        touched.workload_policies.extend(self.workload_policies.keys().cloned());
        self.touch_cluster_sets(touched);
    }

    /// Policies that name a cluster: their status shows whether it exists.
    pub(super) fn touch_policies_naming(&self, cluster: &ClusterName, touched: &mut Touched) {
        let naming = self.policies().filter(|policy| {
            named_clusters(&policy.spec.placement).iter().any(|(_, name)| *name == *cluster)
        });
        touched.policies.extend(naming.map(|policy| policy.key.clone()));
    }

    pub(super) fn set_policy(
        &mut self,
        key: &PolicyKey,
        policy: Option<Policy>,
        touched: &mut Touched,
    ) {
        let policy = policy.map(Arc::new);
        let before = match &policy {
            Some(policy) => self.policies.insert(key.clone(), policy.clone()),
            None => self.policies.remove(key),
        };
        let same = |a: &Policy, b: &Policy| {
            (&a.uid, &a.spec, a.deleting, &a.selectors)
                == (&b.uid, &b.spec, b.deleting, &b.selectors)
        };
        if let (Some(before), Some(policy)) = (&before, &policy)
            && same(before, policy)
        {
            return;
        }
        for kind in before.iter().flat_map(|policy| policy.named_kinds()) {
            remove(&mut self.by.policies_by_kind, kind, key);
        }
        for kind in policy.iter().flat_map(|policy| policy.named_kinds()) {
            add(&mut self.by.policies_by_kind, kind.clone(), key.clone());
        }
        self.link_every_kind(key, policy.as_deref());
        touched.kinds = true;
        touched.policies.insert(key.clone());
        // Those already bound to the policy, by the keys that the tables share, and templates that either version selects.
        let bound = self.by.bindings_by_policy.get(key).into_iter().flatten();
        touched.keys.extend(bound.cloned());
        for version in before.iter().chain(&policy) {
            for kind in self.kinds_of(version) {
                let chosen = self
                    .templates_of(&kind)
                    .filter(|template| detect::selects(version, template).is_some());
                touched.keys.extend(chosen.map(|template| template.key.binding()));
                // This may change which objects other policies of the kind claim.
                touched.policies.extend(self.policies_of(&kind).map(|p| p.key.clone()));
            }
        }
    }

    pub(super) fn put_template(
        &mut self,
        key: &TemplateKey,
        template: Option<Template>,
        touched: &mut Touched,
    ) {
        let fresh = template.as_ref().map(|template| template.resource_version.clone());
        let workload_policy = template.as_ref().and_then(|t| t.extract.workload_policy.clone());
        let before = self.set_template(key, template);
        let binding = self.shared_key(key.binding());
        let now = self.templates.rows.get(key);
        if let (Some(before), Some(now)) = (&before, now) {
            if Some(&before.resource_version) == fresh.as_ref() {
                return;
            }
            if only_status_differs(before, now) {
                if !before.has_status_of(now) {
                    touched.statuses.insert(binding);
                }
                return;
            }
        }
        touched.keys.insert(binding.clone());
        let selecting = |row: Option<&Arc<Template>>| -> BTreeSet<PolicyKey> {
            row.into_iter().flat_map(|row| self.overrides_selecting(row)).collect()
        };
        let changed = &selecting(before.as_ref()) ^ &selecting(now);
        touched.override_policies.extend(changed);
        self.relink_needs(&binding, touched);
        if before.is_none() != fresh.is_none() {
            touched.waiting.extend(self.parents(key).cloned());
        }
        if before.is_none() || fresh.is_none() {
            touched.policies.extend(self.policies_for(key).map(|policy| policy.key.clone()));
        }
        let named = before.and_then(|before| before.extract.workload_policy.clone());
        for name in [named, workload_policy].into_iter().flatten() {
            touched
                .workload_policies
                .insert((key.namespace().unwrap_or_default().to_owned(), name));
        }
    }

    /// The key as the tables have it, so that all share one text.
    fn shared_key(&self, key: BindingKey) -> BindingKey {
        let of_template = self.by.templates_by_binding.get_key_value(&key).map(|(known, _)| known);
        let known = of_template.or_else(|| Some(self.bindings.get_key_value(&key)?.0));
        known.cloned().unwrap_or(key)
    }

    /// The same key as its earlier row or its binding has it.
    fn shared_template_key(&self, key: &TemplateKey) -> TemplateKey {
        let of_row = self.templates.rows.get_key_value(key).map(|(known, _)| known);
        let of_binding = || self.bindings.get(&key.binding()).map(|row| &row.template);
        let known = of_row.or_else(of_binding).filter(|known| *known == key);
        known.unwrap_or(key).clone()
    }

    /// Sets or removes a template and returns the previous row.
    pub(super) fn set_template(
        &mut self,
        key: &TemplateKey,
        template: Option<Template>,
    ) -> Option<Arc<Template>> {
        let policy_of = |template: &Template| {
            let name = template.extract.workload_policy.clone()?;
            Some((template.key.namespace().unwrap_or_default().to_owned(), name))
        };
        let key = &self.shared_template_key(key);
        let template = template.map(|mut row| {
            row.key = key.clone();
            Arc::new(row)
        });
        let before = match &template {
            Some(template) => self.templates.rows.insert(key.clone(), template.clone()),
            None => self.templates.rows.remove(key),
        };
        if let Some(policy) = before.as_deref().and_then(policy_of) {
            remove(&mut self.by.templates_by_workload_policy, &policy, key);
        }
        if let Some(policy) = template.as_deref().and_then(policy_of) {
            add(&mut self.by.templates_by_workload_policy, policy, key.clone());
        }
        match &template {
            Some(_) => {
                let binding = self.shared_key(key.binding());
                let templates = self.by.templates_by_binding.entry(binding).or_default();
                templates.insert(key.clone(), ());
            }
            None => {
                let binding = key.binding();
                if let Some(templates) = self.by.templates_by_binding.get_mut(&binding) {
                    templates.remove(key);
                    if templates.is_empty() {
                        self.by.templates_by_binding.remove(&binding);
                    }
                }
                self.forget_meaning(key);
            }
        }
        before
    }

    /// Whether the tables have this version of a binding, or a newer one, which may be of a later binding of the same
    /// name: a watch may be behind the replies to our own writes.
    pub(super) fn holds_binding(&self, key: &BindingKey, version: &str) -> bool {
        let held = self.bindings.get(key);
        held.is_some_and(|held| !supersedes(version, held.resource_version()))
    }

    pub(super) fn set_binding(
        &mut self,
        key: &BindingKey,
        binding: Option<Binding>,
        touched: &mut Touched,
    ) {
        let known = self.bindings.get(key).map(|before| before.key.clone());
        let new = known.is_none();
        let key = &known.unwrap_or_else(|| self.shared_key(key.clone()));
        let binding = binding.map(|mut row| {
            row.key = key.clone();
            if new && let Some((known, _)) = self.templates.rows.get_key_value(&row.template) {
                row.template = known.clone();
            }
            Arc::new(row)
        });
        let before = match &binding {
            Some(binding) => self.bindings.insert(key.clone(), binding.clone()),
            None => self.bindings.remove(key),
        };
        let differs_in_status = |a: &Binding, b: &Binding| {
            a.spec == b.spec
                && a.meta.deleted == b.meta.deleted
                && a.meta.labels == b.meta.labels
                && a.meta.annotations == b.meta.annotations
                && a.meta.finalizers == b.meta.finalizers
                && a.uid == b.uid
        };
        let status_only = before.as_ref().zip(binding.as_ref());
        let status_only = status_only.filter(|(before, now)| differs_in_status(before, now));
        // The secondary indexes are about everything but the status.
        if status_only.is_none() {
            let (before, now) = (before.as_deref(), binding.as_deref());
            before.inspect(|row| self.link_binding(row, false, now));
            now.inspect(|row| self.link_binding(row, true, before));
        }
        touched.policies.extend(before.iter().chain(&binding).filter_map(|row| row.policy()));
        if let Some((before, binding)) = status_only {
            if before.status != binding.status {
                touched.statuses.insert(key.clone());
            }
            return;
        }
        if let (Some(before), Some(binding)) = (&before, &binding)
            && before.uid != binding.uid
        {
            touched.replaced.insert(key.clone());
        }
        let resource_of = |binding: &Arc<Binding>| binding.spec.resource.clone();
        touched.kinds |= before.as_ref().map(resource_of) != binding.as_ref().map(resource_of);
        touched.keys.insert(key.clone());
        touched.bindings.insert(key.clone());
        self.relink_needs(key, touched);
        self.touch_related(key, touched);
        // A WorkloadPolicy's figures count every binding of the namespace.
        if let Some(namespace) = key.namespace() {
            let from = (namespace.to_owned(), String::new());
            let policies = self.workload_policies.range(from..);
            let policies = policies.take_while(|(policy, _)| policy.0 == *namespace);
            touched.workload_policies.extend(policies.map(|(policy, _)| policy.clone()));
        }
    }

    /// A binding copies its policy's placement, by far the largest part of it: equal ones share one allocation.
    pub(super) fn share_and_set_binding(&mut self, mut binding: Binding, touched: &mut Touched) {
        let key = binding.policy();
        let policy = key.as_ref().and_then(|key| self.policies.get(key));
        // Another binding has the same placement even if the policy is not listed yet or has a newer one. It is the first one
        // because new bindings, which have no status to share, often come last.
        let others = key.as_ref().and_then(|key| self.by.bindings_by_policy.get(key));
        let other = others.and_then(|keys| self.bindings.get(keys.first()?));
        let before = self.bindings.get(&binding.key);
        if let Some(before) = before.filter(|before| before.uid == binding.uid) {
            binding.status.keep(&before.status);
        }
        for known in other.into_iter().chain(before) {
            binding.share(known);
        }
        binding.status.share_names(|name| self.cluster_name(name));
        if let Some(placement) = &mut binding.spec.placement {
            let of_policy = policy.map(|policy| &policy.spec.placement);
            if let Some(of_policy) = of_policy {
                share_equal(placement, of_policy);
            }
            let rows = other.into_iter().chain(before);
            let of_rows = rows.filter_map(|row| row.spec.placement.as_ref());
            let known = of_policy.into_iter().chain(of_rows).any(|known| known == placement);
            if !known && let Err(error) = unchecked::check_placement(placement) {
                let key = &binding.key;
                tracing::warn!(%key, %error, "spec.placement is ignored: no policy can have it");
                binding.spec.placement = None;
            }
        }
        self.set_binding(&binding.key.clone(), Some(binding), touched);
    }

    /// Adds a row to the secondary indexes or removes it, where it differs from the row of the same key that it replaces or
    /// that replaces it.
    fn link_binding(&mut self, binding: &Binding, present: bool, other: Option<&Binding>) {
        let key = &binding.key;
        let refused = self.refusal(binding).is_some();
        let same_rest = other.is_some_and(|other| {
            has_same_links(binding, other) && refused == self.refusal(other).is_some()
        });
        let by = &mut self.by;
        if other.is_none_or(|other| other.uid != binding.uid) {
            if present {
                by.bindings_by_uid.insert(binding.uid.clone(), key.clone());
            } else {
                by.bindings_by_uid.remove(&binding.uid);
            }
        }
        let of_both: BTreeSet<&str> = other.into_iter().flat_map(Binding::clusters).collect();
        for cluster in binding.clusters().filter(|name| !of_both.contains(name)) {
            let cluster = ClusterName::from(cluster);
            if present {
                add(&mut by.bindings_by_cluster, cluster, key.clone());
            } else {
                remove(&mut by.bindings_by_cluster, &cluster, key);
            }
        }
        let policy = binding.policy();
        if let Some(policy) =
            policy.filter(|policy| other.and_then(|other| other.policy()).as_ref() != Some(policy))
        {
            if present {
                add(&mut by.bindings_by_policy, policy, key.clone());
            } else {
                remove(&mut by.bindings_by_policy, &policy, key);
            }
        }
        if same_rest {
            return;
        }
        // Ignore the kinds that a refused binding names: otherwise its author could make the controller read any kind.
        if refused {
            by.bindings_following_clusters.remove(key);
            return;
        }
        self.dependencies.link(binding, present);
        for label in node_labels(binding) {
            count(&mut by.node_labels, label, present);
        }
        let version = binding.spec.resource.version().to_owned();
        count(
            &mut by.kinds_of_bindings,
            (binding.template.group_kind().to_owned(), version),
            present,
        );
        let has_replicas = binding.spec.replicas.is_some();
        if present
            && !binding.is_attached()
            && follows_clusters(binding.spec.placement.as_deref(), has_replicas)
        {
            by.bindings_following_clusters.insert(key.clone());
        } else {
            by.bindings_following_clusters.remove(key);
        }
    }

    pub(super) fn set_workload_policy(
        &mut self,
        key: &NamespacedName,
        policy: Option<WorkloadPolicy>,
        touched: &mut Touched,
    ) {
        let policy = policy.map(Arc::new);
        let before = match &policy {
            Some(policy) => self.workload_policies.insert(key.clone(), policy.clone()),
            None => self.workload_policies.remove(key),
        };
        if let (Some(before), Some(policy)) = (&before, &policy)
            && before.spec == policy.spec
            && before.metadata.uid == policy.metadata.uid
        {
            return;
        }
        touched.kinds |= before.is_none() || policy.is_none();
        touched.workload_policies.insert(key.clone());
        touched.rows.workload_policies.insert(key.clone());
        touched.keys.extend(self.templates_with(key).map(TemplateKey::binding));
    }

    pub(super) fn set_spread(
        &mut self,
        key: &NamespacedName,
        spread: Option<WorkloadSpread>,
        touched: &mut Touched,
    ) {
        let target_of = |spread: &WorkloadSpread| TemplateKey::target(&key.0, spread);
        let spread = spread.map(Arc::new);
        let before = match &spread {
            Some(spread) => self.spreads.insert(key.clone(), spread.clone()),
            None => self.spreads.remove(key),
        };
        if let (Some(before), Some(spread)) = (&before, &spread)
            && before.spec == spread.spec
            && before.metadata.uid == spread.metadata.uid
        {
            // A subset's mark is in the status, and affects placement.
            if before.status != spread.status {
                touched.rows.spreads.insert(key.clone());
            }
            return;
        }
        touched.kinds = true;
        touched.rows.spreads.insert(key.clone());
        // The spread in force for a target depends on all that target it.
        let targets = before.as_deref().into_iter().chain(spread.as_deref()).map(target_of);
        for target in targets {
            let rivals = self.by.spreads_by_target.get(&target).into_iter().flatten();
            touched.spreads.extend(rivals.map(|name| (key.0.clone(), name.clone())));
        }
        touched.spreads.insert(key.clone());
        if let Some(target) = before.as_deref().map(target_of) {
            remove(&mut self.by.spreads_by_target, &target, &key.1);
            touched.keys.insert(target.binding());
        }
        if let Some(target) = spread.as_deref().map(target_of) {
            touched.keys.insert(target.binding());
            add(&mut self.by.spreads_by_target, target, key.1.clone());
        }
    }

    /// Bindings keep their value; only the policies' reference to the class may resolve differently.
    pub(super) fn set_priority_class(
        &mut self,
        name: &str,
        class: Option<(i32, bool)>,
        touched: &mut Touched,
    ) {
        let before = match class {
            Some(class) => self.priority_classes.insert(name.to_owned(), class),
            None => self.priority_classes.remove(name),
        };
        if before == class {
            return;
        }
        let names = |policy: &&Arc<Policy>| {
            let priority = policy.spec.schedule_priority.as_ref();
            priority.is_some_and(|priority| priority.priority_class_name == name)
        };
        touched.policies.extend(self.policies().filter(names).map(|policy| policy.key.clone()));
    }

    pub(super) fn put_controlled(
        &mut self,
        source: &Source,
        object: &Value,
        touched: &mut Touched,
    ) {
        let (namespace, name) = name_of(object);
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.filter(|owner| owner["controller"] == true).find_map(|owner| {
            let kind = KindRef::of(owner["apiVersion"].as_str()?, owner["kind"].as_str()?);
            Some(TemplateKey::new(kind, namespace.as_deref(), owner["name"].as_str()?))
        });
        if let Some(owner) = owner {
            touched.keys.insert(owner.binding());
            let id = (source.clone(), format!("{}/{name}", namespace.unwrap_or_default()));
            self.hub_workloads.controlled.insert(id, owner);
        }
    }

    pub(super) fn touch_pod_makers(&self, touched: &mut Touched) {
        let makers = self.templates.rows.keys().filter(|key| key.group_kind().makes_pods());
        touched.keys.extend(makers.map(TemplateKey::binding));
        touched.policies.extend(self.policies.keys().cloned());
    }
}

/// Whether a change is irrelevant for placing or rendering the object: kinds with a generation raise it with their
/// spec.
fn only_status_differs(before: &Template, now: &Template) -> bool {
    before.uid == now.uid
        && before.generation > 0
        && before.generation == now.generation
        && before.content() == now.content()
}

/// Whether a version is newer than the stored one. Versions compare as numbers, which Kubernetes 1.35 guarantees; if
/// one is not a number the new one wins, because a watch delivers in order.
fn supersedes(fresh: &str, held: &str) -> bool {
    match (fresh.parse::<u64>(), held.parse::<u64>()) {
        (Ok(fresh), Ok(held)) => fresh > held,
        _ => fresh != held,
    }
}
