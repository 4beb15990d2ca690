//! Bindings for which a webhook did not answer, and when it is asked again. At most one entry for each binding.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::index::key::BindingKey;

#[derive(Debug, Default)]
pub(super) struct Later {
    at: BTreeMap<BindingKey, Instant>,
    order: BTreeSet<(Instant, BindingKey)>,
}

impl Later {
    /// Asks about a binding at this time, or earlier if that was planned.
    pub(super) fn add(&mut self, key: &BindingKey, at: Instant) {
        if !self.at.contains_key(key) {
            self.at.insert(key.clone(), at);
            self.order.insert((at, key.clone()));
        }
    }

    /// The next binding whose time has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<BindingKey> {
        let (at, _) = self.order.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    /// The earliest time.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The binding was deleted.
    pub(super) fn forget(&mut self, key: &BindingKey) {
        if let Some(at) = self.at.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_binding_is_asked_about_once_at_its_first_time() {
        let (mut later, now) = (Later::default(), Instant::now());
        let key = |name: &str| BindingKey::of(None, name);
        let after = |seconds| now + Duration::from_secs(seconds);
        later.add(&key("a"), after(2));
        later.add(&key("a"), after(3));
        later.add(&key("b"), after(1));
        later.add(&key("c"), after(1));
        later.forget(&key("c"));
        assert_eq!(later.next_timer(), Some(after(1)));
        assert_eq!(later.pop(now), None);
        assert_eq!(later.pop(after(5)), Some(key("b")));
        assert_eq!(later.pop(after(5)), Some(key("a")));
        assert_eq!((later.pop(after(5)), later.next_timer()), (None, None));
    }
}
