//! Objects whose health and status users' rules read. The rules run elsewhere, so that the engine never waits for them.
//!
//! Of each object only the newest state waits. Beyond a bound in bytes objects are not held: they are read from the
//! member when it is their turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use atoll_customize::{Request, Response};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::key::Key;
use crate::member::{Apis, Member};
use crate::observe::Judged;
use crate::rules::{Asked, UserRules, without_managers};

/// Objects that are read at the same time. Those of one kind run one after the other.
const READERS: usize = 8;
/// Bytes of objects that wait.
const HELD_BYTES: usize = 16 << 20;
/// Wait after a failed read of the member, and after a rule that found no thread.
const RETRY: Duration = Duration::from_secs(2);

/// An object, as far as it is held.
type Held = Option<Arc<Value>>;

/// Result of a reading.
pub(super) struct Read {
    pub(super) key: Key,
    pub(super) result: ReadResult,
}

/// See [`Read`].
pub(super) enum ReadResult {
    /// What the rules say about this state of the object.
    Judged(Arc<Value>, Judged),
    /// The object is gone.
    Gone,
    /// It has to be read again.
    Again(Held),
}

/// The objects to read, and those being read.
#[derive(Default)]
pub(super) struct Readings {
    order: VecDeque<Key>,
    waiting: BTreeMap<Key, (Held, usize)>,
    bytes: usize,
    running: BTreeSet<Key>,
    pub(super) jobs: JoinSet<Read>,
}

impl Readings {
    /// An object changed. `held`: its present state; `None` if it has to be read from the member.
    pub(super) fn push(&mut self, key: &Key, held: Option<&Value>) {
        let held = held.map(|object| Arc::new(without_managers(object)));
        self.put(key.clone(), held);
    }

    fn put(&mut self, key: Key, held: Held) {
        let held = held.map(|object| (Request::Health(Arc::clone(&object)).size(), object));
        if let Some((_, bytes)) = self.waiting.remove(&key) {
            self.bytes -= bytes;
        } else {
            self.order.push_back(key.clone());
        }
        let entry = match held {
            Some((bytes, object)) if self.bytes + bytes <= HELD_BYTES => (Some(object), bytes),
            _ => (None, 0),
        };
        self.bytes += entry.1;
        self.waiting.insert(key, entry);
    }

    /// An object is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some((_, bytes)) = self.waiting.remove(key) {
            self.bytes -= bytes;
            self.order.retain(|waiting| waiting != key);
        }
    }

    /// Whether no object waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next object, if it may be read now.
    fn next(&mut self) -> Option<(Key, Held)> {
        if self.jobs.len() >= READERS {
            return None;
        }
        let at = self.order.iter().position(|key| !self.running.contains(key))?;
        let key = self.order.remove(at)?;
        let (held, bytes) = self.waiting.remove(&key)?;
        self.bytes -= bytes;
        Some((key, held))
    }

    /// Starts to read objects. `version` gives the API version in which an object is followed.
    pub(super) fn start(
        &mut self,
        rules: &Arc<UserRules>,
        member: &Member,
        apis: &Arc<Apis>,
        version: impl Fn(&Key) -> Option<String>,
    ) {
        while let Some((key, held)) = self.next() {
            self.running.insert(key.clone());
            let source =
                Source { member: member.clone(), apis: Arc::clone(apis), version: version(&key) };
            let rules = Arc::clone(rules);
            self.jobs.spawn(async move {
                let result = read(&rules, &key, held, &source).await;
                Read { key, result }
            });
        }
    }

    /// A reading ended.
    pub(super) fn done(&mut self, key: &Key) {
        self.running.remove(key);
    }

    /// Reads an object again, unless a newer state of it waits.
    pub(super) fn again(&mut self, key: Key, held: Held) {
        if !self.waiting.contains_key(&key) {
            self.put(key, held);
        }
    }
}

/// Where an object that is not held is read.
struct Source {
    member: Member,
    apis: Arc<Apis>,
    version: Option<String>,
}

impl Source {
    async fn object(&self, key: &Key) -> Result<Option<Value>, crate::member::MemberError> {
        let target = self.apis.resolve(&key.kind, self.version.as_deref());
        let target = target.or_else(|_| self.apis.resolve(&key.kind, None))?;
        self.member.get(target, key).await
    }
}

async fn read(rules: &UserRules, key: &Key, held: Held, source: &Source) -> ReadResult {
    let object = match held {
        Some(object) => object,
        None => match source.object(key).await {
            Ok(Some(object)) => Arc::new(object),
            Ok(None) => return ReadResult::Gone,
            Err(error) => {
                tracing::debug!(%key, error = %error.message(), "cannot read an object for its rules");
                tokio::time::sleep(RETRY).await;
                return ReadResult::Again(None);
            }
        },
    };
    let mut judged = Judged::default();
    for request in [Request::Health(Arc::clone(&object)), Request::Reflect(Arc::clone(&object))] {
        match rules.ask(key, request).await {
            Asked::Answer(Response::Healthy(healthy)) => judged.healthy = Some(healthy),
            Asked::Answer(Response::Status(status)) => judged.status = Some(status),
            // The built-in rules answer.
            Asked::NoRule | Asked::Answer(_) | Asked::Failed(_) => {}
            Asked::NotRun(why) => {
                tracing::info!(%key, %why, "a rule of a customization runs later");
                tokio::time::sleep(RETRY).await;
                return ReadResult::Again(Some(object));
            }
        }
    }
    ReadResult::Judged(object, judged)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::key::GroupKind;

    fn key(name: usize) -> Key {
        let kind = GroupKind::new("apps.example.io", "WebApp");
        Key { kind, namespace: "shop".into(), name: name.to_string() }
    }

    #[test]
    fn of_each_object_the_newest_state_waits_and_all_are_bounded_in_bytes() {
        let mut readings = Readings::default();
        let object = |text: &str| json!({"metadata": {"managedFields": []}, "spec": text});
        readings.push(&key(0), Some(&object("old")));
        readings.push(&key(0), Some(&object("new")));
        let large = "x".repeat(1 << 20);
        for name in 1..100 {
            readings.push(&key(name), Some(&object(&large)));
        }
        assert!(readings.bytes <= HELD_BYTES && readings.bytes > HELD_BYTES / 2);
        let (first, held) = readings.next().unwrap();
        let newest = json!({"metadata": {}, "spec": "new"});
        assert_eq!((first, held.as_deref()), (key(0), Some(&newest)));
        // The last ones are not held: they are read from the member.
        readings.forget(&key(1));
        let rest: Vec<_> = std::iter::from_fn(|| readings.next()).collect();
        assert_eq!(rest.len(), 98);
        assert!(rest[0].1.is_some() && rest[97].1.is_none());
        assert_eq!(readings.bytes, 0);
    }

    #[test]
    fn an_object_that_is_being_read_waits_for_its_turn_and_a_newer_state_wins() {
        let mut readings = Readings::default();
        readings.running.insert(key(0));
        readings.push(&key(0), None);
        readings.push(&key(1), None);
        assert_eq!(readings.next(), Some((key(1), None)));
        assert_eq!(readings.next(), None);
        // A repeated reading does not replace what arrived meanwhile.
        readings.push(&key(0), Some(&json!({"spec": "new"})));
        readings.again(key(0), None);
        readings.done(&key(0));
        assert_eq!(readings.next(), Some((key(0), Some(Arc::new(json!({"spec": "new"}))))));
    }
}
