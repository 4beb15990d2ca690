//! What guards have left. Pure.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use atoll_api::change_guard::MAX_RELEASED;
use atoll_api::text::counted;
use jiff::Timestamp;

use super::waiting::Waiting;
use crate::index::Index;
use crate::index::guard_rules::{Guard, GuardRules};
use crate::index::key::BindingKey;

/// What guards have left, with what this round takes.
pub(super) struct Room<'a> {
    index: &'a Index,
    wall: Timestamp,
    /// Plans that are not finished, once they are needed: it takes a look at every binding.
    live: OnceCell<BTreeSet<String>>,
    taken: BTreeMap<String, (i64, i64)>,
}

impl<'a> Room<'a> {
    pub(super) fn new(index: &'a Index, wall: Timestamp) -> Self {
        Self { index, wall, live: OnceCell::new(), taken: BTreeMap::new() }
    }

    /// What a plan takes of each of its guards, if it fits all of them.
    pub(super) fn take(
        &mut self,
        plan: (&str, Timestamp),
        members: &[(&BindingKey, &Waiting)],
        siblings: &[&Waiting],
    ) -> Result<BTreeMap<String, (i64, i64)>, String> {
        let counts = count(members.iter().map(|(_, waiting)| *waiting));
        let beside = count(siblings.iter().copied());
        for (name, own) in &counts {
            let Some(guard) = self.index.guard(name) else { continue };
            let Ok(rules) = &guard.rules else { continue };
            if let Some(end) = rules.frozen_until(self.wall) {
                return Err(format!("ChangeGuard {name}: frozen until {end}"));
            }
            if guard.released().len() >= MAX_RELEASED {
                return Err(format!(
                    "ChangeGuard {name}: {MAX_RELEASED} plans were released in its window"
                ));
            }
            let taken = self.taken.get(name).copied().unwrap_or_default();
            let live = self.live.get_or_init(|| self.index.live_plans());
            let used = used(guard, plan, live, self.wall, taken);
            let more = beside.get(name).copied().unwrap_or_default();
            let all = (own.0.saturating_add(more.0), own.1 + more.1);
            if let Some(why) = self.exceeds(rules, used, all) {
                return Err(format!("ChangeGuard {name}: {why}"));
            }
        }
        for (name, own) in &counts {
            let (replicas, workloads) = self.taken.entry(name.clone()).or_default();
            (*replicas, *workloads) = (*replicas + own.0, *workloads + own.1);
        }
        Ok(counts)
    }

    fn exceeds(&self, rules: &GuardRules, used: (i64, i64), own: (i64, i64)) -> Option<String> {
        let window = format!("{:#}", rules.window);
        let already = |used: i64| match used {
            0 => String::new(),
            used => format!(", of which {used} are used"),
        };
        let by_percent = rules.percent.map(|percent| {
            let all = self.index.guarded_replicas(rules);
            let most = i128::from(all) * i128::from(percent) / 100;
            (i64::try_from(most).unwrap_or(i64::MAX), format!(" ({percent} % of {all})"))
        });
        let limits = [rules.replicas.map(|most| (most, String::new())), by_percent];
        for (most, of) in limits.into_iter().flatten() {
            if used.0.saturating_add(own.0) > most {
                let moves = counted(usize::try_from(own.0).unwrap_or_default(), "replica");
                return Some(format!(
                    "{moves} would move; it allows {most}{of} in {window}{}",
                    already(used.0)
                ));
            }
        }
        let most = rules.workloads.filter(|most| used.1.saturating_add(own.1) > *most)?;
        let moves = counted(usize::try_from(own.1).unwrap_or_default(), "workload");
        Some(format!("{moves} would move; it allows {most} in {window}{}", already(used.1)))
    }
}

/// Replicas and workloads of changes, by the guards that select them.
fn count<'a>(changes: impl Iterator<Item = &'a Waiting>) -> BTreeMap<String, (i64, i64)> {
    let mut counts: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for waiting in changes {
        for guard in &waiting.guards {
            let (replicas, workloads) = counts.entry(guard.clone()).or_default();
            *replicas = replicas.saturating_add(waiting.change.replicas);
            *workloads += 1;
        }
    }
    counts
}

/// Replicas and workloads that count in the window of a guard, but for those of a plan that waits since then: a release of
/// it that was not written to all of its guards.
pub(super) fn used(
    guard: &Guard,
    but: (&str, Timestamp),
    live: &BTreeSet<String>,
    wall: Timestamp,
    before: (i64, i64),
) -> (i64, i64) {
    let others = guard.counted(live, wall).filter(|one| one.plan != but.0 || one.at.0 <= but.1);
    others.fold(before, |(replicas, workloads), one| {
        (replicas.saturating_add(one.replicas), workloads.saturating_add(one.workloads))
    })
}
