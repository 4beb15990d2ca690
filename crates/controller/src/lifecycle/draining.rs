//! Workloads that leave clusters: which may move now, and what keeps a member from being empty.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_api::binding::{ResourceBindingStatus, Trigger};
use atoll_scheduler::Decision;
use tokio::time::Instant;

use super::emptying::{self, Emptying, Leaving, Left};
use super::mending::Mending;
use super::pace::{Gain, Pace};
use crate::env::Env;
use crate::guards::Guards;
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::pause;

/// Interval of counts of the objects left on members that must be emptied.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Delay of a count after one of them changed.
const COUNT_SOON: Duration = Duration::from_secs(1);

/// Departures from clusters in this leadership.
pub(crate) struct Draining {
    /// Which bindings may leave a cluster now.
    pace: Pace<BindingKey>,
    /// Replicas that move to mend skew.
    pub(crate) mending: Mending,
    /// What changes by people move, where a ChangeGuard limits it.
    pub(crate) guards: Guards,
    /// Last published progress of members that must be emptied.
    published: BTreeMap<ClusterName, Emptying>,
    /// When to count again what is left on them.
    next_count: Option<Instant>,
    /// The next count is not before this time, see [`pause::after`].
    count_from: Instant,
}

impl Draining {
    /// The first count is due at once: a condition that an earlier leader wrote may have to go.
    pub(crate) fn begin(env: &Env, now: Instant) -> Self {
        Self {
            pace: Pace::new(env.waits.pace, now),
            mending: Mending::begin(env.waits.pace.mended_replicas_per_minute, now),
            guards: Guards::default(),
            published: BTreeMap::new(),
            next_count: Some(now),
            count_from: now,
        }
    }

    /// Whether a decision may be committed now: one that moves replicas off a failed or drained cluster has to wait for
    /// its turn.
    pub(crate) fn may_move(&mut self, key: &BindingKey, decision: &Decision) -> bool {
        let leaves = matches!(
            decision.trigger(),
            Trigger::Failover
                | Trigger::ApplicationFailure
                | Trigger::OutsideClusterSet
                | Trigger::Preempted
        ) && decision.clusters() != decision.before();
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
                cluster: (&target.name).into(),
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

    /// The bindings whose turn has come.
    pub(crate) fn release(&mut self, now: Instant) -> Vec<BindingKey> {
        self.pace.release(now)
    }

    /// Number of bindings that wait for the eviction rate.
    pub(crate) fn waiting(&self) -> usize {
        self.pace.waiting()
    }

    /// The binding does not leave any more.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.pace.forget(key);
        self.guards.forget(key);
    }

    /// A cluster changed in a way that may start or end its emptying.
    pub(crate) fn cluster_changed(&mut self, index_has_it: bool, name: &ClusterName) {
        if !index_has_it {
            self.published.remove(name);
        }
        let soon = self.count_from.max(Instant::now() + COUNT_SOON);
        if self.next_count.is_none_or(|at| at > soon) {
            self.next_count = Some(soon);
        }
    }

    /// When the next binding's turn comes, the next count is due, or skew is mended again.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let guards = self.guards.next_timer();
        let timers = [self.pace.next(), self.next_count, self.mending.next(), guards];
        timers.into_iter().flatten().min()
    }

    /// Counts the objects left on members that must be emptied, when due, and publishes what changed.
    pub(crate) fn count(&mut self, env: &Env, hub: &HubState, now: Instant) {
        if self.next_count.is_none_or(|at| at > now) {
            return;
        }
        let mut again = false;
        for (name, cluster) in hub.index.clusters() {
            let terminating = cluster.metadata.deletion_timestamp.is_some();
            let emptying = if emptying::is_wanted(&cluster.spec, terminating) {
                again = true;
                let mut left = Left::default();
                for binding in hub.index.bindings_on(name) {
                    let hold = self.pace.hold(&binding.key);
                    let leaving = Leaving { name, spec: &cluster.spec, terminating };
                    // Only whether a Job has ended is read from it.
                    let status = match binding.spec.resource.kind.as_str() {
                        "Job" => binding.status.read(),
                        _ => ResourceBindingStatus::default(),
                    };
                    left.count(&binding.spec, &status, leaving, hold);
                }
                left.say(self.pace.limits(), hub.is_connected(name))
            } else {
                // A condition of an earlier leader must be removed too.
                Emptying::No
            };
            if self.published.get(name) != Some(&emptying) {
                env.outlet.emptying(name, emptying.clone());
                self.published.insert(name.clone(), emptying);
            }
        }
        let ended = Instant::now();
        self.count_from = ended + pause::after(ended - now);
        self.next_count = again.then_some(self.count_from.max(now + COUNT_INTERVAL));
    }
}
