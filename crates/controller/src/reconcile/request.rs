//! The scheduler's input.

use std::collections::BTreeMap;

use atoll_api::binding::TargetCluster;
use atoll_api::policy::Failover;
use atoll_api::{ClusterName, marks};
use atoll_scheduler::{
    Existing, RecoverAfter, Report, Request, RequestError, Template as TemplateFacts, WakeCondition,
};
use jiff::Timestamp;

use super::step::Context;
use super::subject::Subject;
use crate::index::Index;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::placements::{Placements, replica_sync};
use crate::queue::Done;
use crate::schedule::priority;

/// What members report on a binding.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reported {
    pub(crate) reports: BTreeMap<ClusterName, Report>,
    /// What its targets run, if the number of replicas follows the members.
    pub(crate) counts: Option<Vec<TargetCluster>>,
}

impl Reported {
    /// What the leader knows.
    pub(crate) fn of(
        index: &Index,
        placements: &Placements,
        binding: &Binding,
        template: &Template,
        failover: Option<&Failover>,
    ) -> Self {
        let with_status = failover.is_some_and(|failover| {
            let application = failover.application.as_ref();
            let cluster = failover.cluster.as_ref();
            application.is_some_and(|rules| rules.state_preservation.is_some())
                || cluster.is_some_and(|rules| rules.state_preservation.is_some())
        });
        Self {
            reports: placements.reports(&binding.key, with_status),
            counts: replica_sync::counts(index, placements, binding, template),
        }
    }
}

/// The scheduler's input for a binding.
///
/// # Errors
/// When the object cannot be decided on as it is: how it goes on.
pub(crate) fn request(
    context: Context<'_>,
    subject: &Subject,
) -> Result<Box<Request>, Done<WakeCondition>> {
    let Context { env, hub, placements, .. } = context;
    let binding = subject.binding.as_deref();
    let failover = subject.claim.asked(binding.map(|binding| &binding.spec)).failover;
    let reported = match binding {
        Some(binding) => {
            let (index, template) = (&hub.index, &subject.template);
            Reported::of(index, placements, binding, template, failover.as_ref())
        }
        None => {
            Reported { reports: placements.reports(&subject.key, false), ..Reported::default() }
        }
    };
    let (now, recover_after) = (env.clock.now_seconds(), env.waits.recover_after);
    of_objects(&hub.index, subject, reported, now, recover_after).map_err(|error| {
        tracing::warn!(key = %subject.key, %error, "cannot be decided");
        Done::Mistake
    })
}

/// The same from objects alone.
///
/// # Errors
/// When the object cannot be decided on as it is.
pub(crate) fn of_objects(
    index: &Index,
    subject: &Subject,
    reported: Reported,
    now: Timestamp,
    recover_after: RecoverAfter,
) -> Result<Box<Request>, RequestError> {
    let binding = subject.binding.as_deref();
    let status = binding.filter(|row| row.spec.decision.is_none()).map(|row| row.status.read());
    let existing = binding.map(|binding| Existing {
        name: Some(binding.key.name()),
        labels: None,
        applied_placement: binding.annotation(marks::APPLIED_PLACEMENT),
        spec: &binding.spec,
        status: status.as_ref(),
    });
    let held = binding.map(|binding| &binding.spec);
    let claim = subject.claim.asked(held);
    let template = facts(index, &subject.template, binding)?;
    let mut request = Request::from_template(template, &claim, existing, reported.reports, now)?;
    // Gates were evaluated before the queue.
    request.suspended = false;
    request.recover_after = recover_after;
    request.priority = priority::in_decision(index, &subject.claim, held);
    if let Some(counts) = reported.counts {
        request.follow_members(counts);
    }
    Ok(Box::new(request))
}

/// What matters of a template to its decision.
fn facts(
    index: &Index,
    template: &Template,
    binding: Option<&Binding>,
) -> Result<TemplateFacts, RequestError> {
    let extract = &template.extract;
    if let Some(mistake) = &extract.mistake {
        return Err((**mistake).clone());
    }
    let demand = index.demand(template, binding);
    let key = &template.key;
    Ok(TemplateFacts {
        uid: template.uid.clone(),
        api_version: template.api_version().to_owned(),
        kind: key.group_kind().kind.to_owned(),
        namespace: key.namespace().map(str::to_owned),
        name: key.name().to_owned(),
        labels: (&template.labels).into(),
        pod_labels: (&*extract.pod_labels).into(),
        replicas: demand.replicas,
        requirements: demand.requirements,
        components: demand.components,
        workload_policy: extract.workload_policy.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::index::key::{GroupKind, kind_of};

    fn object(api_version: &str, kind: &str, spec: Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1",
                "labels": {"app": "web"},
            },
            "spec": spec,
        })
    }

    /// What is kept of a template when its event arrives is what the scheduler reads from the object.
    #[test]
    fn a_kept_template_gives_the_request_of_its_object() {
        let policy = json!({"labels": {"app": "web", marks::WORKLOAD_POLICY: "spread"}});
        let container =
            json!({"name": "a", "resources": {"requests": {"cpu": "1", "memory": 0.5}}});
        let pods = json!({"metadata": policy, "spec": {"containers": [container]}});
        let objects = [
            object("apps/v1", "Deployment", json!({"replicas": 3, "template": pods})),
            object("apps/v1", "Deployment", json!({"replicas": "three", "template": pods})),
            object("apps/v1", "Deployment", json!({"template": pods})),
            object(
                "batch/v1",
                "Job",
                json!({"parallelism": 2, "completions": 4, "template": pods}),
            ),
            object(
                "batch/v1",
                "Job",
                json!({"parallelism": 2, "completions": 0.5, "template": pods}),
            ),
            object("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"template": pods}}})),
            object("v1", "Pod", json!({"containers": [container]})),
            object("v1", "ConfigMap", Value::Null),
            object(
                "batch.volcano.sh/v1alpha1",
                "Job",
                json!({
                    "tasks": [{"name": "a", "replicas": 2, "template": pods}],
                }),
            ),
        ];
        for object in objects {
            let (api_version, kind) = kind_of(&object);
            let kind = GroupKind::of(api_version, kind);
            let template = Template::read(&kind, &Arc::new(object.clone()), &Default::default());
            let kept = facts(&Index::default(), &template.unwrap(), None);
            let mut read = TemplateFacts::read(&object);
            if let Ok(read) = &mut read
                && !read.components.is_empty()
            {
                // An object with several pod templates has no other replicas.
                (read.replicas, read.requirements) = (None, None);
            }
            assert_eq!(kept, read, "{object}");
        }
    }
}
