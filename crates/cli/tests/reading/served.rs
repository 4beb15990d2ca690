//! A hub on loopback with some history, and programs that query it.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::{DecisionRecord, Mode, ObjectReference, Outcome, TargetCluster, Trigger};
use atoll_api::{Cluster, ResourceBinding};
use atoll_apiserver::pki::Authority;
use atoll_apiserver::{Options, Server};
use atoll_history::{BindingRef, Detail, Event, MemoryStore, Record, Store};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::decisions::Decisions;

/// Timeout of one command; on a busy machine kubectl itself needs a second or two.
const LIMIT: Duration = Duration::from_secs(60);

/// A decision about Deployment default/nginx, `at` seconds after 1970.
pub(crate) fn decision(id: &str, trigger: Trigger, at: i64, shares: &[(&str, i64)]) -> Record {
    let share = |(name, replicas): &(&str, i64)| TargetCluster {
        name: (*name).to_owned(),
        replicas: *replicas,
    };
    Record {
        record: DecisionRecord {
            id: id.into(),
            parent: None,
            trigger,
            mode: Mode::Steady,
            outcome: Outcome::Placed,
            desired: shares.iter().map(|(_, replicas)| replicas).sum(),
            pending: vec![],
            affinity_name: None,
            reason: None,
            full_clusters: Vec::new(),
            at: jiff::Timestamp::from_second(at).unwrap().into(),
            term: 1,
        },
        binding: BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: Some("default".to_owned()),
            name: "nginx-deployment".to_owned(),
            uid: "binding".into(),
        },
        workload: ObjectReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("default".to_owned()),
            name: "nginx".to_owned(),
            uid: Some("template".to_owned()),
        },
        before: None,
        after: shares.iter().map(share).collect(),
        reason: Some(format!("because of {id}")),
        gap: None,
        withdrawal: None,
        provenance: None,
        rejections: None,
        detail: None,
        inputs: None,
    }
}

/// First, Scale with its whole Decision, the end of an eviction; and the first decision of another workload.
fn some_history() -> [Record; 4] {
    let mut first = decision("0000aaaa", Trigger::First, 100, &[("member1", 2), ("member2", 1)]);
    first.before = Some(Vec::new());
    first.detail = Some(Detail::encode(&json!({
        "id": "0000aaaa", "binding": {"namespace": "default", "name": "nginx-deployment"},
        "template": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "nginx"},
        "profile": "default", "trigger": "First", "mode": "Fresh", "outcome": "Placed", "strategy": "Static weights",
        "verdicts": [
            {"clusters": ["member1", "member2"], "outcome": "Selected", "after": [2, 1],
             "capacity": [60, null], "bounds": ["memory"], "bounded": [0, null], "scores": {"Locality": [0, 0]}},
            {"clusters": ["member3"], "outcome": "Refused", "rejections": [
                {"plugin": "TaintToleration", "code": "Unschedulable", "reason": "taint drain:NoSchedule is not tolerated"}]},
        ],
        "policies": [{"kind": "PropagationPolicy", "namespace": "default", "name": "nginx", "generation": 1}],
        "snapshot": 1, "now": "2026-01-01T00:00:00Z", "appliedPlacement": {},
    })));
    let after = [("member1", 6), ("member2", 3)];
    let mut second = decision("0000bbbb", Trigger::Scale, 200, &after);
    second.record.parent = Some(first.record.id.clone());
    second.detail = Some(Detail::encode(&json!({
        "id": "0000bbbb", "binding": {"namespace": "default", "name": "nginx-deployment"},
        "template": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "nginx"},
        "profile": "default", "trigger": "Scale", "mode": "Steady", "outcome": "Placed", "strategy": "Static weights",
        "verdicts": [
            {"clusters": ["member1", "member2"], "outcome": "Selected", "before": [2, 1], "after": [6, 3],
             "capacity": [40, null], "bounds": ["cpu"], "bounded": [0, null], "scores": {"Locality": [100, 50]}},
            {"clusters": ["member3"], "outcome": "Refused", "rejections": [
                {"plugin": "ClusterAffinity", "code": "Unschedulable", "reason": "not in clusterNames"}]},
        ],
        "policies": [{"kind": "PropagationPolicy", "namespace": "default", "name": "nginx", "generation": 4}],
        "snapshot": 1, "now": "2026-01-01T00:00:00Z", "appliedPlacement": {},
    })));
    let mut done = decision("0000dddd", Trigger::EvictionDone, 250, &after);
    done.record.parent = Some(second.record.id.clone());
    let mut other = decision("cccc", Trigger::First, 300, &[("member1", 1)]);
    other.workload.name = "other".to_owned();
    [first, second, done, other]
}

/// The output of a program.
pub(crate) struct Answer {
    shown: String,
    code: Option<i32>,
    stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}: {}", self.shown, self.stderr);
        self.stdout
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Its stderr, after it exited with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}: {}{}", self.shown, self.stdout, self.stderr);
        self.stderr
    }
}

/// A listening embedded hub with a kubeconfig.
pub(crate) struct Hub {
    server: Server,
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
    _stop: DropGuard,
}

impl Hub {
    pub(crate) async fn with_history() -> Self {
        let hub = Self::without_history().await;
        hub.record(&some_history()).await;
        Decisions::all(&hub.store).into_iter().for_each(|kind| hub.server.mount(kind));
        hub
    }

    /// Adds records to the history.
    pub(crate) async fn record(&self, records: &[Record]) {
        self.store.insert(records).await.unwrap();
    }

    pub(crate) async fn without_history() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::open(Options::memory()).unwrap();
        let authority = Authority::open(&folder.path().join("pki")).unwrap();
        let certificate = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let tls = authority.server_config(&certificate).unwrap();
        let admin = authority.client("admin", "admin", &["system:masters"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (name, content) in [
            ("ca.crt", authority.certificate()),
            ("admin.crt", &admin.certificate),
            ("admin.key", &admin.key),
        ] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "admin"}}],
            "clusters": [{"name": "hub", "cluster": {
                "server": format!("https://{address}"), "certificate-authority": "ca.crt"}}],
            "users": [{"name": "admin", "user": {
                "client-certificate": "admin.crt", "client-key": "admin.key"}}],
        });
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let token = CancellationToken::new();
        tokio::spawn(server.clone().serve(listener, tls, token.clone()));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        Self { server, store, folder, _stop: token.drop_guard() }
    }

    /// Adds events to the history.
    pub(crate) async fn note(&self, events: &[Event]) {
        self.store.note(events).await.unwrap();
    }

    pub(crate) async fn install_crds(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.server.client());
        for crd in atoll_api::crds::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.server.client()
    }

    pub(crate) async fn create_namespace(&self, name: &str) {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.server.client());
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Creates a Cluster with its status.
    pub(crate) async fn create_cluster(&self, object: Value) {
        let clusters: Api<Cluster> = Api::all(self.server.client());
        let cluster: Cluster = serde_json::from_value(object.clone()).unwrap();
        clusters.create(&PostParams::default(), &cluster).await.unwrap();
        let patch = Patch::Merge(json!({"status": object["status"]}));
        let name = object["metadata"]["name"].as_str().unwrap();
        clusters.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The annotations of a Cluster.
    pub(crate) async fn annotations(&self, name: &str) -> Value {
        let clusters: Api<Cluster> = Api::all(self.server.client());
        json!(clusters.get(name).await.unwrap().metadata.annotations)
    }

    /// Creates a binding with this decision.
    pub(crate) async fn create_binding(&self, held: &Record) {
        let binding: ResourceBinding = serde_json::from_value(json!({
            "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": held.binding.name, "namespace": held.binding.namespace},
            "spec": {
                "resource": held.workload, "replicas": held.record.desired, "clusters": held.after,
                "decision": held.record,
            },
        }))
        .unwrap();
        let api: Api<ResourceBinding> = Api::namespaced(self.server.client(), "default");
        api.create(&PostParams::default(), &binding).await.unwrap();
    }

    pub(crate) async fn atoll(&self, verb: &str, args: &[&str]) -> Answer {
        self.run(env!("CARGO_BIN_EXE_atoll"), &[&[verb], args].concat()).await
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Answer {
        self.run("kubectl", args).await
    }

    pub(crate) fn kubeconfig(&self) -> std::path::PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(crate) fn has_kubectl(&self) -> bool {
        let mut command = std::process::Command::new("kubectl");
        command.args(["version", "--client"]).stdout(Stdio::null()).stderr(Stdio::null());
        let found = command.status().is_ok_and(|status| status.success());
        if !found {
            println!("skipped: kubectl is not installed");
        }
        found
    }

    /// Runs `atoll` until the value is dropped.
    pub(crate) async fn follow(&self, args: &[&str]) -> Following {
        let mut command = self.command(env!("CARGO_BIN_EXE_atoll"), args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { _child: child, lines }
    }

    /// Runs `atoll` to its end and follows its stderr.
    pub(crate) async fn follow_errors(&self, args: &[&str]) -> Ending {
        let mut command = self.command(env!("CARGO_BIN_EXE_atoll"), args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Ending { child, lines }
    }

    async fn run(&self, program: &str, args: &[&str]) -> Answer {
        let output = self.command(program, args).output();
        let output = tokio::time::timeout(LIMIT, output).await.expect("it hangs");
        let Output { status, stdout, stderr } = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let shown = format!("{program} {}", args.join(" "));
        Answer { shown, code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("KUBECACHEDIR", self.folder.path().join("cache"))
            .env("HOME", self.folder.path())
            .env_remove("RUST_LOG")
            .env_remove("COLUMNS")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// A program that will end, followed by its stderr.
pub(crate) struct Ending {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Ending {
    /// Its next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(LIMIT, self.lines.next_line()).await;
        line.expect("it says no more").unwrap().expect("it ended")
    }

    /// Its exit code and its stdout.
    pub(crate) async fn end(self) -> (Option<i32>, String) {
        let ended = tokio::time::timeout(LIMIT, self.child.wait_with_output()).await;
        let output = ended.expect("it does not end").unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A program that runs until dropped.
pub(crate) struct Following {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// Its next line.
    pub(crate) async fn line(&mut self) -> String {
        let line =
            tokio::time::timeout(LIMIT, self.lines.next_line()).await.expect("it says no more");
        line.unwrap().expect("it ended")
    }

    pub(crate) async fn json(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }
}
