//! A control plane of several processes: controllers on one hub behind one address, and members with their agents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cli::{atoll, on_member_of, own, printed_words};
use super::federation::{cluster_objects, free_ports, objects};
use super::forwarder::Forwarder;
use super::process::Process;
use super::servers::ApiServer;
use super::wait::{LIMIT, until};

/// A member with its agent.
pub(crate) struct PlaneMember {
    pub(crate) name: String,
    pub(crate) server: ApiServer,
    pub(crate) agent: Option<Process>,
    /// What the agent runs.
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<String>,
}

impl PlaneMember {
    /// Runs the agent with the command that `atoll join` printed.
    pub(crate) fn start_agent(&mut self) {
        let mut command = on_member_of(&self.program, &self.words, &self.server.kubeconfig);
        let process = Process::spawn(&self.name, command.stdin(Stdio::null()));
        self.agent = Some(process);
    }
}

/// A control plane; its configuration outlives its processes.
pub(crate) struct Plane {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) hub: ApiServer,
    pub(crate) controllers: Vec<Option<Process>>,
    pub(crate) members: Vec<PlaneMember>,
    pub(crate) forwarder: Forwarder,
    /// What controllers run.
    pub(crate) program: PathBuf,
    first_port: u16,
    flags: Vec<String>,
}

/// Ports of a controller: for agents, for its pages, and for aggregated APIs.
const PORTS: u16 = 3;

impl Plane {
    /// Starts a hub, this many controllers with these flags, and this many members; waits until all are Ready.
    pub(crate) async fn start(controllers: u16, members: u16, flags: &[&str]) -> Self {
        Self::start_of(&own(), &own(), controllers, members, flags).await
    }

    /// The same, with these programs for controllers and agents.
    pub(crate) async fn start_of(
        program: &Path,
        agents: &Path,
        controllers: u16,
        members: u16,
        flags: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = ApiServer::hub(folder.path()).await;
        let first_port = free_ports(PORTS * controllers);
        let listen = |number: u16| format!("127.0.0.1:{}", first_port + PORTS * number);
        let forwarder = Forwarder::start((0..controllers).map(listen).collect()).await;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut plane = Self {
            folder,
            hub,
            controllers: Vec::new(),
            members: Vec::new(),
            forwarder,
            program: program.to_owned(),
            first_port,
            flags,
        };
        for number in 0..usize::from(controllers) {
            plane.controllers.push(None);
            plane.start_controller(number);
        }
        let secrets = objects(&plane.hub.client, "", "v1", "Secret", "atoll-system");
        until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
        for number in 1..=members {
            let name = format!("member{number}");
            let server = ApiServer::member(&name, plane.folder.path()).await;
            let words = plane.join(&name);
            let mut member =
                PlaneMember { name, server, agent: None, program: agents.to_owned(), words };
            member.start_agent();
            plane.members.push(member);
        }
        let clusters = cluster_objects(&plane.hub.client);
        for member in &plane.members {
            until(&clusters, &member.name, "its kinds and capacity", |cluster| {
                cluster["status"]["resourceSummary"].is_object()
                    && cluster["status"]["apiEnablements"].is_array()
            })
            .await;
        }
        plane
    }

    fn join(&self, member: &str) -> Vec<String> {
        let address = self.forwarder.address.to_string();
        let mut command = atoll();
        command.args(["join", member, "--address", &address, "-o", "json"]);
        command.arg("--kubeconfig").arg(&self.hub.kubeconfig);
        printed_words(&mut command)
    }

    pub(crate) fn history(&self) -> std::path::PathBuf {
        self.folder.path().join("history.db")
    }

    fn port(&self, number: usize) -> u16 {
        self.first_port + PORTS * u16::try_from(number).unwrap()
    }

    /// Starts the controller with this number, which must not run.
    pub(crate) fn start_controller(&mut self, number: usize) {
        let port = self.port(number);
        let mut command = Command::new(&self.program);
        command.args(["controller", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--http", &format!("127.0.0.1:{}", port + 1)]);
        command.args(["--api-address", &self.api(number).to_string()]);
        command.args(["--identity", &format!("c{number}")]);
        command.args(&self.flags);
        command.arg("--history").arg(self.history());
        command.arg("--kubeconfig").arg(&self.hub.kubeconfig);
        let process = Process::spawn(&format!("c{number}"), command.stdin(Stdio::null()));
        self.controllers[number] = Some(process);
    }

    /// Where a controller serves its aggregated APIs.
    pub(crate) fn api(&self, number: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port(number) + 2))
    }

    pub(crate) fn leases(&self) -> Api<DynamicObject> {
        objects(&self.hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system")
    }

    /// Waits for a leader other than these; returns its number and the Lease.
    pub(crate) async fn leader(&self, other_than: &[usize]) -> (usize, Value) {
        let is = |lease: &Value| holder(lease).is_some_and(|number| !other_than.contains(&number));
        let what = format!("a leader other than {other_than:?}");
        let lease = until(&self.leases(), "atoll-controller", &what, is).await;
        (holder(&lease).unwrap(), lease)
    }

    /// Whether a controller reports that it leads; an error when it does not answer.
    pub(crate) async fn says_it_leads(&self, number: usize) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(number) + 1)).await?;
        let request = "GET /metrics HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let line = text.lines().find(|line| {
            !line.starts_with('#') && line.split(' ').next().is_some_and(|n| n.ends_with("leader"))
        });
        Ok(line.is_some_and(|line| line.ends_with(" 1")))
    }

    /// Waits until a controller answers.
    pub(crate) async fn until_serves(&self, number: usize) {
        let serves = async {
            // As below.
            while self.says_it_leads(number).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let served = tokio::time::timeout(LIMIT, serves).await;
        assert!(served.is_ok(), "c{number} does not answer");
    }

    /// Waits until a controller reports that it leads, or that it does not.
    pub(crate) async fn until_says(&self, number: usize, leads: bool) {
        let says = async {
            // Its page is the only signal here; each request takes time on a socket, so this does not spin.
            while self.says_it_leads(number).await.ok() != Some(leads) {
                tokio::task::yield_now().await;
            }
        };
        let said = tokio::time::timeout(LIMIT, says).await;
        assert!(said.is_ok(), "c{number} does not say leader={leads}");
    }

    /// All kinds that controllers write to the hub.
    pub(crate) fn written(&self) -> Vec<Api<DynamicObject>> {
        let client = &self.hub.client;
        vec![
            super::federation::bindings(client, "default"),
            super::federation::deployments(client, "default"),
            cluster_objects(client),
            objects(client, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default"),
            objects(client, "", "v1", "Event", "default"),
            objects(client, "", "v1", "Secret", "atoll-system"),
            self.leases(),
        ]
    }

    /// The newest resourceVersion of the controllers' writes, once those in flight have arrived. The hub's own writers
    /// are excluded, because they never pause.
    pub(crate) async fn settled_revision(&self) -> u64 {
        let mut last = self.revision().await;
        let mut same = 0;
        // Each round makes its own requests, after those that were sent before.
        while same < 20 {
            let now = self.revision().await;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }

    async fn revision(&self) -> u64 {
        let mut newest = 0;
        for api in self.written() {
            let list = api.list_metadata(&kube::api::ListParams::default()).await.unwrap();
            let versions = list.items.into_iter().filter_map(|item| item.metadata.resource_version);
            newest = versions.map(|version| version.parse().unwrap()).fold(newest, u64::max);
        }
        newest
    }

    /// Creates a Deployment of this name with a policy that divides it over all members.
    pub(crate) async fn create(&self, name: &str, replicas: u64) {
        self.hub.create(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                }},
            },
        }))
        .await;
        self.hub.create(deployment(name, replicas)).await;
    }

    /// Scales a Deployment of the hub.
    pub(crate) async fn scale(&self, name: &str, replicas: u64) {
        let api = super::federation::deployments(&self.hub.client, "default");
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Scales a Deployment of the hub, if it exists.
    pub(crate) async fn scale_if_there(&self, name: &str, replicas: u64) {
        let api = super::federation::deployments(&self.hub.client, "default");
        if api.get_opt(name).await.unwrap().is_some() {
            self.scale(name, replicas).await;
        }
    }

    /// As [`Plane::create`], unless the Deployment exists.
    pub(crate) async fn ensure(&self, name: &str, replicas: u64) {
        let api = super::federation::deployments(&self.hub.client, "default");
        if api.get_opt(name).await.unwrap().is_none() {
            self.hub.create(deployment(name, replicas)).await;
        }
    }

    /// Deletes a Deployment, if it exists.
    pub(crate) async fn delete(&self, name: &str) {
        let api = super::federation::deployments(&self.hub.client, "default");
        match api.delete(name, &kube::api::DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.unwrap()),
        }
    }

    /// Waits until the hub shows this many ready replicas of the newest version.
    pub(crate) async fn until_ready(&self, name: &str, replicas: u64, limit: Duration) -> Duration {
        let started = std::time::Instant::now();
        let api = super::federation::deployments(&self.hub.client, "default");
        let ready = |template: &Value| {
            template["status"]["readyReplicas"].as_u64().unwrap_or(0) == replicas
                && template["status"]["observedGeneration"] == template["metadata"]["generation"]
        };
        until(&api, name, &format!("{replicas} ready"), ready).await;
        let took = started.elapsed();
        assert!(took <= limit, "{name} is ready after {took:?}");
        took
    }
}

/// Number of the controller that holds a Lease.
pub(crate) fn holder(lease: &Value) -> Option<usize> {
    let holder = lease["spec"]["holderIdentity"].as_str()?;
    holder.strip_prefix('c')?.split('_').next()?.parse().ok()
}

/// The term of a Lease.
pub(crate) fn term(lease: &Value) -> i64 {
    let term = lease["metadata"]["annotations"]["atoll.dev/term"].as_str();
    term.and_then(|term| term.parse().ok()).unwrap_or_default()
}

fn deployment(name: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    })
}
