//! `failover.application`: a workload leaves a cluster on which it has been unhealthy for longer than its policy
//! tolerates. The request has the start of that time, so that the plugin needs no clock.

use atoll_api::policy::ApplicationFailover;
use jiff::{SignedDuration, Timestamp};

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::request::Request;
use atoll_decision::BitSet;

/// See the module documentation.
#[derive(Debug)]
pub struct ApplicationHealth;
super::without_args!(ApplicationHealth);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::APPLICATION_HEALTH;

impl Plugin for ApplicationHealth {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        evict(cycle, verdicts);
        Status::success()
    }
}

/// Rejects the clusters on which the workload was unhealthy for too long. Applies in every profile, even if the plugin
/// is not enabled, because the policy's `failover.application` requests it.
pub fn evict(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    let Some(rules) = rules(cycle.request) else { return };
    for (row, _) in &cycle.targets.seats {
        let name = &cycle.snapshot.row(*row as usize).name;
        let Some(end) = tolerated_until(cycle.request, rules, name) else { continue };
        if end > cycle.request.now {
            continue;
        }
        let mut one = BitSet::empty(cycle.snapshot.len());
        one.insert(*row as usize);
        let seconds = rules.decision_conditions.toleration_seconds.max(0);
        let reason = format!("unhealthy for longer than the tolerated {seconds} s");
        verdicts.reject(NAME, Code::Unschedulable, reason, one, Hold::Never);
    }
}

/// The policy's rules for unhealthy workloads.
#[must_use]
pub fn rules(request: &Request) -> Option<&ApplicationFailover> {
    request.failover.as_ref()?.application.as_ref()
}

/// Until when an unhealthy copy on a cluster is tolerated. `None` unless the copy is known to be unhealthy.
#[must_use]
pub fn tolerated_until(
    request: &Request,
    rules: &ApplicationFailover,
    cluster: &str,
) -> Option<Timestamp> {
    let report = request.reports.get(cluster)?;
    let since = report.unhealthy_since.filter(|_| report.healthy == Some(false))?;
    let tolerated = SignedDuration::from_secs(rules.decision_conditions.toleration_seconds.max(0));
    Some(since.checked_add(tolerated).unwrap_or(Timestamp::MAX))
}
