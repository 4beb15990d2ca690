//! Messages waiting to be sent to the controller. Bounded by content: one heartbeat, one set of facts, and per object
//! one result and one status, and per rule one failure, of which the newest wins. A controller that reads slowly gets fewer messages, not older
//! ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_protocol::v1::agent_message::Message;
use atoll_protocol::v1::{self, AgentMessage};
use tokio::sync::Notify;

use crate::key::Key;

/// One value per key, in the order of the keys' first arrival.
#[derive(Debug)]
struct Latest<T> {
    values: BTreeMap<Key, T>,
    order: VecDeque<Key>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> Latest<T> {
    fn push(&mut self, key: Key, value: T) {
        if self.values.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<T> {
        let key = self.order.pop_front()?;
        self.values.remove(&key)
    }
}

#[derive(Debug, Default)]
struct State {
    hello: Option<v1::Hello>,
    heartbeat: Option<v1::Heartbeat>,
    facts: Option<v1::Facts>,
    inventory: VecDeque<v1::Inventory>,
    /// Some pages of an inventory were sent, but not the last.
    inventory_begun: bool,
    applied: Latest<v1::Applied>,
    status: Latest<v1::Status>,
    /// By customization and operation.
    rule_failures: BTreeMap<(String, i32), v1::RuleFailure>,
    /// The controller has replied: all messages may be sent.
    open: bool,
    closed: bool,
}

/// One session's outgoing messages.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    wake: Notify,
}

impl Outbox {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the first message.
    pub(crate) fn hello(&self, hello: v1::Hello) {
        self.change(|state| state.hello = Some(hello));
    }

    /// Allows all other messages.
    pub(crate) fn open(&self) {
        self.change(|state| state.open = true);
    }

    /// Queues a heartbeat; it is sent before everything else.
    pub(crate) fn heartbeat(&self, heartbeat: v1::Heartbeat) {
        self.change(|state| state.heartbeat = Some(heartbeat));
    }

    /// Queues facts.
    pub(crate) fn facts(&self, facts: v1::Facts) {
        self.change(|state| state.facts = Some(facts));
    }

    /// Queues an inventory; it replaces one that has not started. One that has started is sent to its end first, or the
    /// controller would mix the two.
    pub(crate) fn inventory(&self, pages: Vec<v1::Inventory>) {
        self.change(|state| {
            let begun = state.inventory.iter().position(|page| page.last).map_or(0, |at| at + 1);
            state.inventory.truncate(if state.inventory_begun { begun } else { 0 });
            state.inventory.extend(pages);
        });
    }

    /// Queues the result of an order.
    pub(crate) fn applied(&self, key: Key, applied: v1::Applied) {
        self.change(|state| state.applied.push(key, applied));
    }

    /// Queues an object's status.
    pub(crate) fn status(&self, key: Key, status: v1::Status) {
        self.change(|state| state.status.push(key, status));
    }

    /// Queues the failure of a rule; it replaces an earlier one of the same rule.
    pub(crate) fn rule_failure(&self, failure: v1::RuleFailure) {
        let rule = (failure.customization.clone(), failure.operation);
        self.change(|state| drop(state.rule_failures.insert(rule, failure)));
    }

    /// Ends the stream after the messages in flight.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// The messages in sending order.
    pub(crate) fn stream(self: &Arc<Self>) -> impl futures::Stream<Item = AgentMessage> + use<> {
        futures::stream::unfold(Arc::clone(self), |outbox| async move {
            let message = outbox.next().await?;
            Some((AgentMessage { message: Some(message) }, outbox))
        })
    }

    async fn next(&self) -> Option<Message> {
        loop {
            let woken = self.wake.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if let Some(message) = state.next() {
                    return Some(message);
                }
            }
            woken.await;
        }
    }
}

impl State {
    fn next(&mut self) -> Option<Message> {
        if let Some(hello) = self.hello.take() {
            return Some(Message::Hello(hello));
        }
        if !self.open {
            return None;
        }
        None.or_else(|| self.heartbeat.take().map(Message::Heartbeat))
            .or_else(|| self.facts.take().map(Message::Facts))
            .or_else(|| {
                let page = self.inventory.pop_front()?;
                self.inventory_begun = !page.last;
                Some(Message::Inventory(page))
            })
            .or_else(|| self.applied.pop().map(Message::Applied))
            .or_else(|| self.status.pop().map(Message::Status))
            .or_else(|| {
                let (_, failure) = self.rule_failures.pop_first()?;
                Some(Message::RuleFailure(failure))
            })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::key::GroupKind;

    fn key(name: &str) -> Key {
        Key { kind: GroupKind::new("", "ConfigMap"), namespace: "a".into(), name: name.into() }
    }

    fn status(key: &Key, generation: i64) -> v1::Status {
        v1::Status { key: Some(key.to_wire()), generation, ..v1::Status::default() }
    }

    #[tokio::test]
    async fn nothing_goes_before_the_answer_and_heartbeats_overtake() {
        let outbox = Arc::new(Outbox::default());
        for generation in 0..1000 {
            outbox.status(key("a"), status(&key("a"), generation));
            outbox.status(key("b"), status(&key("b"), generation));
        }
        outbox.inventory(vec![v1::Inventory { entries: vec![], last: true }]);
        outbox.hello(v1::Hello::default());
        let mut stream = std::pin::pin!(outbox.stream());
        let mut next = async || stream.next().await.and_then(|message| message.message);
        assert!(matches!(next().await, Some(Message::Hello(_))));
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        outbox.open();
        outbox.heartbeat(v1::Heartbeat::default());
        assert!(matches!(next().await, Some(Message::Heartbeat(_))));
        assert!(matches!(next().await, Some(Message::Inventory(_))));
        // Of two thousand statuses, only the newest of each object is left.
        for name in ["a", "b"] {
            assert_eq!(next().await, Some(Message::Status(status(&key(name), 999))));
        }
        outbox.close();
        assert_eq!(next().await, None);
    }

    #[tokio::test]
    async fn inventories_are_not_mixed() {
        let outbox = Arc::new(Outbox::default());
        outbox.open();
        let page = |name: &str, last| v1::Inventory {
            entries: vec![v1::InventoryEntry {
                hash: name.to_owned(),
                ..v1::InventoryEntry::default()
            }],
            last,
        };
        outbox.inventory(vec![page("never", true)]);
        outbox.inventory(vec![page("1", false), page("2", true)]);
        let mut stream = std::pin::pin!(outbox.stream());
        let mut next = async || match stream.next().await.and_then(|message| message.message) {
            Some(Message::Inventory(page)) => page.entries[0].hash.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await, "1");
        outbox.inventory(vec![page("dropped", true)]);
        outbox.inventory(vec![page("3", true)]);
        assert_eq!((next().await, next().await), ("2".to_owned(), "3".to_owned()));
    }
}
