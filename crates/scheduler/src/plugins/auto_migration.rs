//! Auto-migration: a member on which replicas stay unschedulable counts as full for them, at first because they are stuck
//! there now, then for a time that doubles whenever it happens again. `cycle::migration` moves the replicas.
//!
//! The state is in the binding's decision record, so that another leader continues with it.

use atoll_api::ClusterName;
use atoll_api::binding::FullCluster;
use atoll_api::placement::RescheduleOn;
use atoll_api::text::counted;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::Status;
use crate::framework::verdicts::Verdicts;

/// See the module documentation.
#[derive(Debug)]
pub struct AutoMigration;
super::without_args!(AutoMigration);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::AUTO_MIGRATION;

/// Default of `unschedulableAfterSeconds`: longer than a rollout's pods wait for the pods that they replace, and short
/// enough that a full member is left within two minutes.
pub const AFTER: SignedDuration = SignedDuration::from_secs(60);
/// How long a member counts as full after replicas moved away for the first time: a member whose figures promise room that
/// it does not have gets at most three tries in an hour.
pub const FIRST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);
/// The longest time that a member counts as full. A member that was full for that long is tried once in a working day.
pub const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_hours(8);
/// Most full members in a binding's record, as its schema allows. The one whose time ends first is left out.
const MAX_RECORDED: usize = 16;

impl Plugin for AutoMigration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        if !applies(cycle) {
            return Status::skip();
        }
        for full in recorded(cycle).iter().filter(|full| full.until.0 > cycle.request.now) {
            if let Some(row) = cycle.snapshot.find(&full.cluster) {
                let reason = format!("counts as full until {}", full.until.0);
                verdicts.limit(NAME, row, cycle.targets.on(row), reason);
            }
        }
        for (row, stuck) in late(cycle) {
            let row = row as usize;
            let reason = format!("{} unschedulable for too long", counted(stuck, "replica"));
            verdicts.limit(NAME, row, cycle.targets.on(row) - stuck, reason);
        }
        Status::success()
    }
}

/// Whether the policy moves unschedulable replicas.
#[must_use]
pub fn applies(cycle: &Cycle<'_>) -> bool {
    let placement = &cycle.request.placement;
    let asked = placement.reschedule_on.iter().flatten();
    !cycle.as_karmada()
        && !placement.sticky
        && asked.into_iter().any(|on| *on == RescheduleOn::Unschedulable)
}

/// The members in the last decision's record.
fn recorded<'c>(cycle: &'c Cycle<'_>) -> &'c [FullCluster] {
    let previous = cycle.request.previous.as_ref();
    previous.and_then(|p| p.decision.as_ref()).map_or(&[], |record| &record.full_clusters)
}

/// How long replicas may be unschedulable.
#[must_use]
pub fn limit(cycle: &Cycle<'_>) -> SignedDuration {
    let given = cycle.request.placement.unschedulable_after_seconds;
    given.map_or(AFTER, |seconds| SignedDuration::from_secs(seconds.max(1)))
}

/// Targets with unschedulable replicas: row, number, and when they have been so for too long.
#[must_use]
pub fn stuck(cycle: &Cycle<'_>) -> Vec<(u32, i64, Timestamp)> {
    if !applies(cycle) {
        return Vec::new();
    }
    let limit = limit(cycle);
    let targets = cycle.targets.seats.iter();
    let found = targets.filter_map(|(row, seats)| {
        let name: &ClusterName = &cycle.snapshot.row(*row as usize).name;
        let report = cycle.request.reports.get(name)?;
        // Pods above the share are about to be removed, those without a node first; or they are the surge of a rollout.
        let surplus = report.replicas.saturating_sub(*seats).max(0);
        let count = report.unschedulable.saturating_sub(surplus).min(*seats);
        // A report from before the last move may still count what has left: what moved gets the whole time.
        let moved = recorded(cycle).iter().find(|full| full.cluster == name.as_str());
        let since = report.unschedulable_since?;
        let since = moved.map_or(since, |full| since.max(full.at.0));
        let late = since.checked_add(limit).unwrap_or(Timestamp::MAX);
        (count > 0).then_some((*row, count, late))
    });
    found.collect()
}

/// Targets with replicas that are unschedulable for too long: row and number.
#[must_use]
pub fn late(cycle: &Cycle<'_>) -> Vec<(u32, i64)> {
    let now = cycle.request.now;
    let late = stuck(cycle).into_iter().filter(|(_, _, late)| *late <= now);
    late.map(|(row, count, _)| (row, count)).collect()
}

/// When members that count as full no longer do.
pub fn ends<'c>(cycle: &'c Cycle<'_>) -> impl Iterator<Item = Timestamp> + 'c {
    recorded(cycle).iter().map(|full| full.until.0)
}

/// The record after replicas left these rows. A member is forgotten when it was not full for as long as it was before.
#[must_use]
pub fn record(cycle: &Cycle<'_>, left: &[u32]) -> Vec<FullCluster> {
    if !applies(cycle) {
        return Vec::new();
    }
    let now = cycle.request.now;
    let length = |full: &FullCluster| full.until.0.duration_since(full.at.0);
    let matters = |full: &&FullCluster| now.duration_since(full.until.0) < length(full);
    let mut all: Vec<FullCluster> = recorded(cycle).iter().filter(matters).cloned().collect();
    for row in left {
        let name = &cycle.snapshot.row(*row as usize).name;
        let known = all.iter().position(|full| full.cluster == name.as_str());
        let times = known.map_or(0, |at| all.swap_remove(at).times).saturating_add(1);
        let doublings = u32::try_from(times - 1).unwrap_or(0).min(16);
        let wait = FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF);
        let until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        all.push(FullCluster {
            cluster: name.to_string(),
            at: Time(now),
            until: Time(until),
            times,
        });
    }
    all.sort_by_key(|full| std::cmp::Reverse(full.until.0));
    all.truncate(MAX_RECORDED);
    all.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    all
}
