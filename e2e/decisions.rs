//! History read with kubectl: on the hub of `atoll up`, and as an aggregated API behind kube-apiserver, if
//! `KUBEBUILDER_ASSETS` names a folder with one.

mod members;
mod replaying;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::support::aggregation;
use crate::support::cli::{atoll, fail, has_kubectl, on_member, printed_words, root, run};
use crate::support::federation::{
    Federation, bindings, cluster_objects, cluster_scoped, deployments, free_ports, objects,
};
use crate::support::lines::Lines;
use crate::support::plane::holder;
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::{LIMIT, until};

/// Ports that `atoll up` takes with three members.
const PORTS: u16 = 5;
/// The namespace of the workload.
const SHOP: &str = "shop";
/// The APIService of history.
const API_SERVICE: &str = "v1alpha1.history.atoll.dev";

/// `kubectl` on one context, as its admin or as another user.
struct Kubectl {
    kubeconfig: PathBuf,
    context: &'static str,
    cache: PathBuf,
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--context", self.context]);
        command.arg("--cache-dir").arg(&self.cache).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    fn fail(&self, args: &[&str]) -> String {
        fail(&mut self.command(args))
    }

    /// Names in the output of a list.
    fn names(&self, args: &[&str]) -> Vec<String> {
        let args = [args, &["-o", "name"]].concat();
        self.run(&args).lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["-o", "json"]].concat())).unwrap()
    }
}

/// Creates a workload that follows its policy over all members, and scales it a few times.
async fn decide(client: &Client) {
    create(client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}}))
        .await;
    create(client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank"}}))
        .await;
    create(
        client,
        json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "web", "namespace": SHOP},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "placement": {
                    "clusterAffinity": {"clusterNames": ["member1"]},
                    "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
                },
            },
        }),
    )
    .await;
    create(
        client,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": SHOP},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "nginx"}]},
                },
            },
        }),
    )
    .await;
    settled(client, 1).await;
    for replicas in 2..=5 {
        scale(client, replicas).await;
        settled(client, replicas).await;
    }
}

async fn create(client: &Client, object: Value) {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn scale(client: &Client, replicas: i64) {
    let patch = json!({"spec": {"replicas": replicas}});
    let api = deployments(client, SHOP);
    api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Waits until this many replicas are placed and healthy, and history shows it.
async fn settled(client: &Client, replicas: i64) {
    let ready = format!("{replicas} ready");
    let binding = until(&bindings(client, SHOP), "web-deployment", &ready, |b| {
        b["spec"]["clusters"][0]["replicas"] == replicas
            && b["status"]["summary"]["ready"] == replicas
    })
    .await;
    let id = binding["spec"]["decision"]["id"].as_str().unwrap();
    let decisions = objects(client, "history.atoll.dev", "v1alpha1", "Decision", SHOP);
    let recorded = async {
        loop {
            if let Ok(Some(decision)) = decisions.get_opt(id).await
                && decision.data["status"]["healthy"].is_string()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let what = format!("{id} is not in history as healthy");
    tokio::time::timeout(LIMIT, recorded).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Checks what kubectl shows of the decisions about `web`: First, then four times Scale, nothing else.
fn reads(kubectl: &Kubectl) {
    // What there is.
    let group = ["--api-group", "history.atoll.dev"];
    let resources = kubectl.run(&[&["api-resources"][..], &group].concat());
    for (plural, short, namespaced, kind) in [
        ("decisions", "dec", "true", "Decision"),
        ("clusterdecisions", "cdec", "false", "ClusterDecision"),
        ("memberevents", "mev", "false", "MemberEvent"),
        ("decisioninputs", "decin", "false", "DecisionInput"),
    ] {
        let line = resources.lines().find(|line| line.starts_with(plural)).expect(&resources);
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(columns, [plural, short, "history.atoll.dev/v1alpha1", namespaced, kind]);
    }
    assert!(kubectl.run(&["api-versions"]).contains("history.atoll.dev/v1alpha1"));

    // The table, newest first.
    let table = kubectl.run(&["get", "decisions", "-n", SHOP]);
    let lines: Vec<_> = table.lines().collect();
    let header: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(
        header.join(" "),
        "NAME AGE WORKLOAD TRIGGER OUTCOME BEFORE -> AFTER REASON",
        "{table}"
    );
    assert_eq!(lines.len(), 6, "{table}");
    assert!(
        lines[1].contains("deployment/web") && lines[1].contains("member1 4 -> member1 5"),
        "{table}"
    );
    assert!(lines[5].contains("First") && lines[5].contains("none -> member1 1"), "{table}");
    assert!(
        lines[1..5].iter().all(|line| line.contains("Scale") && line.contains("Placed")),
        "{table}"
    );
    let wide = kubectl.run(&["get", "dec", "-n", SHOP, "-o", "wide"]);
    let columns = ["DESIRED", "PENDING", "MODE", "PARENT", "APPLIED", "HEALTHY"];
    assert!(columns.iter().all(|column| wide.contains(column)), "{wide}");
    assert!(kubectl.run(&["get", "decisions", "-A"]).contains(SHOP));

    // In pages, without duplicates or gaps.
    let names = kubectl.names(&["get", "decisions", "-n", SHOP]);
    let parts = kubectl
        .command(&["get", "decisions", "-n", SHOP, "--chunk-size=2", "-o", "name", "-v=6"])
        .output()
        .unwrap();
    let asked = String::from_utf8_lossy(&parts.stderr).into_owned();
    let listed = String::from_utf8_lossy(&parts.stdout).into_owned();
    let listed: Vec<_> = listed.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(listed, names);
    assert_eq!(asked.matches("limit=2").count(), 3, "{asked}");
    assert_eq!(asked.matches("continue=").count(), 2, "{asked}");
    let refused = kubectl.fail(&[
        "get",
        "--raw",
        "/apis/history.atoll.dev/v1alpha1/decisions?limit=1&continue=x",
    ]);
    assert!(refused.contains("continue"), "{refused}");

    // Selectors.
    let select = |flag: &str, selector: &str| {
        kubectl.names(&["get", "decisions", "-n", SHOP, flag, selector]).len()
    };
    assert_eq!(select("-l", "history.atoll.dev/trigger=Scale"), 4);
    assert_eq!(select("-l", "history.atoll.dev/workload=web,history.atoll.dev/trigger=First"), 1);
    assert_eq!(select("-l", "history.atoll.dev/cluster=member1"), 5);
    assert_eq!(select("--field-selector", "spec.cluster=member2"), 0);
    assert_eq!(select("--field-selector", "spec.trigger=Scale,spec.workload.name=web"), 4);
    assert_eq!(select("--field-selector", &format!("metadata.name={}", names[0])), 1);
    assert_eq!(select("--field-selector", "since=2001-01-01T00:00:00Z"), 5);
    assert_eq!(select("--field-selector", "until=2001-01-01T00:00:00Z"), 0);
    // The error for an unknown selector names it; an SQL injection is just a name without matches.
    assert_eq!(select("--field-selector", "spec.workload.name=web' OR '1'\\='1"), 0);
    assert_eq!(select("--field-selector", "spec.cluster=member1'; DROP TABLE decisions; --"), 0);
    for (flag, selector, part) in [
        ("--field-selector", "spec.replicas=3", "spec.replicas"),
        ("--field-selector", "spec.trigger!=Scale", "one value only"),
        ("--field-selector", "spec.trigger=Sometimes", "spec.trigger"),
        ("--field-selector", "since=yesterday", "RFC 3339"),
        ("--field-selector", "since=2026-01-01T00:00:00Z' OR 1=1", "since"),
        ("--field-selector", "metadata.namespace=bank", "contradicts the namespace"),
        ("-l", "app=web", "labels are history.atoll.dev/trigger"),
        ("-l", "history.atoll.dev/trigger in (First,Scale)", "one value only"),
        ("-l", "!history.atoll.dev/trigger", "one value only"),
    ] {
        let refused = kubectl.fail(&["get", "decisions", "-n", SHOP, flag, selector]);
        assert!(refused.contains("BadRequest") && refused.contains(part), "{selector}: {refused}");
    }

    // Made again from what they read: all the same, and one of them step by step.
    let replay = |args: &[&str]| {
        let kubeconfig = kubectl.kubeconfig.to_str().unwrap();
        let hub = ["replay", "--kubeconfig", kubeconfig, "--context", kubectl.context];
        run(atoll().args(hub).args(args))
    };
    let replayed: Value = serde_json::from_str(&replay(&["--since", "1h", "-o", "json"])).unwrap();
    let summary = &replayed["summary"];
    assert!(summary["same"].as_u64().unwrap() >= 5, "{replayed:#}");
    assert_eq!((&summary["different"], &summary["failed"]), (&json!(0), &json!(0)), "{replayed:#}");
    let steps = replay(&[&names[0], "--steps"]);
    for part in ["1. Triggers", "TaintToleration", "3. Score", "member1 4 -> member1 5", "same"] {
        assert!(steps.contains(part), "{part}: {steps}");
    }

    // One of them, with everything.
    let one = kubectl.json(&["get", "decision", "-n", SHOP, &names[0]]);
    assert_eq!(one["spec"]["trigger"], "Scale");
    assert_eq!(one["spec"]["parent"], names[1].as_str());
    assert_eq!(one["spec"]["detail"]["outcome"], "Placed", "{one:#}");
    let provenance = &one["spec"]["provenance"];
    assert_eq!(provenance["profile"], "default", "{one:#}");
    assert!(provenance["version"].is_string(), "{one:#}");
    let kinds: Vec<_> =
        provenance["sources"].as_array().unwrap().iter().map(|s| &s["kind"]).collect();
    assert_eq!(kinds, ["Deployment", "PropagationPolicy"], "{one:#}");
    assert_eq!(provenance["sources"][1]["generation"], 1, "{one:#}");
    assert!(provenance["sources"][0]["changed"]["manager"].is_string(), "{one:#}");
    let member = &one["status"]["members"][0];
    for step in ["dispatched", "applied", "healthy"] {
        assert!(member[step].is_string(), "{step}: {one:#}");
    }
    let described = kubectl.run(&["describe", "decision", "-n", SHOP, &names[0]]);
    for part in ["Trigger:", "Scale", "Provenance:", "Dispatched:", "member1"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let absent = kubectl.fail(&["get", "decision", "-n", SHOP, "nothing"]);
    assert!(absent.contains("NotFound"), "{absent}");
    let elsewhere = kubectl.fail(&["get", "decision", "-n", "bank", &names[0]]);
    assert!(elsewhere.contains("NotFound"), "{elsewhere}");

    // What it means.
    for (path, part) in [
        ("decisions", "scheduling decision"),
        ("decision.spec.outcome", "How it ended"),
        ("decisions.status.members.healthy", "every replica healthy"),
        ("clusterdecisions.spec", "The decision"),
        ("memberevents.spec.reason", "Why, in one word"),
    ] {
        let words = kubectl.run(&["explain", path]);
        assert!(words.contains("history.atoll.dev") && words.contains(part), "{path}: {words}");
    }
    // What happened to members.
    let events = kubectl.run(&["get", "memberevents", "--field-selector", "spec.cluster=member1"]);
    assert!(events.contains("Ready") && events.contains("Joined"), "{events}");
    let event = kubectl.names(&["get", "mev"]);
    assert!(kubectl.run(&["describe", "mev", &event[0]]).contains("MemberEvent"));

    // It is read only.
    for args in [
        &["delete", "decision", "-n", SHOP, &names[0]][..],
        &["label", "decision", "-n", SHOP, &names[0], "a=b"],
        &["annotate", "mev", &event[0], "a=b"],
    ] {
        let refused = kubectl.fail(args);
        assert!(
            refused.contains("MethodNotAllowed") || refused.contains("not allowed"),
            "{refused}"
        );
    }
    assert_eq!(kubectl.names(&["get", "decisions", "-n", SHOP]).len(), 5);
}

/// The CLI, by the same API.
fn verbs(kubeconfig: &Path) {
    let atoll =
        |args: &[&str]| run(atoll().args(args).args(["-n", SHOP, "--kubeconfig"]).arg(kubeconfig));
    let listed = atoll(&["history", "deploy/web"]);
    assert!(listed.contains("First") && listed.matches("Scale").count() >= 4, "{listed}");
    let explained = atoll(&["explain", "deploy/web"]);
    for part in ["member1", "Made from", "What followed", "healthy"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_decisions_on_the_embedded_hub() {
    if !has_kubectl() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    let client = federation.client("hub").await;
    let kubectl = Kubectl {
        kubeconfig: federation.kubeconfig(),
        context: "hub",
        cache: data.path().join("cache"),
    };
    decide(&client).await;
    reads(&kubectl);
    replaying::with_changes(&kubectl);
    verbs(&kubectl.kubeconfig);
    let lines = Lines::of("kubectl -w", kubectl.command(&["get", "decisions", "-n", SHOP, "-w"]));
    lines.until(&["First", "none -> member1 1"]);
    scale(&client, 6).await;
    lines.until(&["Scale", "member1 5 -> member1 6"]);
}

/// Controllers on their own hub, each serving history.
struct Aggregated {
    hub: ApiServer,
    folder: PathBuf,
    port: u16,
}

impl Aggregated {
    /// Address of what controller `number` serves: agents, or the API.
    fn port(&self, number: u16, api: bool) -> u16 {
        self.port + 2 * number + u16::from(api)
    }

    fn controller(&self, number: u16) -> Process {
        let mut command = atoll();
        command.args(["controller", "--identity", &format!("c{number}")]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port(number, false))]);
        command.args(["--api-address", &format!("127.0.0.1:{}", self.port(number, true))]);
        command.arg("--history").arg(self.folder.join("history.db"));
        // With the rights of its service account from the manifests.
        command.arg("--kubeconfig").arg(self.hub.kubeconfig_of("atoll-system", "atoll-controller"));
        Process::spawn(&format!("c{number}"), command.stdin(Stdio::null()))
    }

    /// Points the hub's Service at controller `number`, and waits until the hub reaches it.
    async fn lead_to(&self, number: u16) {
        let services = self.api_services();
        let patch = json!({"spec": {"service": {"port": self.port(number, true)}}});
        let params = PatchParams::default();
        services.patch(API_SERVICE, &params, &Patch::Merge(&patch)).await.unwrap();
        self.available("True", |_| true).await;
        // The condition may still describe the previous server; an answer does not.
        let path = "/apis/history.atoll.dev/v1alpha1/decisions";
        let answers = async {
            loop {
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                match self.hub.client.request_text(request).await {
                    Ok(_) => return,
                    Err(error) => println!("not yet: {error}"),
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, answers).await.expect("history is served in time");
    }

    fn api_services(&self) -> Api<DynamicObject> {
        cluster_scoped(&self.hub.client, "apiregistration.k8s.io", "v1", "APIService")
    }

    async fn available(&self, status: &str, more: impl Fn(&Value) -> bool + Send + Sync) -> Value {
        let what = format!("Available={status}");
        until(&self.api_services(), API_SERVICE, &what, |service| {
            let conditions = service["status"]["conditions"].as_array();
            let is = |c: &Value| c["type"] == "Available" && c["status"] == status && more(c);
            conditions.is_some_and(|conditions| conditions.iter().any(is))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_decisions_through_kube_apiserver() {
    if atoll_envtest::assets().is_none() || !has_kubectl() {
        println!("no kube-apiserver (KUBEBUILDER_ASSETS) or no kubectl: aggregation is left out");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    hub.apply(&std::fs::read_to_string(root().join("deploy/controller/rbac.yaml")).unwrap()).await;
    let member = ApiServer::member("member1", folder.path()).await;
    let plane = Aggregated { hub, folder: folder.path().to_owned(), port: free_ports(4) };
    let hub = &plane.hub;
    let mut first = Some(plane.controller(0));
    let leases = objects(&hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    until(&leases, "atoll-controller", "a leader", |lease| holder(lease) == Some(0)).await;
    let secrets = objects(&hub.client, "", "v1", "Secret", "atoll-system");
    until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
    let agent = join(&plane, &member);
    until(&cluster_objects(&hub.client), "member1", "its kinds and capacity", |cluster| {
        cluster["status"]["resourceSummary"].is_object()
            && cluster["status"]["apiEnablements"].is_array()
    })
    .await;

    // Registered after the start: the controller fills in the CA bundle.
    hub.apply(&aggregation::manifest()).await;
    let services = plane.api_services();
    until(&services, API_SERVICE, "a caBundle", |s| s["spec"]["caBundle"].is_string()).await;
    plane.lead_to(0).await;
    decide(&hub.client).await;
    let kubectl = Kubectl {
        kubeconfig: hub.kubeconfig.clone(),
        context: "hub",
        cache: folder.path().join("cache"),
    };
    // The aggregator reads OpenAPI documents again at its own pace.
    until_explained(&hub.client).await;
    reads(&kubectl);
    verbs(&kubectl.kubeconfig);
    rights(&kubectl, &hub.client).await;

    // Another replica, a follower: it serves all of it, including the leader's new decisions.
    let second = plane.controller(1);
    plane.lead_to(1).await;
    reads(&kubectl);
    let watching = ["get", "decisions", "-n", SHOP, "-w"];
    let lines = Lines::of("kubectl -w", kubectl.command(&watching));
    lines.until(&["First", "none -> member1 1"]);
    let kubeconfig = kubectl.kubeconfig.clone();
    let mut follow = atoll();
    follow.args(["history", "deploy/web", "-w", "-n", SHOP, "--kubeconfig"]).arg(&kubeconfig);
    let followed = Lines::of("atoll history -w", follow);
    followed.until(&["First", "none -> member1 1"]);
    scale(&hub.client, 6).await;
    lines.until(&["Scale", "member1 5 -> member1 6"]);
    followed.until(&["Scale", "member1 5 -> member1 6"]);

    // The serving replica dies: the hub and kubectl report that, and the hub's other APIs are not affected.
    second.signal("-KILL");
    plane.available("False", |_| true).await;
    let away = kubectl.fail(&["get", "decisions", "-n", SHOP]);
    assert!(away.contains("currently unable") || away.contains("unavailable"), "{away}");
    assert!(kubectl.run(&["get", "deployments", "-n", SHOP]).contains("web"));
    // A decision meanwhile: a follower receives it once history is back, without duplicates.
    scale(&hub.client, 7).await;
    until(&bindings(&hub.client, SHOP), "web-deployment", "7 ready", |binding| {
        binding["status"]["summary"]["ready"] == 7
    })
    .await;
    plane.lead_to(0).await;
    followed.until(&["Scale", "member1 6 -> member1 7"]);
    scale(&hub.client, 8).await;
    let line = followed.next();
    assert!(line.contains("member1 7 -> member1 8"), "{line}");

    // The APIService is applied again with another authority: the controller corrects it.
    let wrong = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": false}});
    services.patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
    first.take().unwrap().signal("-TERM");
    let first = plane.controller(0);
    until(&services, API_SERVICE, "a caBundle again", |s| s["spec"]["caBundle"].is_string()).await;
    plane.lead_to(0).await;
    assert_eq!(kubectl.names(&["get", "decisions", "-n", SHOP]).len(), 8);
    drop((first, agent));
}

/// Waits until the hub's own OpenAPI documents, both versions, contain the kinds.
async fn until_explained(client: &Client) {
    let path = "/apis/history.atoll.dev/v1alpha1/namespaces/{namespace}/decisions";
    let known = async {
        loop {
            let document = async |path: &str| -> Value {
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                client.request(request).await.unwrap_or_default()
            };
            let third = document("/openapi/v3").await;
            if third["paths"].get("apis/history.atoll.dev/v1alpha1").is_some()
                && document("/openapi/v2").await["paths"][path]["get"].is_object()
            {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, known).await.expect("the hub takes over the OpenAPI documents");
}

/// Registers the member and runs its agent.
fn join(plane: &Aggregated, member: &ApiServer) -> Process {
    join_with(plane, member, &[])
}

/// The same, with further flags of the agent.
fn join_with(plane: &Aggregated, member: &ApiServer, flags: &[&str]) -> Process {
    let address = format!("127.0.0.1:{}", plane.port(0, false));
    let mut command = atoll();
    command.args(["join", "member1", "--address", &address, "-o", "json", "--kubeconfig"]);
    let words = printed_words(command.arg(&plane.hub.kubeconfig));
    let mut command = on_member(&words, &member.kubeconfig);
    Process::spawn("atoll agent", command.args(flags).stdin(Stdio::null()))
}

/// The hub's RBAC: alice may view shop, bob nothing, both by the default ClusterRoles.
async fn rights(kubectl: &Kubectl, client: &Client) {
    create(
        client,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "alice", "namespace": SHOP},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        }),
    )
    .await;
    let may = |who: &str, what: &[&str]| {
        let args = [&["auth", "can-i"][..], what, &["--as", who]].concat();
        let output = kubectl.command(&args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim() == "yes"
    };
    // A controller of the hub copies the aggregated rules.
    let taken = async {
        while !may("alice", &["list", "decisions.history.atoll.dev", "-n", SHOP]) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, taken).await.expect("view takes over decisions");
    for verb in ["get", "watch"] {
        assert!(may("alice", &[verb, "decisions.history.atoll.dev", "-n", SHOP]), "{verb}");
    }
    assert!(!may("alice", &["list", "decisions.history.atoll.dev", "-n", "bank"]));
    assert!(!may("alice", &["list", "decisions.history.atoll.dev", "-A"]));
    assert!(!may("alice", &["list", "memberevents.history.atoll.dev"]));
    assert!(!may("alice", &["delete", "decisions.history.atoll.dev", "-n", SHOP]));
    assert!(!may("bob", &["list", "decisions.history.atoll.dev", "-n", SHOP]));
    // And what may be is what is done.
    let names = kubectl.names(&["get", "decisions", "-n", SHOP, "--as", "alice"]);
    assert_eq!(names.len(), 5);
    let one =
        kubectl.run(&["get", "decision", "-n", SHOP, &names[0], "--as", "alice", "-o", "yaml"]);
    assert!(one.contains("detail:"), "{one}");
    for (who, args) in [
        ("alice", &["get", "decisions", "-n", "bank"][..]),
        ("alice", &["get", "decisions", "-A"]),
        ("alice", &["get", "memberevents"]),
        ("bob", &["get", "decisions", "-n", SHOP]),
        ("bob", &["get", "decision", "-n", SHOP, &names[0]]),
    ] {
        let refused = kubectl.fail(&[args, &["--as", who]].concat());
        assert!(
            refused.contains("Forbidden") && refused.contains(&format!("User \"{who}\"")),
            "{refused}"
        );
    }
}
