//! Controllers and agents are killed at random moments under load, over a network that drops, delays and half-closes
//! connections. In the end everything must be as desired.
//!
//! `ATOLL_CHAOS_SECONDS` sets the duration (default 120), `ATOLL_CHAOS_SEED` the random seed.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_history::SqliteStore;
use atoll_simulator::random::Random;
use kube::api::{DynamicObject, ListParams};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::support::federation::{bindings, deployments};
use crate::support::forwarder::Mood;
use crate::support::plane::Plane;
use crate::support::recorded::{complete, decisions, rows};

/// Time between two actions.
const TICK: Duration = Duration::from_millis(250);
/// Longest recovery after the last fault: leases, sessions and Pods on a busy machine.
const RECOVERY: Duration = Duration::from_secs(120);
const CONTROLLERS: usize = 2;
const MEMBERS: usize = 3;
const APPS: u64 = 8;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// Killed processes restart after some ticks.
struct Chaos {
    plane: Plane,
    random: Random,
    /// Ticks until the controller with this number restarts.
    controllers: [u64; CONTROLLERS],
    agents: [u64; MEMBERS],
    kills: [u32; 2],
}

impl Chaos {
    fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap()
    }

    async fn tick(&mut self) {
        for number in 0..CONTROLLERS {
            self.controllers[number] = self.controllers[number].saturating_sub(1);
            if self.controllers[number] == 0 && self.plane.controllers[number].is_none() {
                self.plane.start_controller(number);
            }
        }
        for number in 0..MEMBERS {
            self.agents[number] = self.agents[number].saturating_sub(1);
            if self.agents[number] == 0 && self.plane.members[number].agent.is_none() {
                self.plane.members[number].start_agent();
            }
        }
        let app = format!("web{}", self.random.below(APPS));
        match self.random.below(40) {
            0 | 1 => {
                let number = self.one_of(CONTROLLERS);
                if let Some(process) = self.plane.controllers[number].take() {
                    process.signal("-KILL");
                    self.kills[0] += 1;
                    self.controllers[number] = 1 + self.random.below(12);
                }
            }
            2..=4 => {
                let number = self.one_of(MEMBERS);
                if let Some(process) = self.plane.members[number].agent.take() {
                    process.signal("-KILL");
                    self.kills[1] += 1;
                    self.agents[number] = 1 + self.random.below(12);
                }
            }
            5..=9 => {
                let late = Duration::from_millis(self.random.below(400));
                let moods = [Mood::Late(late), Mood::Silent, Mood::HalfClosed, Mood::Dropping];
                let mood = *self.random.pick(&moods);
                self.plane.forwarder.set(mood);
            }
            10..=19 => self.plane.forwarder.set(Mood::Calm),
            20 => self.plane.delete(&app).await,
            21..=23 => {
                let replicas = self.random.below(6);
                self.plane.ensure(&app, replicas).await;
            }
            _ => {
                let replicas = self.random.below(9);
                self.plane.scale_if_there(&app, replicas).await;
            }
        }
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.plane.forwarder.set(Mood::Calm);
        for number in 0..CONTROLLERS {
            if self.plane.controllers[number].is_none() {
                self.plane.start_controller(number);
            }
        }
        for member in &mut self.plane.members {
            if member.agent.is_none() {
                member.start_agent();
            }
        }
    }
}

/// Whether every workload runs as decided, nothing else does, and the hub shows it.
async fn as_desired(plane: &Plane) -> Result<(), String> {
    let all = ListParams::default();
    let value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
    let templates = deployments(&plane.hub.client, "default").list(&all).await.unwrap();
    let held = bindings(&plane.hub.client, "default").list(&all).await.unwrap();
    let mut wanted: BTreeMap<(String, String), i64> = BTreeMap::new();
    for binding in &held.items {
        let (name, binding) = (binding.metadata.name.clone().unwrap(), value(binding));
        if !binding["metadata"]["deletionTimestamp"].is_null() {
            return Err(format!("{name} is on its way out"));
        }
        let tasks = binding["spec"]["gracefulEvictionTasks"].as_array().map_or(0, Vec::len);
        if tasks > 0 {
            return Err(format!("{name} has {tasks} eviction tasks"));
        }
        let app = binding["spec"]["resource"]["name"].as_str().unwrap().to_owned();
        for share in binding["spec"]["clusters"].as_array().into_iter().flatten() {
            let member = share["name"].as_str().unwrap().to_owned();
            wanted.insert((member, app.clone()), share["replicas"].as_i64().unwrap_or(0));
        }
    }
    for template in &templates.items {
        let (name, template) = (template.metadata.name.clone().unwrap(), value(template));
        let desired = template["spec"]["replicas"].as_i64().unwrap();
        let decided: i64 =
            wanted.iter().filter(|((_, app), _)| *app == name).map(|(_, share)| share).sum();
        let status = &template["status"];
        let shown = status["readyReplicas"].as_i64().unwrap_or(0);
        if decided != desired
            || shown != desired
            || status["observedGeneration"] != template["metadata"]["generation"]
        {
            return Err(format!("{name}: {desired} desired, {decided} decided, {shown} shown"));
        }
    }
    for member in &plane.members {
        let copies = deployments(&member.server.client, "default").list(&all).await.unwrap();
        for copy in &copies.items {
            let (name, copy) = (copy.metadata.name.clone().unwrap(), value(copy));
            let share = wanted.remove(&(member.name.clone(), name.clone()));
            let Some(share) = share else {
                return Err(format!("{name} of {} is nobody's", member.name));
            };
            let (asked, ready) = (&copy["spec"]["replicas"], &copy["status"]["readyReplicas"]);
            if asked.as_i64() != Some(share) || ready.as_i64().unwrap_or(0) != share {
                return Err(format!("{name} of {}: {ready} of {asked} of {share}", member.name));
            }
        }
    }
    wanted.is_empty().then_some(()).ok_or_else(|| format!("not there: {wanted:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_whenever_all_is_well_in_the_end() {
    let seed = number("ATOLL_CHAOS_SEED", 1);
    let span = Duration::from_secs(number("ATOLL_CHAOS_SECONDS", 120));
    println!("seed {seed}, {span:?}");
    let flags = ["--lease-duration=4", "--heartbeat=1", "--silent-after=6", "--failover-after=20"];
    let plane =
        Plane::start(CONTROLLERS.try_into().unwrap(), MEMBERS.try_into().unwrap(), &flags).await;
    let seen = decisions(bindings(&plane.hub.client, "default"));
    for app in 0..APPS {
        plane.create(&format!("web{app}"), 2).await;
    }
    let mut chaos = Chaos {
        plane,
        random: Random(seed),
        controllers: [0; CONTROLLERS],
        agents: [0; MEMBERS],
        kills: [0; 2],
    };
    let ends = Instant::now() + span;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < ends {
        ticks.tick().await;
        chaos.tick().await;
    }
    chaos.heal();
    let healed = Instant::now();
    println!("killed: {} controllers, {} agents", chaos.kills[0], chaos.kills[1]);
    while let Err(missing) = as_desired(&chaos.plane).await {
        assert!(healed.elapsed() < RECOVERY, "not well after {RECOVERY:?}: {missing}");
        ticks.tick().await;
    }
    println!("all is well {:?} after the last blow", healed.elapsed());

    let store = SqliteStore::open(&chaos.plane.history()).await.unwrap();
    loop {
        let rows = rows(&store).await;
        let Err(missing) = complete(&rows, &seen.lock().unwrap()) else { break };
        assert!(healed.elapsed() < RECOVERY, "history: {missing}");
        ticks.tick().await;
    }
    println!(
        "history has {} rows, {} decisions were seen",
        rows(&store).await.len(),
        seen.lock().unwrap().len()
    );
    as_desired(&chaos.plane).await.unwrap();
}
