//! Limits of users' requests, so that neither a user nor a member uses up what all others need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_protocol::tunnel::MAX_STREAMS;
use tokio::time::Instant;

use crate::member::token_bucket::{Bucket, Rate};

/// Open requests of all users and members. Each may hold the window of a stream in memory: 512 MiB together.
const OPEN: usize = 2_048;
/// Open requests to one member, a little fewer than its connection has streams.
const OPEN_OF_A_MEMBER: usize = MAX_STREAMS as usize - 16;
/// Open requests of one user to one member: fewer than it has, so that no user keeps the others from it.
const OPEN_OF_A_PAIR: usize = OPEN_OF_A_MEMBER - 32;
/// Open requests of one user to all members: a watch of a fleet of a thousand is one to each.
const OPEN_OF_A_USER: usize = OPEN / 2;
/// Requests of one user. kubectl's own limit is 50 a second with bursts of 300, and discovery of several members needs
/// such a burst each. A list of a fleet of a thousand members is two to each at most.
const OF_A_USER: Rate = Rate { burst: 2_500.0, per_second: 250.0 };
/// Requests to one member.
const OF_A_MEMBER: Rate = Rate { burst: 2_000.0, per_second: 400.0 };
/// Users and members whose rates are remembered before idle ones are forgotten.
const REMEMBERED: usize = 4_096;

/// Why a request has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    #[error("too many requests to members are open")]
    All,
    #[error("too many requests to this member are open")]
    Member,
    #[error("too many of your requests to members are open")]
    User,
    #[error("too many of your requests to this member are open")]
    Pair,
    #[error("too many requests to this member in a short time")]
    MemberRate,
    #[error("too many of your requests to members in a short time")]
    UserRate,
}

/// The open requests, and the rates.
#[derive(Debug, Default)]
pub(crate) struct Traffic(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    users: BTreeMap<String, Usage>,
    members: BTreeMap<String, Usage>,
    /// Open requests by user and member.
    pairs: BTreeMap<(String, String), usize>,
    open: usize,
}

#[derive(Debug)]
struct Usage {
    open: usize,
    bucket: Bucket,
}

/// The place of an open request, freed on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    traffic: Arc<Traffic>,
    user: String,
    member: String,
}

impl Traffic {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a request of this user to this member.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn enter(
        self: &Arc<Self>,
        user: &str,
        member: &str,
        now: Instant,
    ) -> Result<Slot, Busy> {
        let mut table = self.lock();
        let Table { users, members, pairs, open } = &mut *table;
        for (rates, usages) in [(OF_A_USER, &mut *users), (OF_A_MEMBER, &mut *members)] {
            if usages.len() > REMEMBERED {
                usages.retain(|_, usage| usage.open > 0 || !usage.bucket.is_full(now));
            }
            let name = if rates.burst == OF_A_USER.burst { user } else { member };
            usages
                .entry(name.to_owned())
                .or_insert_with(|| Usage { open: 0, bucket: Bucket::new(rates, now) });
        }
        let (Some(of_user), Some(of_member)) = (users.get_mut(user), members.get_mut(member))
        else {
            return Err(Busy::All);
        };
        if !of_user.bucket.take(now) {
            return Err(Busy::UserRate);
        }
        if of_user.open >= OPEN_OF_A_USER {
            return Err(Busy::User);
        }
        let pair = (user.to_owned(), member.to_owned());
        if pairs.get(&pair).is_some_and(|open| *open >= OPEN_OF_A_PAIR) {
            return Err(Busy::Pair);
        }
        if !of_member.bucket.take(now) {
            return Err(Busy::MemberRate);
        }
        if of_member.open >= OPEN_OF_A_MEMBER {
            return Err(Busy::Member);
        }
        if *open >= OPEN {
            return Err(Busy::All);
        }
        of_user.open += 1;
        of_member.open += 1;
        *open += 1;
        *pairs.entry(pair).or_default() += 1;
        Ok(Slot { traffic: self.clone(), user: user.to_owned(), member: member.to_owned() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.traffic.lock();
        table.open -= 1;
        if let Some(usage) = table.users.get_mut(&self.user) {
            usage.open -= 1;
        }
        if let Some(usage) = table.members.get_mut(&self.member) {
            usage.open -= 1;
        }
        let pair = (std::mem::take(&mut self.user), std::mem::take(&mut self.member));
        if let Some(open) = table.pairs.get_mut(&pair) {
            *open -= 1;
            if *open == 0 {
                table.pairs.remove(&pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_user_with_many_streams_leaves_room_for_others_and_frees_it_at_the_end() {
        let (traffic, start) = (Arc::<Traffic>::default(), Instant::now());
        let held: Vec<_> =
            (0..OPEN_OF_A_PAIR).map(|_| traffic.enter("greedy", "m1", start).unwrap()).collect();
        assert_eq!(traffic.enter("greedy", "m1", start).unwrap_err(), Busy::Pair);
        let wide: Vec<_> = (OPEN_OF_A_PAIR..OPEN_OF_A_USER)
            .map(|at| traffic.enter("greedy", &format!("other{at}"), start).unwrap())
            .collect();
        assert_eq!(traffic.enter("greedy", "m2", start).unwrap_err(), Busy::User);
        let other: Vec<_> = (0..OPEN_OF_A_MEMBER - OPEN_OF_A_PAIR)
            .map(|_| traffic.enter("jane", "m1", start).unwrap())
            .collect();
        assert_eq!(traffic.enter("jane", "m1", start).unwrap_err(), Busy::Member);
        assert!(traffic.enter("jane", "m2", start).is_ok());
        drop((held, other, wide));
        assert!(traffic.enter("greedy", "m1", start).is_ok());
        assert_eq!(traffic.lock().open, 0);
        assert!(traffic.lock().pairs.is_empty());
    }

    #[test]
    fn requests_above_the_rate_wait_and_idle_users_are_forgotten() {
        let (traffic, start) = (Arc::<Traffic>::default(), Instant::now());
        let mut refused = None;
        for at in 0..2_501 {
            refused = traffic.enter("jane", &format!("member{}", at % 2), start).err();
        }
        assert_eq!(refused, Some(Busy::UserRate));
        assert!(traffic.enter("jane", "m1", start + Duration::from_secs(1)).is_ok());
        for user in 0..=REMEMBERED {
            assert!(traffic.enter(&format!("user{user}"), &format!("m{user}"), start).is_ok());
        }
        let later = start + Duration::from_secs(60);
        assert!(traffic.enter("late", "m1", later).is_ok());
        assert!(traffic.lock().users.len() < 3);
    }
}
