//! The first decision of a template that runs already, under another federation: it takes the clusters and replicas that
//! the template names ([`Start`]), so that nothing moves. The scheduler is not asked. Later decisions are the scheduler's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::{DecisionRecord, Mode, Outcome, Trigger};
use atoll_api::hex;
use atoll_api::marks::START;
use atoll_api::placement::ReplicaSchedulingType;
use atoll_api::quantity::Quantity;
use atoll_api::start::Start;
use atoll_scheduler::hash::fnv1a_64;
use atoll_scheduler::state::cluster_sets::Reach;
use atoll_scheduler::state::quotas::use_of;
use atoll_scheduler::{BindingFacts, Snapshot};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::step::{Committing, Context, Purpose, Step};
use super::subject::Subject;
use crate::commit::draft::{self, Decided};
use crate::commit::{Action, Write};
use crate::events::{Note, Severity};
use crate::hub_state::derived::groups_of;
use crate::index::template::Template;
use crate::placements::required::required;
use crate::queue::Done;
use crate::schedule::priority;

/// Why the replicas are where they are, in the record.
const REASON: &str = "taken over as the template's annotation work.atoll.dev/start says";
/// Reason of the Event about an annotation that cannot be followed.
const REFUSED: &str = "StartRefused";

/// Pause before a placement that was refused is looked at again: clusters, ClusterSets and quotas change, too.
const AGAIN: Duration = Duration::from_secs(60);

/// The first placement that the template names, if it may do so and there is no binding.
pub(crate) fn named(subject: &Subject) -> Option<String> {
    if subject.binding.is_some() || !subject.claim.policy()?.accepts_start {
        return None;
    }
    let object = subject.template.object();
    object["metadata"]["annotations"][START].as_str().map(str::to_owned)
}

/// The step that creates the binding with the placement in `text`. While that cannot be followed nothing is decided: the
/// replicas would move.
pub(crate) fn step(
    context: Context<'_>,
    subject: &Subject,
    text: &str,
    snapshot: &Snapshot,
) -> Step {
    let start = read(context, subject, text)
        .and_then(|start| allowed(context, subject, &start, snapshot).map(|()| start));
    match start {
        Ok(start) => create(context, subject, start),
        Err(problem) => {
            refuse(context, &subject.template, &problem);
            Step::Done(Done::Waits(Vec::new(), Some(Instant::now() + AGAIN)))
        }
    }
}

fn read(context: Context<'_>, subject: &Subject, text: &str) -> Result<Start, String> {
    let Subject { claim, template, .. } = subject;
    let index = &context.hub.index;
    let asked = claim.asked(None);
    let scheduling = asked.placement.replica_scheduling.as_ref();
    let divided = scheduling.is_some_and(|scheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    });
    let start = Start::read(text, index.demand(template, None).replicas, divided)?;
    match start.clusters.iter().find(|target| index.cluster(&target.name).is_none()) {
        Some(unknown) => Err(format!("clusters: there is no Cluster {:?}", unknown.name)),
        None => Ok(start),
    }
}

/// Affinity and taints are passed over, as running replicas are there. What a namespace may not use or exceed is not.
fn allowed(
    context: Context<'_>,
    subject: &Subject,
    start: &Start,
    snapshot: &Snapshot,
) -> Result<(), String> {
    let index = &context.hub.index;
    let namespace = subject.template.key.namespace();
    let reach = index.cluster_rules().reach(namespace);
    if let Reach::Sets(sets) = &reach {
        if sets.uncertain {
            return Err("the ClusterSets of its namespace cannot all be read".to_owned());
        }
        for target in &start.clusters {
            let labels = index.cluster(&target.name).and_then(|row| row.metadata.labels.as_ref());
            if !reach.has(labels.unwrap_or(&BTreeMap::new())) {
                return Err(format!("clusters: {}: {}", target.name, sets.outside));
            }
        }
    }
    let Some(quotas) = namespace.and_then(|name| snapshot.quotas(name)) else { return Ok(()) };
    let demand = index.demand(&subject.template, None);
    let needed = use_of(&BindingFacts {
        requirements: demand.requirements,
        components: demand.components.into(),
        shares: start.clusters.clone(),
        ..BindingFacts::default()
    });
    for (resource, limit) in quotas.limits() {
        let (used, needs) = (quotas.used(resource), needed.get(resource).copied().unwrap_or(0));
        if needs > 0 && used.saturating_add(needs) > i128::from(limit.hard) {
            let amount = |value: i128| Quantity::of_resource(resource, value);
            return Err(format!(
                "FederatedResourceQuota {}: {resource}: {} needed, {} of {} used; raise the quota",
                limit.quota,
                amount(needs),
                amount(used),
                amount(limit.hard.into()),
            ));
        }
    }
    Ok(())
}

fn refuse(context: Context<'_>, template: &Template, problem: &str) {
    let message =
        format!("metadata.annotations[{START}]: {problem}; nothing is decided until then");
    tracing::warn!(template = %template.key, problem, "the first placement is not followed");
    context.env.notes.post(Note {
        about: template.reference(),
        id: format!("{:016x}", fnv1a_64(format!("{} {message}", template.uid).as_bytes())),
        reason: REFUSED.to_owned(),
        message,
        severity: Severity::Warning,
        at: context.env.clock.now_seconds(),
        cause: None,
        repeat_after: None,
    });
}

fn create(context: Context<'_>, subject: &Subject, start: Start) -> Step {
    let Context { env, hub, placements, .. } = context;
    let Subject { key, claim, template, .. } = subject;
    let asked = claim.asked(None);
    let demand = hub.index.demand(template, None);
    let placement =
        atoll_scheduler::cycle::observe::placement_in_force(&asked.placement, None).to_string();
    let decided = Decided {
        record: record(context, template, &start, demand.replicas.unwrap_or_default()),
        clusters: start.clusters,
        evictions: Vec::new(),
        preserved: None,
        preempts: Vec::new(),
        preempted_by: Vec::new(),
        applied_placement: Some(Arc::from(placement)),
    };
    let priority = priority::priority(&hub.index, claim.policy().map(|policy| &**policy));
    let required = required(&hub.index, placements, &template.key, None);
    let value = priority::in_decision(&hub.index, claim, None).value;
    let body = draft::create((template, &demand), claim, &priority, &decided, &required);
    let committing = Committing {
        standing: draft::standing((template, &demand), &asked, value, &decided),
        decision: None,
        at: env.clock.now(),
        took: Duration::ZERO,
        provenance: None,
        parent: None,
        groups: groups_of(&asked.placement, &template.labels),
        before: Vec::new(),
        ends_tasks: false,
        exempt: false,
        inputs: None, // the scheduler did not decide
        decided,
    };
    let decision = Some(committing.decided.record.id.clone());
    let write = Write { key: key.clone(), action: Action::Create(body), decision };
    Step::Write(write, Purpose::Decision(Box::new(committing)))
}

fn record(
    context: Context<'_>,
    template: &Template,
    start: &Start,
    desired: i64,
) -> DecisionRecord {
    let now = context.env.clock.now_seconds();
    let mut content = Sha256::new();
    let targets = start.clusters.iter().map(|to| format!("{} {}", to.name, to.replicas));
    let parts = [template.uid.to_string(), "Start".to_owned(), now.to_string()];
    for part in parts.into_iter().chain(targets) {
        content.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        content.update(part.as_bytes());
    }
    DecisionRecord {
        id: hex::encode(&content.finalize()[..16]).into(),
        parent: None,
        trigger: Trigger::First,
        mode: Mode::Steady,
        outcome: Outcome::Placed,
        desired,
        pending: Vec::new(),
        affinity_name: start.affinity_name.clone(),
        reason: Some(REASON.to_owned()),
        full_clusters: Vec::new(),
        at: Time(now),
        term: context.term.to_record(),
    }
}
