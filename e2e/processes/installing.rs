//! `atoll install`: the manifests are accepted by API servers, the controller runs with exactly their rights, arguments,
//! ports and probes, and `atoll uninstall` leaves members alone.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::core::params::ValidationDirective;
use serde_json::{Value, json};

use super::{Processes, pass_through};
use crate::support::cli::{atoll, fail, run};
use crate::support::federation::{client, cluster_objects, free_ports, objects};
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::{until, until_gone};

/// Kinds of the manifests that the embedded server does not serve.
const NOT_EMBEDDED: [&str; 3] =
    ["APIService", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
/// Every optional part, in a namespace of its own.
const EVERYTHING: [&str; 11] = [
    "-n",
    "federation",
    "--history-secret=db",
    "--secrets",
    "--cluster-kinds",
    "--replica-sync",
    "--observe",
    "--service-monitor",
    "--priority-class=system-cluster-critical",
    "--address=hub.example.com:443",
    "--service-type=node-port",
];
/// Name of the controller's Pod.
const POD: &str = "atoll-controller-7d5f";

fn manifests(flags: &[&str]) -> Vec<Value> {
    let text = run(atoll().arg("install").args(flags));
    serde_saphyr::from_multiple(&text).unwrap()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn api_of(hub: &ApiServer, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind(object)));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
        None => Api::all_with(hub.client.clone(), &resource),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_servers_accept_every_manifest_in_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    let params = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("kubectl").force()
    };
    let mut not_served = BTreeSet::new();
    let bundled = [&["--hub=bundled"][..], &EVERYTHING].concat();
    let restore = ["--hub=bundled", "--hub-restore=atoll-hub-backup-1.db"];
    for flags in [&[][..], &EVERYTHING, &bundled, &restore] {
        let objects = manifests(flags);
        // A dry run stores no namespace for what is in it.
        for namespace in objects.iter().filter(|object| kind(object) == "Namespace") {
            hub.apply(&namespace.to_string()).await;
        }
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            let applied = api_of(&hub, object).patch(name, &params, &Patch::Apply(object)).await;
            match applied {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    not_served.insert(kind(object).to_owned());
                }
                Err(error) => panic!("{} {name}: {error}", kind(object)),
            }
        }
    }
    // The kinds of the Prometheus operator, and what the embedded server has built in.
    let mut expected = BTreeSet::from(["PrometheusRule", "ServiceMonitor"].map(str::to_owned));
    if atoll_envtest::assets().is_none() {
        expected.extend(NOT_EMBEDDED.map(str::to_owned));
    }
    assert_eq!(not_served, expected);
}

/// `--hub bundled`: etcd and kube-apiserver run with exactly the arguments of the manifest and the certificates of the setup.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundled_hub_runs_with_its_arguments_and_certificates() {
    let Some(assets) = atoll_envtest::assets() else {
        println!("skipped: KUBEBUILDER_ASSETS names no kube-apiserver and etcd");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let ports = free_ports(5);
    let printed = manifests(&["--hub=bundled"]);
    let set = printed.iter().find(|object| kind(object) == "StatefulSet").unwrap();
    let containers = set["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let here = |name: &str| -> Vec<String> {
        let container = containers.iter().find(|container| container["name"] == name).unwrap();
        let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
        let path = folder.path().to_str().unwrap();
        args.map(|arg| {
            arg.replace("/etc/atoll/hub", path)
                .replace("/var/lib/etcd", path)
                .replace("0.0.0.0:", "127.0.0.1:")
                .replace(":2379", &format!(":{ports}"))
                .replace(":2380", &format!(":{}", ports + 1))
                .replace(":2381", &format!(":{}", ports + 2))
                .replace("--secure-port=6443", &format!("--secure-port={}", ports + 3))
        })
        .collect()
    };
    let setup = |more: &[&str]| {
        let mut command = atoll();
        command.args(["hub-setup", "--pod-namespace=atoll-system", "--folder"]).arg(folder.path());
        command.args(["--server", &format!("https://127.0.0.1:{}", ports + 3)]).args(more);
        command
    };
    run(&mut setup(&["--certificates-only"]));
    let mut etcd = Command::new(assets.join("etcd"));
    etcd.args(here("etcd"))
        .arg(format!("--initial-advertise-peer-urls=http://localhost:{}", ports + 1));
    etcd.arg(format!("--initial-cluster=default=http://localhost:{}", ports + 1));
    let _etcd = Process::spawn("etcd", etcd.stderr(Stdio::null()).stdin(Stdio::null()));
    let mut server = Command::new(assets.join("kube-apiserver"));
    // Of this machine: its files for certificates that it does not get, and the address that it names.
    server.args(here("kube-apiserver")).arg("--cert-dir").arg(folder.path());
    server.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
    let _server =
        Process::spawn("kube-apiserver", server.stderr(Stdio::null()).stdin(Stdio::null()));
    let said = run(&mut setup(&[]));
    assert!(said.contains("The hub is ready"), "{said}");
    // Again, as the CronJob does every week.
    run(&mut setup(&[]));

    // The controller leads with the rights of its own kubeconfig.
    let mut controller = atoll();
    controller.args(["controller", "--listen", &format!("127.0.0.1:{}", ports + 4), "--history"]);
    controller.arg(folder.path().join("history.db"));
    controller.arg("--kubeconfig").arg(folder.path().join("controller.kubeconfig"));
    let _controller = Process::spawn("controller", controller.stdin(Stdio::null()));
    let hub = client(&folder.path().join("admin.kubeconfig"), "atoll-hub").await;
    let secrets = objects(&hub, "", "v1", "Secret", "atoll-system");
    until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
    let leases = objects(&hub, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    until(&leases, "atoll-controller", "a leader", |lease| {
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
    })
    .await;
}

/// A hub on which the output of `atoll install` was applied, and what was applied.
async fn installed(flags: &[&str]) -> (Processes, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    let objects = manifests(flags);
    let embedded = atoll_envtest::assets().is_none();
    for object in &objects {
        if !(embedded && NOT_EMBEDDED.contains(&kind(object)))
            && kind(object) != "CustomResourceDefinition"
        {
            hub.apply(&object.to_string()).await;
        }
    }
    let federation = Processes { folder, hub, address: format!("127.0.0.1:{}", free_ports(4)) };
    (federation, objects)
}

/// The port of this machine for a port of the container.
fn own_port(federation: &Processes, container: &Value, port: &Value) -> u16 {
    let ports = container["ports"].as_array().unwrap();
    let at = ports.iter().position(|p| p["name"] == *port || p["containerPort"] == *port).unwrap();
    let first: u16 = federation.address.rsplit_once(':').unwrap().1.parse().unwrap();
    first + u16::try_from(at).unwrap()
}

/// Runs the controller's container as the kubelet would: arguments, environment, volume, rights of its service account.
async fn started(federation: &Processes, manifests: &[Value]) -> (Process, Value) {
    let deployment = manifests.iter().find(|object| kind(object) == "Deployment").unwrap();
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
    let template = &deployment["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = POD.into();
    let pods = api_of(&federation.hub, &{
        let mut pod = pod.clone();
        pod["metadata"]["namespace"] = namespace.into();
        pod
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    let container = &template["spec"]["containers"][0];
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let mut command = atoll();
    for arg in container["args"].as_array().unwrap() {
        let arg = arg.as_str().unwrap();
        command.arg(match arg.rsplit_once("=0.0.0.0:") {
            Some((flag, port)) => {
                let port = json!(port.parse::<u16>().unwrap());
                format!("{flag}=127.0.0.1:{}", own_port(federation, container, &port))
            }
            None => arg.replace(mounted, federation.folder().to_str().unwrap()),
        });
    }
    for variable in container["env"].as_array().unwrap() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap() {
            "metadata.name" => POD,
            "metadata.namespace" => namespace,
            "status.podIP" => "127.0.0.1",
            other => panic!("{other}"),
        };
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let account = template["spec"]["serviceAccountName"].as_str().unwrap();
    command.arg("--kubeconfig").arg(federation.hub.kubeconfig_of(namespace, account));
    let process = Process::spawn("atoll controller", command.stdin(Stdio::null()));
    // The Service for agents selects the Pod that leads.
    let service = manifests
        .iter()
        .find(|o| kind(o) == "Service" && o["metadata"]["name"] == "atoll-controller");
    let selector = service.unwrap()["spec"]["selector"].as_object().unwrap().clone();
    until(&pods, POD, "the label of the leader", |pod| {
        selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
    })
    .await;
    let secrets = objects(&federation.hub.client, "", "v1", "Secret", "atoll-system");
    until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
    (process, container.clone())
}

/// The first line of the answer to a GET.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_runs_as_its_deployment_says_and_uninstall_leaves_members_alone() {
    let (federation, objects_) = installed(&["--address", "127.0.0.1:7443"]).await;
    let hub = &federation.hub;
    let (controller, container) = started(&federation, &objects_).await;
    let liveness = &container["livenessProbe"]["httpGet"];
    let health = own_port(&federation, &container, &liveness["port"]);
    let alive = get(health, liveness["path"].as_str().unwrap());
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    let ready = &container["readinessProbe"]["tcpSocket"]["port"];
    TcpStream::connect(("127.0.0.1", own_port(&federation, &container, ready))).unwrap();
    let metrics = get(own_port(&federation, &container, &json!("metrics")), "/metrics");
    assert!(metrics.contains("atoll_leader 1"), "{metrics}");
    TcpStream::connect(("127.0.0.1", own_port(&federation, &container, &json!("api")))).unwrap();

    let (member, agent) = federation.joined("member1").await;
    pass_through(hub, "first", &[&member]).await;
    checked(&federation).await;
    // `join` takes the address from the installation.
    let printed = run(&mut federation.atoll(&["join", "member2", "-o", "json"]));
    assert!(printed.contains("127.0.0.1:7443"), "{printed}");

    let planned = run(&mut federation.atoll(&["uninstall", "--dry-run"]));
    assert!(planned.contains("Deployment atoll-system/atoll-controller"), "{planned}");
    assert!(planned.contains("on members: all workloads"), "{planned}");
    let unsure = fail(federation.atoll(&["uninstall"]).stdin(Stdio::null()));
    assert!(unsure.contains("--yes"), "{unsure}");
    // Nothing stops the Pod here; the process stands for what the kubelet does.
    let pods = objects(&hub.client, "", "v1", "Pod", "atoll-system");
    pods.delete(POD, &Default::default()).await.unwrap();
    controller.signal("-TERM");
    let copies = objects(&member.client, "", "v1", "ConfigMap", "default");
    let before = copies.get("first").await.unwrap();
    run(&mut federation.atoll(&["uninstall", "--yes"]));
    let clusters = cluster_objects(&hub.client);
    clusters.get("member1").await.unwrap();
    run(&mut federation.atoll(&["uninstall", "--purge", "--yes"]));
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {}});
    until_gone(&api_of(hub, &definition), "clusters.cluster.atoll.dev").await;
    // A repetition deletes what is left, although the kinds are gone.
    let left = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "atoll-controller-replica-sync"}, "rules": []});
    hub.apply(&left.to_string()).await;
    run(&mut federation.atoll(&["uninstall", "--purge", "--yes"]));
    until_gone(&api_of(hub, &left), "atoll-controller-replica-sync").await;
    drop(agent);
    let after = copies.get("first").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
}

/// What `atoll check` and `atoll status` say about a federation that works, and about one whose controller has no ready Pod.
async fn checked(federation: &Processes) {
    if atoll_envtest::assets().is_some() {
        // No Pod is behind the Service here, so kube-apiserver could not ask the controller.
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {}});
        let services = api_of(&federation.hub, &service);
        services.delete("v1alpha1.history.atoll.dev", &DeleteParams::default()).await.unwrap();
        until_gone(&services, "v1alpha1.history.atoll.dev").await;
    }
    let sick = fail(&mut federation.atoll(&["check"]));
    assert!(sick.contains("1 check failed"), "{sick}");
    let deployments = objects(&federation.hub.client, "apps", "v1", "Deployment", "atoll-system");
    let ready = json!({"status": {"replicas": 1, "readyReplicas": 1}});
    let params = PatchParams::default();
    deployments.patch_status("atoll-controller", &params, &Patch::Merge(&ready)).await.unwrap();
    let checks: Value =
        serde_json::from_str(&run(&mut federation.atoll(&["check", "-o", "json"]))).unwrap();
    assert_eq!(checks["healthy"], true, "{checks:#}");
    let of = |name: &str| {
        let found = checks["checks"].as_array().unwrap().iter().find(|fact| fact["check"] == name);
        let found = found.unwrap_or_else(|| panic!("no {name}: {checks:#}"));
        format!("{} {}", found["state"].as_str().unwrap(), found["text"].as_str().unwrap())
    };
    assert!(of("kinds").starts_with("Ok "), "{}", of("kinds"));
    assert!(of("versions").starts_with("Ok client and manifests"), "{}", of("versions"));
    assert!(of("leader").contains(POD), "{}", of("leader"));
    assert!(
        of("certificates").starts_with("Ok the certificate authority"),
        "{}",
        of("certificates")
    );
    assert_eq!(of("sessions"), "Ok 1 of 1 members connected");
    assert_eq!(of("workloads"), "Ok 1 of 1 placed");
    for fact in ["agents", "your rights", "backlog", "members' rights", "removals", "controllers"] {
        assert!(of(fact).starts_with("Ok "), "{}", of(fact));
    }
    // The controller's account may not install.
    let account = federation.hub.kubeconfig_of("atoll-system", "atoll-controller");
    let refused = atoll().args(["check", "--pre", "--kubeconfig"]).arg(account).output().unwrap();
    let text = String::from_utf8(refused.stdout).unwrap();
    assert!(!refused.status.success() && text.contains("you may not"), "{text}");

    let versions: Value =
        serde_json::from_str(&run(&mut federation.atoll(&["version", "-o", "json"]))).unwrap();
    let own = &versions["client"];
    assert!(own.is_string() && versions["controller"]["version"] == *own, "{versions}");
    let agents = json!([{"version": own, "members": ["member1"]}]);
    assert_eq!(versions["agents"], agents);
    // As the script of `atoll completion bash` asks.
    let words = ["--", "atoll", "drain", "m"];
    let mut completing = atoll();
    completing.env("ATOLL_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").args(words);
    let candidates = run(completing.env("KUBECONFIG", &federation.hub.kubeconfig));
    assert_eq!(candidates.trim(), "member1");
    let script = run(atoll().args(["completion", "bash"]));
    assert!(script.contains("ATOLL_COMPLETE"), "{script}");
    let shown = run(&mut federation.atoll(&["status"]));
    assert!(shown.starts_with(&format!("Leader {POD}, term ")), "{shown}");
    assert!(shown.contains("1 member, 1 ready") && shown.contains("1 workload"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("member1  Ready")), "{shown}");
    let status: Value =
        serde_json::from_str(&run(&mut federation.atoll(&["status", "-o", "json"]))).unwrap();
    assert_eq!(status["members"][0]["name"], "member1");
    assert_eq!(status["leader"]["holder"], POD);
    assert_eq!(status["leader"]["term"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_leads_in_a_namespace_of_its_own() {
    let (federation, objects_) = installed(&["-n", "federation"]).await;
    let (_controller, _) = started(&federation, &objects_).await;
    let refused = fail(&mut federation.atoll(&["uninstall", "--dry-run", "-n", "other"]));
    assert!(refused.contains("federation"), "{refused}");
}
