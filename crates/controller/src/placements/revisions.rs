//! Templates with the replicas of their shares, where a rule of a user writes them. Rules run in jobs: a member whose
//! manifest waits for one keeps what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::index::key::BindingKey;

/// From what a template was revised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Version of the template's content.
    pub source: u64,
    /// Hash of the rules.
    pub rules: u64,
}

/// What a rule made of a template for a number of replicas.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Revision {
    /// It has not answered yet.
    Pending,
    /// It failed: the built-in rule answers.
    Failed,
    /// The object.
    Object(Arc<Value>),
}

/// The rule's answers for one binding.
#[derive(Debug)]
struct Held {
    origin: Origin,
    template: Arc<Value>,
    /// `None` as long as the rule has not answered.
    objects: BTreeMap<i64, Revision>,
}

/// The answers for all bindings that need some.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    held: BTreeMap<BindingKey, Held>,
    /// Bindings with pending answers that no job is asking for.
    waiting: BTreeSet<BindingKey>,
    asked: BTreeSet<BindingKey>,
}

/// Questions for a rule.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) key: BindingKey,
    pub(crate) origin: Origin,
    pub(crate) template: Arc<Value>,
    pub(crate) numbers: Vec<i64>,
}

impl Revisions {
    /// A binding needs these numbers of replicas, and no others any more.
    pub(super) fn need(
        &mut self,
        key: &BindingKey,
        origin: Origin,
        template: &Arc<Value>,
        numbers: impl IntoIterator<Item = i64>,
    ) {
        let mut before = match self.held.remove(key) {
            Some(held) if held.origin == origin => held.objects,
            _ => BTreeMap::new(),
        };
        let numbers: BTreeSet<i64> = numbers.into_iter().collect();
        let objects: BTreeMap<i64, Revision> = numbers
            .into_iter()
            .map(|number| (number, before.remove(&number).unwrap_or(Revision::Pending)))
            .collect();
        if objects.values().any(|object| *object == Revision::Pending) && !self.asked.contains(key)
        {
            self.waiting.insert(key.clone());
        }
        self.held.insert(key.clone(), Held { origin, template: template.clone(), objects });
    }

    /// The answer for a number of replicas.
    pub(super) fn get(&self, key: &BindingKey, number: i64) -> Revision {
        let held = self.held.get(key).and_then(|held| held.objects.get(&number));
        held.cloned().unwrap_or(Revision::Pending)
    }

    /// The next questions to ask.
    pub(crate) fn next(&mut self) -> Option<Question> {
        loop {
            let key = self.waiting.pop_first()?;
            let Some(held) = self.held.get(&key) else { continue };
            let pending = held.objects.iter().filter(|(_, object)| **object == Revision::Pending);
            let numbers: Vec<i64> = pending.map(|(number, _)| *number).collect();
            if numbers.is_empty() {
                continue;
            }
            let (origin, template) = (held.origin, held.template.clone());
            self.asked.insert(key.clone());
            return Some(Question { key, origin, template, numbers });
        }
    }

    /// A job has asked. Answers about another version of template or rules are dropped. `unreachable`: what is pending is
    /// not asked before [`Revisions::ask_again`].
    pub(crate) fn answered(
        &mut self,
        key: &BindingKey,
        origin: Origin,
        objects: BTreeMap<i64, Option<Arc<Value>>>,
        unreachable: bool,
    ) {
        self.asked.remove(key);
        let Some(held) = self.held.get_mut(key) else { return };
        if held.origin == origin {
            for (number, object) in objects {
                if let Some(entry) = held.objects.get_mut(&number) {
                    *entry = object.map_or(Revision::Failed, Revision::Object);
                }
            }
        }
        let same = held.origin == origin;
        if !(unreachable && same) {
            self.ask_again(key);
        }
    }

    /// Asks what is pending.
    pub(crate) fn ask_again(&mut self, key: &BindingKey) {
        let Some(held) = self.held.get(key) else { return };
        let pending = held.objects.values().any(|object| *object == Revision::Pending);
        if pending && !self.asked.contains(key) {
            self.waiting.insert(key.clone());
        }
    }

    /// The binding was deleted, or no rule writes its replicas any more.
    pub(super) fn forget(&mut self, key: &BindingKey) {
        self.held.remove(key);
        self.waiting.remove(key);
    }
}
