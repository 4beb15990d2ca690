//! Random histories: users make changes while anything can fail. A seed is a script of steps, drawn before it is
//! played;
//! leaving steps out changes none of the others, so the cause of a failure can be narrowed down.
//!
//! The invariants must hold at every event. After the last fault everything must run where it should, history must be
//! complete, and nothing may move any more.

mod action;
mod draw;
mod expect;
mod perform;
mod planned;
mod policies;
mod shrink;
mod watchdog;

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::DecisionId;
use tokio::time::Instant;

pub use action::{Action, Damaged, Fault, Going, Poison, Step, Tampering};
pub use draw::{guarded, script};
pub use shrink::shrink;

use super::{Identities, Lists, World, simulate};
use atoll_controller::leader::LeaseTimes;
use atoll_controller::members::HealthTimes;
use perform::Player;

/// Members of a history.
pub const MEMBERS: u64 = 3;
/// Longest recovery after the last fault, in simulated time.
const LIMIT: Duration = Duration::from_secs(100);
/// After all members are healthy: how long until a decision is made on a change that has no effect.
const HEARD: Duration = Duration::from_secs(5);
/// How long the settled state is observed.
const STAYS: Duration = Duration::from_secs(15);

/// The result of a history.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Simulated time.
    pub simulated: Duration,
    /// Time from the last fault to recovery.
    pub recovery: Duration,
    /// Faults that took place.
    pub faults: BTreeMap<Fault, u32>,
    /// All observations, as [`World::account`] gives them.
    pub account: Vec<String>,
}

/// Where two accounts of one seed part: the number of the line and both lines.
#[must_use]
pub fn parted<'a>(one: &'a [String], other: &'a [String]) -> Option<(usize, &'a str, &'a str)> {
    let line = |account: &'a [String], at: usize| account.get(at).map_or("(its end)", |line| line);
    let longest = one.len().max(other.len());
    let at = (0..longest).find(|at| one.get(*at) != other.get(*at))?;
    Some((at, line(one, at), line(other, at)))
}

/// Seconds instead of minutes, as in `atoll up`.
fn health() -> HealthTimes {
    let seconds = Duration::from_secs;
    HealthTimes {
        heartbeat: seconds(2),
        silent_after: seconds(5),
        settle: seconds(3),
        failover_after: seconds(6),
        // Longer than an agent's longest pause between attempts.
        leader_grace: seconds(12),
        suspicion_window: seconds(10),
        ..HealthTimes::default()
    }
}

/// Short enough that a history sees several leaders.
fn lease() -> LeaseTimes {
    let seconds = Duration::from_secs;
    LeaseTimes { duration: seconds(6), renew_deadline: seconds(4), retry: seconds(1) }
}

/// Plays a script in a World of this seed.
///
/// # Errors
/// The violated expectation, as text.
pub fn play(seed: u64, script: &[Step]) -> Result<Outcome, String> {
    play_asking(Lists::default(), seed, script)
}

/// As [`play`], with controllers and agents that make such lists.
///
/// # Errors
/// As [`play`].
pub fn play_asking(lists: Lists, seed: u64, script: &[Step]) -> Result<Outcome, String> {
    watchdog::guarded(|| simulate(history(lists, seed, script)))
}

async fn history(lists: Lists, seed: u64, script: &[Step]) -> Outcome {
    let began = Instant::now();
    let rivals = script.iter().any(|step| step.action.fault() == Some(Fault::TwoLeaders));
    let world = World::builder()
        .seed(seed)
        .members(MEMBERS)
        .identities(Identities::Known)
        .controllers(if rivals { 2 } else { 1 })
        .customized(script.iter().any(|step| step.action.is_customized()))
        .lists(lists)
        .health(health())
        .lease(lease())
        .build()
        .await;
    let mut player = Player::new(world);
    player.play(script).await;
    let healed = Instant::now();
    player.heal().await;
    if script.iter().any(|step| matches!(step.action, Action::Guard { .. })) {
        player.release(LIMIT * 3).await;
    }
    let world = &player.world;
    world.until("observed is desired", LIMIT, expect::as_desired).await;
    world.until_settled(LIMIT).await;
    // A member may return long after everything runs elsewhere: its agent waits before its next attempt, and then it
    // must stay healthy for a while. Only then is nothing left to decide.
    world.until("all members are well", LIMIT, expect::all_well).await;
    let recovery = healed.elapsed();
    // After a lost leadership the next one may begin only when the Lease has expired. Until then the last change is not decided.
    world.until_led(LIMIT).await;
    // The last change may have no effect, but still causes a decision.
    world.rest(HEARD).await;
    // A controller that was down sees earlier changes only now: its decisions have to complete too.
    world.until("observed is desired again", LIMIT, expect::as_desired).await;
    world.until_settled(LIMIT).await;
    // Unchanged workloads must not move.
    let before = world.decided();
    world.rest(STAYS).await;
    world.until("still as desired", Duration::ZERO, expect::as_desired).await;
    world.until_settled(Duration::ZERO).await;
    let after = world.decided();
    world.check_history().await;
    if let Err(moved) = unmoved(&before, &after) {
        let rows = world.history().await;
        let known = rows.iter().rposition(|row| before.values().any(|id| *id == row.record.id));
        let new: Vec<String> = rows[known.map_or(0, |at| at + 1)..].iter().map(line).collect();
        panic!("I6: {moved}:\n{}", new.join("\n"));
    }
    // Plans are made on threads of their own, so the order of what happens at the same time is open from here on.
    let account = world.account().await;
    planned::play(&mut player, seed).await;
    let Player { world, faults, .. } = player;
    world.end().await;
    Outcome { simulated: began.elapsed(), recovery, faults, account }
}

/// Whether no decision was made without a reason (I6).
fn unmoved(
    before: &BTreeMap<String, DecisionId>,
    after: &BTreeMap<String, DecisionId>,
) -> Result<(), String> {
    let moved: Vec<&String> =
        after.iter().filter(|(uid, id)| before.get(*uid) != Some(id)).map(|(uid, _)| uid).collect();
    let gone = before.keys().find(|uid| !after.contains_key(*uid));
    match (moved.is_empty(), gone) {
        (true, None) => Ok(()),
        (false, _) => Err(format!("with nothing to do decisions were made for {moved:?}")),
        (true, Some(gone)) => Err(format!("the decisions of {gone} are gone")),
    }
}

/// A decision as one line.
fn line(row: &atoll_history::Record) -> String {
    let shares = |shares: &[atoll_api::binding::TargetCluster]| {
        let shares = shares.iter().map(|share| format!("{} {}", share.name, share.replicas));
        shares.collect::<Vec<_>>().join(", ")
    };
    let record = &row.record;
    format!(
        "{} {} {} {:?}: {} -> {} ({})",
        record.at.0,
        row.binding.name,
        record.trigger,
        record.mode,
        shares(row.before.as_deref().unwrap_or_default()),
        shares(&row.after),
        row.reason.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_without_a_reason_is_found() {
        let of = |list: &[(&str, &str)]| -> BTreeMap<String, DecisionId> {
            list.iter().map(|(uid, id)| ((*uid).to_owned(), (*id).into())).collect()
        };
        let before = of(&[("a", "1"), ("b", "2")]);
        assert_eq!(unmoved(&before, &before), Ok(()));
        assert!(unmoved(&before, &of(&[("a", "1"), ("b", "3")])).is_err());
        assert!(unmoved(&before, &of(&[("a", "1"), ("b", "2"), ("c", "1")])).is_err());
        assert!(unmoved(&before, &of(&[("a", "1")])).is_err());
    }
}
