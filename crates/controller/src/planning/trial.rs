//! Decisions on a copy of what the leader knows. Nothing is written: a decision is stored in the copy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_api::conditions::{self, READY};
use atoll_api::rebalancer::RebalanceMode;
use atoll_api::{Backoff, ClusterName};
use atoll_scheduler::offline::Fate;
use atoll_scheduler::{
    Decision, LiveCluster, Profiles, RecoverAfter, Scheduler, TableChange, Tables, WakeCondition,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::lists::List;
use super::store;
use super::types::{Known, LIMIT, PlanError};
use crate::detect::{self, Claim};
use crate::guards::{Case, Moves};
use crate::hub_state::derived;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::template::Template;
use crate::index::{Index, Source, Touched};
use crate::interpret::Interpreter;
use crate::leader::LeaderTerm;
use crate::queue::{BindingQueue, Done, Held, Opening, Queue, Urgency, gates};
use crate::reconcile::{self, Reported, Step, Subject, Waiting};
use crate::schedule::extend::Extensions;

/// How often one binding is decided. More means that decisions undo each other.
const MOST_TIMES: u32 = 16;
/// Bindings that were refused are decided at once when an event arrives.
const NO_BACKOFF: Backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
/// Decisions between two looks at the clock.
const BATCH: usize = 64;

/// A copy of what the leader knows, in which decisions are made.
pub(super) struct Trial {
    interpreter: Arc<Interpreter>,
    recover_after: RecoverAfter,
    term: LeaderTerm,
    /// Its own from the first change on.
    pub(super) index: Arc<Index>,
    tables: Tables,
    live: BTreeMap<ClusterName, LiveCluster>,
    reported: Arc<BTreeMap<BindingKey, Reported>>,
    extensions: Arc<Extensions>,
    scheduler: Scheduler,
    queue: BindingQueue,
    /// The time of the decisions.
    pub(super) now: Timestamp,
    /// What was looked at, in this order.
    pub(super) order: Vec<BindingKey>,
    pub(super) seen: BTreeMap<BindingKey, Seen>,
    /// What guards look at.
    pub(super) moves: Moves,
    pub(super) problems: Vec<String>,
}

/// What became of a binding.
pub(super) struct Seen {
    pub(super) object: TemplateKey,
    pub(super) fate: Fate,
    /// How often it was decided.
    times: u32,
    /// The object, so that it stays parsed until the plan is compared.
    _whole: Option<Arc<Value>>,
}

impl Trial {
    /// A copy, for decisions with these profiles or the leader's own.
    ///
    /// # Errors
    /// When the profiles' plugins cannot run together.
    pub(super) fn new(known: &Known, profiles: Option<Profiles>) -> Result<Self, PlanError> {
        let settings = known.settings.clone();
        let extensions = match &profiles {
            None => settings.extensions,
            Some(profiles) => Extensions::new(profiles, &[])
                .map(Arc::new)
                .map_err(|error| PlanError::Profiles(error.to_string()))?,
        };
        let mut trial = Self {
            term: known.term,
            index: known.index.clone(),
            tables: known.tables.clone(),
            live: known.live.clone(),
            reported: known.reported.clone(),
            queue: Queue::new(extensions.order(), NO_BACKOFF),
            extensions,
            scheduler: Scheduler::new(profiles.unwrap_or(settings.profiles)),
            now: settings.clock.now_seconds(),
            order: Vec::new(),
            seen: BTreeMap::new(),
            moves: Moves::default(),
            problems: Vec::new(),
            interpreter: settings.interpreter,
            recover_after: settings.recover_after,
        };
        let start = Instant::now();
        for key in &known.gated {
            trial.enqueue(key.clone(), Urgency::Now, None);
        }
        for (key, conditions) in &known.waiting {
            trial.enqueue(key.clone(), Urgency::Now, None);
            if trial.queue.pop(start).is_some() {
                trial.queue.done(key, Done::Watches(conditions.clone(), None), start);
            }
        }
        Ok(trial)
    }

    fn own_index(&mut self) -> &mut Index {
        Arc::make_mut(&mut self.index)
    }

    /// Takes in the objects of a kind that the leader does not watch.
    pub(super) fn list(&mut self, list: &List) {
        let touched = self.own_index().replace(&list.source, list.objects.clone());
        self.absorb(touched, gates::opening(&list.source));
    }

    /// Takes in an object of the change.
    pub(super) fn apply(&mut self, source: &Source, object: &Arc<Value>) {
        if *source == Source::Clusters {
            self.forget_live(object);
        }
        let touched = self.own_index().apply(source, object.clone());
        self.absorb(touched, gates::opening(source));
    }

    /// Takes in that somebody asks for a rebalance of a binding.
    pub(super) fn rebalance(&mut self, key: &BindingKey, mode: RebalanceMode) {
        let Some(binding) = self.index.binding(key) else { return };
        let row = store::rebalanced(binding, mode, self.now);
        let touched = self.own_index().put_row(row);
        self.absorb(touched, Opening::Binding);
        self.enqueue(key.clone(), Urgency::Now, Some(Opening::Binding));
    }

    /// A member that becomes ready, or stops being so, has another session than now.
    fn forget_live(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(held) = self.index.cluster(name) else { return };
        let before = held
            .status
            .as_ref()
            .and_then(|status| Some(conditions::find(&status.conditions, READY)?.status.clone()));
        let all = object["status"]["conditions"].as_array();
        let after = all.into_iter().flatten().find(|condition| condition["type"] == READY);
        if before.as_deref() != after.and_then(|condition| condition["status"].as_str()) {
            self.live.remove(name);
        }
    }

    /// Has these bindings decided.
    pub(super) fn look_at(&mut self, keys: &[BindingKey]) {
        keys.iter().for_each(|key| self.enqueue(key.clone(), Urgency::Now, None));
    }

    /// Decides until nothing is due.
    ///
    /// # Errors
    /// When that takes too long.
    pub(super) fn run(&mut self, deadline: Instant, handle: &Handle) -> Result<(), PlanError> {
        loop {
            for _ in 0..BATCH {
                let Some(key) = self.queue.pop(Instant::now()) else { return Ok(()) };
                let how = self.look(&key, handle);
                self.queue.done(&key, how, Instant::now());
            }
            if Instant::now() > deadline {
                return Err(PlanError::TooLong(LIMIT));
            }
        }
    }

    fn look(&mut self, key: &BindingKey, handle: &Handle) -> Done<WakeCondition> {
        match reconcile::read(&self.index, key, false) {
            Step::Decide(subject) => self.decide(&subject),
            Step::Interpret(template) => self.interpret(key, &template, handle),
            Step::Attach(subject) => {
                let fate = Fate::Attached(Vec::new());
                self.note(&subject.key, &subject.template.key, fate, 0);
                Done::Settled
            }
            Step::Done(_) => {
                self.note_unclaimed(key);
                Done::Settled
            }
            // Nothing is decided: it is being deleted, refused, or cannot be read.
            _ => Done::Settled,
        }
    }

    fn note(&mut self, key: &BindingKey, object: &TemplateKey, fate: Fate, times: u32) {
        let whole = self.index.template(object).map(|template| template.object());
        let seen = Seen { object: object.clone(), fate, times, _whole: whole };
        if self.seen.insert(key.clone(), seen).is_none() {
            self.order.push(key.clone());
        }
    }

    /// A workload that no policy claims.
    fn note_unclaimed(&mut self, key: &BindingKey) {
        let Some(template) = gates::template_of(&self.index, key) else { return };
        if self.index.binding(key).is_some() {
            return;
        }
        let why = match detect::claim(&self.index, template, None) {
            Claim::Excluded(why) => why.to_string(),
            Claim::Waiting(policy) => {
                format!("policy {} is Lazy and was changed after the object", policy.key)
            }
            Claim::None => "no policy selects it".to_owned(),
            Claim::Policy(..) | Claim::Bare => return,
        };
        let object = template.key.clone();
        self.note(key, &object, Fate::NotClaimed(why), 0);
    }

    /// Asks the rules of users what a template means.
    fn interpret(
        &mut self,
        key: &BindingKey,
        template: &Arc<Template>,
        handle: &Handle,
    ) -> Done<WakeCondition> {
        let rules = self.index.rules().clone();
        let found = handle.block_on(self.interpreter.interpret(&rules, template));
        let Some(meaning) = found.meaning.filter(|_| !found.unreachable) else {
            self.problems.push(format!(
                "{}: its rules did not answer, so nothing is planned for it",
                template.key
            ));
            return Done::Settled;
        };
        let mut touched = self.own_index().set_meaning(&template.key, meaning);
        touched.keys.remove(key);
        self.absorb(touched, Opening::Template);
        Done::Again
    }

    fn decide(&mut self, subject: &Subject) -> Done<WakeCondition> {
        let Subject { key, template, .. } = subject;
        if reconcile::start::named(subject).is_some() {
            self.problems.push(format!(
                "{}: it takes over what runs already (annotation work.atoll.dev/start); not in the plan",
                template.key
            ));
            return Done::Settled;
        }
        let times = self.seen.get(key).map_or(0, |seen| seen.times) + 1;
        if times > MOST_TIMES {
            self.problems.push(format!("{}: decisions on it do not come to an end", template.key));
            return Done::Settled;
        }
        self.refresh_groups(subject);
        let reported = self.reported.get(key).cloned().unwrap_or_default();
        let request =
            reconcile::of_objects(&self.index, subject, reported, self.now, self.recover_after);
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.note(key, &template.key, Fate::Unusable(error.to_string()), times);
                return Done::Mistake;
            }
        };
        let decision = self.scheduler.decide(&self.tables.snapshot(), &request);
        let waiting = Waiting::after(&decision);
        let case =
            Case { key, claim: &subject.claim, template, binding: subject.binding.as_deref() };
        self.moves.add(&self.index, case, &decision, self.now);
        let stored = self.store(subject, &decision);
        // A second look that changes nothing does not replace the decision that did.
        if stored || times == 1 {
            self.note(key, &template.key, Fate::Decided(Box::new(decision)), times);
        } else if let Some(seen) = self.seen.get_mut(key) {
            seen.times = times;
        }
        waiting.done(self.index.binding(key).map(|binding| &**binding), self.now)
    }

    /// Stores a decision in the copy. Returns whether it changes anything.
    fn store(&mut self, subject: &Subject, decision: &Decision) -> bool {
        if decision.trigger() == Trigger::Avoid {
            return false;
        }
        let row = match store::after(&self.index, subject, decision, self.term) {
            Ok(Some(row)) => row,
            Ok(None) => return false,
            Err(error) => {
                self.problems.push(format!("{}: {error}", subject.key));
                return false;
            }
        };
        let mut touched = self.own_index().put_row(row);
        // Its own change: the caller goes on with it.
        touched.keys.remove(&subject.key);
        self.absorb(touched, Opening::Binding);
        true
    }

    /// The template's labels may have changed, and with them its groups for `placement.workloadAffinity`.
    fn refresh_groups(&mut self, subject: &Subject) {
        let placement = subject.binding.as_ref().and_then(|b| b.spec.placement.as_deref());
        if placement.is_some_and(|placement| placement.workload_affinity.is_some()) {
            let changes = self.refresh_binding(&subject.key);
            self.wake(&changes);
        }
    }

    /// Passes a change of the index on to everything that it affects.
    fn absorb(&mut self, touched: Touched, news: Opening) {
        for (object, error) in &touched.unreadable {
            self.problems.push(format!("{object}: {error}"));
        }
        let mut changes = Vec::new();
        for name in &touched.clusters.names {
            changes.extend(self.refresh_cluster(name));
        }
        changes.extend(derived::refresh_rules(&mut self.tables, &self.index, &touched));
        for key in &touched.bindings {
            changes.extend(self.refresh_binding(key));
        }
        self.wake(&changes);
        for key in touched.rechecks() {
            self.enqueue(key.clone(), Urgency::Later, Some(news));
        }
        for key in touched.keys {
            self.enqueue(key, Urgency::Now, Some(news));
        }
        use Opening::{Cluster, Hub, OverridePolicy, PriorityClass};
        if matches!(news, Cluster | OverridePolicy | PriorityClass | Hub) {
            for key in self.queue.held_until(news) {
                self.enqueue(key, Urgency::Now, Some(news));
            }
        }
    }

    fn refresh_cluster(&mut self, name: &ClusterName) -> Vec<TableChange> {
        let Some(cluster) = self.index.cluster(name) else {
            return self.tables.remove_cluster(name);
        };
        let live = self.live.entry(name.clone());
        let live = live.or_insert_with(|| LiveCluster::from_status(cluster)).clone();
        self.tables.upsert_cluster(cluster, live)
    }

    fn refresh_binding(&mut self, key: &BindingKey) -> Vec<TableChange> {
        let known = self.tables.binding(key);
        let reported = known.map(|facts| facts.reported.clone()).unwrap_or_default();
        derived::refresh_binding(&mut self.tables, &self.index, key, reported)
    }

    fn wake(&mut self, changes: &[TableChange]) {
        let now = Instant::now();
        for change in changes {
            self.queue.wake(change, now);
            if let TableChange::Preempted { victim } = change {
                self.enqueue(victim.clone(), Urgency::Now, None);
            }
            if let TableChange::WorkloadSpread { target } = change {
                self.queue.wake_placed(&target.binding(), now);
            }
        }
    }

    /// Adds a binding to the queue, as the leader does.
    fn enqueue(&mut self, key: BindingKey, urgency: Urgency, news: Option<Opening>) {
        let opens = |held: &Held| news.is_some_and(|news| held.opens.contains(&news));
        let stays = self.queue.held(&key).is_some_and(|held| !opens(held));
        if !stays || gates::template_of(&self.index, &key).is_none() {
            let (priority, gate) = gates::evaluate(&self.extensions, &self.index, &key);
            self.queue.set_info(&key, priority, gate);
        }
        self.queue.add(key, urgency, Instant::now());
    }
}
