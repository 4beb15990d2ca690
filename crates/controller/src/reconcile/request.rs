//! The scheduler's input.

use atoll_scheduler::{Existing, Request, WakeCondition};

use super::step::Context;
use super::subject::Subject;
use crate::placements::replica_sync;
use crate::queue::Done;
use crate::schedule::priority;

/// The scheduler's input for a binding.
///
/// # Errors
/// When the object cannot be decided on as it is: how it goes on.
pub(crate) fn request(
    context: Context<'_>,
    subject: &Subject,
) -> Result<Box<Request>, Done<WakeCondition>> {
    let Context { env, hub, placements, .. } = context;
    let existing = subject.binding.as_ref().map(|binding| Existing {
        metadata: &binding.metadata,
        spec: &binding.spec,
        status: Some(&binding.status),
    });
    let claim = subject.claim.asked(subject.binding.as_deref().map(|binding| &binding.spec));
    let with_status = claim.failover.as_ref().is_some_and(|failover| {
        let application = failover.application.as_ref();
        let cluster = failover.cluster.as_ref();
        application.is_some_and(|rules| rules.state_preservation.is_some())
            || cluster.is_some_and(|rules| rules.state_preservation.is_some())
    });
    let reports = placements.reports(&subject.key, with_status);
    let now = env.clock.now_seconds();
    match Request::from_objects(&subject.template.object(), &claim, existing, reports, now) {
        Ok(mut request) => {
            // Gates were evaluated before the queue.
            request.suspended = false;
            request.recover_after = env.waits.recover_after;
            let held = subject.binding.as_deref().map(|binding| &binding.spec);
            request.priority = priority::in_decision(&hub.index, &subject.claim, held);
            let demand = hub.index.demand(&subject.template, subject.binding.as_deref());
            request.template.replicas = demand.replicas;
            request.template.requirements = demand.requirements;
            request.template.components = demand.components;
            let binding = subject.binding.as_deref();
            let counts = binding.and_then(|binding| {
                replica_sync::counts(&hub.index, placements, binding, &subject.template)
            });
            if let Some(counts) = counts {
                request.follow_members(counts);
            }
            Ok(Box::new(request))
        }
        Err(error) => {
            tracing::warn!(key = %subject.key, %error, "cannot be decided");
            Err(Done::Mistake)
        }
    }
}
