//! A federation on one thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_agent::{AgentOptions, Connector, IdentityStore, Join, Timings};
use atoll_api::cluster::ClusterSpec;
use atoll_api::{Clock, Cluster, conditions};
use atoll_apiserver::{Options, Server};
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{self, Arrival, HealthTimes, Incoming, Metrics};
use atoll_controller::schedule::Place;
use atoll_controller::{Controller, Hub as HubSide, MembersSide};
use atoll_history::{Filter, MemoryStore, Store};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::identity::TrustDomain;
use atoll_scheduler::Profiles;
use atoll_simulator::{Member, MemberOptions, simulated_clock};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rights::Asked;

/// Limit of every wait, in virtual time.
const LIMIT: Duration = Duration::from_secs(900);
const NAMESPACE: &str = "default";

/// The objects of a server, as JSON.
pub(crate) struct Objects(kube::Client);

impl Objects {
    fn api(&self, (api_version, plural): (&str, &str)) -> Api<DynamicObject> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: String::new(),
            plural: plural.to_owned(),
        };
        Api::namespaced_with(self.0.clone(), NAMESPACE, &resource)
    }

    pub(crate) async fn get(&self, kind: (&str, &str), name: &str) -> Value {
        let found = self.api(kind).get_opt(name).await.unwrap();
        found.map_or(Value::Null, |object| serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn apply(&self, kind: (&str, &str), object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("test").force();
        self.api(kind).patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: (&str, &str), name: &str) {
        self.api(kind).delete(name, &Default::default()).await.unwrap();
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        kind: (&str, &str),
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) {
        let until = Instant::now() + LIMIT;
        loop {
            let object = self.get(kind, name).await;
            if holds(&object) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {object:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn until_gone(&self, kind: (&str, &str), name: &str) {
        self.until("gone", kind, name, Value::is_null).await;
    }
}

pub(crate) fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nginx"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "nginx"}},
            "template": {
                "metadata": {"labels": {"app": "nginx"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
            },
        },
    })
}

/// A policy with static weights.
pub(crate) fn policy(weights: &[(&str, i64)]) -> Value {
    let names: Vec<_> = weights.iter().map(|(name, _)| name).collect();
    let weights: Vec<_> = weights
        .iter()
        .map(|(name, weight)| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight}))
        .collect();
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "nginx"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"}],
            "placement": {
                "clusterAffinity": {"clusterNames": names},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": weights},
                },
            },
        },
    })
}

/// Status of a condition.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)?["status"].as_str()
}

/// A number, 0 where there is none.
pub(crate) fn replicas(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or_default()
}

struct SimulatedMember {
    server: Server,
    _machinery: Member,
    agent: Option<(CancellationToken, JoinHandle<()>)>,
    options: AgentOptions,
}

struct RunningController {
    token: CancellationToken,
    task: JoinHandle<()>,
    arrivals: mpsc::Sender<Arrival>,
}

/// Hub, controller, members with their agents.
pub(crate) struct Federation {
    pub(crate) hub: Objects,
    /// What the controller asked of the hub.
    pub(crate) asked: Asked,
    server: Server,
    clock: Clock,
    history: Arc<MemoryStore>,
    members: BTreeMap<String, SimulatedMember>,
    controller: RunningController,
    /// Where agents find the controller of the day.
    door: Arc<std::sync::Mutex<mpsc::Sender<Arrival>>>,
    starts: u32,
}

fn server(clock: &Clock, seed: u64, token: &CancellationToken) -> Server {
    let now = clock.clone();
    let options = Options { clock: Arc::new(move || now.now()), seed, ..Options::memory() };
    let server = Server::open(options).unwrap();
    let controllers = server.clone();
    let token = token.clone();
    tokio::spawn(async move { controllers.run_controllers(token).await });
    server
}

impl Federation {
    pub(crate) async fn start(members: u64) -> Self {
        let clock = simulated_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let server = server(&clock, 0, &CancellationToken::new());
        let crds: Api<CustomResourceDefinition> = Api::all(server.client());
        for crd in atoll_api::crds::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let history = Arc::new(MemoryStore::default());
        let asked = Asked::default();
        let controller = controller(&server, &asked, &clock, &history, 0).await;
        let door = Arc::new(std::sync::Mutex::new(controller.arrivals.clone()));
        let mut federation = Self {
            hub: Objects(server.client()),
            asked,
            server,
            clock,
            history,
            members: BTreeMap::new(),
            controller,
            door,
            starts: 0,
        };
        let trust_domain = TrustDomain::new("atoll.test").unwrap();
        let client = federation.server.client();
        let authority =
            members::load_or_create(&client, &federation.clock, &trust_domain).await.unwrap();
        for number in 1..=members {
            federation.join(number, authority.hash()).await;
        }
        federation
    }

    async fn join(&mut self, number: u64, ca_hash: PublicKeyHash) {
        let name = format!("member{number}");
        let clusters: Api<Cluster> = Api::all(self.server.client());
        let cluster = Cluster::new(&name, ClusterSpec::default());
        let cluster = clusters.create(&PostParams::default(), &cluster).await.unwrap();
        let life = jiff::SignedDuration::from_mins(15);
        let client = self.server.client();
        let token = members::create_token(&client, &self.clock, &cluster, life).await.unwrap();
        let end = CancellationToken::new();
        let server = server(&self.clock, number, &end);
        let machinery = Member::start(
            server.client(),
            MemberOptions { seed: number, ..MemberOptions::standard(&name, self.clock.clone()) },
            end,
        );
        let door = self.door.clone();
        let connector = Connector::from_fn(move |_| {
            let door = door.lock().unwrap().clone();
            async move {
                let (near, far) = tokio::io::duplex(256 * 1024);
                let arrival = Arrival { io: Box::new(far), identity: None };
                let refused = |_| std::io::Error::other("the controller is away");
                door.send(arrival).await.map_err(refused)?;
                Ok(near)
            }
        });
        let options = AgentOptions {
            client: server.client(),
            addresses: vec!["controller.test:443".to_owned()],
            connector,
            identity: IdentityStore::Secret("atoll-agent".to_owned()),
            join: Some(Join { token, ca_hash }),
            namespace: "atoll-system".to_owned(),
            instance: format!("{name}-agent"),
            clock: self.clock.clone(),
            seed: number,
            timings: Timings::default(),
        };
        let machinery = machinery.await.unwrap();
        let member = SimulatedMember { server, _machinery: machinery, agent: None, options };
        self.members.insert(name.clone(), member);
        self.start_agent(&name).await;
        let until = Instant::now() + LIMIT;
        while !clusters
            .get_status(&name)
            .await
            .unwrap()
            .status
            .is_some_and(|status| conditions::is_true(&status.conditions, conditions::READY))
        {
            assert!(Instant::now() < until, "{name} does not get Ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn label(&self, name: &str, key: &str, value: &str) {
        let clusters: Api<Cluster> = Api::all(self.server.client());
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        clusters.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn start_agent(&mut self, name: &str) {
        let member = self.members.get_mut(name).unwrap();
        let token = CancellationToken::new();
        let running = atoll_agent::run(member.options.clone(), token.clone());
        member.options.join = None;
        let task = tokio::spawn(async move { running.await.unwrap() });
        member.agent = Some((token, task));
    }

    pub(crate) async fn stop_agent(&mut self, name: &str) {
        let (token, task) = self.members.get_mut(name).unwrap().agent.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    pub(crate) async fn restart_controller(&mut self) {
        self.controller.token.cancel();
        (&mut self.controller.task).await.unwrap();
        self.starts += 1;
        self.controller =
            controller(&self.server, &self.asked, &self.clock, &self.history, self.starts).await;
        *self.door.lock().unwrap() = self.controller.arrivals.clone();
    }

    pub(crate) async fn stop(mut self) {
        let names: Vec<_> = self.members.keys().cloned().collect();
        for name in names {
            self.stop_agent(&name).await;
        }
        self.controller.token.cancel();
        self.controller.task.await.unwrap();
    }

    /// Ready replicas on each member that has the Deployment.
    pub(crate) async fn runs(&self) -> BTreeMap<String, i64> {
        let mut runs = BTreeMap::new();
        for (name, member) in &self.members {
            let objects = Objects(member.server.client());
            let object = objects.get(("apps/v1", "deployments"), "nginx").await;
            if !object.is_null() {
                runs.insert(name.clone(), replicas(&object, "/status/readyReplicas"));
            }
        }
        runs
    }

    /// The Deployment as a member holds it.
    pub(crate) async fn copy(&self, member: &str) -> Value {
        Objects(self.members[member].server.client()).get(("apps/v1", "deployments"), "nginx").await
    }

    pub(crate) async fn until_runs(&self, expected: &[(&str, i64)]) {
        let expected: BTreeMap<String, i64> =
            expected.iter().map(|(name, ready)| ((*name).to_owned(), *ready)).collect();
        let until = Instant::now() + LIMIT;
        loop {
            let runs = self.runs().await;
            if runs == expected {
                return;
            }
            if Instant::now() >= until {
                panic!("{expected:?} wanted, {runs:?} run: {:#}", self.why().await);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The last decision of the Deployment, with its reasons.
    async fn why(&self) -> Value {
        let binding = self.hub.get(super::BINDINGS, "nginx-deployment").await;
        let Some(id) = binding["spec"]["decision"]["id"].as_str() else { return binding };
        let entry = self.history.get(id).await.unwrap();
        let detail = entry.and_then(|row| row.entry.record()?.detail.clone());
        detail.map_or(binding, |detail| detail.decode().unwrap())
    }

    /// Waits until the others run so many in all, and answers with what they run.
    pub(crate) async fn until_sum_without(&self, name: &str, sum: i64) -> BTreeMap<String, i64> {
        let until = Instant::now() + LIMIT;
        loop {
            let mut runs = self.runs().await;
            runs.remove(name);
            if runs.values().sum::<i64>() == sum {
                return runs;
            }
            assert!(Instant::now() < until, "{sum} wanted, {runs:?} run");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the hub's Deployment says what `kubectl rollout status` waits for.
    pub(crate) async fn until_hub_is_ready(&self, wanted: i64) {
        self.hub
            .until("ready on the hub", super::DEPLOYMENTS, "nginx", |object| {
                object["status"]["observedGeneration"] == object["metadata"]["generation"]
                    && ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
                        .iter()
                        .all(|field| replicas(object, &format!("/status/{field}")) == wanted)
            })
            .await;
    }

    pub(crate) async fn until_trigger(&self, trigger: &str) {
        self.hub
            .until(trigger, super::BINDINGS, "nginx-deployment", |binding| {
                binding["spec"]["decision"]["trigger"] == trigger
            })
            .await;
    }

    pub(crate) async fn triggers(&self) -> Vec<String> {
        let page = self.history.page(&Filter::default(), 1000, None).await.unwrap();
        let rows = page.rows.iter().rev();
        rows.map(|row| row.entry.record().unwrap().record.trigger.to_string()).collect()
    }
}

async fn controller(
    server: &Server,
    asked: &Asked,
    clock: &Clock,
    history: &Arc<MemoryStore>,
    starts: u32,
) -> RunningController {
    let (arrivals, incoming) = mpsc::channel(16);
    let token = CancellationToken::new();
    let hub = HubSide {
        client: asked.client(server),
        clock: clock.clone(),
        history: history.clone(),
        candidate: Candidate {
            namespace: "atoll-system".to_owned(),
            name: "atoll-controller".to_owned(),
            place: "world".to_owned(),
            incarnation: starts.to_string(),
            exclusive_place: true,
            times: LeaseTimes::default(),
        },
        profiles: Profiles::default(),
        place: Place::Task,
        seed: 7,
    };
    let members = MembersSide {
        incoming: Incoming::Streams(incoming),
        health: HealthTimes::default(),
        trust_domain: TrustDomain::new("atoll.test").unwrap(),
        metrics: Metrics::default(),
    };
    let controller = Controller::new(hub, members, token.clone()).unwrap();
    let mut leadership = controller.leadership();
    let task = tokio::spawn(async move { controller.run().await.unwrap() });
    tokio::time::timeout(LIMIT, leadership.wait_for(Option::is_some)).await.unwrap().unwrap();
    RunningController { token, task, arrivals }
}
