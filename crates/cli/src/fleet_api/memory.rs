//! What requests to all members may hold: memory for answers that are on the way, and open requests of a user. Neither one
//! user nor one member takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use atoll_apimachinery::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::ask::Failure;
use crate::reach::ANSWER;

/// Memory of all requests, in KiB: an eighth of what the controller's container has.
const ALL_KIB: usize = 256 << 10;
/// Share of one user: eight pages that arrive at the same time, and what is held back.
const USER_KIB: usize = ALL_KIB / 2;
/// Share of one member: pages for eight requests.
const MEMBER_KIB: usize = ALL_KIB / 4;
/// Open requests of one user. A client with a watch for each kind has a few dozen.
const OPEN: usize = 64;

/// A share of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    User(String),
    Member(String),
}

/// Memory that is in use, given back on drop.
pub(super) struct Held {
    _permits: [OwnedSemaphorePermit; 3],
}

/// What is in use.
pub(super) struct Memory {
    all: Arc<Semaphore>,
    shares: Mutex<HashMap<Owner, Weak<Semaphore>>>,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(ALL_KIB)),
            shares: Mutex::default(),
            open: Arc::default(),
        }
    }

    /// Waits for memory for some bytes of a member's answer to a user.
    ///
    /// # Errors
    /// When there is none in time.
    pub(super) async fn take(
        &self,
        user: &str,
        member: &str,
        bytes: usize,
    ) -> Result<Held, Failure> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let shares = [
            self.share(Owner::User(user.to_owned()), USER_KIB),
            self.share(Owner::Member(member.to_owned()), MEMBER_KIB),
            self.all.clone(),
        ];
        let taking = async {
            let [user, member, all] = shares.map(|share| share.acquire_many_owned(kib));
            // The smallest share first: whoever has used it up takes nothing from others.
            let (member, user) = (member.await.ok()?, user.await.ok()?);
            Some(Held { _permits: [member, user, all.await.ok()?] })
        };
        let taken = timeout(ANSWER, taking).await.ok().flatten();
        taken.ok_or_else(|| Failure::of("too many answers wait for memory"))
    }

    fn share(&self, owner: Owner, kib: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&owner).and_then(Weak::upgrade) {
            return share;
        }
        // Permits keep their share. The others are forgotten.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(kib));
        shares.insert(owner, Arc::downgrade(&share));
        share
    }

    /// A place for a request of a user.
    ///
    /// # Errors
    /// When the user has too many.
    pub(super) fn enter(&self, user: &str) -> Result<OpenRequest, ApiError> {
        let mut open = lock(&self.open);
        let count = open.entry(user.to_owned()).or_default();
        if *count >= OPEN {
            let text = format!("you have {OPEN} open requests to all members: try again");
            return Err(ApiError::too_many_requests(text, 1));
        }
        *count += 1;
        Ok(OpenRequest { open: self.open.clone(), user: user.to_owned() })
    }
}

fn lock(open: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of an open request, freed on drop.
pub(super) struct OpenRequest {
    open: Arc<Mutex<HashMap<String, usize>>>,
    user: String,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn neither_a_user_nor_a_member_takes_all_memory() {
        let memory = Memory::new();
        let whole = MEMBER_KIB << 10;
        let greedy = memory.take("jane", "m1", whole).await.unwrap();
        assert!(memory.take("joe", "m1", 1).await.is_err(), "the member's share");
        let other = memory.take("jane", "m2", whole).await.unwrap();
        assert!(memory.take("jane", "m3", 1).await.is_err(), "the user's share");
        let joe = memory.take("joe", "m3", whole).await.unwrap();
        drop(greedy);
        assert!(memory.take("jane", "m1", whole).await.is_ok(), "given back");
        drop((other, joe));
        memory.take("jim", "m9", 1).await.unwrap();
        assert_eq!(memory.all.available_permits(), ALL_KIB);
        assert_eq!(memory.shares.lock().unwrap().len(), 2, "others are forgotten");
    }

    #[test]
    fn a_user_has_a_limited_number_of_open_requests() {
        let memory = Memory::new();
        let mut open: Vec<_> = (0..OPEN).map(|_| memory.enter("jane").unwrap()).collect();
        assert_eq!(memory.enter("jane").err().unwrap().code, 429);
        assert!(memory.enter("joe").is_ok());
        open.pop();
        assert!(memory.enter("jane").is_ok());
        drop(open);
        assert!(memory.open.lock().unwrap().is_empty());
    }
}
