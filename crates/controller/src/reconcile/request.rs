//! The scheduler's input.

use std::collections::BTreeMap;

use atoll_api::binding::TargetCluster;
use atoll_api::policy::Failover;
use atoll_api::{ClusterName, marks};
use atoll_scheduler::{Existing, RecoverAfter, Report, Request, RequestError, WakeCondition};
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
        name: Some(&binding.key.name),
        labels: None,
        applied_placement: binding.annotation(marks::APPLIED_PLACEMENT),
        spec: &binding.spec,
        status: status.as_ref(),
    });
    let held = binding.map(|binding| &binding.spec);
    let claim = subject.claim.asked(held);
    let object = subject.template.object();
    let mut request = Request::from_objects(&object, &claim, existing, reported.reports, now)?;
    // Gates were evaluated before the queue.
    request.suspended = false;
    request.recover_after = recover_after;
    request.priority = priority::in_decision(index, &subject.claim, held);
    let demand = index.demand(&subject.template, binding);
    request.template.replicas = demand.replicas;
    request.template.requirements = demand.requirements;
    request.template.components = demand.components;
    if let Some(counts) = reported.counts {
        request.follow_members(counts);
    }
    Ok(Box::new(request))
}
