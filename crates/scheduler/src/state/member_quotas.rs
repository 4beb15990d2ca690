//! ResourceQuotas on members: what they leave to a namespace counts as room, like free nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::ClusterName;
use atoll_decision::BitSet;

use super::cache::CapacityColumn;
use super::change::TableChange;
use super::needs::{Amounts, Needs, PODS};
use super::snapshot::Snapshot;
use super::tables::BindingFacts;

/// What the ResourceQuotas of a namespace leave, by member.
pub type ByMember = BTreeMap<ClusterName, Amounts>;

/// What ResourceQuotas leave, by namespace. Only members and namespaces that have any are listed.
#[derive(Debug, Clone, Default)]
pub struct MemberQuotas(BTreeMap<Arc<str>, Arc<ByMember>>);

impl MemberQuotas {
    /// What is left to a namespace on each member. `None` if no member limits it.
    #[must_use]
    pub fn of(&self, namespace: &str) -> Option<&ByMember> {
        self.0.get(namespace).map(|by_member| &**by_member)
    }

    /// The same, shared.
    #[must_use]
    pub(crate) fn shared(&self, namespace: &str) -> Option<Arc<ByMember>> {
        self.0.get(namespace).cloned()
    }

    /// What is left to one namespace.
    pub(crate) fn of_one(namespace: &str, by_member: ByMember) -> Self {
        Self(BTreeMap::from([(namespace.into(), Arc::new(by_member))]))
    }

    /// Sets what a member reports. Returns the changes.
    pub(super) fn set(
        &mut self,
        cluster: &ClusterName,
        now: &BTreeMap<String, Amounts>,
    ) -> Vec<TableChange> {
        let known = self.0.iter().filter(|(_, by_member)| by_member.contains_key(cluster));
        let mut namespaces: Vec<Arc<str>> = known.map(|(name, _)| name.clone()).collect();
        namespaces.extend(now.keys().map(|name| name.as_str().into()));
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut changes = Vec::new();
        for namespace in namespaces {
            let free = now.get(&*namespace);
            let by_member = self.0.entry(namespace.clone()).or_default();
            if by_member.get(cluster) == free {
                continue;
            }
            let by_member = Arc::make_mut(by_member);
            match free {
                Some(free) => by_member.insert(cluster.clone(), free.clone()),
                None => by_member.remove(cluster),
            };
            if by_member.is_empty() {
                self.0.remove(&namespace);
            }
            changes.push(TableChange::MemberQuota {
                cluster: cluster.clone(),
                namespace: namespace.to_string(),
                free: free.cloned().unwrap_or_default(),
            });
        }
        changes
    }
}

impl Snapshot {
    /// Lowers a capacity to what the ResourceQuotas of a namespace leave on each member. Replicas that a member does not
    /// report yet are taken off, because its quotas do not count them yet.
    #[must_use]
    pub fn within_member_quotas(
        &self,
        namespace: &str,
        needs: &Needs,
        column: Arc<CapacityColumn>,
    ) -> Arc<CapacityColumn> {
        let Some(by_member) = self.member_quotas().of(namespace) else { return column };
        let mut limited = (*column).clone();
        let mut rows = BitSet::empty(self.len());
        for (cluster, free) in self.left_by_member_quotas(namespace, by_member) {
            let Some(row) = self.find(cluster) else { continue };
            let Some((fits, resource)) = fits(&free, needs) else { continue };
            if limited.lower(row, fits, &format!("ResourceQuota: {resource}")) {
                rows.insert(row);
            }
        }
        limited.by_quota = Some(rows);
        Arc::new(limited)
    }

    /// How many replicas the ResourceQuotas of a namespace allow on a member once these replicas of other bindings have left.
    /// Only those of the same namespace give anything back. `None` = no quota limits them.
    #[must_use]
    pub fn allowed_by_member_quotas<'a>(
        &self,
        namespace: &str,
        cluster: &str,
        needs: &Needs,
        leaving: impl Iterator<Item = (&'a BindingFacts, i64)>,
    ) -> Option<i64> {
        let by_member = self.member_quotas().of(namespace)?;
        let mut left = self.left_by_member_quotas(namespace, by_member);
        let (_, mut free) = left.find(|(name, _)| name.as_str() == cluster)?;
        for (facts, count) in leaving {
            if facts.key.namespace().unwrap_or_default() != namespace {
                continue;
            }
            let theirs = Needs::read(facts.requirements.as_deref()).unwrap_or_default();
            let each = theirs.requests.iter().map(|(resource, each)| (resource.as_str(), *each));
            for (resource, each) in each.chain([(PODS, 1)]) {
                if let Some(free) = free.get_mut(resource) {
                    *free = free.saturating_add(each.saturating_mul(count));
                }
            }
        }
        fits(&free, needs).map(|(fits, _)| fits)
    }

    /// A resource of which the ResourceQuotas of a namespace leave less on a member than these amounts, by member.
    #[must_use]
    pub fn lacking_in_member_quotas(
        &self,
        namespace: &str,
        wanted: &Amounts,
    ) -> BTreeMap<ClusterName, String> {
        let Some(by_member) = self.member_quotas().of(namespace) else { return BTreeMap::new() };
        let left = self.left_by_member_quotas(namespace, by_member);
        let short = left.filter_map(|(cluster, free)| {
            let (resource, _) =
                free.iter().find(|(resource, free)| wanted.get(*resource) > Some(*free))?;
            Some((cluster.clone(), resource.clone()))
        });
        short.collect()
    }

    fn left_by_member_quotas<'a>(
        &'a self,
        namespace: &str,
        by_member: &'a ByMember,
    ) -> impl Iterator<Item = (&'a ClusterName, Amounts)> {
        let mut reserved: BTreeMap<&ClusterName, Amounts> = BTreeMap::new();
        for facts in self.bindings(namespace) {
            reserve(facts, by_member, &mut reserved);
        }
        by_member.iter().map(move |(cluster, free)| {
            let mut left = free.clone();
            for (resource, amount) in reserved.get(cluster).into_iter().flatten() {
                if let Some(left) = left.get_mut(resource) {
                    *left = left.saturating_sub(*amount).max(0);
                }
            }
            (cluster, left)
        })
    }
}

/// Adds what a binding's shares need on these members beyond what the members report.
fn reserve<'a>(
    facts: &BindingFacts,
    by_member: &'a ByMember,
    reserved: &mut BTreeMap<&'a ClusterName, Amounts>,
) {
    for share in &facts.shares {
        let Some((cluster, _)) = by_member.get_key_value(share.name.as_str()) else { continue };
        let reported = facts.reported.get(share.name.as_str()).copied().unwrap_or(0).max(0);
        let open = share.replicas.saturating_sub(reported);
        if open <= 0 {
            continue;
        }
        let needs = Needs::read(facts.requirements.as_deref()).unwrap_or_default();
        let sums = reserved.entry(cluster).or_default();
        let each = needs.requests.iter().map(|(resource, each)| (resource.as_str(), *each));
        for (resource, each) in each.chain([(PODS, 1)]) {
            let sum = sums.entry(resource.to_owned()).or_default();
            *sum = sum.saturating_add(each.saturating_mul(open));
        }
    }
}

/// How many replicas fit, and the resource that allows the fewest. `None` if they need nothing that is limited.
fn fits<'a>(free: &'a Amounts, needs: &Needs) -> Option<(i64, &'a str)> {
    let each = |resource: &str| match resource {
        PODS => Some(1),
        _ => needs.requests.get(resource).copied().filter(|each| *each > 0),
    };
    let limited = free
        .iter()
        .filter_map(|(resource, free)| Some(((*free).max(0) / each(resource)?, resource.as_str())));
    limited.min_by_key(|(fits, _)| *fits)
}
