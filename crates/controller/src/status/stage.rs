//! Which statuses are due, and what is written: computes them, compares them with the hub's, and returns patches.

use std::collections::BTreeMap;

use atoll_api::workload_policy::DomainStatus;
use atoll_api::workload_spread::SubsetStatus;
use atoll_api::{
    ClusterOverridePolicy, ClusterPropagationPolicy, ClusterResourceBinding, OverridePolicy,
    PropagationPolicy, ResourceBinding, WorkloadPolicy, WorkloadSpread,
};
use atoll_scheduler::Decision;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::due::{Due, Phase, Subject};
use super::facts::Sources;
use super::write::{self, Target};
use super::{binding, override_policy, policy, spread, template, warnings};
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::key::{BindingKey, GroupKind, NamespacedName, PolicyKey, TemplateKey};
use crate::index::rows::{Binding, Template};
use crate::index::{Index, Source};

/// Statuses that this leader has to write, and what they need from past decisions.
#[derive(Default)]
pub(crate) struct Statuses {
    due: Due,
    /// Domains of WorkloadPolicies in the last decision under each.
    domains: BTreeMap<NamespacedName, Vec<DomainStatus>>,
    /// Subsets of WorkloadSpreads in the last decision under each.
    subsets: BTreeMap<NamespacedName, Vec<SubsetStatus>>,
}

impl Statuses {
    /// Something changed that the status of this object may show.
    pub(crate) fn mark(&mut self, subject: Subject, phase: Phase) {
        self.due.mark(subject, phase, Instant::now());
    }

    /// Something changed that the statuses of a binding and its template may show.
    pub(crate) fn mark_binding(&mut self, sources: Sources<'_>, key: &BindingKey) {
        let Some(row) = sources.hub.index.binding(key) else { return };
        let settled = binding::is_settled(row, &sources.of(row));
        self.mark_both(key, if settled { Phase::Settled } else { Phase::InProgress });
    }

    /// The statuses of a binding and its template.
    pub(crate) fn mark_both(&mut self, key: &BindingKey, phase: Phase) {
        self.mark(Subject::Binding(key.clone()), phase);
        self.mark(Subject::Template(key.clone()), phase);
    }

    /// The status of a policy may have changed.
    pub(crate) fn mark_policy(&mut self, hub: &HubState, key: PolicyKey) {
        let answered = hub.index.policy(&key).is_none_or(|policy| {
            policy.status.observed_generation == Some(policy.generation)
                && policy.selectors().iter().all(|selector| hub.is_settled(&selector.kind))
        });
        let phase = if answered { Phase::InProgress } else { Phase::Unobserved };
        self.mark(Subject::Policy(key), phase);
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.due.forget(&Subject::Binding(key.clone()));
        self.due.forget(&Subject::Template(key.clone()));
    }

    /// Objects whose decisions were reported on changed: what belongs to deleted ones goes.
    pub(crate) fn forget_deleted(&mut self, index: &Index, key: &NamespacedName) {
        if index.workload_policy(key).is_none() {
            self.domains.remove(key);
        }
        if index.spread(key).is_none() {
            self.subsets.remove(key);
        }
    }

    /// When the next status is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.due.next()
    }

    /// The next status to write.
    pub(crate) fn next_write(
        &mut self,
        env: &Env,
        sources: Sources<'_>,
        now: Instant,
    ) -> Option<(Subject, Target, Value)> {
        loop {
            let subject = self.due.pop(now)?;
            if is_about_to_change(sources, &subject) && self.due.put_off(&subject, now) {
                continue;
            }
            match self.status_of(env, sources, &subject) {
                Some((target, patch)) => return Some((subject, target, patch)),
                None => self.due.done(&subject, false, now),
            }
        }
    }

    /// A write ended; `again`: it has to be tried again.
    pub(crate) fn written(&mut self, subject: &Subject, written: bool, again: bool) {
        let now = Instant::now();
        self.due.done(subject, written, now);
        if again {
            self.due.mark(subject.clone(), Phase::InProgress, now);
        }
    }

    /// Stores the subsets of a WorkloadSpread or the domains of a WorkloadPolicy after a decision under it.
    pub(crate) fn note_groups(
        &mut self,
        env: &Env,
        index: &Index,
        template: &Template,
        decision: &Decision,
    ) {
        if decision.groups.is_empty() {
            return;
        }
        match decision.policies.iter().find(|policy| policy.kind == "WorkloadSpread") {
            Some(spread) => self.note_subsets(env, index, &spread.name, template, decision),
            None => self.note_domains(template, decision),
        }
    }

    fn note_subsets(
        &mut self,
        env: &Env,
        index: &Index,
        name: &str,
        template: &Template,
        decision: &Decision,
    ) {
        let Some(namespace) = &template.key.namespace else { return };
        let key = (namespace.clone(), name.to_owned());
        let Some(row) = index.spread(&key) else { return };
        let committed = row.status.as_ref().map(|status| status.subsets.as_slice());
        let held = self.subsets.get(&key).map(Vec::as_slice).or(committed).unwrap_or_default();
        let subsets = spread::subsets(&decision.groups, held, env.clock.now_seconds());
        if held != subsets {
            self.mark(Subject::WorkloadSpread(key.clone()), Phase::Settled);
        }
        self.subsets.insert(key, subsets);
    }

    fn note_domains(&mut self, template: &Template, decision: &Decision) {
        let (Some(name), Some(namespace)) = (&template.workload_policy, &template.key.namespace)
        else {
            return;
        };
        let domains = decision.groups.iter().map(|group| DomainStatus {
            name: group.name.clone(),
            target: group.target.unwrap_or_default(),
            assigned: group.assigned,
            room: group.room,
            blocked_by: group.blocked_by.clone(),
        });
        let (key, domains) = ((namespace.clone(), name.clone()), domains.collect());
        if self.domains.get(&key) != Some(&domains) {
            self.domains.insert(key.clone(), domains);
            self.mark(Subject::WorkloadPolicy(key), Phase::InProgress);
        }
    }

    /// Target and patch of a subject's status; `None` if the hub's is up to date.
    fn status_of(
        &self,
        env: &Env,
        sources: Sources<'_>,
        subject: &Subject,
    ) -> Option<(Target, Value)> {
        let (index, now) = (&sources.hub.index, env.clock.now_seconds());
        match subject {
            Subject::Binding(key) => {
                let row = index.binding(key)?;
                let status = binding::status(row, &sources.of(row), now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<ResourceBinding>(&())
                } else {
                    ApiResource::erase::<ClusterResourceBinding>(&())
                };
                let target = target(resource, key.namespace.as_ref(), &key.name);
                Some((target, write::patch(&json!(row.status), &json!(status))?))
            }
            Subject::Template(key) => template_status(sources, index.binding(key)?),
            Subject::Policy(key) => {
                let row = index.policy(key)?;
                let status = policy::status(index, row, env.extensions.profiles(), now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<PropagationPolicy>(&())
                } else {
                    ApiResource::erase::<ClusterPropagationPolicy>(&())
                };
                let target = target(resource, key.namespace.as_ref(), &key.name);
                let patch = write::patch(&json!(row.status), &json!(status))?;
                warnings::of_policy(env, row, &status);
                Some((target, patch))
            }
            Subject::OverridePolicy(key) => {
                let row = index.override_policy(key)?;
                let status = override_policy::status(sources, key, row, now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<OverridePolicy>(&())
                } else {
                    ApiResource::erase::<ClusterOverridePolicy>(&())
                };
                let target = target(resource, key.namespace.as_ref(), &key.name);
                Some((target, write::patch(&row["status"], &json!(status))?))
            }
            Subject::WorkloadPolicy(key) => {
                let row = index.workload_policy(key)?;
                let domains = self.domains.get(key).map(Vec::as_slice);
                let status = policy::workload_policy(row, domains, now);
                let resource = ApiResource::erase::<WorkloadPolicy>(&());
                let before = json!(row.status.clone().unwrap_or_default());
                let target = target(resource, Some(&key.0), &key.1);
                Some((target, write::patch(&before, &json!(status))?))
            }
            Subject::WorkloadSpread(key) => {
                let row = index.spread(key)?;
                let aim = &row.spec.target_ref;
                let in_force = index.spread_in_force(&TemplateKey {
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
}

fn template_status(sources: Sources<'_>, row: &Binding) -> Option<(Target, Value)> {
    let index = &sources.hub.index;
    if row.deleting() || index.refusal(row).is_some() {
        return None;
    }
    let key = row.template();
    let template = index.template(&key)?;
    let status = template::status(row, template, &sources.of(row))?;
    let resource = sources.hub.resources.get(&key.kind)?.clone();
    let target = target(resource, key.namespace.as_ref(), &key.name);
    Some((target, write::patch(&template.object["status"], &status)?))
}

/// Whether a decision about it is due or in progress, which will change its status.
fn is_about_to_change(sources: Sources<'_>, subject: &Subject) -> bool {
    match subject {
        Subject::Binding(key) | Subject::Template(key) => {
            sources.queue.is_in_flight(key) || sources.queue.is_ready(key)
        }
        // A newly watched kind is still being listed: its objects will be known shortly.
        Subject::Policy(key) => sources.hub.index.policy(key).is_some_and(|policy| {
            policy.selectors().iter().any(|selector| !sources.hub.is_settled(&selector.kind))
        }),
        Subject::OverridePolicy(_) | Subject::WorkloadPolicy(_) | Subject::WorkloadSpread(_) => {
            false
        }
    }
}

/// The stream that delivers a subject.
pub(crate) fn source_of(index: &Index, subject: &Subject) -> Option<Source> {
    match subject {
        Subject::Binding(key) => Some(Source::of_binding(key)),
        Subject::Template(key) => Some(Source::Templates(index.binding(key)?.template().kind)),
        Subject::Policy(key) if key.namespace.is_some() => Some(Source::PropagationPolicies),
        Subject::Policy(_) => Some(Source::ClusterPropagationPolicies),
        Subject::OverridePolicy(key) if key.namespace.is_some() => Some(Source::OverridePolicies),
        Subject::OverridePolicy(_) => Some(Source::ClusterOverridePolicies),
        Subject::WorkloadPolicy(_) => Some(Source::WorkloadPolicies),
        Subject::WorkloadSpread(_) => Some(Source::WorkloadSpreads),
    }
}

fn target(resource: ApiResource, namespace: Option<&String>, name: &str) -> Target {
    Target { resource, namespace: namespace.cloned(), name: name.to_owned() }
}
