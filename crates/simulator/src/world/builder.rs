//! Builds a World.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::cluster::ClusterSpec;
use atoll_api::{Clock, Cluster, conditions};
use atoll_apiserver::{Options, Server};
use atoll_controller::leader::LeaseTimes;
use atoll_controller::members::{self, HealthTimes};
use atoll_controller::schedule::Profiles;
use atoll_protocol::identity::{ClusterUid, TrustDomain};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::World;
use super::clocks::Clocks;
use super::control::Plan;
use super::kinds::{self, CLUSTER};
use super::ledger::Ledger;
use super::line::Lists;
use super::member::{Credentials, Parts, WorldMember};
use super::mirror::Mirror;
use super::network::Door;
use super::site::Site;
use super::tap::HUB;
use super::view::condition;
use super::widgets;
use crate::simulated_clock;

/// Start time of every World: 2026-01-01.
const START: i64 = 1_767_225_600;
/// Longest wait for a start, in simulated time.
const LIMIT: Duration = Duration::from_secs(120);
/// Lifetime of the agents' tokens.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(15);
/// Distance between the seeds of two Worlds, so that none of their parts share a seed.
const STRIDE: u64 = 1 << 16;

/// How agents authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identities {
    /// They enrol with a token and speak mutual TLS, as in production. Keys are random, and therefore left out of
    /// [`World::account`].
    #[default]
    Enrolled,
    /// They are identified by their stream, without TLS. Faster, for runs of many seeds.
    Known,
}

/// Configuration of a World.
#[derive(Debug, Clone)]
pub struct Builder {
    seed: u64,
    members: u64,
    health: HealthTimes,
    identities: Identities,
    controllers: u32,
    lease: LeaseTimes,
    lists: Lists,
    customized: bool,
    profiles: Profiles,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            seed: 0,
            members: 3,
            health: HealthTimes::default(),
            identities: Identities::default(),
            controllers: 1,
            lease: LeaseTimes::default(),
            lists: Lists::default(),
            customized: false,
            profiles: Profiles::default(),
        }
    }
}

impl Builder {
    /// Seed of everything random. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of members, named `member1` and so on, each with three standard nodes. Default 3.
    #[must_use]
    pub fn members(mut self, members: u64) -> Self {
        self.members = members;
        self
    }

    /// Health timings. Default: those of production.
    #[must_use]
    pub fn health(mut self, health: HealthTimes) -> Self {
        self.health = health;
        self
    }

    /// How agents authenticate. Default [`Identities::Enrolled`].
    #[must_use]
    pub fn identities(mut self, identities: Identities) -> Self {
        self.identities = identities;
        self
    }

    /// Number of controllers, one of which leads. A single one leads at once after a restart; several wait for the
    /// Lease. Default 1.
    #[must_use]
    pub fn controllers(mut self, controllers: u32) -> Self {
        self.controllers = controllers;
        self
    }

    /// Election timings. Default: those of production.
    #[must_use]
    pub fn lease(mut self, lease: LeaseTimes) -> Self {
        self.lease = lease;
        self
    }

    /// What controllers and agents request in lists. Default [`Lists::Newest`].
    #[must_use]
    pub fn lists(mut self, lists: Lists) -> Self {
        self.lists = lists;
        self
    }

    /// Whether hub and members serve the kind Widget, and a ResourceInterpreterCustomization tells its meaning. Default
    /// false.
    #[must_use]
    pub fn customized(mut self, customized: bool) -> Self {
        self.customized = customized;
        self
    }

    /// Profiles of the controllers' schedulers. Default: the built-in ones.
    #[must_use]
    pub fn profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
    }

    /// Starts everything and waits until all members are Ready. Call it on a current-thread runtime with paused time.
    ///
    /// # Panics
    /// When a part does not start.
    pub async fn build(self) -> World {
        let start = must("the start of the clock", Timestamp::from_second(START));
        let clock = simulated_clock(start);
        let seed = self.seed.wrapping_mul(STRIDE);
        let (tasks, token) = (TaskTracker::new(), CancellationToken::new());
        let server = open(&clock, seed);
        let (controllers, ends) = (server.clone(), token.clone());
        tasks.spawn(async move { controllers.run_controllers(ends).await });
        install(&server.client(), atoll_api::crds::all()).await;
        if self.customized {
            widgets::install_on_hub(&server.client()).await;
        }
        let ledger = Arc::new(Ledger::new(clock.clone()));
        let mirror = Mirror::new(ledger.clone());
        mirror.follow(HUB, &server.client(), kinds::on_hub(self.customized), &tasks, &token).await;
        let plan = Plan {
            clocks: Clocks::new(clock),
            lists: self.lists,
            history: Arc::default(),
            health: self.health,
            lease: self.lease,
            trust_domain: must("the trust domain", TrustDomain::new("atoll.world")),
            seed,
            customized: self.customized,
            profiles: self.profiles,
            alone: self.controllers == 1,
        };
        let (deaths, died) = mpsc::unbounded_channel();
        let mut world = World {
            hub: Site::new(HUB, server.client(), ledger.clone()),
            server,
            members: BTreeMap::new(),
            backups: BTreeMap::new(),
            controllers: BTreeMap::new(),
            starts: 0,
            replicas: BTreeMap::new(),
            deaths,
            died,
            plan,
            door: Door::default(),
            ledger,
            mirror,
            tasks,
            token,
        };
        for number in 1..=self.controllers {
            world.start_controller_at(number);
        }
        for number in 1..=self.members {
            world.join(number, seed.wrapping_add(number), self.identities).await;
        }
        for number in 1..=self.members {
            let name = format!("member{number}");
            let ready =
                |cluster: &serde_json::Value| condition(cluster, conditions::READY) == "True";
            world.until_object(HUB, &CLUSTER, &name, "the member is Ready", LIMIT, ready).await;
        }
        world
    }
}

impl World {
    /// Registers a member and starts it.
    async fn join(&mut self, number: u64, seed: u64, identities: Identities) {
        let name = format!("member{number}");
        let clusters: Api<Cluster> = Api::all(self.server.client());
        let cluster = Cluster::new(&name, ClusterSpec::default());
        let cluster = clusters.create(&PostParams::default(), &cluster).await;
        let cluster = must("register a member", cluster);
        let credentials = match identities {
            Identities::Enrolled => Credentials::Enrol(self.invite(&cluster).await),
            Identities::Known => {
                let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
                Credentials::Known(must("the Cluster's uid", ClusterUid::new(uid)))
            }
        };
        let server = open(&self.plan.clocks.right, seed);
        if self.plan.customized {
            widgets::install(&server.client()).await;
        }
        // The empty cluster, for members that lose everything.
        self.backups.insert(name.clone(), vec![copy(&server, &self.plan.clocks.right, seed)]);
        let (client, kinds) = (server.client(), kinds::on_member(self.plan.customized));
        let followed = self.token.child_token();
        self.mirror.follow(&name, &client, kinds, &self.tasks, &followed).await;
        let parts = Parts {
            name: name.clone(),
            seed,
            clocks: self.plan.clocks.clone(),
            lists: self.plan.lists,
            server,
            credentials,
            ledger: self.ledger.clone(),
            door: self.door.clone(),
            deaths: self.deaths.clone(),
        };
        let mut member = WorldMember::new(parts, followed);
        member.start().await;
        self.members.insert(name, member);
    }

    /// Starts another cluster whose agent has a member's identity: stolen, or cloned with the machine. Returns its
    /// name, under which it is a member of the World, but not of the federation.
    pub async fn impostor(&mut self, of: &str) -> String {
        let name = format!("{of}-impostor");
        self.starts += 1;
        let seed = self.plan.seed ^ (u64::from(self.starts) << 44);
        let server = open(&self.plan.clocks.right, seed);
        let (client, kinds) = (server.client(), kinds::on_member(self.plan.customized));
        let followed = self.token.child_token();
        self.mirror.follow(&name, &client, kinds, &self.tasks, &followed).await;
        let mut impostor = self.member_ref(of).impostor(&name, server, seed, followed);
        impostor.start().await;
        self.members.insert(name.clone(), impostor);
        name
    }

    /// A join token for a member, with the controller's CA hash.
    async fn invite(&self, cluster: &Cluster) -> atoll_agent::Join {
        let (client, clock) = (self.server.client(), &self.plan.clocks.right);
        let token = members::create_token(&client, clock, cluster, TOKEN_LIFE).await;
        let authority = members::load_or_create(&client, clock, &self.plan.trust_domain).await;
        atoll_agent::Join {
            token: must("make a token", token),
            ca_hash: must("the certificate authority", authority).signing().hash(),
        }
    }
}

fn open(clock: &Clock, seed: u64) -> Server {
    must("open an API server", Server::open(options(clock, seed)))
}

/// A backup of a server; a server restored from it assigns different uids.
pub(super) fn copy(server: &Server, clock: &Clock, seed: u64) -> Server {
    must("copy an API server", server.copy(options(clock, seed)))
}

fn options(clock: &Clock, seed: u64) -> Options {
    let now = clock.clone();
    Options { clock: Arc::new(move || now.now()), seed, ..Options::memory() }
}

/// Installs CRDs and waits until they are served.
pub(super) async fn install(client: &kube::Client, all: Vec<CustomResourceDefinition>) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in all {
        let name = crd.metadata.name.clone().unwrap_or_default();
        must(&name, crds.create(&PostParams::default(), &crd).await);
        let served = await_condition(crds.clone(), &name, is_crd_established());
        let served = must(&name, tokio::time::timeout(LIMIT, served).await);
        must(&name, served);
    }
}

pub(super) fn must<T>(what: &str, result: Result<T, impl Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}
