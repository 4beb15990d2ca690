//! Events on their way to the hub's side: in order, bounded, and of several reports on one object only the newest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_render::Key;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::types::MemberEvent;

/// Sessions stop reading above so many events, until the hub's side has caught up. A burst of all objects' first
/// reports of some members fits.
const ROOM: usize = 8_192;

#[derive(Debug)]
enum Slot {
    Event(Box<MemberEvent>),
    /// Place of the newest report on this object.
    Status(String, Key),
}

#[derive(Debug, Default)]
struct Queue {
    slots: VecDeque<Slot>,
    newest: HashMap<(String, Key), MemberEvent>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
    emptied: Notify,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits: what comes from the hub's side itself is few, and sessions ask [`Outbox::room`] before they read.
    pub(super) fn push(&self, event: MemberEvent) {
        let mut queue = self.lock();
        if let MemberEvent::Status { cluster, key, .. } = &event {
            let place = (cluster.clone(), key.clone());
            if queue.newest.insert(place.clone(), event).is_none() {
                queue.slots.push_back(Slot::Status(place.0, place.1));
            }
        } else {
            queue.slots.push_back(Slot::Event(Box::new(event)));
        }
        drop(queue);
        self.filled.notify_one();
    }

    /// Waits until a session may read on.
    pub(super) async fn room(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Registered before the look, so that an emptying in between is not missed.
            emptied.as_mut().enable();
            if !self.is_full() {
                return;
            }
            emptied.await;
        }
    }

    /// Whether sessions do not read because of it: their members' silence means nothing then.
    pub(super) fn is_full(&self) -> bool {
        self.lock().slots.len() >= ROOM
    }

    fn pop(&self) -> Option<MemberEvent> {
        let mut queue = self.lock();
        match queue.slots.pop_front()? {
            Slot::Event(event) => Some(*event),
            Slot::Status(cluster, key) => queue.newest.remove(&(cluster, key)),
        }
    }

    /// Hands the events over until `token` ends it or nobody takes them any more.
    pub(super) async fn forward(
        &self,
        events: mpsc::Sender<MemberEvent>,
        token: CancellationToken,
    ) {
        loop {
            // Room first, event then: what waits in here is still coalesced.
            let permit = tokio::select! {
                biased;
                () = token.cancelled() => return,
                permit = events.reserve() => permit,
            };
            let Ok(permit) = permit else { return };
            let event = loop {
                match self.pop() {
                    Some(event) => break event,
                    None => tokio::select! {
                        biased;
                        () = token.cancelled() => return,
                        () = self.filled.notified() => (),
                    },
                }
            };
            permit.send(event);
            if !self.is_full() {
                self.emptied.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::types::{ObjectHealth, Report};

    fn status(name: &str, generation: i64) -> MemberEvent {
        MemberEvent::Status {
            cluster: "member1".into(),
            key: Key {
                group: String::new(),
                kind: "Pod".into(),
                namespace: None,
                name: name.into(),
            },
            claims: Vec::new(),
            report: Report {
                hash: String::new(),
                current: true,
                generation,
                observed_generation: 0,
                replicas: None,
                ready: None,
                unschedulable: 0,
                unschedulable_since: None,
                unschedulable_reason: String::new(),
                health: ObjectHealth::Unknown,
                health_reason: String::new(),
                status: None,
                gone: false,
                object_uid: String::new(),
            },
        }
    }

    #[tokio::test]
    async fn of_several_reports_the_newest_comes_in_the_place_of_the_first() {
        let outbox = Outbox::default();
        let connected = MemberEvent::Connected { cluster: "member1".into() };
        for event in [status("a", 1), connected.clone(), status("b", 1), status("a", 2)] {
            outbox.push(event);
        }
        let (sender, mut receiver) = mpsc::channel(1);
        let token = CancellationToken::new();
        let take = async {
            let mut taken = Vec::new();
            for _ in 0..3 {
                taken.extend(receiver.recv().await);
            }
            token.cancel();
            taken
        };
        let (_, taken) = tokio::join!(outbox.forward(sender, token.clone()), take);
        assert_eq!(taken, [status("a", 2), connected, status("b", 1)]);
    }

    #[tokio::test]
    async fn sessions_wait_while_it_is_full() {
        let outbox = Outbox::default();
        for i in 0..ROOM {
            outbox.push(status(&i.to_string(), 1));
        }
        let (sender, mut receiver) = mpsc::channel(1);
        let token = CancellationToken::new();
        assert!(outbox.is_full());
        let wait = async {
            outbox.room().await;
            token.cancel();
        };
        let take = async { while receiver.recv().await.is_some() {} };
        tokio::join!(outbox.forward(sender, token.clone()), wait, take);
        assert!(!outbox.is_full());
    }
}
