//! Events for the rest of the controller: ordered per member, bounded, and of several reports on one object only the
//! newest.
//!
//! Each member has its own queue, and the queues are served in turn. A member that sends too much waits alone; the
//! others' events pass.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::{BindingUid, ClusterName};
use atoll_render::Key;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::member::types::{HeldObject, MemberEvent, Report};

/// Above this number of events of all members, a session reads only while it has none queued.
const ROOM: usize = 8_192;
/// The same in bytes.
const ROOM_BYTES: usize = 256 << 20;
/// Above this number of its own events a session stops reading. A burst of first reports fits.
const MEMBER_ROOM: usize = 1_024;
/// The same in bytes.
const MEMBER_BYTES: usize = 16 << 20;
/// Approximate memory of an event without its texts.
const EVENT_BYTES: usize = 512;

#[derive(Debug)]
enum QueuedEvent {
    Event(Box<MemberEvent>),
    /// Place of the newest report on this object.
    Status(Key),
}

/// One member's queue.
#[derive(Debug, Default)]
struct MemberQueue {
    events: VecDeque<QueuedEvent>,
    newest: HashMap<Key, MemberEvent>,
    bytes: usize,
    /// Notified when events were taken.
    taken: Arc<Notify>,
}

impl MemberQueue {
    fn push(&mut self, event: MemberEvent) -> Growth {
        let more = bytes(&event);
        if let MemberEvent::Status { key, .. } = &event {
            let key = key.clone();
            let old = self.newest.insert(key.clone(), event);
            let less = old.as_ref().map_or(0, bytes);
            self.bytes = self.bytes + more - less;
            if old.is_none() {
                self.events.push_back(QueuedEvent::Status(key));
            }
            return Growth { events: usize::from(old.is_none()), more, less };
        }
        // An agent that reconnects again and again causes the same event each time.
        if let Some(QueuedEvent::Event(last)) = self.events.back()
            && **last == event
        {
            return Growth { events: 0, more: 0, less: 0 };
        }
        self.bytes += more;
        self.events.push_back(QueuedEvent::Event(Box::new(event)));
        Growth { events: 1, more, less: 0 }
    }

    fn pop(&mut self) -> Option<MemberEvent> {
        let event = match self.events.pop_front()? {
            QueuedEvent::Event(event) => Some(*event),
            QueuedEvent::Status(key) => self.newest.remove(&key),
        };
        self.bytes -= event.as_ref().map_or(0, bytes);
        event
    }
}

/// Growth of a queue by an event.
struct Growth {
    events: usize,
    more: usize,
    less: usize,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    members: BTreeMap<ClusterName, MemberQueue>,
    /// Members with queued events, in serving order.
    turns: VecDeque<ClusterName>,
    events: usize,
    bytes: usize,
}

impl OutboxQueue {
    fn is_full(&self) -> bool {
        self.events >= ROOM || self.bytes >= ROOM_BYTES
    }

    fn has_room(&self, member: &ClusterName) -> bool {
        let Some(queued) = self.members.get(member) else { return true };
        queued.events.is_empty()
            || (!self.is_full() && queued.events.len() < MEMBER_ROOM && queued.bytes < MEMBER_BYTES)
    }

    fn pop(&mut self) -> Option<MemberEvent> {
        let member = self.turns.pop_front()?;
        let queued = self.members.get_mut(&member)?;
        let before = queued.bytes;
        let event = queued.pop();
        self.bytes -= before - queued.bytes;
        self.events -= 1;
        // Not for each event: a session that resumes should find room for more than one.
        if queued.events.len() <= MEMBER_ROOM / 2 && queued.bytes <= MEMBER_BYTES / 2 {
            queued.taken.notify_waiters();
        }
        if queued.events.is_empty() {
            self.members.remove(&member);
        } else {
            self.turns.push_back(member);
        }
        event
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: Mutex<OutboxQueue>,
    filled: Notify,
    /// Notified when it is no longer full.
    emptied: Notify,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, OutboxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits: other sources add few events, and sessions check [`Outbox::room`] before they read.
    pub(crate) fn push(&self, event: MemberEvent) {
        let mut queue = self.lock();
        let member = event.cluster().clone();
        let queued = queue.members.entry(member.clone()).or_default();
        let first = queued.events.is_empty();
        let grown = queued.push(event);
        if first {
            queue.turns.push_back(member);
        }
        queue.events += grown.events;
        queue.bytes = queue.bytes + grown.more - grown.less;
        drop(queue);
        self.filled.notify_one();
    }

    /// Reports claims that have no object on the member any more.
    pub(crate) fn push_withdrawn(&self, cluster: &ClusterName, claims: Vec<BindingUid>) {
        for claim in claims {
            self.push(MemberEvent::Withdrawn { cluster: cluster.clone(), claim });
        }
    }

    /// Whether this member's session may continue reading.
    pub(crate) fn has_room(&self, member: &ClusterName) -> bool {
        self.lock().has_room(member)
    }

    /// Waits until this member's session may continue reading.
    pub(crate) async fn room(&self, member: &ClusterName) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Registered before the check, so that no notification in between is missed.
            emptied.as_mut().enable();
            let taken = {
                let queue = self.lock();
                if queue.has_room(member) {
                    return;
                }
                queue.members.get(member).map(|queued| queued.taken.clone())
            };
            let Some(queued) = taken else { continue };
            let taken = queued.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            if self.has_room(member) {
                return;
            }
            tokio::select! {
                biased;
                () = taken => (),
                () = emptied => (),
            }
        }
    }

    /// Whether sessions stopped reading because of it: then their members' silence means nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    fn pop(&self) -> Option<MemberEvent> {
        let mut queue = self.lock();
        let was_full = queue.is_full();
        let event = queue.pop();
        let freed = was_full && !queue.is_full();
        drop(queue);
        if freed {
            self.emptied.notify_waiters();
        }
        event
    }

    /// Passes the events on until `token` is cancelled or the receiver is dropped.
    pub(crate) async fn forward(
        &self,
        events: mpsc::Sender<MemberEvent>,
        token: CancellationToken,
    ) {
        loop {
            // Reserve first, then take: queued events are still coalesced.
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
        }
    }
}

/// Approximate memory of an event.
fn bytes(event: &MemberEvent) -> usize {
    let texts = |texts: &[BindingUid]| texts.iter().map(|text| text.len() + 24).sum::<usize>();
    let content = match event {
        MemberEvent::Status { claims, report, .. } => texts(claims) + report_bytes(report),
        MemberEvent::Applied { claims, reason, message, .. } => {
            texts(claims) + reason.len() + message.len()
        }
        MemberEvent::RuleFailed { failed, .. } => failed.customization.len() + failed.message.len(),
        MemberEvent::Inventory { held, .. } => held.iter().map(held_bytes).sum(),
        MemberEvent::Suspicion { message, .. } => message.len(),
        // The facts are shared with the member's state, which bounds them.
        MemberEvent::Facts { .. }
        | MemberEvent::Connected { .. }
        | MemberEvent::Lost { .. }
        | MemberEvent::Withdrawn { .. }
        | MemberEvent::HigherTerm { .. } => 0,
    };
    EVENT_BYTES + content
}

fn report_bytes(report: &Report) -> usize {
    // Parsed JSON takes several times the memory of its text.
    report.health.reason.len() + report.unschedulable_reason.len() + 4 * report.status_bytes
}

fn held_bytes(object: &HeldObject) -> usize {
    let claims: usize = object.claims.iter().map(|claim| claim.len() + 24).sum();
    object.hash.len() + claims + 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::types::Report;

    fn status(name: &str, generation: i64) -> MemberEvent {
        MemberEvent::Status {
            cluster: "member1".into(),
            key: Key::new("", "Pod", None, name),
            claims: Vec::new(),
            report: Report { generation, ..Report::unknown() },
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

    fn of(cluster: &str, name: &str) -> MemberEvent {
        let MemberEvent::Status { key, claims, report, .. } = status(name, 1) else {
            unreachable!()
        };
        MemberEvent::Status { cluster: cluster.into(), key, claims, report }
    }

    #[tokio::test]
    async fn a_member_that_sends_too_much_waits_alone_and_the_others_are_served_in_turn() {
        let outbox = Outbox::default();
        for i in 0..MEMBER_ROOM {
            outbox.push(of("flood", &i.to_string()));
        }
        assert!(!outbox.has_room(&"flood".into()) && !outbox.is_full());
        assert!(outbox.has_room(&"other".into()));
        outbox.push(of("other", "a"));
        outbox.push(of("other", "b"));
        let served: Vec<_> =
            (0..4).filter_map(|_| outbox.pop()).map(|event| event.cluster().clone()).collect();
        assert_eq!(served, ["flood", "other", "flood", "other"]);

        // Even when many members fill it together, each may have one event.
        for member in 0..2 * ROOM / MEMBER_ROOM {
            for i in 0..MEMBER_ROOM {
                outbox.push(of(&format!("flood-{member}"), &i.to_string()));
            }
        }
        assert!(outbox.is_full() && outbox.has_room(&"quiet".into()));
        outbox.push(of("quiet", "a"));
        assert!(!outbox.has_room(&"quiet".into()));
    }

    #[tokio::test]
    async fn a_members_events_are_bounded_in_bytes() {
        let outbox = Outbox::default();
        let claims = vec!["x".repeat(MEMBER_BYTES).into()];
        let MemberEvent::Status { cluster, key, report, .. } = status("a", 1) else {
            unreachable!()
        };
        outbox.push(MemberEvent::Status { cluster, key, claims, report });
        assert!(!outbox.has_room(&"member1".into()));
        // Replacing a report with a newer one releases its room, and so does taking it.
        outbox.push(status("a", 2));
        assert!(outbox.has_room(&"member1".into()));
        outbox.pop();
        let queue = outbox.lock();
        assert_eq!((queue.events, queue.bytes), (0, 0));
    }

    #[tokio::test]
    async fn an_event_repeated_many_times_takes_no_room() {
        let outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push(MemberEvent::Connected { cluster: "member1".into() });
        }
        assert_eq!(outbox.lock().events, 1);
    }

    #[tokio::test]
    async fn sessions_wait_until_one_of_their_events_was_taken() {
        let outbox = Outbox::default();
        for i in 0..MEMBER_ROOM {
            outbox.push(status(&i.to_string(), 1));
        }
        let (sender, mut receiver) = mpsc::channel(1);
        let token = CancellationToken::new();
        let wait = async {
            outbox.room(&"member1".into()).await;
            token.cancel();
        };
        let take = async { while receiver.recv().await.is_some() {} };
        tokio::join!(outbox.forward(sender, token.clone()), wait, take);
        assert!(outbox.has_room(&"member1".into()));
    }
}
