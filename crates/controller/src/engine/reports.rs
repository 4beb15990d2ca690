//! Passes reports of members to everything that they affect.

use std::sync::Arc;

use atoll_history::Stage;
use atoll_scheduler::{LiveCluster, Session, TableChange};

use super::{Engine, facts};
use crate::index::key::{BindingKey, GroupKind, TemplateKey};
use crate::index::rows::Binding;
use crate::members::{ApplyResult, Key, MemberEvent};
use crate::queue::{Opening, Urgency};
use crate::status::views::Trouble;

impl Engine {
    /// Handles one event of a member.
    pub(super) fn take_report(&mut self, event: MemberEvent) {
        match event {
            MemberEvent::Connected { cluster } => {
                self.session(&cluster, Session::Connected);
                let keys: Vec<_> =
                    self.index.bindings_on(&cluster).map(|binding| binding.key.clone()).collect();
                for key in keys {
                    if self.views.tried_again(&key, &cluster) {
                        self.view_changed(&key);
                    }
                }
            }
            MemberEvent::Lost { cluster, reason } => {
                tracing::info!(cluster, %reason, "member lost");
                self.session(&cluster, Session::Lost);
                let keys: Vec<_> =
                    self.index.bindings_on(&cluster).map(|binding| binding.key.clone()).collect();
                for key in keys {
                    if self.views.lost(&key, &cluster) {
                        self.mark_status(&key);
                    }
                }
            }
            MemberEvent::Facts { cluster, facts } => {
                if let Some(counted) = &facts.counted {
                    let capacity = facts::capacity(counted);
                    self.live_changed(&cluster, |live| live.capacity = Some(capacity));
                }
            }
            MemberEvent::Applied {
                cluster, key, claims, hash, result, reason, message, ..
            } => {
                for claim in claims {
                    let Some(binding) = self.index.binding_by_uid(&claim).cloned() else {
                        continue;
                    };
                    let own = is_template(&binding, &key);
                    // Of other objects that the object needs (its namespace), only failures matter.
                    if !own && matches!(result, ApplyResult::Applied | ApplyResult::Waiting) {
                        continue;
                    }
                    let message =
                        if own { message.clone() } else { format!("{}: {message}", key.kind) };
                    let trouble = Trouble { reason: reason.clone(), message };
                    let given = self.sent.get(&binding.key, &cluster);
                    if own
                        && result == ApplyResult::Applied
                        && given.is_some_and(|given| given.hash == hash)
                    {
                        self.reached(&binding.key, &cluster, Stage::Applied);
                    }
                    if self.views.applied(&binding.key, &cluster, result, &hash, trouble) {
                        self.view_changed(&binding.key);
                    }
                }
            }
            MemberEvent::Status { cluster, key, claims, report } => {
                for claim in claims {
                    let Some(binding) = self.index.binding_by_uid(&claim).cloned() else {
                        continue;
                    };
                    if !is_template(&binding, &key) {
                        continue;
                    }
                    let now = self.clock.now_seconds();
                    if self.views.reported(&binding.key, &cluster, &report, now) {
                        self.view_changed(&binding.key);
                        self.note_health(&binding, &cluster);
                    }
                }
            }
            MemberEvent::Withdrawn { cluster, claim } => self.withdrawn(&cluster, &claim),
            MemberEvent::Inventory { cluster, held, .. } => {
                for object in held.into_iter().filter(|object| object.current) {
                    for claim in &object.claims {
                        let Some(binding) = self.index.binding_by_uid(claim).cloned() else {
                            continue;
                        };
                        let fresh = self.views.get(&binding.key, &cluster);
                        let known = fresh.is_some_and(|view| view.hash == object.hash);
                        if is_template(&binding, &object.key) && !known {
                            self.views.held(&binding.key, &cluster, &object.hash);
                        }
                    }
                }
            }
            MemberEvent::Suspicion { cluster, begins, message } => {
                self.chronicle_suspicion(&cluster, begins, &message);
            }
            MemberEvent::HigherTerm { cluster, term } => {
                tracing::warn!(cluster, %term, "members obeyed a higher term than ours");
                self.election.heard_term(term);
            }
        }
    }

    fn session(&mut self, cluster: &str, session: Session) {
        self.live_changed(cluster, |live| live.session = session);
        // Its shares may have to move, or its old copies may be removable now.
        let keys: Vec<_> =
            self.index.bindings_on(cluster).map(|binding| binding.key.clone()).collect();
        let withdrawing: Vec<_> = self.withdrawals.keys().cloned().collect();
        if self.led.is_some() {
            for key in keys.into_iter().chain(withdrawing) {
                self.enqueue(key, Urgency::Now, Some(Opening::Cluster));
            }
            self.reopen(Opening::Cluster);
        }
    }

    fn live_changed(&mut self, name: &str, change: impl FnOnce(&mut LiveCluster)) {
        let Some(cluster) = self.index.cluster(name).cloned() else { return };
        let live = self.live.entry(name.to_owned());
        let live = live.or_insert_with(|| LiveCluster::from_status(&cluster));
        change(live);
        let live = live.clone();
        let changes = self.tables.upsert_cluster(&cluster, live);
        self.wake(&changes);
    }

    /// The state of a binding on a member changed.
    fn view_changed(&mut self, key: &BindingKey) {
        let changes = self.refresh_facts(key);
        self.wake(&changes);
        self.mark_status(key);
        let Some(binding) = self.index.binding(key) else { return };
        let unschedulable =
            self.views.of(key).any(|(_, view)| view.item.unschedulable_replicas.is_some());
        let failover = binding.spec.failover.as_ref();
        let fails = failover.is_some_and(|failover| failover.application.is_some())
            && self.views.of(key).any(|(_, view)| view.item.unhealthy_since.is_some());
        if self.led.is_some() && (has_tasks(binding) || unschedulable || fails) {
            self.enqueue(key.clone(), Urgency::Now, None);
        }
    }

    /// Updates what a binding has in the scheduler's tables.
    pub(super) fn refresh_facts(&mut self, key: &BindingKey) -> Vec<TableChange> {
        // While a decision is being committed its shares count, not those still in the hub.
        if self.queue.is_in_flight(key) {
            return Vec::new();
        }
        let facts = self.facts_of(key);
        facts.map(|facts| self.tables.upsert_binding(facts)).unwrap_or_default()
    }

    fn withdrawn(&mut self, cluster: &str, claim: &str) {
        let Some(binding) = self.index.binding_by_uid(claim).cloned() else { return };
        let key = &binding.key;
        let told = self.leaving.get(key).is_some_and(|leaving| leaving.contains(cluster));
        if let Some(withdrawal) = self.withdrawals.get_mut(key) {
            withdrawal.confirm(cluster);
        } else if !told {
            return; // it was wanted again meanwhile
        }
        self.confirmed.entry(key.clone()).or_default().insert(cluster.to_owned());
        self.views.withdrawn(key, cluster);
        self.mark_status(key);
        if self.led.is_some() {
            self.enqueue(key.clone(), Urgency::Now, None);
        }
    }
}

fn has_tasks(binding: &Arc<Binding>) -> bool {
    !binding.spec.graceful_eviction_tasks.is_empty()
}

/// Whether a member's object is the binding's own, not one that it needs.
fn is_template(binding: &Binding, key: &Key) -> bool {
    binding.template()
        == TemplateKey {
            kind: GroupKind { group: key.group.clone(), kind: key.kind.clone() },
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
}
