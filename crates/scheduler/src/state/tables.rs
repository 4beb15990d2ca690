//! The mutable state: parsed objects, reservations derived from committed shares, and the events that each change
//! causes.
//!
//! Owned by one task of the controller or by an offline reader. Synchronous, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::binding::{Component, ReplicaRequirements, TargetCluster};
use atoll_api::{
    Cluster, ClusterName, FederatedResourceQuota, Few, PodLabels, Shared, WorkloadPolicy,
    WorkloadSpread,
};

use super::affinity_group::{AffinityGroup, Membership, Violation};
use super::change::TableChange;
use super::cluster_sets::ClusterSets;
use super::needs::{Amounts, Needs, PODS};
use super::quotas::Quotas;
use super::row::{LiveCluster, Row};
use super::snapshot::{CHUNK, LOG, Logged, Snapshot};
use super::standing::{Claim, Standing};
use crate::detect::TemplateKey;
use atoll_decision::BindingKey;

/// Facts about a binding that affect other decisions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BindingFacts {
    /// The binding.
    pub key: BindingKey,
    /// Labels of its pods. Policies select the pods to count by them.
    pub pod_labels: Arc<PodLabels>,
    /// What one replica needs.
    pub requirements: Option<Shared<ReplicaRequirements>>,
    /// The components of an object with several pod templates. A share is all of them.
    pub components: Arc<[Component]>,
    /// Its groups for `placement.workloadAffinity`. Usually none.
    pub groups: Arc<[Membership]>,
    /// Its priority, and its part in preemptions.
    pub standing: Standing,
    /// Shares of the last committed decision.
    pub shares: Vec<TargetCluster>,
    /// Replicas that members report. A missing member reports none.
    pub reported: Few<ClusterName, i64>,
}

/// The mutable state behind snapshots. A clone shares its rows.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Every cluster by name. Rows that differ from the current snapshot are listed in `changed`.
    clusters: BTreeMap<ClusterName, Arc<Row>>,
    /// Clusters to update in the next snapshot, and whether only their capacity changed.
    changed: Vec<(ClusterName, bool)>,
    /// Whether a cluster joined or left.
    resized: bool,
    /// Reservations by cluster, including clusters that have not joined yet.
    reserved: BTreeMap<ClusterName, Amounts>,
    dirty: bool,
    current: Arc<Snapshot>,
}

impl Tables {
    /// Empty tables, to be filled again. Their versions continue: the scheduler's cache takes equal versions for equal
    /// content.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let Snapshot { version, membership, .. } = *self.current;
        let current = Arc::new(Snapshot { version, membership, ..Snapshot::default() });
        Self { current, resized: true, ..Self::default() }
    }

    /// Adds or updates a Cluster, with its facts from outside the object.
    pub fn upsert_cluster(&mut self, cluster: &Cluster, live: LiveCluster) -> Vec<TableChange> {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let Some(old) = self.clusters.get(name).cloned() else {
            let mut row = Row::read(cluster, live, None);
            row.reserved = self.reserved.get(name).cloned().unwrap_or_default();
            let row = Arc::new(row);
            self.clusters.insert(row.name.clone(), row.clone());
            self.resized = true;
            return vec![TableChange::ClusterJoined { row }];
        };
        let mut row = Row::read(cluster, live, Some(&old));
        row.reserved = old.reserved.clone();
        if *old == row {
            return Vec::new();
        }
        if !Arc::ptr_eq(&old.apis, &row.apis) && *old.apis == *row.apis {
            row.apis = old.apis.clone();
        }
        let row = Arc::new(row);
        self.put(row.clone(), differ_in_room(&old, &row));
        changes_between(&old, &row)
    }

    /// Removes a cluster.
    pub fn remove_cluster(&mut self, name: &str) -> Vec<TableChange> {
        match self.clusters.remove_entry(name) {
            Some((cluster, _)) => {
                self.resized = true;
                let mut changes = self.set_member_quotas(&cluster, &BTreeMap::new());
                changes.push(TableChange::ClusterLeft { cluster });
                changes
            }
            None => Vec::new(),
        }
    }

    /// Sets what the ResourceQuotas on a member leave, by namespace.
    pub fn set_member_quotas(
        &mut self,
        cluster: &ClusterName,
        quotas: &BTreeMap<String, Amounts>,
    ) -> Vec<TableChange> {
        let mut known = self.current.member_quotas.clone();
        let changes = Arc::make_mut(&mut known).set(cluster, quotas);
        if !changes.is_empty() {
            Arc::make_mut(&mut self.current).member_quotas = known;
            self.dirty = true;
        }
        changes
    }

    /// Adds or updates a WorkloadPolicy.
    pub fn upsert_workload_policy(&mut self, policy: &WorkloadPolicy) -> Vec<TableChange> {
        let key = object_key(&policy.metadata);
        let current = Arc::make_mut(&mut self.current);
        let policies = Arc::make_mut(&mut current.workload_policies);
        if policies.get(&key).is_some_and(|old| old.spec == policy.spec) {
            policies.insert(key, Arc::new(policy.clone()));
            return Vec::new();
        }
        policies.insert(key.clone(), Arc::new(policy.clone()));
        self.dirty = true;
        vec![TableChange::WorkloadPolicy { namespace: key.0, name: key.1 }]
    }

    /// Removes a WorkloadPolicy.
    pub fn remove_workload_policy(&mut self, namespace: &str, name: &str) -> Vec<TableChange> {
        let key = (namespace.to_owned(), name.to_owned());
        let current = Arc::make_mut(&mut self.current);
        if Arc::make_mut(&mut current.workload_policies).remove(&key).is_none() {
            return Vec::new();
        }
        self.dirty = true;
        vec![TableChange::WorkloadPolicy { namespace: key.0, name: key.1 }]
    }

    /// Adds or updates a WorkloadSpread. Its status matters too: Adaptive uses a subset's `unschedulableSince`.
    pub fn upsert_workload_spread(&mut self, spread: &WorkloadSpread) -> Vec<TableChange> {
        let key = object_key(&spread.metadata);
        let current = Arc::make_mut(&mut self.current);
        let spreads = Arc::make_mut(&mut current.workload_spreads);
        let old = spreads.insert(key.clone(), Arc::new(spread.clone()));
        if old.is_some_and(|old| old.spec == spread.spec && old.status == spread.status) {
            return Vec::new();
        }
        self.dirty = true;
        vec![spread_change(&key.0, spread)]
    }

    /// Removes a WorkloadSpread.
    pub fn remove_workload_spread(&mut self, namespace: &str, name: &str) -> Vec<TableChange> {
        let key = (namespace.to_owned(), name.to_owned());
        let current = Arc::make_mut(&mut self.current);
        match Arc::make_mut(&mut current.workload_spreads).remove(&key) {
            Some(spread) => {
                self.dirty = true;
                vec![spread_change(&key.0, &spread)]
            }
            None => Vec::new(),
        }
    }

    /// Sets which clusters namespaces may use.
    pub fn set_cluster_sets(&mut self, sets: Arc<ClusterSets>) -> Vec<TableChange> {
        let current = Arc::make_mut(&mut self.current);
        let known = current.cluster_sets.namespaces().chain(sets.namespaces());
        let with_bindings = current.namespaces.keys().map(|name| &**name);
        let namespaces = current.cluster_sets.differing(&sets, known.chain(with_bindings));
        current.cluster_sets = sets;
        self.dirty = true;
        if namespaces.is_empty() {
            return Vec::new();
        }
        vec![TableChange::ClusterSets { namespaces }]
    }

    /// Adds or updates a FederatedResourceQuota.
    pub fn upsert_quota(&mut self, quota: &FederatedResourceQuota) -> Vec<TableChange> {
        let (namespace, name) = object_key(&quota.metadata);
        self.change_quotas(&namespace, |quotas| quotas.upsert(&name, quota))
    }

    /// Removes a FederatedResourceQuota.
    pub fn remove_quota(&mut self, namespace: &str, name: &str) -> Vec<TableChange> {
        self.change_quotas(namespace, |quotas| quotas.remove(name))
    }

    fn change_quotas(&mut self, name: &str, change: impl FnOnce(&mut Quotas)) -> Vec<TableChange> {
        let current = Arc::make_mut(&mut self.current);
        let namespaces = Arc::make_mut(&mut current.namespaces);
        let namespace = Arc::make_mut(namespaces.entry(name.into()).or_default());
        let changed = namespace.change_quotas(change);
        let free = namespace.quotas().map(Quotas::free).unwrap_or_default();
        if namespace.is_empty() {
            namespaces.remove(name);
        }
        if !changed {
            return Vec::new();
        }
        self.dirty = true;
        vec![TableChange::Quota { namespace: name.to_owned(), free, freed: true }]
    }

    /// Sets the committed shares of a binding and the members' reports on them.
    pub fn upsert_binding(&mut self, facts: BindingFacts) -> Vec<TableChange> {
        let namespace: Arc<str> = facts.key.namespace().unwrap_or_default().into();
        let facts = Arc::new(facts);
        let current = Arc::make_mut(&mut self.current);
        let namespaces = Arc::make_mut(&mut current.namespaces);
        let bindings = Arc::make_mut(namespaces.entry(namespace).or_default());
        let old = bindings.insert(facts.clone());
        if old.as_ref() == Some(&facts) {
            return Vec::new();
        }
        let regrouped = bindings.regroup(old.as_ref(), Some(&facts));
        let used = bindings.book_quotas(old.as_deref(), Some(&facts));
        self.dirty = true;
        let mut changes = self.claim(old.as_deref(), Some(&facts));
        changes.extend(self.book(old.as_deref(), Some(&facts)));
        changes.extend(regrouped);
        changes.extend(used);
        changes
    }

    /// Removes a binding.
    pub fn remove_binding(&mut self, key: &BindingKey) -> Vec<TableChange> {
        let current = Arc::make_mut(&mut self.current);
        let namespace = key.namespace().unwrap_or_default();
        let namespaces = Arc::make_mut(&mut current.namespaces);
        let Some(bindings) = namespaces.get_mut(namespace) else { return Vec::new() };
        let bindings = Arc::make_mut(bindings);
        let Some(old) = bindings.remove(key) else { return Vec::new() };
        let regrouped = bindings.regroup(Some(&old), None);
        let used = bindings.book_quotas(Some(&old), None);
        if bindings.is_empty() {
            namespaces.remove(namespace);
        }
        self.dirty = true;
        let mut changes = self.claim(Some(&old), None);
        changes.extend(self.book(Some(&old), None));
        changes.extend(regrouped);
        changes.extend(used);
        changes
    }

    /// Updates the claims of a binding on the room of others. Returns those whose room a committed decision took.
    fn claim(
        &mut self,
        old: Option<&BindingFacts>,
        new: Option<&BindingFacts>,
    ) -> Vec<TableChange> {
        let links = |facts: Option<&BindingFacts>| facts.and_then(|f| f.standing.links.clone());
        if links(old) == links(new) {
            return Vec::new();
        }
        let current = Arc::make_mut(&mut self.current);
        let claims = Arc::make_mut(&mut current.claims);
        for (victim, claim) in old.into_iter().flat_map(Claim::of) {
            if let Some(held) = claims.get_mut(&victim) {
                held.retain(|known| known.by != claim.by);
                if held.is_empty() {
                    claims.remove(&victim);
                }
            }
        }
        let mut victims = BTreeSet::new();
        for (victim, claim) in new.into_iter().flat_map(Claim::of) {
            if claim.committed {
                victims.insert(victim.clone());
            }
            claims.entry(victim).or_default().push(claim);
        }
        victims.into_iter().map(|victim| TableChange::Preempted { victim }).collect()
    }

    /// Bindings of a group, placed or not.
    pub fn group_members(
        &self,
        namespace: &str,
        group: &AffinityGroup,
    ) -> impl Iterator<Item = &BindingKey> {
        let members = self.current.affinity_group(namespace, group).into_iter();
        members.flat_map(|members| members.iter().map(|facts| &facts.key))
    }

    /// A binding.
    #[must_use]
    pub fn binding(&self, key: &BindingKey) -> Option<&Arc<BindingFacts>> {
        self.current.binding(key)
    }

    /// Bindings of a namespace.
    pub fn bindings(&self, namespace: &str) -> impl Iterator<Item = &Arc<BindingFacts>> {
        self.current.bindings(namespace)
    }

    /// The rules of `placement.workloadAffinity` that a binding's clusters violate. `None` if it has no such rules.
    #[must_use]
    pub fn affinity_violations(&self, key: &BindingKey) -> Option<Vec<Violation>> {
        self.current.affinity_violations(key)
    }

    /// The current view. Returns the previous one if nothing changed.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        if self.resized {
            self.rebuild();
        } else if !self.changed.is_empty() || self.dirty {
            let current = Arc::make_mut(&mut self.current);
            current.version += 1;
            for (name, room_only) in std::mem::take(&mut self.changed) {
                let (Some(at), Some(row)) = (current.find(&name), self.clusters.get(&name)) else {
                    continue;
                };
                let chunk = &mut current.chunks[at / CHUNK];
                if let Some(rows) = Arc::get_mut(chunk) {
                    rows[at % CHUNK] = row.clone();
                } else {
                    let mut rows: Vec<_> = chunk.to_vec();
                    rows[at % CHUNK] = row.clone();
                    *chunk = rows.into();
                }
                let (version, row) = (current.version, at as u32);
                current.log.push(Logged { version, row, room_only });
            }
            if current.log.len() > LOG {
                let drop = current.log.len() - LOG / 2;
                current.log_from = current.log[drop - 1].version;
                current.log.drain(..drop);
            }
        }
        self.dirty = false;
        self.current.clone()
    }

    fn rebuild(&mut self) {
        let current = Arc::make_mut(&mut self.current);
        current.version += 1;
        current.membership += 1;
        current.names = Some(self.clusters.keys().cloned().collect());
        let rows: Vec<_> = self.clusters.values().cloned().collect();
        current.chunks = rows.chunks(CHUNK).map(Arc::from).collect();
        current.log.clear();
        current.log_from = current.version;
        self.changed.clear();
        self.resized = false;
    }

    fn put(&mut self, row: Arc<Row>, room_only: bool) {
        self.changed.push((row.name.clone(), room_only));
        if let Some(known) = self.clusters.get_mut(&row.name) {
            *known = row;
        }
    }

    /// Updates the reservations of a binding from its old facts to its new ones: reserved(binding, cluster) = max(0,
    /// share - reported).
    fn book(&mut self, old: Option<&BindingFacts>, new: Option<&BindingFacts>) -> Vec<TableChange> {
        // Scheduling the binding reports unreadable requirements. Here such a binding reserves only pods.
        let needs = |facts: Option<&BindingFacts>| {
            facts.map_or_else(Needs::default, |facts| {
                Needs::read(facts.requirements.as_deref()).unwrap_or_default()
            })
        };
        let alike = old.zip(new).is_some_and(|(old, new)| old.requirements == new.requirements);
        let mut open = open_shares(old, new);
        open.retain(|share| share.before != share.after || !alike && share.after > 0);
        if open.is_empty() {
            return self.shrunk(old, new);
        }
        let after = needs(new);
        let before = if alike { after.clone() } else { needs(old) };
        let mut changes = Vec::new();
        for Open { name, before: was, after: is } in open {
            let mut delta = Amounts::new();
            let mut add = |needs: &Needs, open: i64, sign: i64| {
                let each =
                    needs.requests.iter().map(|(resource, value)| (resource.as_str(), *value));
                for (resource, request) in each.chain([(PODS, 1)]).filter(|_| open > 0) {
                    let entry = delta.entry(resource.to_owned()).or_default();
                    *entry =
                        entry.saturating_add(request.saturating_mul(open).saturating_mul(sign));
                }
            };
            add(&before, was, -1);
            add(&after, is, 1);
            if delta.values().all(|value| *value == 0) {
                continue;
            }
            let freed = delta.values().any(|value| *value < 0);
            let cluster: ClusterName = name.into();
            let held = self.reserved.entry(cluster.clone()).or_default();
            for (resource, value) in delta {
                let entry = held.entry(resource).or_default();
                *entry = entry.saturating_add(value);
            }
            held.retain(|_, value| *value != 0);
            let held = held.clone();
            if held.is_empty() {
                self.reserved.remove(&cluster);
            }
            if let Some(row) = self.clusters.get(&cluster) {
                let row = Arc::new(Row { reserved: held, ..(**row).clone() });
                self.put(row.clone(), true);
                if freed {
                    changes.push(TableChange::Capacity { row });
                }
            }
        }
        changes.extend(self.shrunk(old, new));
        changes
    }

    /// The event for bindings that may wait for this one to shrink.
    fn shrunk(&self, old: Option<&BindingFacts>, new: Option<&BindingFacts>) -> Vec<TableChange> {
        let old = old.filter(|old| shrank(old, new));
        let shrunk = |old: &BindingFacts| TableChange::BindingShrank {
            key: old.key.clone(),
            pod_labels: old.pod_labels.clone(),
        };
        old.map(shrunk).into_iter().collect()
    }
}

/// Replicas of a share that the member does not report yet.
struct Open<'a> {
    name: &'a str,
    before: i64,
    after: i64,
}

/// The unreported replicas of a binding before and after a change, by name.
fn open_shares<'a>(old: Option<&'a BindingFacts>, new: Option<&'a BindingFacts>) -> Vec<Open<'a>> {
    let each = |facts: Option<&'a BindingFacts>| {
        facts.into_iter().flat_map(|facts| {
            facts.shares.iter().map(|share| {
                let reported = facts.reported.get(share.name.as_str()).copied().unwrap_or(0).max(0);
                (share.name.as_str(), share.replicas.saturating_sub(reported).max(0))
            })
        })
    };
    let before = each(old).map(|(name, open)| Open { name, before: open, after: 0 });
    let after = each(new).map(|(name, open)| Open { name, before: 0, after: open });
    let mut open: Vec<Open<'a>> = before.chain(after).collect();
    open.sort_by(|a, b| a.name.cmp(b.name));
    open.dedup_by(|next, kept| {
        let same = next.name == kept.name;
        if same {
            kept.before = kept.before.saturating_add(next.before);
            kept.after = kept.after.saturating_add(next.after);
        }
        same
    });
    open
}

fn shrank(old: &BindingFacts, new: Option<&BindingFacts>) -> bool {
    let Some(new) = new else { return true };
    old.pod_labels != new.pod_labels
        || old.shares.iter().enumerate().any(|(at, share)| {
            // Usually both list the same clusters in the same order.
            let same = |other: &&TargetCluster| other.name == share.name;
            let now = new.shares.get(at).filter(same);
            let now = now.or_else(|| new.shares.iter().find(same));
            now.map_or(0, |now| now.replicas) < share.replicas
        })
}

/// Whether two rows of a cluster differ only in capacity.
fn differ_in_room(old: &Row, row: &Row) -> bool {
    let of = |row: &Row| (row.terminating, row.session, row.ready);
    of(old) == of(row)
        && (&old.labels, &old.provider, &old.region, &old.zones, &old.taints)
            == (&row.labels, &row.provider, &row.region, &row.zones, &row.taints)
        && (Arc::ptr_eq(&old.apis, &row.apis) || old.apis == row.apis)
}

fn changes_between(old: &Row, row: &Arc<Row>) -> Vec<TableChange> {
    let mut changes = Vec::new();
    let same = (&old.labels, &old.provider, &old.region, &old.zones, old.terminating)
        == (&row.labels, &row.provider, &row.region, &row.zones, row.terminating);
    if !same {
        changes.push(TableChange::ClusterLabels { row: row.clone() });
    }
    if old.taints != row.taints || old.session != row.session || old.ready != row.ready {
        changes.push(TableChange::ClusterTaints { row: row.clone() });
    }
    if !Arc::ptr_eq(&old.apis, &row.apis) {
        changes.push(TableChange::ClusterApis { row: row.clone() });
    }
    if old.supply != row.supply {
        changes.push(TableChange::Capacity { row: row.clone() });
    }
    changes
}

fn spread_change(namespace: &str, spread: &WorkloadSpread) -> TableChange {
    TableChange::WorkloadSpread { target: TemplateKey::target(namespace, spread) }
}

fn object_key(
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
