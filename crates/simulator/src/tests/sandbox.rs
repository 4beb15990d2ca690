//! A minimal fake server under the brain: enough of the API's rules to test the behaviours realistically.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::engine::brain::Brain;
use crate::index::fields::{list, stamp, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::member::{MemberOptions, NodeCapacity, Settings};
use crate::workloads::children::is_active;
use crate::writes::Write;
use crate::writes::execute::{Answer, WriteError};

/// Write limit of one `settle`: more means that two behaviours undo each other's work.
const WRITE_LIMIT: usize = 20_000;

/// A small generator, so that a failing case is identified by its seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

enum Event {
    Is(Box<Object>),
    Gone(Kind, Key, String),
}

/// A check after each write.
type Check = Box<dyn Fn(&Sandbox)>;

pub(super) struct Sandbox {
    brain: Brain,
    settings: Settings,
    pub(super) now: Timestamp,
    objects: BTreeMap<(Kind, Key), Value>,
    revision: u64,
    events: VecDeque<Event>,
    /// Draws how many watch events are delivered late; `None` delivers all at once.
    lag: Option<Dice>,
    check: Option<Check>,
    /// Every write that was carried out, as text.
    pub(super) log: Vec<String>,
}

pub(super) fn capacity(cpu: &str, memory: &str, pods: u32) -> NodeCapacity {
    NodeCapacity {
        cpu: atoll_api::quantity::Quantity::new(cpu),
        memory: atoll_api::quantity::Quantity::new(memory),
        pods,
        ..NodeCapacity::default()
    }
}

impl Sandbox {
    /// A member of `nodes` standard nodes, n1 and so on, settled.
    pub(super) fn with_nodes(nodes: usize) -> Self {
        let start = Timestamp::from_second(1_700_000_000).unwrap();
        let settings = Settings::of(&MemberOptions::standard("member1", Clock::system()));
        let mut sandbox = Self {
            brain: Brain::new(settings.clone(), start),
            settings,
            now: start,
            objects: BTreeMap::new(),
            revision: 0,
            events: VecDeque::new(),
            lag: None,
            check: None,
            log: Vec::new(),
        };
        sandbox.create(json!({"kind": "Namespace", "metadata": {"name": "default"}}));
        for number in 1..=nodes {
            sandbox.add_node(
                &format!("n{number}"),
                &format!("z{number}"),
                &NodeCapacity::default(),
            );
        }
        sandbox.settle();
        sandbox
    }

    pub(super) fn add_node(&mut self, name: &str, zone: &str, capacity: &NodeCapacity) {
        let all = json!({
            "cpu": capacity.cpu.as_str(), "memory": capacity.memory.as_str(), "pods": capacity.pods.to_string(),
        });
        self.create(json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"capacity": all, "allocatable": all},
        }));
    }

    pub(super) fn lagging(mut self, seed: u64) -> Self {
        self.lag = Some(Dice::new(seed));
        self
    }

    pub(super) fn check_each_write(&mut self, check: impl Fn(&Self) + 'static) {
        self.check = Some(Box::new(check));
    }

    // User actions.

    pub(super) fn create(&mut self, mut object: Value) {
        let kind =
            Kind::ALL.into_iter().find(|k| text(&object, "/kind") == Some(k.name())).unwrap();
        let name = text(&object, "/metadata/name").unwrap().to_owned();
        let key = if kind.namespaced() { Key::new("default", name) } else { Key::cluster(name) };
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!("default");
        }
        self.store_new(kind, key, object).unwrap();
    }

    pub(super) fn patch(&mut self, kind: Kind, name: &str, patch: Value) {
        let key = self.key(kind, name);
        let mut object = self.objects[&(kind, key.clone())].clone();
        json_patch::merge(&mut object, &patch);
        self.store(kind, key, object);
    }

    pub(super) fn delete(&mut self, kind: Kind, name: &str) {
        let key = self.key(kind, name);
        self.remove(kind, &key, None);
    }

    fn key(&self, kind: Kind, name: &str) -> Key {
        if kind.namespaced() { Key::new("default", name) } else { Key::cluster(name) }
    }

    // Server behaviour.

    fn store_new(&mut self, kind: Kind, key: Key, mut object: Value) -> Result<Object, WriteError> {
        if self.objects.contains_key(&(kind, key.clone())) {
            return Err(refused(409, "AlreadyExists"));
        }
        self.revision += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.revision));
        object["metadata"]["creationTimestamp"] = stamp(self.now);
        object["metadata"]["generation"] = json!(1);
        if kind == Kind::Service && object["spec"]["clusterIP"].is_null() {
            object["spec"]["clusterIP"] = json!("10.0.0.1");
        }
        Ok(self.put(kind, key, object))
    }

    fn put(&mut self, kind: Kind, key: Key, mut object: Value) -> Object {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.objects.insert((kind, key), object.clone());
        let object = as_object(kind, object);
        self.events.push_back(Event::Is(Box::new(object.clone())));
        object
    }

    /// Stores an update; removes a deleted object that has no finalizer left.
    fn store(&mut self, kind: Kind, key: Key, mut object: Value) -> Answer {
        let old = &self.objects[&(kind, key.clone())];
        if *old == object {
            return Answer::Is(Box::new(as_object(kind, object)));
        }
        let content = |value: &Value| {
            let mut value = value.clone();
            value
                .as_object_mut()
                .unwrap()
                .retain(|field, _| field != "metadata" && field != "status");
            value
        };
        if content(old) != content(&object) {
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if deleting && grace == 0 && list(&object, "/metadata/finalizers").is_empty() {
            self.erase(kind, &key);
            return Answer::Gone;
        }
        Answer::Is(Box::new(self.put(kind, key, object)))
    }

    fn remove(&mut self, kind: Kind, key: &Key, grace: Option<u32>) -> Answer {
        let mut object = self.objects[&(kind, key.clone())].clone();
        let finished = matches!(text(&object, "/status/phase"), Some("Succeeded" | "Failed"));
        let graceful = kind == Kind::Pod && text(&object, "/spec/nodeName").is_some() && !finished;
        let grace = if graceful { grace.map_or(30, i64::from) } else { 0 };
        let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let grace = before.map_or(grace, |before| before.min(grace));
        if before.is_none() || grace < before.unwrap_or(0) {
            object["metadata"]["deletionTimestamp"] =
                stamp(self.now + Duration::from_secs(u64::try_from(grace).unwrap()));
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        self.store(kind, key.clone(), object)
    }

    /// Removes an object and its dependents.
    fn erase(&mut self, kind: Kind, key: &Key) {
        let object = self.objects.remove(&(kind, key.clone())).unwrap();
        self.revision += 1;
        let uid = text(&object, "/metadata/uid").unwrap().to_owned();
        self.events.push_back(Event::Gone(kind, key.clone(), uid.clone()));
        let orphans: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, child)| {
                list(child, "/metadata/ownerReferences")
                    .iter()
                    .any(|o| text(o, "/uid") == Some(&uid))
            })
            .map(|(id, _)| id.clone())
            .collect();
        for (kind, key) in orphans {
            if self.objects.contains_key(&(kind, key.clone())) {
                self.remove(kind, &key, None);
            }
        }
    }

    fn carry_out(&mut self, write: &Write) -> Result<Answer, WriteError> {
        let target = match write {
            Write::Create { kind, key, object } => {
                return self
                    .store_new(*kind, key.clone(), object.clone())
                    .map(|o| Answer::Is(Box::new(o)));
            }
            Write::Patch { target, .. }
            | Write::PatchStatus { target, .. }
            | Write::Bind { target, .. }
            | Write::Delete { target, .. } => target,
        };
        let Some(mut object) = self.objects.get(&(target.kind, target.key.clone())).cloned() else {
            return Err(refused(404, "NotFound"));
        };
        let version = text(&object, "/metadata/resourceVersion").unwrap().parse::<u64>().unwrap();
        let same = text(&object, "/metadata/uid") == Some(&target.uid);
        let guarded = matches!(write, Write::Patch { .. } | Write::PatchStatus { .. });
        if !same || (guarded && version != target.version) {
            return Err(refused(409, "Conflict"));
        }
        Ok(match write {
            Write::Delete { grace, .. } => self.remove(target.kind, &target.key, *grace),
            Write::Bind { node, .. } => {
                assert!(text(&object, "/spec/nodeName").is_none(), "bound twice: {}", target.key);
                object["spec"]["nodeName"] = json!(node);
                self.store(target.kind, target.key.clone(), object);
                Answer::Done
            }
            Write::Patch { patch, .. } | Write::PatchStatus { patch, .. } => {
                json_patch::merge(&mut object, patch);
                self.store(target.kind, target.key.clone(), object)
            }
            Write::Create { .. } => unreachable!("handled above"),
        })
    }

    // Time and events.

    fn deliver(&mut self) {
        let all = self.events.len() as u64;
        let due = match &mut self.lag {
            Some(dice) if all > 0 => dice.below(all + 1),
            _ => all,
        };
        for _ in 0..due {
            self.deliver_one();
        }
    }

    fn deliver_one(&mut self) {
        let change = match self.events.pop_front() {
            Some(Event::Is(object)) => self.brain.index.observed(*object),
            Some(Event::Gone(kind, key, uid)) => self.brain.index.vanished(kind, &key, &uid),
            None => None,
        };
        self.brain.observe(change, self.now);
    }

    /// Runs until nothing is left to do at this moment.
    pub(super) fn settle(&mut self) {
        let limit = self.log.len() + WRITE_LIMIT;
        loop {
            self.deliver();
            let Some(work) = self.brain.next_work(self.now) else {
                if self.events.is_empty() {
                    return;
                }
                self.deliver_one();
                continue;
            };
            let mut failed = false;
            for write in &work.writes {
                match self.carry_out(write) {
                    Ok(answer) => {
                        self.log.push(write.to_string());
                        assert!(self.log.len() < limit, "no end: {:#?}", &self.log[limit - 30..]);
                        self.brain.answered(write, answer, self.now);
                    }
                    Err(error) => {
                        self.brain.failed(&work.task, write, &error, self.now);
                        failed = true;
                        break;
                    }
                }
                if let Some(check) = self.check.take() {
                    check(self);
                    self.check = Some(check);
                }
            }
            if !failed {
                self.brain.completed(&work);
            }
        }
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.settle();
        while let Some(at) = self.brain.wake_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Lets time pass until something holds; at most this many seconds.
    #[track_caller]
    pub(super) fn until(&mut self, seconds: u64, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs(seconds);
        self.settle();
        while !holds(self) {
            let next = self.brain.wake_at().filter(|at| *at <= end);
            let Some(next) = next else {
                panic!("not within {seconds} s: {what}\n{}", self.log.join("\n"));
            };
            self.now = self.now.max(next);
            self.settle();
        }
    }

    /// Restarts the process; returns what it writes although nothing has changed.
    pub(super) fn writes_after_restart(&mut self) -> Vec<String> {
        self.settle();
        self.brain = Brain::new(self.settings.clone(), self.now);
        let objects: Vec<_> = self
            .objects
            .iter()
            .map(|((kind, _), object)| as_object(*kind, object.clone()))
            .collect();
        for object in objects {
            let change = self.brain.index.observed(object);
            self.brain.observe(change, self.now);
        }
        let before = self.log.len();
        self.settle();
        self.log[before..].to_vec()
    }

    // Observations.

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Object> {
        let value = self.objects.get(&(kind, self.key(kind, name)))?;
        Some(as_object(kind, value.clone()))
    }

    pub(super) fn field(&self, kind: Kind, name: &str, pointer: &str) -> Value {
        let value = self.objects.get(&(kind, self.key(kind, name)));
        value.and_then(|value| value.pointer(pointer)).cloned().unwrap_or_default()
    }

    pub(super) fn all(&self, kind: Kind) -> Vec<Arc<Object>> {
        self.objects
            .iter()
            .filter(|((k, _), _)| *k == kind)
            .map(|(_, object)| Arc::new(as_object(kind, object.clone())))
            .collect()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Object>> {
        self.all(Kind::Pod)
    }

    pub(super) fn active(&self) -> Vec<Arc<Object>> {
        self.pods().into_iter().filter(|pod| is_active(pod)).collect()
    }

    pub(super) fn ready(&self) -> usize {
        self.active().iter().filter(|pod| pod.pod().ready_since.is_some()).count()
    }

    /// Status and reason of a condition.
    pub(super) fn condition(
        &self,
        kind: Kind,
        name: &str,
        type_: &str,
    ) -> Option<(String, String)> {
        let conditions = self.field(kind, name, "/status/conditions");
        let condition = conditions
            .as_array()?
            .iter()
            .find(|condition| text(condition, "/type") == Some(type_))?;
        let field = |pointer| text(condition, pointer).unwrap_or_default().to_owned();
        Some((field("/status"), field("/reason")))
    }
}

fn as_object(kind: Kind, value: Value) -> Object {
    Object::new(kind, serde_json::from_value(value).unwrap())
}

fn refused(code: u16, reason: &str) -> WriteError {
    WriteError::Refused { code, reason: reason.to_owned(), message: reason.to_owned() }
}

/// A pod template with one container of this image and cpu request.
pub(super) fn template(app: &str, image: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [
            {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}},
        ]},
    })
}

/// A workload of `kind` with `replicas` and such a template.
pub(super) fn workload(kind: &str, name: &str, replicas: i64) -> Value {
    json!({
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "image:1", "100m"),
        },
    })
}
