//! Writes statuses that are due: computes them, compares them with the hub's, and patches the differences.

use atoll_api::workload_policy::DomainStatus;
use atoll_api::{
    ClusterPropagationPolicy, ClusterResourceBinding, PropagationPolicy, ResourceBinding,
    WorkloadPolicy, WorkloadSpread,
};
use atoll_scheduler::Decision;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Engine;
use super::answers::source_of;
use super::jobs::JobDone;
use crate::detect::{self, Claim};
use crate::index::Source;
use crate::index::key::{BindingKey, GroupKind, TemplateKey};
use crate::index::rows::{Binding, Template};
use crate::leader::LeaderTerm;
use crate::status::due::{Pace, Subject};
use crate::status::views::View;
use crate::status::write::{self, Target};
use crate::status::{binding, policy, secrets, spread, template};

/// A binding as input of its statuses.
struct Known<'a> {
    engine: &'a Engine,
    binding: &'a Binding,
}

impl binding::Knowledge for Known<'_> {
    fn view(&self, cluster: &str) -> Option<&View> {
        self.engine.views.get(&self.binding.key, cluster)
    }

    fn given(&self, cluster: &str) -> Option<&str> {
        self.engine.sent.get(&self.binding.key, cluster).map(|handed| handed.hash.as_str())
    }

    fn refused(&self) -> Option<String> {
        self.engine.index.refusal(self.binding).map(|why| why.to_string())
    }

    fn gated(&self) -> Option<String> {
        self.engine.queue.held(&self.binding.key).map(ToString::to_string)
    }

    fn hindrance(&self) -> Option<(&'static str, String)> {
        if let Some(error) = self.engine.unrendered.get(&self.binding.key) {
            return Some(("CannotRender", error.clone()));
        }
        if self.binding.spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching) {
            return Some(("Suspended", "spec.suspension.dispatching is set".to_owned()));
        }
        let term = self
            .binding
            .spec
            .decision
            .as_ref()
            .map(|d| LeaderTerm::from_record(d.term))
            .unwrap_or_default();
        let ours = self.engine.led.unwrap_or_default();
        if term.is_out_of_range(ours) {
            return Some((
                "TermOutOfRange",
                format!(
                    "spec.decision.term is {term}, more than 2^32 above the leader's term {ours}: no new decision can be \
                     stored. Restore the binding, or set annotation {} of the controller's Lease to {term}",
                    atoll_api::marks::TERM
                ),
            ));
        }
        let template = self.binding.template();
        let secret = secrets::of_binding(&self.engine.index, &template);
        let frozen = || self.engine.index.frozen(&template.kind);
        secret
            .map(|why| (secrets::NOT_READABLE, why))
            .or_else(|| frozen().map(|why| ("KindUnreadable", why)))
    }

    fn unclaimed(&self) -> Option<String> {
        let template = self.engine.index.template(&self.binding.template())?;
        match detect::claim(&self.engine.index, template, self.binding.policy().as_ref()) {
            Claim::Policy(..) | Claim::Bare => None,
            Claim::None => Some("no policy selects the object; it stays where it is".to_owned()),
            Claim::Excluded(why) => Some(format!("{why}; it stays where it is")),
        }
    }

    fn unrecorded(&self) -> Option<String> {
        self.engine.unrecorded(self.binding)
    }
}

impl template::Knowledge for Known<'_> {
    fn view(&self, cluster: &str) -> Option<&View> {
        self.engine.views.get(&self.binding.key, cluster)
    }

    fn revision(&self, cluster: &str, hash: &str) -> Option<i64> {
        self.engine.sent.get(&self.binding.key, cluster)?.revision(hash)
    }
}

impl Engine {
    /// Something changed that the statuses of a binding and its template may show.
    pub(super) fn mark_status(&mut self, key: &BindingKey) {
        if self.led.is_none() {
            return;
        }
        let Some(row) = self.index.binding(key).cloned() else { return };
        let settled = binding::is_settled(&row, &Known { engine: self, binding: &row });
        let pace = if settled { Pace::AtRest } else { Pace::OnItsWay };
        let now = Instant::now();
        self.due.mark(Subject::Binding(key.clone()), pace, now);
        self.due.mark(Subject::Template(key.clone()), pace, now);
    }

    /// Stores the subsets of a WorkloadSpread or the domains of a WorkloadPolicy after a decision under it.
    pub(super) fn note_groups(&mut self, template: &Template, decision: &Decision) {
        if decision.groups.is_empty() {
            return;
        }
        match decision.policies.iter().find(|policy| policy.kind == "WorkloadSpread") {
            Some(spread) => self.note_subsets(&spread.name.clone(), template, decision),
            None => self.note_domains(template, decision),
        }
    }

    fn note_subsets(&mut self, name: &str, template: &Template, decision: &Decision) {
        let Some(namespace) = &template.key.namespace else { return };
        let key = (namespace.clone(), name.to_owned());
        let Some(row) = self.index.spread(&key) else { return };
        let committed = row.status.as_ref().map(|status| status.subsets.as_slice());
        let held = self.subsets.get(&key).map(Vec::as_slice).or(committed).unwrap_or_default();
        let subsets = spread::subsets(&decision.groups, held, self.clock.now_seconds());
        if held != subsets {
            self.due.mark(Subject::WorkloadSpread(key.clone()), Pace::AtRest, Instant::now());
        }
        self.subsets.insert(key, subsets);
    }

    fn note_domains(&mut self, template: &Template, decision: &Decision) {
        let (Some(name), Some(namespace)) = (&template.workload_policy, &template.key.namespace)
        else {
            return;
        };
        let domains: Vec<DomainStatus> = decision
            .groups
            .iter()
            .map(|group| DomainStatus {
                name: group.name.clone(),
                target: group.target.unwrap_or_default(),
                assigned: group.assigned,
                room: group.room,
                blocked_by: group.blocked_by.clone(),
            })
            .collect();
        let key = (namespace.clone(), name.clone());
        if self.domains.get(&key) != Some(&domains) {
            self.domains.insert(key.clone(), domains);
            self.due.mark(Subject::WorkloadPolicy(key), Pace::OnItsWay, Instant::now());
        }
    }

    /// Whether another status may be written now.
    pub(super) fn may_publish(&self) -> bool {
        self.jobs.has_room_for_status(self.deciding.is_some() || self.queue.lengths().active > 0)
    }

    /// Writes every due status.
    pub(super) fn publish_due(&mut self, now: Instant) {
        while self.may_publish() {
            let Some(subject) = self.due.pop(now) else { return };
            if self.is_about_to_change(&subject) && self.due.put_off(&subject, now) {
                continue;
            }
            let Some((target, patch)) = self.status_of(&subject) else {
                self.due.done(&subject, false, now);
                continue;
            };
            let client = self.client.clone();
            self.jobs.publish(async move {
                let result = write::write(&client, &target, &patch).await;
                JobDone::Published { subject, result }
            });
        }
    }

    /// Whether a decision about it is due or in progress, which will change its status.
    fn is_about_to_change(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Binding(key) | Subject::Template(key) => {
                self.queue.is_in_flight(key) || self.queue.is_ready(key)
            }
            // A newly watched kind is still being listed: its objects will be known shortly.
            Subject::Policy(key) => self.index.policy(key).is_some_and(|policy| {
                policy.selectors().iter().any(|selector| !self.is_settled(&selector.kind))
            }),
            Subject::WorkloadPolicy(_) | Subject::WorkloadSpread(_) => false,
        }
    }

    /// Target and patch of a subject's status; `None` if the hub's is up to date.
    fn status_of(&self, subject: &Subject) -> Option<(Target, Value)> {
        let now = self.clock.now_seconds();
        match subject {
            Subject::Binding(key) => {
                let row = self.index.binding(key)?;
                let status = binding::status(row, &Known { engine: self, binding: row }, now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<ResourceBinding>(&())
                } else {
                    ApiResource::erase::<ClusterResourceBinding>(&())
                };
                let target = target(resource, key.namespace.as_ref(), &key.name);
                Some((target, write::patch(&json!(row.status), &json!(status))?))
            }
            Subject::Template(key) => {
                let row = self.index.binding(key).filter(|row| !row.deleting())?;
                if self.index.refusal(row).is_some() {
                    return None;
                }
                let template_key = row.template();
                let template = self.index.template(&template_key)?;
                let known = Known { engine: self, binding: row };
                let status = template::status(row, template, &known)?;
                let resource = self.resources.get(&template_key.kind)?.clone();
                let target = target(resource, template_key.namespace.as_ref(), &template_key.name);
                Some((target, write::patch(&template.object["status"], &status)?))
            }
            Subject::Policy(key) => {
                let row = self.index.policy(key)?;
                let status = policy::status(&self.index, row, self.extensions.profiles(), now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<PropagationPolicy>(&())
                } else {
                    ApiResource::erase::<ClusterPropagationPolicy>(&())
                };
                let target = target(resource, key.namespace.as_ref(), &key.name);
                let patch = write::patch(&json!(row.status), &json!(status))?;
                self.warn_of_policy(row, &status);
                Some((target, patch))
            }
            Subject::WorkloadPolicy(key) => {
                let row = self.index.workload_policy(key)?;
                let domains = self.domains.get(key).map(Vec::as_slice);
                let status = policy::workload_policy(row, domains, now);
                let resource = ApiResource::erase::<WorkloadPolicy>(&());
                let before = json!(row.status.clone().unwrap_or_default());
                let target = target(resource, Some(&key.0), &key.1);
                Some((target, write::patch(&before, &json!(status))?))
            }
            Subject::WorkloadSpread(key) => {
                let row = self.index.spread(key)?;
                let aim = &row.spec.target_ref;
                let in_force = self.index.spread_in_force(&TemplateKey {
                    kind: GroupKind::of(&aim.api_version, &aim.kind),
                    namespace: Some(key.0.clone()),
                    name: aim.name.clone(),
                });
                let subsets = self.subsets.get(key).map(Vec::as_slice);
                let status = spread::status(row, in_force.map(|s| &**s), subsets, now);
                let resource = ApiResource::erase::<WorkloadSpread>(&());
                let before = json!(row.status.clone().unwrap_or_default());
                let target = target(resource, Some(&key.0), &key.1);
                Some((target, write::patch(&before, &json!(status))?))
            }
        }
    }

    /// The stream of a subject.
    pub(super) fn source_of_subject(&self, subject: &Subject) -> Option<Source> {
        match subject {
            Subject::Binding(key) => Some(source_of(key)),
            Subject::Template(key) => {
                let kind = self.index.binding(key)?.template().kind;
                Some(Source::Templates(kind))
            }
            Subject::Policy(key) if key.namespace.is_some() => Some(Source::PropagationPolicies),
            Subject::Policy(_) => Some(Source::ClusterPropagationPolicies),
            Subject::WorkloadPolicy(_) => Some(Source::WorkloadPolicies),
            Subject::WorkloadSpread(_) => Some(Source::WorkloadSpreads),
        }
    }
}

fn target(resource: ApiResource, namespace: Option<&String>, name: &str) -> Target {
    Target { resource, namespace: namespace.cloned(), name: name.to_owned() }
}
