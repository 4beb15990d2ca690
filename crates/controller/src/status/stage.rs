//! Which statuses are due, and what is written: computes them, compares them with the hub's, and returns patches.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::customization::Operation;
use atoll_api::static_assignment::is_policy_name;
use atoll_api::workload_policy::DomainStatus;
use atoll_api::workload_spread::SubsetStatus;
use atoll_api::{
    ChangeGuard, ClusterOverridePolicy, ClusterPropagationPolicy, ClusterResourceBinding,
    ClusterSet, FederatedResourceQuota, OverridePolicy, PropagationPolicy, ResourceBinding,
    ResourceInterpreterCustomization, ResourceInterpreterWebhookConfiguration, WorkloadPolicy,
    WorkloadSpread,
};
use atoll_customize::{Request, Response};
use atoll_scheduler::Decision;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::customization;
use super::due::{Due, Phase, Processed, Subject};
use super::facts::Sources;
use super::failures::RuleFailures;
use super::write::{self, Part, Target};
use super::{
    binding, cluster_set, override_policy, policy, quota, replicas, spread, template, warnings,
    webhook,
};
use crate::env::Env;
use crate::guards;
use crate::hub_state::HubState;
use crate::index::key::{BindingKey, NamespacedName, PolicyKey, TemplateKey};
use crate::index::rows::Binding;
use crate::index::rules::{RuleSource, Rules};
use crate::index::template::Template;
use crate::index::{Index, Source};
use crate::interpret::{Interpreter, RuleNews};

/// Statuses that this leader has to write, and what they need from past decisions.
#[derive(Default)]
pub(crate) struct Statuses {
    due: Due,
    /// Domains of WorkloadPolicies in the last decision under each.
    domains: BTreeMap<NamespacedName, Vec<DomainStatus>>,
    /// Subsets of WorkloadSpreads in the last decision under each.
    subsets: BTreeMap<NamespacedName, Vec<SubsetStatus>>,
    rule_failures: RuleFailures,
}

/// What becomes of a due status.
pub(crate) enum DueStatus {
    /// It is written.
    Write(Box<(Subject, Target, Content)>),
    /// The hub has it already, or it is about to change.
    Nothing,
}

/// What is written to a status.
pub(crate) enum Content {
    /// This merge patch.
    Patch(Value),
    /// The result of work that does not belong on the event loop.
    Computed(BoxFuture<'static, Computed>),
}

/// A computed status.
#[derive(Default)]
pub(crate) struct Computed {
    /// The merge patch; `None` if the hub's status is up to date.
    pub(crate) patch: Option<Value>,
    /// What became known of users' rules meanwhile.
    pub(crate) news: Vec<RuleNews>,
    /// A webhook did not answer.
    pub(crate) unreachable: bool,
}

impl Content {
    pub(crate) async fn compute(self) -> Computed {
        match self {
            Self::Patch(patch) => Computed { patch: Some(patch), ..Computed::default() },
            Self::Computed(work) => work.await,
        }
    }
}

impl Statuses {
    /// Something changed that the status of this object may show.
    pub(crate) fn mark(&mut self, subject: Subject, phase: Phase) {
        self.due.mark(subject, phase, Instant::now());
    }

    /// Something changed that the statuses of a binding and its template may show.
    pub(crate) fn mark_binding(&mut self, sources: Sources<'_>, key: &BindingKey) {
        let Some(row) = sources.hub.index.binding(key) else { return };
        if let Some(namespace) = key.namespace() {
            self.mark_static_quotas(&sources.hub.index, namespace);
        }
        let settled = binding::is_settled(row, &sources.of(row));
        self.mark_both(key, if settled { Phase::Settled } else { Phase::InProgress });
    }

    /// The statuses of a binding and its template.
    pub(crate) fn mark_both(&mut self, key: &BindingKey, phase: Phase) {
        self.mark(Subject::Binding(key.clone()), phase);
        self.mark(Subject::Template(key.clone()), phase);
    }

    /// Marks a subject whose status is written soon if it does not cover the spec yet.
    fn mark_observed(&mut self, subject: Subject, observed: bool) {
        self.mark(subject, if observed { Phase::InProgress } else { Phase::Unobserved });
    }

    /// The status of a policy may have changed.
    pub(crate) fn mark_policy(&mut self, hub: &HubState, key: PolicyKey) {
        // The hub has no such object.
        if is_policy_name(&key.name) {
            return;
        }
        let answered = hub.index.policy(&key).is_none_or(|policy| {
            policy.status.observed_generation == Some(policy.generation)
                && hub.is_settled_for(policy)
        });
        self.mark_observed(Subject::Policy(key), answered);
    }

    /// The status of a customization may have changed. It is written soon if it does not cover the spec yet.
    pub(crate) fn mark_customization(&mut self, index: &Index, name: &str) {
        self.rule_failures.forget_old(index);
        let observed = index.customization(name).is_none_or(|row| {
            row.generation.is_some() && row.status.observed_generation == row.generation
        });
        self.mark_observed(Subject::Customization(name.to_owned()), observed);
    }

    /// The status of a ClusterSet may have changed. It is written soon if it does not cover the spec yet.
    pub(crate) fn mark_cluster_set(&mut self, index: &Index, name: &str) {
        let observed = index.cluster_set(name).is_none_or(|set| {
            let status = set.status.as_ref();
            status.is_some_and(|status| status.observed_generation == set.metadata.generation)
        });
        self.mark_observed(Subject::ClusterSet(name.to_owned()), observed);
    }

    /// The statuses of the FederatedResourceQuotas of a namespace may have changed. One that does not cover the spec yet
    /// is written soon.
    pub(crate) fn mark_quotas(&mut self, index: &Index, namespace: &str) {
        for key in index.quotas_of(namespace) {
            let observed = index.quota(key).is_none_or(|quota| {
                let status = quota.status.as_ref();
                status.is_some_and(|status| status.observed_generation == quota.metadata.generation)
            });
            let phase = if observed { Phase::InProgress } else { Phase::Unobserved };
            self.mark(Subject::Quota(key.clone()), phase);
        }
    }

    /// The same for quotas with static assignments only: their status shows what members and workloads are like.
    fn mark_static_quotas(&mut self, index: &Index, namespace: &str) {
        for key in index.quotas_of(namespace) {
            let quota = index.quota(key);
            if quota.is_some_and(|quota| !quota.spec.static_assignments.is_empty()) {
                self.mark(Subject::Quota(key.clone()), Phase::InProgress);
            }
        }
    }

    /// Clusters or ClusterSets changed: every quota with static assignments may concern them.
    pub(crate) fn mark_all_static_quotas(&mut self, index: &Index) {
        let namespaces: std::collections::BTreeSet<&String> =
            index.quotas().map(|((namespace, _), _)| namespace).collect();
        for namespace in namespaces {
            self.mark_static_quotas(index, namespace);
        }
    }

    /// The status of a configuration of webhooks may have changed.
    pub(crate) fn mark_webhooks(&mut self, index: &Index, name: &str) {
        self.rule_failures.forget_old(index);
        let observed = index.webhook_configuration(name).is_none_or(|row| {
            row.generation.is_some() && row.status.observed_generation == row.generation
        });
        self.mark_observed(Subject::Webhooks(name.to_owned()), observed);
    }

    /// Something became known of a rule.
    pub(crate) fn take_rule_news(&mut self, index: &Index, news: RuleNews) {
        let source = match &news {
            RuleNews::Failed(failed) => failed.source.clone(),
            RuleNews::Reached(source, _) => source.clone(),
        };
        if self.rule_failures.note(index, news) {
            let subject = match source {
                RuleSource::Customization(name) => Subject::Customization(name),
                RuleSource::Webhook(configuration, _) => Subject::Webhooks(configuration),
            };
            self.mark(subject, Phase::InProgress);
        }
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.due.forget(&Subject::Binding(key.clone()));
        self.due.forget(&Subject::Template(key.clone()));
        self.due.forget(&Subject::Replicas(key.clone()));
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

    /// What becomes of the next due status.
    pub(crate) fn next_due(
        &mut self,
        env: &Env,
        sources: Sources<'_>,
        now: Instant,
    ) -> Option<DueStatus> {
        let subject = self.due.pop(now)?;
        if is_about_to_change(sources, &subject) && self.due.put_off(&subject, now) {
            return Some(DueStatus::Nothing);
        }
        if let Subject::Template(key) = &subject
            && replicas::write_of(sources, key).is_some()
        {
            self.mark(Subject::Replicas(key.clone()), Phase::Settled);
        }
        let began = Instant::now();
        let status = self.status_of(env, sources, &subject);
        self.due.took(&subject, began.elapsed());
        Some(match status {
            Some((target, content)) => DueStatus::Write(Box::new((subject, target, content))),
            None => {
                self.due.done(&subject, Processed::UpToDate, now);
                DueStatus::Nothing
            }
        })
    }

    /// A binding was decided, or will not be: statuses that waited for that are due.
    pub(crate) fn decided(&mut self, key: &BindingKey) {
        let now = Instant::now();
        self.due.decided(&Subject::Binding(key.clone()), now);
        self.due.decided(&Subject::Template(key.clone()), now);
        self.due.decided(&Subject::Replicas(key.clone()), now);
    }

    /// A write ended.
    pub(crate) fn processed(&mut self, env: &Env, subject: &Subject, how: Processed) {
        let now = Instant::now();
        if let Some(lag) = self.due.done(subject, how, now) {
            env.counters.latency.status_written(subject.what(), lag);
        }
        if how == Processed::Failed {
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
        let Some(namespace) = template.key.namespace() else { return };
        let key = (namespace.to_owned(), name.to_owned());
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
        let (Some(name), Some(namespace)) =
            (&template.extract.workload_policy, template.key.namespace())
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
        let (key, domains) = ((namespace.to_owned(), name.clone()), domains.collect());
        if self.domains.get(&key) != Some(&domains) {
            self.domains.insert(key.clone(), domains);
            self.mark(Subject::WorkloadPolicy(key), Phase::InProgress);
        }
    }

    /// Target and content of a subject's status; `None` if the hub's is up to date.
    fn status_of(
        &self,
        env: &Env,
        sources: Sources<'_>,
        subject: &Subject,
    ) -> Option<(Target, Content)> {
        let index = &sources.hub.index;
        match subject {
            Subject::Customization(name) => self.customization_status(env, index, name),
            Subject::Webhooks(name) => self.webhooks_status(env, index, name),
            Subject::Template(key) => template_status(env, sources, index.binding(key)?),
            _ => {
                let (target, patch) = self.patch_of(env, sources, subject)?;
                Some((target, Content::Patch(patch)))
            }
        }
    }

    fn customization_status(
        &self,
        env: &Env,
        index: &Index,
        name: &str,
    ) -> Option<(Target, Content)> {
        let row = index.customization(name)?.clone();
        let failure = self.rule_failures.last(name, &row).cloned();
        let (rules, now) = (index.rules().clone(), env.clock.now_seconds());
        let target =
            target(ApiResource::erase::<ResourceInterpreterCustomization>(&()), None, name);
        let (name, interpreter) = (name.to_owned(), env.interpreter.clone());
        let work = async move {
            let patch = interpreter.run(move || {
                let status = customization::status(&name, &row, &rules, failure.as_ref(), now);
                write::patch(&json!(row.status), &json!(status))
            });
            // Text of users must not end the controller, even if a compiler panics.
            let patch = patch.await.unwrap_or_else(|error| {
                tracing::error!(%error, "the status of a customization cannot be computed");
                None
            });
            Computed { patch, ..Computed::default() }
        };
        Some((target, Content::Computed(work.boxed())))
    }

    fn webhooks_status(&self, env: &Env, index: &Index, name: &str) -> Option<(Target, Content)> {
        let row = index.webhook_configuration(name)?.clone();
        let (news, now) = (self.rule_failures.of_webhooks(&row), env.clock.now_seconds());
        let resource = ApiResource::erase::<ResourceInterpreterWebhookConfiguration>(&());
        let target = target(resource, None, name);
        let work = async move {
            let status = webhook::status(&row, news, now);
            Computed {
                patch: write::patch(&json!(row.status), &json!(status)),
                ..Computed::default()
            }
        };
        Some((target, Content::Computed(work.boxed())))
    }

    /// Target and patch of a subject's status that is computed at once; `None` if the hub's is up to date.
    fn patch_of(
        &self,
        env: &Env,
        sources: Sources<'_>,
        subject: &Subject,
    ) -> Option<(Target, Value)> {
        let (index, now) = (&sources.hub.index, env.clock.now_seconds());
        match subject {
            Subject::Customization(_) | Subject::Webhooks(_) | Subject::Template(_) => None,
            Subject::Replicas(key) => replicas::write_of(sources, key),
            Subject::Binding(key) => {
                let row = index.binding(key)?;
                let status = binding::status(row, &sources.of(row), now);
                let resource = if key.namespace().is_some() {
                    ApiResource::erase::<ResourceBinding>(&())
                } else {
                    ApiResource::erase::<ClusterResourceBinding>(&())
                };
                let target = target(resource, key.namespace(), key.name());
                Some((target, write::patch(&row.status.value(), &json!(status))?))
            }
            Subject::Policy(key) => {
                let row = index.policy(key)?;
                let status = policy::status(index, row, env.extensions.profiles(), now);
                let resource = if key.namespace.is_some() {
                    ApiResource::erase::<PropagationPolicy>(&())
                } else {
                    ApiResource::erase::<ClusterPropagationPolicy>(&())
                };
                let target = target(resource, key.namespace.as_deref(), &key.name);
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
                let target = target(resource, key.namespace.as_deref(), &key.name);
                Some((target, write::patch(&row["status"], &json!(status))?))
            }
            Subject::ClusterSet(name) => {
                let row = index.cluster_set(name)?;
                let status = cluster_set::status(index, name, row, now);
                let resource = ApiResource::erase::<ClusterSet>(&());
                let before = json!(row.status.clone().unwrap_or_default());
                Some((target(resource, None, name), write::patch(&before, &json!(status))?))
            }
            Subject::ChangeGuard(name) => guard_patch(sources, name, now),
            Subject::Quota(key) => quota_patch(env, sources, key, now),
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
                let in_force = index.spread_in_force(&TemplateKey::target(&key.0, row));
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

/// Guarded by the version, because approvals are written to the same status.
fn guard_patch(sources: Sources<'_>, name: &str, now: jiff::Timestamp) -> Option<(Target, Value)> {
    let row = sources.hub.index.guard(name).filter(|_| sources.guards.is_complete())?;
    let status = guards::status::status(&sources.hub.index, sources.guards, name, row, now);
    let before = json!(row.object.status.clone().unwrap_or_default());
    let mut patch = write::patch(&before, &json!(status))?;
    patch["metadata"] = json!({"resourceVersion": row.object.metadata.resource_version});
    Some((target(ApiResource::erase::<ChangeGuard>(&()), None, name), patch))
}

fn quota_patch(
    env: &Env,
    sources: Sources<'_>,
    key: &NamespacedName,
    now: jiff::Timestamp,
) -> Option<(Target, Value)> {
    let row = sources.hub.index.quota(key)?;
    let status = quota::status(sources, row, now);
    warnings::of_quota(env, row, &status);
    let resource = ApiResource::erase::<FederatedResourceQuota>(&());
    let before = json!(row.status.clone().unwrap_or_default());
    let target = target(resource, Some(&key.0), &key.1);
    Some((target, write::patch(&before, &json!(status))?))
}

fn template_status(env: &Env, sources: Sources<'_>, row: &Binding) -> Option<(Target, Content)> {
    let index = &sources.hub.index;
    if row.deleting() || index.refusal(row).is_some() {
        return None;
    }
    let key = &row.template;
    let template = index.template(key)?;
    let facts = sources.of(row);
    let status = template::status(row, template, &facts);
    let resource = sources.hub.resources.get(&key.group_kind().to_owned())?.clone();
    let target = target(resource, key.namespace(), key.name());
    if index.rules().handles(template.kind(), Operation::AggregateStatus) {
        let items = template::items(row, &facts)?;
        let (interpreter, rules) = (env.interpreter.clone(), index.rules().clone());
        let object = template.object();
        let work = async move { aggregated(&interpreter, &rules, object, items, status).await };
        return Some((target, Content::Computed(work.boxed())));
    }
    Some((target, Content::Patch(write::patch(&template.object()["status"], &status?)?)))
}

/// A template's status by users' rules, or `built_in`.
async fn aggregated(
    interpreter: &Interpreter,
    rules: &Rules,
    object: Arc<Value>,
    items: Value,
    built_in: Option<Value>,
) -> Computed {
    let request = Request::Aggregate { object: object.clone(), items: Arc::new(items) };
    let answer = interpreter.ask_often(rules, request).await;
    let status = match answer.response {
        // Nothing else of the object is taken: a rule must not change the template.
        Some(Response::Object(mut aggregated)) => Some(aggregated["status"].take()),
        // It is asked again, and the status stays until then.
        _ if answer.unreachable => None,
        _ => built_in,
    };
    let status = status.filter(Value::is_object);
    let patch = status.and_then(|status| write::patch(&object["status"], &status));
    Computed { patch, news: answer.news, unreachable: answer.unreachable }
}

/// Whether a decision about it is due or in progress, which will change its status.
fn is_about_to_change(sources: Sources<'_>, subject: &Subject) -> bool {
    match subject {
        Subject::Binding(key) | Subject::Template(key) | Subject::Replicas(key) => {
            sources.queue.is_in_flight(key) || sources.queue.is_ready(key)
        }
        // A newly watched kind is still being listed: its objects will be known shortly.
        Subject::Policy(key) => {
            let policy = sources.hub.index.policy(key);
            policy.is_some_and(|policy| !sources.hub.is_settled_for(policy))
        }
        Subject::OverridePolicy(_)
        | Subject::Customization(_)
        | Subject::ClusterSet(_)
        | Subject::ChangeGuard(_)
        | Subject::Quota(_)
        | Subject::Webhooks(_)
        | Subject::WorkloadPolicy(_)
        | Subject::WorkloadSpread(_) => false,
    }
}

/// The stream that delivers a subject.
pub(crate) fn source_of(index: &Index, subject: &Subject) -> Option<Source> {
    match subject {
        Subject::Binding(key) => Some(Source::of_binding(key)),
        Subject::Template(key) => {
            Some(Source::Templates(index.binding(key)?.template.group_kind().to_owned()))
        }
        // A Scale is no template; the watch delivers the change.
        Subject::Replicas(_) => None,
        Subject::Policy(key) if key.namespace.is_some() => Some(Source::PropagationPolicies),
        Subject::Policy(_) => Some(Source::ClusterPropagationPolicies),
        Subject::OverridePolicy(key) if key.namespace.is_some() => Some(Source::OverridePolicies),
        Subject::OverridePolicy(_) => Some(Source::ClusterOverridePolicies),
        Subject::Customization(_) => Some(Source::Customizations),
        Subject::ClusterSet(_) => Some(Source::ClusterSets),
        Subject::ChangeGuard(_) => Some(Source::ChangeGuards),
        Subject::Quota(_) => Some(Source::Quotas),
        Subject::Webhooks(_) => Some(Source::Webhooks),
        Subject::WorkloadPolicy(_) => Some(Source::WorkloadPolicies),
        Subject::WorkloadSpread(_) => Some(Source::WorkloadSpreads),
    }
}

fn target(resource: ApiResource, namespace: Option<&str>, name: &str) -> Target {
    let namespace = namespace.map(str::to_owned);
    Target { resource, namespace, name: name.to_owned(), part: Part::Status }
}
