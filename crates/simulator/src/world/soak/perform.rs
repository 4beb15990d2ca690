//! Plays a script: starts each action on time, and ends it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::marks;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::action::{Action, Damaged, Fault, Going, Poison, Step, Tampering};
use super::expect::{self, app_name, config_name, poison_name, widget_name};
use super::policies;
use crate::world::kinds::{
    CHANGE_GUARD, CLUSTER, CLUSTER_SET, CONFIG_MAP, DEPLOYMENT, FEDERATED_RESOURCE_QUOTA, Kind,
    LEASE, NODE, OVERRIDE_POLICY, PROPAGATION_POLICY, WIDGET,
};
use crate::world::{Events, View, Way, Who, World};

/// Longest time until a leader has read a guard.
const GUARD_READ: Duration = Duration::from_secs(60);
/// A number that no action draws.
const TAMPERED: u64 = 100_000;
/// Downtime of a process whose supervisor restarts it at once.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A scheduled event.
enum Due {
    Begin(Action),
    Death(Who, Duration),
    Start(Who),
    Calm(Who),
    Right(Who),
    Prompt(Who),
    Tamper(String, Tampering),
    Join(String),
    Cut(String, Way),
    Release(Who),
    Database,
    Speed(String),
    Cure(Poison),
    Remove(Kind, &'static str),
    Autoscale(String, u64),
    Place(u64, u64),
    Uncordon(String),
    Restore(String, bool),
    Power(String),
    Mend(String),
}

/// Plays a script in a World.
pub(super) struct Player {
    pub(super) world: World,
    pub(super) faults: BTreeMap<Fault, u32>,
    /// Scheduled events, by time and order of scheduling.
    agenda: BTreeMap<(Instant, u64), Due>,
    entries: u64,
    /// Processes with a pending fuse, and their downtime after it.
    fuses: BTreeMap<Who, Duration>,
    /// Processes that are down until a scheduled time.
    down: BTreeSet<Who>,
}

impl Player {
    pub(super) fn new(world: World) -> Self {
        Self {
            world,
            faults: BTreeMap::new(),
            agenda: BTreeMap::new(),
            entries: 0,
            fuses: BTreeMap::new(),
            down: BTreeSet::new(),
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.entries += 1;
        self.agenda.insert((Instant::now() + after, self.entries), due);
    }

    /// Plays all actions of the script and their ends.
    pub(super) async fn play(&mut self, script: &[Step]) {
        for step in script {
            self.later(step.at, Due::Begin(step.action.clone()));
        }
        while let Some(((at, _), _)) = self.agenda.first_key_value() {
            let at = *at;
            tokio::select! {
                biased;
                who = self.world.death() => {
                    if let Some(away) = self.fuses.remove(&who) {
                        self.take_away(who, away).await;
                    }
                }
                () = sleep_until(at) => {
                    if let Some((_, due)) = self.agenda.pop_first() {
                        self.perform(due).await;
                    }
                    self.world.check();
                }
            }
        }
    }

    /// After the last fault: starts everything and restores all connections.
    pub(super) async fn heal(&mut self) {
        for number in self.world.controllers() {
            self.calm(&Who::Controller(number));
        }
        self.world.history_store().set_fault(atoll_history::Fault::None);
        for member in expect::members() {
            self.calm(&Who::Agent(member.clone()));
            self.world.partition(&member, None);
            self.world.slow_network(&member, None);
            self.world.break_stream(&member, None);
            self.world.start_member(&member).await;
            // A backup may have been made while the nodes were cordoned.
            self.cordon(&member, false).await;
        }
        self.world.check();
    }

    /// Approves every plan that waits now. One that went meanwhile needs no approval any more.
    pub(super) async fn approve(&self) {
        for plan in self.world.read(policies::held) {
            self.world.approve(&plan).await;
        }
    }

    /// Approves until nothing waits.
    pub(super) async fn release(&self, limit: Duration) {
        let (until, mut quiet) = (Instant::now() + limit, 0);
        loop {
            self.approve().await;
            self.world.rest(policies::HELD_SOON).await;
            quiet = if self.world.read(policies::nothing_waits).is_ok() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return;
            }
            let left = self.world.read(policies::nothing_waits);
            assert!(Instant::now() < until, "approved, and still held after {limit:?}: {left:?}");
        }
    }

    fn calm(&mut self, who: &Who) {
        self.world.skew(who, None);
        self.world.lay(who, None);
        self.world.hold(who, false);
        self.world.events(who, Events::Normal);
        self.world.slow_api(who, Duration::ZERO);
        self.world.late_answers(who, Duration::ZERO);
    }

    /// Cleans up a crashed process and schedules its restart.
    async fn take_away(&mut self, who: Who, away: Duration) {
        match &who {
            Who::Controller(number) => self.world.crash_controller_at(*number).await,
            Who::Agent(name) => self.world.crash_agent(name).await,
        }
        if self.down.insert(who.clone()) {
            self.later(away, Due::Start(who));
        }
    }

    async fn perform(&mut self, due: Due) {
        match due {
            Due::Begin(action) => {
                if let Some(fault) = action.fault() {
                    *self.faults.entry(fault).or_default() += 1;
                }
                self.begin(action).await;
            }
            Due::Death(who, away) => {
                if self.fuses.remove(&who).is_some() {
                    self.take_away(who, away).await;
                }
            }
            Due::Start(who) => {
                self.down.remove(&who);
                match &who {
                    Who::Controller(number) => self.world.start_controller_at(*number),
                    Who::Agent(name) => self.world.start_agent(name),
                }
            }
            Due::Calm(who) => self.world.events(&who, Events::Normal),
            Due::Right(who) => self.world.skew(&who, None),
            Due::Prompt(who) => self.world.late_answers(&who, Duration::ZERO),
            Due::Tamper(member, what) => self.tamper(&member, what).await,
            Due::Join(member) => self.world.partition(&member, None),
            Due::Cut(member, way) => self.world.partition(&member, Some(way)),
            Due::Release(who) => self.world.hold(&who, false),
            Due::Database => self.world.history_store().set_fault(atoll_history::Fault::None),
            Due::Speed(member) => {
                self.world.slow_network(&member, None);
                self.world.slow_api(&Who::Agent(member), Duration::ZERO);
            }
            Due::Cure(what) => self.cure(what).await,
            Due::Remove(kind, name) => self.delete(&kind, name).await,
            Due::Autoscale(member, replicas) => {
                let key = format!("default/{}", app_name(policies::FOLLOWING));
                let patch = json!({"spec": {"replicas": replicas}});
                self.world.member(&member).merge_if_there(&DEPLOYMENT, &key, patch).await;
            }
            Due::Place(app, placement) => {
                self.world.hub().apply(expect::policy(app, placement)).await;
            }
            Due::Uncordon(member) => self.cordon(&member, false).await,
            Due::Restore(member, wiped) => self.world.restore(&member, wiped).await,
            Due::Power(member) => self.world.start_member(&member).await,
            Due::Mend(member) => self.world.break_stream(&member, None),
        }
    }

    async fn begin(&mut self, action: Action) {
        match action {
            Action::Create { app, replicas, placement } => {
                self.world.hub().apply(expect::deployment(app, replicas)).await;
                self.world.hub().apply(expect::policy(app, placement)).await;
            }
            Action::Delete { app } => self.delete(&DEPLOYMENT, &app_name(app)).await,
            Action::Scale { app, replicas } => {
                let patch = json!({"spec": {"replicas": replicas}});
                self.change(&DEPLOYMENT, &app_name(app), patch).await;
            }
            Action::Image { app, tag } => {
                let patch = expect::image(&app_name(app), tag);
                self.change(&DEPLOYMENT, &app_name(app), patch).await;
            }
            Action::Place { app, placement } => {
                self.world.hub().apply(expect::policy(app, placement)).await;
            }
            Action::Override { app, rules } => {
                self.world.hub().apply(expect::overrides(app, rules)).await;
            }
            Action::NoOverride { app } => self.delete(&OVERRIDE_POLICY, &app_name(app)).await,
            Action::Label { member, site } => {
                let patch = json!({"metadata": {"labels": {expect::SITE: site.to_string()}}});
                self.world.hub().merge(&CLUSTER, &member, patch).await;
            }
            Action::Config { number, text } => {
                let object = expect::config_map(&config_name(number), &text.to_string());
                self.world.hub().apply(object).await;
            }
            Action::Missing { number, span } => {
                self.delete(&CONFIG_MAP, &config_name(number)).await;
                self.later(span, Due::Begin(Action::Config { number, text: 1_000 + number }));
            }
            Action::Depend { app, number, propagate } => {
                let patch = expect::reference(&app_name(app), &config_name(number));
                self.change(&DEPLOYMENT, &app_name(app), patch).await;
                let patch = json!({"spec": {"propagateDeps": propagate}});
                self.change(&PROPAGATION_POLICY, &app_name(app), patch).await;
            }
            Action::Quota { tenths, span } => {
                self.world.hub().apply(expect::quota(tenths)).await;
                self.later(span, Due::Remove(FEDERATED_RESOURCE_QUOTA, expect::LIMITS));
            }
            Action::Tenancy { site, span } => {
                self.world.hub().apply(expect::cluster_set(site)).await;
                self.later(span, Due::Remove(CLUSTER_SET, expect::LIMITS));
            }
            Action::Together { app, apart, placement, span } => {
                let policy = expect::policy_together(app, placement, apart);
                self.world.hub().apply(policy).await;
                self.later(span, Due::Place(app, placement));
            }
            Action::Everything { left_out, span } => {
                self.world.hub().apply(policies::everything(left_out)).await;
                if let Some(span) = span {
                    self.later(span, Due::Remove(PROPAGATION_POLICY, policies::EVERYTHING));
                }
            }
            Action::Assign { amounts, span } => {
                self.world.hub().apply(policies::assignments(amounts)).await;
                if let Some(span) = span {
                    self.later(span, Due::Remove(FEDERATED_RESOURCE_QUOTA, policies::ASSIGNED));
                }
            }
            Action::Follow { replicas, placement, member, runs, later } => {
                self.world.hub().apply(policies::following(replicas)).await;
                self.world.hub().apply(policies::following_policy(placement)).await;
                self.later(later, Due::Autoscale(member, runs));
            }
            Action::NoFollow => self.delete(&DEPLOYMENT, &app_name(policies::FOLLOWING)).await,
            Action::Guard { replicas, freezes } => {
                self.world.hub().apply(policies::guard(replicas, freezes)).await;
                let accepted = |view: &View| {
                    let guard = view.hub(&CHANGE_GUARD, policies::GUARD);
                    let read = guard["status"]["observedGeneration"].is_i64();
                    read.then_some(()).ok_or_else(|| "no leader has read it".to_owned())
                };
                self.world.until("the guard is read", GUARD_READ, accepted).await;
            }
            Action::Approve => self.approve().await,
            Action::Cordon { member, span } => {
                self.cordon(&member, true).await;
                self.later(span, Due::Uncordon(member));
            }
            Action::Widget { number, size, placement } => {
                self.world.hub().apply(expect::widget(number, size)).await;
                self.world.hub().apply(expect::widget_policy(number, placement)).await;
            }
            Action::NoWidget { number } => self.delete(&WIDGET, &widget_name(number)).await,
            Action::Die { who, fuse, within, away } => {
                if !self.fuses.contains_key(&who) && !self.down.contains(&who) {
                    self.world.lay(&who, Some(fuse));
                    self.fuses.insert(who.clone(), away);
                    self.later(within, Due::Death(who, away));
                }
            }
            Action::Watches { who, events, span } => {
                self.world.events(&who, events);
                self.later(span, Due::Calm(who));
            }
            Action::Older { who, after, span } => {
                self.world.events(&who, Events::Behind);
                self.fuses.entry(who.clone()).or_insert(AT_ONCE);
                self.later(after, Due::Death(who.clone(), AT_ONCE));
                self.later(span, Due::Calm(who));
            }
            Action::Clock { who, skew, span } => {
                self.world.skew(&who, Some(skew));
                self.later(span, Due::Right(who));
            }
            Action::Damage { member, what } => {
                self.damage(&member, what).await;
                let who = Who::Agent(member);
                self.take_away(who, AT_ONCE).await;
            }
            Action::Answers { who, late, span } => {
                self.world.late_answers(&who, late);
                self.later(span, Due::Prompt(who));
            }
            Action::Tamper { member, what, times, pause } => {
                for number in 0..times {
                    self.later(pause * number, Due::Tamper(member.clone(), what));
                }
            }
            Action::Cut { member, way, span } => {
                self.world.partition(&member, Some(way));
                self.later(span, Due::Join(member));
            }
            Action::Flap { member, down, up, times } => {
                for number in 0..times {
                    let start = (down + up) * number;
                    self.later(start, Due::Cut(member.clone(), Way::Both));
                    self.later(start + down, Due::Join(member.clone()));
                }
            }
            Action::Hold { span } => {
                let leader = self.world.leaders().first().copied().unwrap_or(1);
                let who = Who::Controller(leader);
                self.world.hold(&who, true);
                self.later(span, Due::Release(who));
            }
            Action::History { how, span } => {
                self.world.history_store().set_fault(how);
                self.later(span, Due::Database);
            }
            Action::Slow { member, bytes, pause, span } => {
                self.world.slow_network(&member, Some((bytes, pause)));
                self.world.slow_api(&Who::Agent(member.clone()), pause);
                self.later(span, Due::Speed(member));
            }
            Action::Poisoned { what, span } => {
                if what == Poison::Taken {
                    let first = self.world.member("member1");
                    first.apply(expect::config_map(&poison_name(what), "theirs")).await;
                }
                for object in expect::poison(what) {
                    self.world.hub().apply(object).await;
                }
                self.later(span, Due::Cure(what));
            }
            Action::Restore { member, wiped, later } => {
                self.world.back_up(&member);
                self.later(later, Due::Restore(member, wiped));
            }
            Action::Gone { members, how, span } => {
                for member in members {
                    match how {
                        Going::Dark => self.world.stop_member(&member).await,
                        Going::Cut => self.world.partition(&member, Some(Way::Both)),
                    }
                    self.later(span, Due::Power(member));
                }
            }
            Action::Break { member, after } => {
                self.world.break_stream(&member, Some(after));
                // Without traffic nothing breaks.
                self.later(Duration::from_secs(10), Due::Mend(member));
            }
        }
    }

    /// Another user or a disk error changes data that an agent reads at its start.
    async fn damage(&self, member: &str, what: Damaged) {
        let site = self.world.member(member);
        let in_system = |name: &str| format!("{}/{name}", marks::SYSTEM_NAMESPACE);
        let index = in_system("atoll-inventory");
        match what {
            Damaged::Index | Damaged::IndexUnreadable => {
                let before = site.get(&CONFIG_MAP, &index).await;
                let half = |field: &str| {
                    let text = before["data"][field].as_str().unwrap_or_default();
                    match what {
                        Damaged::Index => text[..text.len() / 2].to_owned(),
                        _ => "\u{fffd}\u{1}".to_owned(),
                    }
                };
                let (kinds, namespaces) = (half("group-kinds"), half("namespaces"));
                let data = json!({"data": {"group-kinds": kinds, "namespaces": namespaces}});
                site.merge_if_there(&CONFIG_MAP, &index, data).await;
            }
            Damaged::Hashes => {
                let held: Vec<(Kind, String, String)> = self.world.read(|view| {
                    let hash = |object: &Value| {
                        object["metadata"]["annotations"][marks::HASH].as_str().map(str::to_owned)
                    };
                    let held = view.managed(member);
                    held.filter_map(|(kind, key, object)| Some((*kind, key.clone(), hash(object)?)))
                        .collect()
                });
                for (kind, key, hash) in held {
                    let wrong = match hash.strip_prefix('0') {
                        Some(rest) => format!("1{rest}"),
                        None => format!("0{}", hash.get(1..).unwrap_or_default()),
                    };
                    let patch = json!({"metadata": {"annotations": {marks::HASH: wrong}}});
                    site.merge_if_there(&kind, &key, patch).await;
                }
            }
            Damaged::Lease => {
                let wrong = json!({"atoll.dev/epoch": "\u{fffd}", marks::TERM: "\u{fffd}"});
                let patch = json!({"metadata": {"annotations": wrong}});
                site.merge_if_there(&LEASE, &in_system("atoll-agent"), patch).await;
            }
        }
    }

    /// A member's user deletes or edits what Atoll applied, or removes fields of it.
    async fn tamper(&self, member: &str, what: Tampering) {
        let site = self.world.member(member);
        let held: Vec<(Kind, String)> = self
            .world
            .read(|view| view.managed(member).map(|(kind, key, _)| (*kind, key.clone())).collect());
        for (kind, key) in held {
            let name = key.rsplit('/').next().unwrap_or_default();
            let patch = match (what, kind) {
                (Tampering::Delete, _) => {
                    site.delete_if_there(&kind, &key).await;
                    continue;
                }
                (Tampering::Edit, DEPLOYMENT) => expect::image(name, TAMPERED),
                (Tampering::Edit, CONFIG_MAP) => json!({"data": {"text": "tampered"}}),
                (Tampering::Edit, WIDGET) => json!({"spec": {"size": TAMPERED}}),
                (Tampering::Unset, DEPLOYMENT) => {
                    json!({"metadata": {"labels": {expect::TIER: null}}})
                }
                (Tampering::Unset, CONFIG_MAP) => json!({"data": null}),
                (Tampering::Unset, WIDGET) => json!({"spec": {"size": null}}),
                (Tampering::Edit | Tampering::Unset, _) => continue,
            };
            site.merge_if_there(&kind, &key, patch).await;
        }
    }

    /// Cordons a member's nodes or uncordons them.
    async fn cordon(&self, member: &str, cordoned: bool) {
        const KEY: &str = "node.kubernetes.io/unschedulable";
        let site = self.world.member(member);
        let nodes: Vec<String> =
            self.world.read(|view| view.all(member, &NODE).map(|(key, _)| key.clone()).collect());
        for name in nodes {
            let node = site.get(&NODE, &name).await;
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let before = taints.len();
            taints.retain(|taint| taint["key"] != KEY);
            if cordoned {
                taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
            }
            if node.is_object() && taints.len() != before {
                let patch = json!({"spec": {"unschedulable": cordoned, "taints": taints}});
                site.merge_if_there(&NODE, &name, patch).await;
            }
        }
    }

    async fn cure(&self, what: Poison) {
        let name = poison_name(what);
        for kind in [DEPLOYMENT, CONFIG_MAP, PROPAGATION_POLICY, OVERRIDE_POLICY] {
            self.delete(&kind, &name).await;
        }
    }

    /// Deletes an object that may not exist any more.
    async fn delete(&self, kind: &Kind, name: &str) {
        let key = if kind.namespaced { format!("default/{name}") } else { name.to_owned() };
        if !self.world.hub().get(kind, &key).await.is_null() {
            self.world.hub().delete(kind, &key).await;
        }
    }

    /// Patches an object that may not exist.
    async fn change(&self, kind: &Kind, name: &str, patch: Value) {
        self.world.hub().merge_if_there(kind, &format!("default/{name}"), patch).await;
    }
}
