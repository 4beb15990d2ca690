//! State that no object holds, as a kubelet or a scheduler keeps it in memory. Losing it in a restart costs at most a
//! second of accuracy or a grace period, never a wrong decision: everything else is read from the objects.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::concern::Concern;
use crate::index::kind::Kind;
use crate::index::object::Key;
use crate::index::{Change, Index};
use crate::kubelet::annotations;

/// Writes that keep failing for one key.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) attempts: u32,
    pub(crate) retry_at: Timestamp,
    /// The server's message when it refused a create; shown in the owner's status.
    pub(crate) refused_create: Option<String>,
}

/// The memory of one member.
#[derive(Debug)]
pub(crate) struct Memory {
    /// When this process started: used as the start of every wait whose true start it did not observe.
    began: Timestamp,
    /// When a Pod's containers began to start, by uid; `status.startTime` has only whole seconds.
    started: BTreeMap<String, Timestamp>,
    /// Node of Pods whose binding the server accepted but the watch has not delivered yet, by Pod uid.
    assumed: BTreeMap<String, String>,
    /// When a node was switched off.
    down: BTreeMap<String, Timestamp>,
    /// When a node that may still have Pods was first seen missing.
    missing: BTreeMap<String, Timestamp>,
    pub(crate) failures: BTreeMap<(Concern, Key), Failure>,
}

impl Memory {
    pub(crate) fn new(began: Timestamp) -> Self {
        Self {
            began,
            started: BTreeMap::new(),
            assumed: BTreeMap::new(),
            down: BTreeMap::new(),
            missing: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Updates the memory from a change to the index. `ours`: the change is the answer to our own write.
    pub(crate) fn note(&mut self, change: &Change, index: &Index, ours: bool, now: Timestamp) {
        let Some(latest) = change.latest() else { return };
        match latest.kind {
            Kind::Pod => {
                self.assumed.remove(&latest.uid);
                let start = |object: &crate::index::object::Object| {
                    object.text("/status/startTime").is_some()
                };
                match &change.new {
                    None => {
                        self.started.remove(&latest.uid);
                    }
                    Some(new)
                        if ours && start(new) && !change.old.as_deref().is_some_and(start) =>
                    {
                        self.started.insert(latest.uid.clone(), now);
                    }
                    Some(_) => {}
                }
            }
            Kind::Node => {
                let name = &latest.key.name;
                match &change.new {
                    None if index.on_node(name).next().is_some() => {
                        self.missing.insert(name.clone(), now);
                        self.down.remove(name);
                    }
                    None => {
                        self.down.remove(name);
                    }
                    Some(node) => {
                        self.missing.remove(name);
                        if !annotations::is_down(node) {
                            self.down.remove(name);
                        } else if change.old.as_ref().is_some_and(|old| !annotations::is_down(old))
                        {
                            self.down.insert(name.clone(), now);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Records a binding that the server has accepted.
    pub(crate) fn assume(&mut self, pod_uid: &str, node: &str) {
        self.assumed.insert(pod_uid.to_owned(), node.to_owned());
    }

    /// The node that a Pod is being bound to.
    pub(crate) fn assumed(&self, pod_uid: &str) -> Option<&str> {
        self.assumed.get(pod_uid).map(String::as_str)
    }

    /// When a Pod's containers began to start, if this process observed it.
    pub(crate) fn started(&self, pod_uid: &str) -> Option<Timestamp> {
        self.started.get(pod_uid).copied()
    }

    /// When a node was switched off.
    pub(crate) fn down_since(&self, node: &str) -> Timestamp {
        self.down.get(node).copied().unwrap_or(self.began)
    }

    /// When a node was first seen missing.
    pub(crate) fn missing_since(&self, node: &str) -> Timestamp {
        self.missing.get(node).copied().unwrap_or(self.began)
    }
}
