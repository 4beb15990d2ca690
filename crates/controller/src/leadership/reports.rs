//! Takes in what members report.

use std::sync::Arc;

use atoll_api::customization::RuleFailure;
use atoll_api::{BindingUid, ClusterName, ManifestHash};
use atoll_history::Stage;
use atoll_scheduler::Session;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Leading;
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::index::rules::RuleSource;
use crate::interpret::{RuleFailed, RuleNews};
use crate::members::{AgentRuleFailed, ApplyResult, Key, MemberEvent};
use crate::placements::Placement;
use crate::placements::observed::{Item, Trouble};
use crate::placements::replica_sync;
use crate::queue::{Opening, Urgency};

impl Leading {
    /// Handles one event of a member.
    pub(crate) fn take_report(&mut self, hub: &mut HubState, event: MemberEvent) {
        match event {
            MemberEvent::Connected { cluster } => {
                self.session(hub, &cluster, Session::Connected);
                for key in keys_on(hub, &cluster) {
                    if self.placements.session_began(&key, &cluster) {
                        self.placement_changed(hub, &key);
                    }
                }
            }
            MemberEvent::Lost { cluster, reason } => {
                tracing::info!(cluster = cluster.as_str(), %reason, "member lost");
                self.session(hub, &cluster, Session::Lost);
                for key in self.placements.counted.session_ended(&cluster) {
                    let changes = self.refresh_binding(hub, &key);
                    self.wake(hub, &changes);
                }
                for key in keys_on(hub, &cluster) {
                    self.placements.readings.forget(&(key.clone(), cluster.clone()));
                    if self.placements.session_lost(&key, &cluster) {
                        self.mark_status(hub, &key);
                    }
                }
            }
            MemberEvent::Facts { cluster, facts } => {
                if let Some(counted) = &facts.counted {
                    let mut changes = hub.set_capacity(&cluster, counted);
                    for key in self.placements.counted.counted(&cluster, counted.counted_at_ms) {
                        changes.extend(self.refresh_binding(hub, &key));
                    }
                    self.wake(hub, &changes);
                }
            }
            MemberEvent::Applied {
                cluster, key, claims, hash, result, reason, message, ..
            } => {
                for binding in bindings_of(hub, &claims) {
                    let trouble = Trouble { reason: reason.clone(), message: message.clone() };
                    self.applied(hub, &binding, (&cluster, &key), (result, &hash), trouble);
                }
            }
            MemberEvent::Status { cluster, key, claims, report } => {
                let bindings = bindings_of(hub, &claims).into_iter();
                for binding in bindings.filter(|binding| is_template(binding, &key)) {
                    self.take_status(hub, &binding, (&cluster, &key), &report);
                }
            }
            MemberEvent::RuleFailed { cluster, failed } => self.rule_failed(hub, &cluster, failed),
            MemberEvent::Withdrawn { cluster, claim } => self.withdrawn(hub, &cluster, &claim),
            MemberEvent::Inventory { cluster, held, .. } => {
                self.placements.note_inventory(&cluster);
                for object in held {
                    let bindings = bindings_of(hub, &object.claims).into_iter();
                    for binding in bindings.filter(|binding| is_template(binding, &object.key)) {
                        let copy = (&object.hash, object.current);
                        if self.placements.held(&binding.key, &cluster, copy) {
                            self.dispatch(hub, &binding.key);
                        }
                    }
                }
            }
            MemberEvent::Suspicion { cluster, begins, message } => {
                self.audit.suspicion(&cluster, begins, &message);
            }
            MemberEvent::HigherTerm { cluster, term } => {
                tracing::warn!(cluster = cluster.as_str(), %term, "members obeyed a higher term than ours");
                self.env.election.heard_term(term);
            }
        }
    }

    fn session(&mut self, hub: &mut HubState, cluster: &ClusterName, session: Session) {
        let changes = hub.set_session(cluster, session);
        self.wake(hub, &changes);
        // Old copies may be removable now.
        let withdrawing: Vec<_> = self.placements.withdrawing().cloned().collect();
        for key in withdrawing {
            self.enqueue(hub, key, Urgency::Now, Some(Opening::Cluster));
        }
        // Shares may have to leave a lost member. What stays on one that is back is not urgent: after a restart all members
        // come back at once.
        let lost = session != Session::Connected;
        let urgency =
            |binding: &Binding| match lost || !binding.spec.graceful_eviction_tasks.is_empty() {
                true => Urgency::Now,
                false => Urgency::Later,
            };
        let on_it: Vec<_> =
            hub.index.bindings_on(cluster).map(|row| (row.key.clone(), urgency(row))).collect();
        for (key, urgency) in on_it {
            self.enqueue(hub, key, urgency, Some(Opening::Cluster));
        }
        self.reopen(hub, Opening::Cluster);
    }

    /// A rule of a customization failed on a member.
    fn rule_failed(&mut self, hub: &HubState, cluster: &ClusterName, failed: AgentRuleFailed) {
        let failure = RuleFailure {
            operation: failed.operation,
            namespace: failed.key.namespace().map(str::to_owned),
            name: failed.key.name().to_owned(),
            cluster: Some(cluster.as_str().to_owned()),
            message: failed.message,
            time: Time(self.env.clock.now_seconds()),
        };
        let AgentRuleFailed { customization, spec_hash: hash, .. } = failed;
        let source = RuleSource::Customization(customization);
        let failed = RuleFailed { source, hash, unreachable: false, failure };
        self.statuses.take_rule_news(&hub.index, RuleNews::Failed(failed));
    }

    /// A member tried to apply an object of a binding.
    fn applied(
        &mut self,
        hub: &mut HubState,
        binding: &Binding,
        (cluster, key): (&ClusterName, &Key),
        (result, hash): (ApplyResult, &ManifestHash),
        mut trouble: Trouble,
    ) {
        if !is_template(binding, key) {
            // Of other objects that the object needs (its namespace), only failures matter.
            if result != ApplyResult::Failed {
                return;
            }
            trouble.message = format!("{}: {}", key.kind(), trouble.message);
        } else if result == ApplyResult::Applied
            && self.placements.sent(&binding.key, cluster).is_some_and(|sent| sent.hash == *hash)
        {
            self.audit.reached(&binding.key, cluster, Stage::Applied);
        }
        if self.placements.applied(&binding.key, cluster, result, hash, trouble) {
            self.placement_changed(hub, &binding.key);
        }
    }

    /// The state of a binding on a member changed.
    pub(super) fn placement_changed(&mut self, hub: &mut HubState, key: &BindingKey) {
        let changes = self.refresh_binding(hub, key);
        self.wake(hub, &changes);
        self.mark_status(hub, key);
        let Some(binding) = hub.index.binding(key) else { return };
        let any = |test: fn(&Item) -> bool| {
            self.placements.all_observed(key).any(|(_, observed)| test(&observed.item))
        };
        let failover = binding.spec.failover.as_ref();
        let fails = failover.is_some_and(|failover| failover.application.is_some())
            && any(|item| item.unhealthy_since.time().is_some());
        let template = hub.index.template(&binding.template);
        let divided_anew = template
            .is_some_and(|row| replica_sync::differs(&hub.index, &self.placements, binding, row));
        let has_tasks = !binding.spec.graceful_eviction_tasks.is_empty();
        if has_tasks
            || divided_anew
            || any(|item| item.unschedulable_replicas.get().is_some())
            || fails
        {
            self.enqueue(hub, key.clone(), Urgency::Now, None);
        }
    }

    /// A member holds no object of a binding any more.
    fn withdrawn(&mut self, hub: &HubState, cluster: &ClusterName, claim: &BindingUid) {
        let Some(binding) = hub.index.binding_by_uid(claim).cloned() else { return };
        let key = &binding.key;
        let ordered = self.placements.get(key, cluster).is_some_and(Placement::is_leaving);
        let withdrawal = self.placements.withdrawal_mut(key);
        if let Some(withdrawal) = withdrawal.filter(|withdrawal| withdrawal.is_of(claim)) {
            withdrawal.confirm(cluster);
        } else if !ordered {
            return; // it was wanted again meanwhile
        }
        self.placements.withdrawn(key, cluster);
        self.mark_status(hub, key);
        let needed: Vec<_> = hub.index.needs(key).into_iter().flatten().collect();
        for object in needed {
            self.enqueue(hub, object.binding(), Urgency::Later, None);
        }
        self.enqueue(hub, key.clone(), Urgency::Now, None);
    }
}

fn keys_on(hub: &HubState, cluster: &ClusterName) -> Vec<BindingKey> {
    hub.index.bindings_on(cluster).map(|binding| binding.key.clone()).collect()
}

/// The bindings that an object on a member belongs to.
fn bindings_of(hub: &HubState, claims: &[BindingUid]) -> Vec<Arc<Binding>> {
    claims.iter().filter_map(|claim| hub.index.binding_by_uid(claim).cloned()).collect()
}

/// Whether a member's object is the binding's own, not one that it needs.
fn is_template(binding: &Binding, key: &Key) -> bool {
    binding.template.on_members() == key
}
