//! The table of ChangeGuards: which of them guard a workload, and what they released.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::change_guard::HeldChange;
use atoll_api::marks;
use atoll_history::ApprovedPlan;
use serde_json::Value;

use super::guard_rules::{Guard, GuardRules};
use super::key::{PolicyKey, TemplateKey};
use super::rows::{Binding, Policy, RowError};
use super::secondary::name_of;
use super::{Index, Touched};

impl Index {
    /// A ChangeGuard.
    #[must_use]
    pub fn guard(&self, name: &str) -> Option<&Arc<Guard>> {
        self.tenancy.guards.get(name)
    }

    /// All ChangeGuards, by name.
    pub fn guards(&self) -> impl Iterator<Item = (&String, &Arc<Guard>)> {
        self.tenancy.guards.iter()
    }

    /// The valid guards of a workload: those of the policy that claims it now, and of the one in its binding's marks, so
    /// that no workload leaves a guard by changing its policy.
    pub fn guards_of<'a>(
        &'a self,
        template: &'a TemplateKey,
        claims: Option<&'a Policy>,
        binding: &'a Binding,
    ) -> impl Iterator<Item = (&'a String, &'a Arc<Guard>)> {
        let namespace = self.namespace_labels(template);
        let marked = binding.policy();
        self.tenancy.guards.iter().filter(move |(_, guard)| {
            let Ok(rules) = &guard.rules else { return false };
            let labels = |key: &PolicyKey| self.policy(key).map(|policy| &policy.labels);
            let marked = marked.as_ref().filter(|key| claims.is_none_or(|now| now.key != **key));
            let now = claims.map(|policy| (&policy.key, Some(&policy.labels)));
            rules.selects(now, namespace)
                || marked.is_some_and(|key| rules.selects(Some((key, labels(key))), namespace))
        })
    }

    /// Replicas of all workloads that a guard selects by the marks of their bindings.
    #[must_use]
    pub fn guarded_replicas(&self, rules: &GuardRules) -> i64 {
        let guarded = self.bindings.values().filter(|binding| {
            let key = binding.policy();
            let policy = key.as_ref();
            let labels = policy.and_then(|key| self.policy(key)).map(|policy| &policy.labels);
            rules.selects(policy.map(|key| (key, labels)), self.namespace_labels(&binding.template))
        });
        let shares = guarded.flat_map(|binding| &binding.spec.clusters);
        shares.fold(0, |sum: i64, share| sum.saturating_add(share.replicas))
    }

    /// Who approved the plan of a change.
    #[must_use]
    pub fn approval(&self, held: &HeldChange) -> Option<ApprovedPlan> {
        let released = self.tenancy.guards.values().flat_map(|guard| guard.released());
        let mut of_plan = released.filter(|one| one.plan == held.plan && one.at.0 > held.since.0);
        let by = of_plan.find_map(|one| one.by.clone())?;
        Some(ApprovedPlan { plan: held.plan.clone(), by })
    }

    /// The plans in the marks of bindings: not finished.
    #[must_use]
    pub fn live_plans(&self) -> BTreeSet<String> {
        let marks = self.bindings.values().filter_map(|binding| binding.spec.held.as_ref());
        marks.map(|held| held.plan.clone()).collect()
    }

    /// The bindings whose marks name a plan.
    pub fn bindings_in_plan(&self, plan: &str) -> impl Iterator<Item = &Arc<Binding>> {
        let named = move |binding: &&Arc<Binding>| {
            binding.spec.held.as_ref().is_some_and(|held| held.plan == plan)
        };
        self.bindings.values().filter(named)
    }

    pub(super) fn put_guard(
        &mut self,
        object: &Value,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let guard = Guard::read(object)?;
        let name = name_of(object).1;
        touched.tenancy.guards.insert(name.clone());
        self.tenancy.guards.insert(name, Arc::new(guard));
        Ok(())
    }

    pub(super) fn take_guard(&mut self, name: &str, touched: &mut Touched) {
        if self.tenancy.guards.remove(name).is_some() {
            touched.tenancy.guards.insert(name.to_owned());
        }
    }

    /// Whether work leaves a cluster whatever people change: it is being deleted or emptied, or is not ready, or takes
    /// no new work.
    #[must_use]
    pub fn is_emptied_anyway(&self, cluster: &str) -> bool {
        let Some(cluster) = self.cluster(cluster) else { return true };
        const OURS: [&str; 4] = [
            marks::TAINT_UNREACHABLE,
            marks::TAINT_NOT_READY,
            marks::TAINT_CORDONED,
            marks::TAINT_DRAIN,
        ];
        cluster.metadata.deletion_timestamp.is_some()
            || cluster
                .spec
                .taints
                .iter()
                .any(|taint| taint.effect == "NoExecute" || OURS.contains(&taint.key.as_str()))
    }
}
