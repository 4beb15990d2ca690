//! `atoll up` as a child process, and clients for its hub and members.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) use atoll_envtest::free_ports;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::cli;
use super::process::Process;

/// Startup timeout, for debug builds on slow machines.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A running `atoll up`.
pub(crate) struct Federation {
    process: Process,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    /// What it printed when it was ready.
    pub(crate) banner: String,
}

impl Federation {
    /// Starts one on this folder and waits until it prints that it is ready.
    pub(crate) fn start(folder: &Path, port: u16) -> Self {
        Self::start_with(folder, port, &[])
    }

    /// The same with further flags.
    pub(crate) fn start_with(folder: &Path, port: u16, flags: &[&str]) -> Self {
        let mut command = cli::atoll();
        command.args(["up", "--port", &port.to_string(), "--data-dir"]).arg(folder).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process::spawn("atoll up", &mut command);
        let stdout = process.child().stdout.take().unwrap();
        let (ready, wait_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("up: {line}");
                text.push_str(&line);
                text.push('\n');
                if line.contains("Ctrl-C") {
                    let _ = ready.send(text.clone());
                }
            }
        });
        let banner = wait_ready.recv_timeout(START_LIMIT).unwrap_or_else(|error| {
            let status = process.child().try_wait();
            panic!("atoll up was not ready within {START_LIMIT:?} ({error}); {status:?}");
        });
        Self { process, folder: folder.to_owned(), port, banner }
    }

    /// Sends a signal and waits for the exit; returns the duration and the exit code.
    pub(crate) fn signal(self, signal: &str) -> (Duration, Option<i32>) {
        self.process.signal(signal)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A client for a context of the kubeconfig: `hub`, `member1`, ...
    pub(crate) async fn client(&self, context: &str) -> Client {
        client(&self.kubeconfig(), context).await
    }

    /// `kubectl` on a context.
    pub(crate) fn kubectl(&self, context: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(["--context", context]);
        // A cache in the home folder would mix the discovery of several servers on one port.
        command.arg("--cache-dir").arg(self.folder.join("kubectl-cache"));
        command
    }

    /// A verb of `atoll` on this federation's hub.
    pub(crate) fn atoll(&self, args: &[&str]) -> Command {
        let mut command = cli::atoll();
        command.args(args).arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// `atoll sim` on this federation.
    pub(crate) fn sim(&self, args: &[&str]) -> Command {
        let mut command = cli::atoll();
        command.arg("sim").args(args).arg("--data-dir").arg(&self.folder);
        command
    }
}

/// A client for a context of a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path, context: &str) -> Client {
    let options = KubeConfigOptions { context: Some(context.into()), ..Default::default() };
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("read the kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("use it");
    Client::try_from(config).expect("make a client")
}

/// Objects of a kind in a namespace.
pub(crate) fn objects(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    ns: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), ns, &resource)
}

/// Objects of a kind without namespaces.
pub(crate) fn cluster_scoped(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(client.clone(), &resource)
}

/// Makes an object of the kind that the client is for.
pub(crate) async fn create(api: &Api<DynamicObject>, object: Value) {
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A Namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The Clusters.
pub(crate) fn cluster_objects(client: &Client) -> Api<DynamicObject> {
    cluster_scoped(client, "cluster.atoll.dev", "v1alpha1", "Cluster")
}

/// Deployments of a namespace.
pub(crate) fn deployments(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, "apps", "v1", "Deployment", namespace)
}

/// ResourceBindings of a namespace.
pub(crate) fn bindings(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, "work.atoll.dev", "v1alpha1", "ResourceBinding", namespace)
}
