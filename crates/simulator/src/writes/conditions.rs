//! Conditions of built-in kinds. Their fields differ a little from kind to kind, so they are handled as JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::index::fields::{list, stamp, text, time};
use crate::index::object::Object;

/// How a kind updates its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Custom {
    /// Workload controllers: the same status and reason is no change, whatever the message; only Deployments have
    /// `lastUpdateTime`.
    Workload { has_update_time: bool },
    /// Pods and Nodes: a changed message is a change.
    Exact,
}

/// A condition to be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition<'a> {
    pub(crate) type_: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The conditions of an object, for editing.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    all: Vec<Value>,
    custom: Custom,
    now: Timestamp,
}

impl Conditions {
    pub(crate) fn of(object: &Object, custom: Custom, now: Timestamp) -> Self {
        let mut all = list(&object.data, "/status/conditions").to_vec();
        // kube-apiserver writes `lastProbeTime: null` into a bound Pod; null and absent are the same.
        for condition in all.iter_mut().filter_map(Value::as_object_mut) {
            condition.retain(|_, value| !value.is_null());
        }
        Self { all, custom, now }
    }

    pub(crate) fn get(&self, type_: &str) -> Option<&Value> {
        self.all.iter().find(|condition| text(condition, "/type") == Some(type_))
    }

    /// The reason of a condition, if it is there.
    pub(crate) fn reason(&self, type_: &str) -> Option<&str> {
        text(self.get(type_)?, "/reason")
    }

    pub(crate) fn is(&self, type_: &str, status: &str) -> bool {
        self.get(type_).is_some_and(|condition| text(condition, "/status") == Some(status))
    }

    /// When the condition was last set, for kinds that record it.
    pub(crate) fn updated(&self, type_: &str) -> Option<Timestamp> {
        time(self.get(type_)?, "/lastUpdateTime")
    }

    pub(crate) fn remove(&mut self, type_: &str) {
        self.all.retain(|condition| text(condition, "/type") != Some(type_));
    }

    /// Sets a condition as the kind does. `lastTransitionTime` changes only with the status.
    pub(crate) fn set(&mut self, condition: Condition<'_>) {
        let Condition { type_, status, reason, message } = condition;
        let old = self.get(type_);
        let same = |field: &str, value: &str| {
            old.is_some_and(|old| text(old, field).unwrap_or_default() == value)
        };
        let unchanged = same("/status", status)
            && same("/reason", reason)
            && (self.custom != Custom::Exact || same("/message", message));
        if unchanged {
            return;
        }
        self.put(condition);
    }

    /// Sets a condition even if only its time changes, as a Deployment does with each step of progress.
    pub(crate) fn put(&mut self, condition: Condition<'_>) {
        let Condition { type_, status, reason, message } = condition;
        let position = self.all.iter().position(|old| text(old, "/type") == Some(type_));
        let since = position
            .map(|at| &self.all[at])
            .filter(|old| text(old, "/status") == Some(status))
            .and_then(|old| old.get("lastTransitionTime").cloned())
            .unwrap_or_else(|| stamp(self.now));
        let mut fresh = json!({"type": type_, "status": status, "lastTransitionTime": since});
        if !reason.is_empty() {
            fresh["reason"] = json!(reason);
        }
        if !message.is_empty() {
            fresh["message"] = json!(message);
        }
        if self.custom == (Custom::Workload { has_update_time: true }) {
            fresh["lastUpdateTime"] = stamp(self.now);
        }
        match position {
            Some(at) => self.all[at] = fresh,
            None => self.all.push(fresh),
        }
    }

    /// The edited list.
    pub(crate) fn into_value(self) -> Value {
        Value::Array(self.all)
    }
}
