//! Karmada's own programs on an API server, as processes, where they are installed.
//!
//! `KARMADA_ASSETS` names a folder with `karmada-controller-manager`, `karmada-scheduler`, `karmada-webhook`, and
//! Karmada's CustomResourceDefinitions in `crds`. Its webhooks need a real kube-apiserver (see [`atoll_envtest`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use atoll_apiserver::pki::Authority;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::federation::free_ports;
use super::process::Process;
use super::servers::ApiServer;
use super::wait::LIMIT;

const ASSETS: &str = "KARMADA_ASSETS";
const PROGRAMS: [&str; 3] = ["karmada-webhook", "karmada-controller-manager", "karmada-scheduler"];
/// Ports of the programs: two for each, and one for webhooks.
const PORTS: u16 = 7;
/// Poll interval while the webhooks start.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of each log that a failed test shows.
const TAIL: usize = 60;
/// Karmada's webhooks that this control plane calls: group, version, plural, scope, path.
const WEBHOOKS: [(&str, &str, &str, &str, &str); 6] = [
    ("policy.karmada.io", "v1alpha1", "propagationpolicies", "Namespaced", "propagationpolicy"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "clusterpropagationpolicies",
        "Cluster",
        "clusterpropagationpolicy",
    ),
    ("policy.karmada.io", "v1alpha1", "overridepolicies", "Namespaced", "overridepolicy"),
    ("work.karmada.io", "v1alpha2", "resourcebindings", "Namespaced", "resourcebinding"),
    ("work.karmada.io", "v1alpha2", "clusterresourcebindings", "Cluster", "clusterresourcebinding"),
    ("work.karmada.io", "v1alpha1", "works", "Namespaced", "work"),
];

/// The folder of Karmada's programs, where a test can run them; otherwise prints what is missing.
pub(crate) fn assets() -> Option<PathBuf> {
    if atoll_envtest::assets().is_none() {
        println!("no kube-apiserver (KUBEBUILDER_ASSETS): the living Karmada is left out");
        return None;
    }
    let Some(folder) = std::env::var_os(ASSETS).filter(|value| !value.is_empty()) else {
        println!("no Karmada ({ASSETS}): the living Karmada is left out");
        return None;
    };
    let folder = PathBuf::from(folder);
    for file in PROGRAMS.into_iter().chain(["crds"]) {
        assert!(folder.join(file).exists(), "{ASSETS}: {} has no {file}", folder.display());
    }
    Some(folder)
}

/// A running control plane of Karmada.
pub(crate) struct Karmada {
    pub(crate) server: ApiServer,
    processes: Vec<Process>,
    logs: Vec<PathBuf>,
}

impl Karmada {
    /// Starts one with all its files in `folder`.
    pub(crate) async fn start(assets: &Path, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let server = ApiServer::hub(folder).await;
        let mut definitions = vec![cluster_definition()];
        read_definitions(&assets.join("crds"), &mut definitions);
        define(&server, definitions).await;
        for namespace in ["karmada-system", "karmada-cluster"] {
            server.apply(&super::federation::namespace(namespace).to_string()).await;
        }
        let mut karmada = Self { server, processes: Vec::new(), logs: Vec::new() };
        let first = free_ports(PORTS);
        let authority = Authority::open(&folder.join("webhook")).unwrap();
        let presented = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let certificates = folder.join("webhook-certificates");
        std::fs::create_dir_all(&certificates).unwrap();
        std::fs::write(certificates.join("tls.crt"), &presented.certificate).unwrap();
        std::fs::write(certificates.join("tls.key"), &presented.key).unwrap();
        let address = format!("127.0.0.1:{}", first + 6);
        for (program, port) in PROGRAMS.into_iter().zip([first, first + 2, first + 4]) {
            let mut command = Command::new(assets.join(program));
            command.arg("--kubeconfig").arg(&karmada.server.kubeconfig).arg("--v=2");
            command.arg(format!("--metrics-bind-address=127.0.0.1:{port}"));
            command.arg(format!("--health-probe-bind-address=127.0.0.1:{}", port + 1));
            match program {
                "karmada-webhook" => {
                    command.args(["--bind-address=127.0.0.1"]).arg("--cert-dir").arg(&certificates);
                    command.arg(format!("--secure-port={}", first + 6));
                }
                // Members are slow to answer on a busy machine.
                "karmada-controller-manager" => {
                    command.args(["--leader-elect=false", "--cluster-status-update-frequency=2s"]);
                    command.args(["--cluster-failure-threshold=5m"]);
                }
                _ => {
                    command.args(["--leader-elect=false"]);
                }
            }
            let log = folder.join(format!("{program}.log"));
            let file = File::create(&log).unwrap();
            command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
            karmada.processes.push(Process::spawn(program, &mut command));
            karmada.logs.push(log);
            if program == "karmada-webhook" {
                listens(&address).await;
                karmada.server.apply(&webhooks(&address, authority.certificate())).await;
            }
        }
        karmada
    }
}

impl Drop for Karmada {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for log in &self.logs {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
            println!("{} ends with\n{tail}\n", log.display());
        }
    }
}

/// Waits until a server accepts connections.
async fn listens(address: &str) {
    let connects = async {
        let mut looks = tokio::time::interval(LOOK);
        while TcpStream::connect(address).await.is_err() {
            looks.tick().await;
        }
    };
    let connected = tokio::time::timeout(LIMIT, connects).await;
    assert!(connected.is_ok(), "nothing listens on {address}");
}

/// Karmada serves Clusters by an aggregated API server. This definition stands for it.
fn cluster_definition() -> CustomResourceDefinition {
    let definition = json!({"metadata": {"name": "clusters.cluster.karmada.io"}, "spec": {
        "group": "cluster.karmada.io", "scope": "Cluster",
        "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster", "listKind": "ClusterList"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    serde_json::from_value(definition).unwrap()
}

/// The definitions of a folder and of the folders in it.
fn read_definitions(folder: &Path, into: &mut Vec<CustomResourceDefinition>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_definitions(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let definitions = documents
                .into_iter()
                .filter(|document| document["kind"] == "CustomResourceDefinition");
            into.extend(definitions.map(|document| serde_json::from_value(document).unwrap()));
        }
    }
}

async fn define(server: &ApiServer, definitions: Vec<CustomResourceDefinition>) {
    let api: Api<CustomResourceDefinition> = Api::all(server.client.clone());
    for definition in definitions {
        let name = definition.metadata.name.clone().unwrap();
        let made = api.create(&PostParams::default(), &definition).await;
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
        await_condition(api.clone(), &name, conditions::is_crd_established()).await.unwrap();
    }
}

/// The manifest that makes the API server ask Karmada's webhooks for defaults and ids.
fn webhooks(address: &str, authority: &str) -> String {
    let bundle = ByteString(authority.as_bytes().to_vec());
    let webhooks: Vec<Value> = WEBHOOKS
        .into_iter()
        .map(|(group, version, plural, scope, path)| {
            json!({
                "name": format!("{path}.karmada.io"),
                "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": [version],
                    "resources": [plural], "scope": scope}],
                "clientConfig": {"url": format!("https://{address}/mutate-{path}"), "caBundle": bundle},
                "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 10,
            })
        })
        .collect();
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating-config"}, "webhooks": webhooks})
    .to_string()
}
