//! Workloads leaving clusters: which may move now, and what keeps a member from being empty.

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_scheduler::Decision;
use tokio::time::Instant;

use super::Engine;
use crate::index::key::BindingKey;
use crate::lifecycle::emptying::{self, Emptying, Leaving, Left};
use crate::lifecycle::pace::Gain;

/// Interval of counts of the objects left on members that must be emptied.
const LOOK: Duration = Duration::from_secs(5);
/// Delay of a count after one of them changed.
const SOON: Duration = Duration::from_secs(1);

impl Engine {
    /// Whether a decision may be committed now: one that moves replicas off a failed or drained cluster has to wait for
    /// its turn.
    pub(super) fn may_move(&mut self, key: &BindingKey, decision: &Decision) -> bool {
        let leaves = matches!(decision.trigger(), Trigger::Failover | Trigger::ApplicationFailure)
            && decision.clusters() != decision.before();
        if !leaves {
            self.pace.forget(key);
            return true;
        }
        let held = |name: &str| {
            decision.before().iter().find(|t| t.name == name).map_or(0, |target| target.replicas)
        };
        let gains = decision.clusters().iter().filter_map(|target| {
            let replicas = target.replicas - held(&target.name);
            (replicas > 0).then(|| Gain {
                cluster: target.name.clone(),
                replicas,
                room: decision.room(&target.name),
            })
        });
        let gains: Vec<Gain> = gains.collect();
        match self.pace.admit(key, &gains, Instant::now()) {
            Ok(()) => true,
            Err(hold) => {
                tracing::debug!(%key, ?hold, "waits for its turn to leave");
                false
            }
        }
    }

    /// A cluster changed in a way that may start or end its emptying.
    pub(super) fn look_soon(&mut self) {
        let at = Instant::now() + SOON;
        if self.led.is_some() && self.look_at.is_none_or(|look| look > at) {
            self.look_at = Some(at);
        }
    }

    /// Counts the objects left on members that must be emptied, when due.
    pub(super) fn look_at_departures(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.look_at = None;
        let (mut said, mut again) = (Vec::new(), false);
        for (name, cluster) in self.index.clusters() {
            let terminating = cluster.metadata.deletion_timestamp.is_some();
            if !emptying::is_wanted(&cluster.spec, terminating) {
                // A condition of an earlier leader must be removed too.
                said.push((name.clone(), Emptying::No));
                continue;
            }
            let mut left = Left::default();
            for binding in self.index.bindings_on(name) {
                let hold = self.pace.hold(&binding.key);
                let leaving = Leaving { name, spec: &cluster.spec, terminating };
                left.count(&binding.spec, &binding.status, leaving, hold);
            }
            said.push((name.clone(), left.say(self.pace.limits(), self.connected(name))));
            again = true;
        }
        self.look_at = again.then_some(now + LOOK);
        for (name, emptying) in said {
            if self.emptying.get(&name) != Some(&emptying) {
                self.outlet.emptying(&name, emptying.clone());
                self.emptying.insert(name, emptying);
            }
        }
    }
}
