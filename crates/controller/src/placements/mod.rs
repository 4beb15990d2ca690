//! The ledger of placements: what each binding wants on each member, what the member was sent, what it reported, and
//! whether it was ordered to remove it. One table, owned by the leader; dispatch, eviction, status and withdrawal are
//! functions over it.
//!
//! The intent is not stored: [`plan`] computes it from the committed decision. Nothing of the ledger is durable: a new
//! leader starts with the statuses of bindings, dispatches every committed decision, and learns the rest from agents.

mod counted;
pub(crate) mod dispatch;
pub(crate) mod eviction;
pub(crate) mod observed;
pub(crate) mod order;
pub(crate) mod outlet;
pub(crate) mod plan;
pub(crate) mod readings;
pub(crate) mod reissued;
pub(crate) mod removal_limits;
pub(crate) mod replica_sync;
pub(crate) mod required;
pub(crate) mod revisions;
pub(crate) mod sent;
pub(crate) mod special;
pub(crate) mod verdicts;
pub(crate) mod withdraw;
pub(crate) mod withdrawal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::binding::ResourceHealth;
use atoll_api::{ClusterName, Few, ManifestHash, share_equal};
use atoll_render::RenderError;
use atoll_render::overrides::Scope;
use atoll_scheduler::Report as SchedulerReport;
use jiff::Timestamp;

use crate::index::key::{BindingKey, PolicyKey};
use crate::index::rows::Binding;
use crate::index::template::Content;
use crate::index::template::Template;
use crate::leader::LeaderTerm;
use crate::members::{ApplyResult, Report};
use counted::Counted;
use observed::{Certainty, Observed, Trouble};
use order::Order;
use readings::Readings;
use revisions::Revisions;
use sent::{Inputs, Sent};
use verdicts::Verdicts;
use withdrawal::Withdrawal;

/// Whether a member was ordered to remove its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Removal {
    /// It was not.
    #[default]
    NotOrdered,
    /// It was, and has not confirmed yet.
    Ordered,
    /// It holds no object of the binding any more.
    Confirmed,
}

/// One binding on one member.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// What the session was given; `None` while nothing is wanted there.
    pub sent: Option<Sent>,
    /// What the agent reported; `None` while nothing is known.
    pub observed: Option<Observed>,
    /// Whether it must remove its copy.
    pub removal: Removal,
    /// Whether its inventory shows an object of the binding, by the order of an earlier leader.
    pub held: bool,
}

impl Placement {
    /// Whether the member runs what it was sent, healthily, with at least these replicas. For a kind that reports no
    /// number of ready replicas its health alone counts.
    #[must_use]
    pub(crate) fn is_healthy(&self, replicas: Option<i64>) -> bool {
        let (Some(sent), Some(observed)) = (&self.sent, &self.observed) else { return false };
        observed.holds(&sent.hash)
            && observed.observed
            && observed.item.health == ResourceHealth::Healthy
            && replicas
                .zip(observed.item.ready_replicas.get())
                .is_none_or(|(wanted, ready)| ready >= wanted)
    }

    /// Whether the member was ordered to remove its copy.
    pub(crate) fn is_leaving(&self) -> bool {
        self.removal != Removal::NotOrdered
    }

    fn is_empty(&self) -> bool {
        self.sent.is_none() && self.observed.is_none() && !self.is_leaving() && !self.held
    }

    /// Almost always the member holds what it was sent: then one text is kept for both hashes.
    fn share_hash(&mut self) {
        if let (Some(sent), Some(observed)) = (&self.sent, &mut self.observed) {
            share_equal(&mut observed.hash, &sent.hash);
        }
    }

    /// The observation, to be changed by a report.
    fn observe(&mut self) -> &mut Observed {
        self.observed.get_or_insert_default()
    }
}

/// One binding on all members.
#[derive(Debug, Default)]
struct BindingPlacements {
    /// Boxed: the list may have room for more.
    members: Few<ClusterName, Box<Placement>>,
    /// The content of the template that it was last rendered from, and its version.
    source: Option<(Content, u64)>,
    /// Boxed: few have any.
    obstacles: Option<Box<Obstacles>>,
}

/// Why members of a binding were not sent what they should hold.
#[derive(Debug, Default, PartialEq)]
struct Obstacles {
    /// Members for which the template could not be rendered, and why.
    render_errors: BTreeMap<ClusterName, RenderError>,
    /// Members that are wanted and were sent nothing in this leadership, because of an error or of something that they
    /// wait for. They may hold the copy of an earlier leadership.
    unsent: BTreeSet<ClusterName>,
}

impl BindingPlacements {
    /// Changes the obstacles, which are kept only while there are any.
    fn change_obstacles<T>(&mut self, change: impl FnOnce(&mut Obstacles) -> T) -> T {
        let mut held = self.obstacles.take().unwrap_or_default();
        let result = change(&mut held);
        self.obstacles = Some(held).filter(|held| **held != Obstacles::default());
        result
    }
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    /// Boxed: a node of the map has room for eleven.
    bindings: BTreeMap<BindingKey, Box<BindingPlacements>>,
    /// Withdrawals in progress: few, and each change of a session concerns all of them.
    withdrawals: BTreeMap<BindingKey, Withdrawal>,
    /// Members whose inventory is known in this leadership.
    inventoried: BTreeSet<ClusterName>,
    /// Which reported replicas are in the members' figures of free room.
    pub(crate) counted: Counted,
    /// Versions of template contents so far.
    versions: u64,
    /// What sessions may look up.
    pub(crate) verdicts: Arc<Verdicts>,
    /// Templates with the replicas of shares, where rules of users write them.
    pub(crate) revisions: Revisions,
    /// Reports that webhooks read.
    pub(crate) readings: Readings,
}

impl Placements {
    /// Of a leadership that begins.
    pub(crate) fn begin(term: LeaderTerm) -> Self {
        Self { verdicts: Arc::new(Verdicts::begin(term)), ..Self::default() }
    }

    /// Controller and member agree on what the member holds.
    pub(crate) fn note_inventory(&mut self, cluster: &ClusterName) {
        if !self.inventoried.contains(cluster) {
            self.inventoried.insert(cluster.clone());
        }
    }

    /// Whether the member's inventory is known in this leadership. Before, it may hold copies from earlier decisions.
    pub(crate) fn is_inventoried(&self, cluster: &ClusterName) -> bool {
        self.inventoried.contains(cluster)
    }

    /// A binding's placements, by member.
    pub(crate) fn of(&self, key: &BindingKey) -> impl Iterator<Item = (&ClusterName, &Placement)> {
        let members = self.bindings.get(key).into_iter().flat_map(|binding| binding.members.iter());
        members.map(|(cluster, placement)| (cluster, &**placement))
    }

    /// One placement.
    #[must_use]
    pub(crate) fn get(&self, key: &BindingKey, cluster: &str) -> Option<&Placement> {
        self.bindings.get(key)?.members.get(cluster).map(Box::as_ref)
    }

    /// What a member was sent for a binding.
    #[must_use]
    pub(crate) fn sent(&self, key: &BindingKey, cluster: &str) -> Option<&Sent> {
        self.get(key, cluster)?.sent.as_ref()
    }

    /// What a member reported about a binding.
    #[must_use]
    pub(crate) fn observed(&self, key: &BindingKey, cluster: &str) -> Option<&Observed> {
        self.get(key, cluster)?.observed.as_ref()
    }

    /// Everything that was sent for a binding, by member.
    pub(crate) fn all_sent(&self, key: &BindingKey) -> impl Iterator<Item = (&ClusterName, &Sent)> {
        self.of(key).filter_map(|(cluster, placement)| Some((cluster, placement.sent.as_ref()?)))
    }

    /// Everything that members reported about a binding.
    pub(crate) fn all_observed(
        &self,
        key: &BindingKey,
    ) -> impl Iterator<Item = (&ClusterName, &Observed)> {
        self.of(key)
            .filter_map(|(cluster, placement)| Some((cluster, placement.observed.as_ref()?)))
    }

    /// Reports for the scheduler: fresh ones only; with the objects' status where requested.
    #[must_use]
    pub(crate) fn reports(
        &self,
        key: &BindingKey,
        with_status: bool,
    ) -> BTreeMap<ClusterName, SchedulerReport> {
        self.all_observed(key)
            .filter_map(|(cluster, observed)| {
                Some((cluster.clone(), observed.report(with_status)?))
            })
            .collect()
    }

    /// Known replicas on members that are in their figures of free room. A figure from the status is better than none, because a reservation for replicas that
    /// already run would count them twice.
    #[must_use]
    pub(crate) fn replicas(&self, key: &BindingKey) -> Few<ClusterName, i64> {
        self.all_observed(key)
            .filter_map(|(cluster, observed)| {
                let replicas = self.counted.of(key, cluster, observed.item.replicas.get()?);
                Some((cluster.clone(), replicas))
            })
            .collect()
    }

    /// Takes over what an earlier leader wrote into the binding's status, where nothing better is known.
    pub(crate) fn seed(&mut self, binding: &Binding) {
        let key = &binding.key;
        let mut members = binding.status.members().iter();
        if members.all(|member| self.observed(key, member).is_some()) {
            return;
        }
        for item in &binding.status.read().aggregated_status {
            let placement = self.place(key, &ClusterName::from(&item.cluster_name));
            placement.observed.get_or_insert_with(|| Observed::seeded(item));
        }
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.bindings.remove(key);
        self.withdrawals.remove(key);
        self.revisions.forget(key);
        self.readings.forget_binding(key);
    }

    fn place(&mut self, key: &BindingKey, cluster: &ClusterName) -> &mut Placement {
        let members = &mut self.bindings.entry(key.clone()).or_default().members;
        members.get_or_default(cluster)
    }

    fn tidy(&mut self, key: &BindingKey, cluster: &ClusterName) {
        if let Some(binding) = self.bindings.get_mut(key)
            && binding.members.get(cluster).is_some_and(|placement| placement.is_empty())
        {
            binding.members.remove(cluster);
        }
    }
}

/// Reports of members. Each method returns whether something changed.
impl Placements {
    /// The result of an apply or a removal.
    pub(crate) fn applied(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        result: ApplyResult,
        hash: &ManifestHash,
        trouble: Trouble,
    ) -> bool {
        self.observe(key, cluster, |observed| observed.applied(result, hash, trouble))
    }

    /// The object's state at `now`.
    pub(crate) fn reported(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        report: &Report,
        now: Timestamp,
    ) -> bool {
        let replicas =
            |observed: Option<&Observed>| observed.and_then(|o| o.item.replicas.get()).unwrap_or(0);
        let before = replicas(self.observed(key, cluster));
        let changed = self.observe(key, cluster, |observed| observed.reported(report, now));
        let after = replicas(self.observed(key, cluster));
        self.counted.reported(key, cluster, (before, after));
        changed
    }

    /// The member's inventory shows an object of the binding; `current`: as it was sent. Returns whether nothing was sent
    /// in this leadership yet.
    pub(crate) fn held(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        (hash, current): (&ManifestHash, bool),
    ) -> bool {
        if current {
            self.observe(key, cluster, |observed| observed.hash.clone_from(hash));
        }
        let placement = self.place(key, cluster);
        placement.held = true;
        placement.sent.is_none()
    }

    /// A session begins: the agent retries what failed in the last one, and reports persistent failures again.
    pub(crate) fn session_began(&mut self, key: &BindingKey, cluster: &ClusterName) -> bool {
        self.known(key, cluster).is_some_and(|observed| observed.trouble.take().is_some())
    }

    /// The member was lost: what it reported is no longer certain.
    pub(crate) fn session_lost(&mut self, key: &BindingKey, cluster: &ClusterName) -> bool {
        let Some(observed) = self.known(key, cluster) else { return false };
        std::mem::replace(&mut observed.certainty, Certainty::Lost) != Certainty::Lost
    }

    /// The member holds no object of the binding any more.
    pub(crate) fn withdrawn(&mut self, key: &BindingKey, cluster: &ClusterName) {
        self.readings.forget(&(key.clone(), cluster.clone()));
        let placement = self.place(key, cluster);
        placement.observed = None;
        placement.held = false;
        placement.removal = Removal::Confirmed;
    }

    fn observe(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        change: impl FnOnce(&mut Observed),
    ) -> bool {
        let placement = self.place(key, cluster);
        let before = placement.observed.clone();
        change(placement.observe());
        placement.share_hash();
        placement.observed != before
    }

    fn known(&mut self, key: &BindingKey, cluster: &ClusterName) -> Option<&mut Observed> {
        self.bindings.get_mut(key)?.members.get_mut(cluster)?.observed.as_mut()
    }
}

/// Orders to members.
impl Placements {
    /// The version of a template's content. It changes with everything that a manifest or a report of its revision may
    /// show, but not with the status in the hub.
    fn source(&mut self, key: &BindingKey, template: &Template) -> u64 {
        let binding = self.bindings.entry(key.clone()).or_default();
        if let Some((held, version)) = binding.source
            && held == template.content()
        {
            return version;
        }
        self.versions += 1;
        binding.source = Some((template.content(), self.versions));
        self.versions
    }

    /// Stores what is sent, and returns whether it differs from before.
    fn send(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        order: &Order,
        inputs: Inputs,
        revision: i64,
    ) -> bool {
        let placement = self.place(key, cluster);
        let next = Sent::next(placement.sent.as_ref(), order, inputs, revision);
        let same = placement.sent.as_ref().is_some_and(|before| next.is_same(before));
        placement.sent = Some(next);
        !same
    }

    /// The member is wanted again: an earlier order to remove its copy no longer holds.
    fn keep(&mut self, key: &BindingKey, cluster: &ClusterName) {
        if let Some(binding) = self.bindings.get_mut(key)
            && let Some(placement) = binding.members.get_mut(cluster)
        {
            placement.removal = Removal::NotOrdered;
            self.tidy(key, cluster);
        }
    }

    /// The member must hold no object of the binding any more. Returns whether that is new.
    fn remove(&mut self, key: &BindingKey, cluster: &ClusterName) -> bool {
        let placement = self.place(key, cluster);
        placement.sent = None;
        let new = !placement.is_leaving();
        if new {
            placement.removal = Removal::Ordered;
        }
        new
    }

    /// Members for which the binding's template could not be rendered, and why.
    pub(crate) fn render_errors(
        &self,
        key: &BindingKey,
    ) -> impl Iterator<Item = (&ClusterName, &RenderError)> {
        let obstacles = self.bindings.get(key).and_then(|binding| binding.obstacles.as_deref());
        obstacles.into_iter().flat_map(|obstacles| &obstacles.render_errors)
    }

    /// The override policies whose rules are in what was sent for a binding, or cannot be applied to it.
    pub(crate) fn overridden_by(&self, key: &BindingKey) -> BTreeSet<PolicyKey> {
        let policy = |scope: Scope, name: &String| {
            let namespace =
                key.namespace().map(str::to_owned).filter(|_| scope == Scope::Namespace);
            PolicyKey { namespace, name: name.clone() }
        };
        let applied = self.all_sent(key).flat_map(|(_, sent)| &sent.applied);
        let failing = self.render_errors(key).filter_map(|(_, error)| match error {
            RenderError::Override(error) => Some(policy(error.scope, &error.policy)),
            _ => None,
        });
        applied.map(|rule| policy(rule.scope, &rule.policy)).chain(failing).collect()
    }

    /// Sets the wanted members, of which those that were sent nothing are kept. Returns those of before.
    fn set_unsent(
        &mut self,
        key: &BindingKey,
        wanted: impl Iterator<Item = ClusterName>,
    ) -> BTreeSet<ClusterName> {
        let unsent: BTreeSet<_> = wanted.filter(|name| self.sent(key, name).is_none()).collect();
        if unsent.is_empty() && !self.has_obstacles(key) {
            return BTreeSet::new();
        }
        let binding = self.bindings.entry(key.clone()).or_default();
        binding.change_obstacles(|held| std::mem::replace(&mut held.unsent, unsent))
    }

    /// Sets the members for which it could not be rendered. Returns whether that changed.
    fn set_render_errors(
        &mut self,
        key: &BindingKey,
        errors: BTreeMap<ClusterName, RenderError>,
    ) -> bool {
        if errors.is_empty() && !self.has_obstacles(key) {
            return false;
        }
        let binding = self.bindings.entry(key.clone()).or_default();
        binding.change_obstacles(|held| {
            let changed = held.render_errors != errors;
            held.render_errors = errors;
            changed
        })
    }

    fn has_obstacles(&self, key: &BindingKey) -> bool {
        self.bindings.get(key).is_some_and(|binding| binding.obstacles.is_some())
    }
}

/// Withdrawals.
impl Placements {
    /// The binding's withdrawal, if it is in progress.
    #[must_use]
    pub(crate) fn withdrawal(&self, key: &BindingKey) -> Option<&Withdrawal> {
        self.withdrawals.get(key)
    }

    /// The same, to change it.
    pub(crate) fn withdrawal_mut(&mut self, key: &BindingKey) -> Option<&mut Withdrawal> {
        self.withdrawals.get_mut(key)
    }

    /// The bindings that are being withdrawn.
    pub(crate) fn withdrawing(&self) -> impl Iterator<Item = &BindingKey> {
        self.withdrawals.keys()
    }

    /// Starts a withdrawal: nothing is wanted anywhere any more.
    fn begin_withdrawal(&mut self, key: &BindingKey, withdrawal: Withdrawal) {
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.source = None;
            for placement in binding.members.values_mut() {
                placement.sent = None;
            }
            binding.members.retain(|_, placement| !placement.is_empty());
        }
        self.withdrawals.insert(key.clone(), withdrawal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_fits_into_a_block_of_256_bytes() {
        // There is one for each workload on each member; the allocator's next larger block has 320 bytes.
        assert!(size_of::<Placement>() <= 256, "{}", size_of::<Placement>());
    }
}
