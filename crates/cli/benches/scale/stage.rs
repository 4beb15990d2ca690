//! Hub, controller and agents, and what is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use atoll_api::{Cluster, PropagationPolicy, ResourceBinding};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Instant as Later, sleep, timeout};

use crate::child::{self, Process, answer, cpu_ms, resident_kib, setting};
use crate::content::{self, NAMESPACES, namespace};
use crate::figures::{Figures, Growth};
use crate::hub::{self, ApiServer};

/// How long the idle federation is looked at.
const IDLE: Duration = Duration::from_secs(60);
/// Time without progress after which the run fails.
const STUCK: Duration = Duration::from_secs(300);
/// Interval of progress checks.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of progress output.
const TELL: Duration = Duration::from_secs(20);
/// The federation rests when the controller used less CPU than this in [`REST`].
const REST_MS: u64 = 1_500;
const REST: Duration = Duration::from_secs(10);
/// Times that each list is asked for; the fastest counts.
const LISTS: usize = 3;

/// The hub in its own process.
pub(crate) async fn serve_hub() {
    let (hub, _) = ApiServer::hub(setting("MEMBERS").parse().unwrap()).await;
    answer(async |_| json!({"kubeconfig": hub.kubeconfig})).await;
}

pub(crate) struct Stage {
    members: usize,
    bindings: usize,
    client: Client,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
    hub: Process,
    agents: Process,
    controller: Child,
    http: String,
}

/// A free port of this machine.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

impl Stage {
    pub(crate) async fn set_up(members: usize) -> Self {
        let mut settings = BTreeMap::from([("MEMBERS", members.to_string())]);
        let mut hub = Process::start("hub", &settings);
        let answer = hub.ask("ready").await;
        let kubeconfig = PathBuf::from(answer["kubeconfig"].as_str().unwrap());
        let client = hub::client(&kubeconfig).await;
        let folder = tempfile::tempdir().unwrap();
        let (address, http) = (free(), free());
        let controller = controller(&kubeconfig, folder.path(), &address, &http);
        settings.insert("KUBECONFIG", kubeconfig.display().to_string());
        settings.insert("ADDRESS", address);
        let mut agents = Process::start("agents", &settings);
        agents.ask("ready").await;
        let stage = Self {
            members,
            bindings: 0,
            client,
            kubeconfig,
            folder,
            hub,
            agents,
            controller,
            http,
        };
        stage.all_ready().await;
        stage
    }

    fn controller(&self) -> u32 {
        self.controller.id().unwrap()
    }

    /// Memory before the first workload.
    pub(crate) fn empty(&self, figures: &mut Figures) {
        let controller = mib(resident_kib(self.controller()));
        figures.add("controller, no workloads", controller, "MiB", Growth::WithSize);
        figures.add("hub, no workloads", mib(resident_kib(self.hub.id())), "MiB", Growth::WithSize);
    }

    /// Waits until the hub knows every member as ready.
    async fn all_ready(&self) {
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let wait = async {
            loop {
                let list = clusters.list(&ListParams::default()).await.unwrap();
                let ready = list.iter().filter(|cluster| {
                    let status = cluster.status.as_ref();
                    status.is_some_and(|s| atoll_api::conditions::is_true(&s.conditions, "Ready"))
                });
                if ready.count() == self.members {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(STUCK, wait).await.expect("all members are ready in time");
    }

    /// Objects that the agents hold.
    async fn held(&mut self) -> usize {
        let answer = self.agents.ask("held").await;
        answer["held"].as_u64().unwrap() as usize
    }

    /// Waits until the agents hold so many objects.
    async fn until_held(&mut self, goal: usize) {
        let (mut before, mut moved, mut told) = (0, Instant::now(), Instant::now());
        loop {
            let now = self.held().await;
            if now >= goal {
                return;
            }
            if now != before {
                (before, moved) = (now, Instant::now());
            }
            assert!(moved.elapsed() < STUCK, "stuck: members hold {now} of {goal} objects");
            if told.elapsed() >= TELL {
                told = Instant::now();
                println!("    members hold {now} of {goal} objects");
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until the controller has little to do.
    async fn until_rest(&self) {
        let process = self.controller();
        let rests = async {
            loop {
                let before = cpu_ms(process);
                sleep(REST).await;
                if cpu_ms(process) - before < REST_MS {
                    return;
                }
            }
        };
        timeout(STUCK, rests).await.expect("the controller comes to rest in time");
    }

    /// Creates the workloads; each goes to two members.
    pub(crate) async fn fill(&mut self, bindings: usize, figures: &mut Figures) {
        self.bindings = bindings;
        let before = (resident_kib(self.controller()), resident_kib(self.hub.id()));
        let cpu = cpu_ms(self.controller());
        let start = Instant::now();
        let (client, filling) = (self.client.clone(), bindings);
        let filled = tokio::spawn(async move { content::fill(&client, filling).await });
        self.until_held(2 * bindings).await;
        filled.await.unwrap();
        figures.add("all placed", start.elapsed().as_secs_f64(), "s", Growth::WithSize);
        self.until_rest().await;
        let each = |kib: u64| kib as f64 / bindings as f64;
        let used = (cpu_ms(self.controller()) - cpu) as f64 / bindings as f64;
        figures.add("CPU of the controller, a binding placed", used, "ms", Growth::Flat);
        let now = (resident_kib(self.controller()), resident_kib(self.hub.id()));
        figures.add("controller, all placed", mib(now.0), "MiB", Growth::WithSize);
        figures.add("  a binding", each(now.0 - before.0), "KiB", Growth::Flat);
        figures.add("hub, all placed", mib(now.1), "MiB", Growth::WithSize);
        figures.add("  a binding", each(now.1 - before.1), "KiB", Growth::Flat);
    }

    /// CPU of a federation in which nothing changes but heartbeats and facts.
    pub(crate) async fn idle(&self, figures: &mut Figures) {
        let cpu = || (cpu_ms(self.controller()), cpu_ms(self.hub.id()));
        let before = cpu();
        sleep(IDLE).await;
        let after = cpu();
        let cores = |from: u64, to: u64| (to - from) as f64 / IDLE.as_millis() as f64;
        let controller = cores(before.0, after.0);
        figures.add("CPU of the idle controller", controller, "cores", Growth::WithSize);
        figures.add("CPU of the idle hub", cores(before.1, after.1), "cores", Growth::WithSize);
    }

    /// Lists of the CLI, and one of the API.
    pub(crate) async fn lists(&self, figures: &mut Figures) {
        let team = namespace(0);
        let member = hub::name(0);
        let verbs: [(&'static str, &[&str], Growth); 4] = [
            ("atoll get members", &["get", "members"], Growth::WithSize),
            ("atoll work, one member", &["work", &member], Growth::Flat),
            (
                "atoll history, one workload",
                &["history", "-n", &team, "deployment/w000000"],
                Growth::Flat,
            ),
            (
                "atoll explain, one workload",
                &["explain", "-n", &team, "deployment/w000000"],
                Growth::Flat,
            ),
        ];
        for (name, arguments, growth) in verbs {
            let mut best = Duration::MAX;
            for _ in 0..LISTS {
                let start = Instant::now();
                let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
                command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
                let output = command.stdin(Stdio::null()).output().await.unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {error}");
                best = best.min(start.elapsed());
            }
            figures.add(name, best.as_secs_f64() * 1000.0, "ms", growth);
        }
        let bindings: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &team);
        let mut best = Duration::MAX;
        for _ in 0..LISTS {
            let list = Request::new(bindings.resource_url()).list(&ListParams::default()).unwrap();
            let start = Instant::now();
            let text = self.client.request_text(list).await.unwrap();
            best = best.min(start.elapsed());
            // Not in the time: what a client does with a list differs, and takes longer than the hub.
            let list: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), self.bindings / NAMESPACES);
        }
        let took = best.as_secs_f64() * 1000.0;
        figures.add("list of a tenth of the bindings, as text", took, "ms", Growth::WithSize);
    }

    /// An edit of one policy; a tenth of the bindings are decided again, and stay where they are.
    pub(crate) async fn edit(&self, figures: &mut Figures) {
        let team = namespace(0);
        let bindings: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &team);
        let mut changes =
            std::pin::pin!(watcher(bindings, watcher::Config::default()).applied_objects());
        let goal = self.bindings / NAMESPACES;
        let mut known = BTreeSet::new();
        while known.len() < goal {
            known.insert(changes.next().await.unwrap().unwrap().name_any());
        }
        let policies: Api<PropagationPolicy> = Api::namespaced(self.client.clone(), &team);
        let patch = json!({"spec": {"placement": {"clusterTolerations": [
            {"key": "edited", "operator": "Exists"},
        ]}}});
        let (start, cpu) = (Instant::now(), cpu_ms(self.controller()));
        policies.patch("all", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let mut done = BTreeSet::new();
        while done.len() < goal {
            let next = timeout(STUCK, changes.next()).await.expect("a binding changes in time");
            let binding = next.unwrap().unwrap();
            let placement = serde_json::to_value(&binding.spec.placement).unwrap();
            if placement["clusterTolerations"][0]["key"] == "edited" {
                done.insert(binding.name_any());
            }
        }
        let took = start.elapsed().as_secs_f64();
        figures.add("policy edit, a tenth decided again", took, "s", Growth::WithSize);
        let used = (cpu_ms(self.controller()) - cpu) as f64 / goal as f64;
        figures.add("  CPU of the controller, a binding", used, "ms", Growth::Flat);
    }

    /// A member loses the label that its policy selects: everything leaves it.
    pub(crate) async fn relabel(&mut self, figures: &mut Figures) {
        self.until_rest().await;
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"tenth": null}}}));
        let held = "held-by 0";
        let before = self.agents.ask(held).await["held"].as_u64().unwrap();
        let start = Later::now();
        clusters.patch(&hub::name(0), &PatchParams::default(), &patch).await.unwrap();
        while self.agents.ask(held).await["held"] != json!(0) {
            assert!(start.elapsed() < STUCK, "workloads leave a member in time");
            sleep(LOOK).await;
        }
        let took = start.elapsed().as_secs_f64();
        println!("    {before} objects leave a member that loses its label");
        figures.add("all left the member", took, "s", Growth::Flat);
    }

    /// A new controller process after the old one ended as on an upgrade.
    pub(crate) async fn restart(&mut self, figures: &mut Figures) {
        self.until_rest().await;
        let process = self.controller();
        let ended =
            Command::new("kill").args(["-TERM", &process.to_string()]).status().await.unwrap();
        assert!(ended.success());
        self.controller.wait().await.unwrap();
        let address = self.agents.ask("address").await["address"].as_str().unwrap().to_owned();
        let (start, held) = (Instant::now(), self.held().await);
        self.controller = controller(&self.kubeconfig, self.folder.path(), &address, &self.http);
        let team: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace(1));
        team.create(&PostParams::default(), &content::deployment("late")).await.unwrap();
        self.until_held(held + 2).await;
        let took = start.elapsed().as_secs_f64();
        figures.add("restart, until a new workload is placed", took, "s", Growth::WithSize);
        while self.sessions().await != Some(self.members) {
            assert!(start.elapsed() < STUCK, "all agents are back in time");
            sleep(LOOK).await;
        }
        let took = start.elapsed().as_secs_f64();
        figures.add("restart, until all agents are back", took, "s", Growth::WithSize);
        self.until_rest().await;
        let memory = mib(resident_kib(self.controller()));
        figures.add("controller after the restart", memory, "MiB", Growth::WithSize);
    }

    /// Connected agents by the controller's metrics; `None` while it does not serve them.
    async fn sessions(&self) -> Option<usize> {
        let url = format!("http://{}/metrics", self.http);
        let output = Command::new("curl").args(["-sf", &url]).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix("atoll_members_sessions "))?;
        value.parse().ok()
    }

    pub(crate) async fn end(mut self) {
        self.controller.kill().await.unwrap();
        self.agents.kill().await;
        self.hub.end().await;
    }
}

/// The real controller, without limits on evictions.
fn controller(kubeconfig: &Path, folder: &Path, address: &str, http: &str) -> Child {
    let mut command = child::with_descriptors(Path::new(env!("CARGO_BIN_EXE_atoll")));
    command.arg("--kubeconfig").arg(kubeconfig).args(["controller", "--listen", address]);
    command.args(["--http", http, "--eviction-rate", "0", "--eviction-room-percent", "0"]);
    command.arg("--history").arg(folder.join("history.db"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap()
}
