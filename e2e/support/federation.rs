//! `atoll up` as a child process, and clients for its hub and members.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::cli;

/// Longest time from the start of the process to its ready line, debug build and slow machine included.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A stop must be over after this; the promise is 5 s, the rest is for the machine.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A running `atoll up`. Killed when dropped.
pub(crate) struct Federation {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
}

impl Federation {
    /// Starts one on this folder and waits until it says that it is ready.
    pub(crate) fn start(folder: &Path, port: u16) -> Self {
        let mut child = cli::atoll()
            .args(["up", "--port", &port.to_string(), "--data-dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("start atoll up");
        let stdout = child.stdout.take().unwrap();
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
        if let Err(error) = wait_ready.recv_timeout(START_LIMIT) {
            let status = child.try_wait();
            let _ = child.kill();
            panic!("atoll up was not ready within {START_LIMIT:?} ({error}); {status:?}");
        }
        Self { child, folder: folder.to_owned(), port }
    }

    /// Sends a signal and waits for the end; how long that took, and the exit code.
    pub(crate) fn signal(mut self, signal: &str) -> (Duration, Option<i32>) {
        let started = Instant::now();
        let pid = self.child.id().to_string();
        cli::run(Command::new("kill").args([signal, &pid]));
        let (done, wait_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let child = &mut self.child;
            scope.spawn(move || done.send(child.wait().unwrap().code()));
            match wait_done.recv_timeout(STOP_LIMIT) {
                Ok(code) => (started.elapsed(), code),
                Err(_) => {
                    cli::run(Command::new("kill").args(["-9", &pid]));
                    panic!("atoll up did not stop within {STOP_LIMIT:?} of kill {signal}")
                }
            }
        })
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

impl Drop for Federation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// The Clusters.
pub(crate) fn cluster_objects(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("cluster.atoll.dev", "v1alpha1", "Cluster");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
}

/// Deployments of a namespace.
pub(crate) fn deployments(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, "apps", "v1", "Deployment", namespace)
}

/// ResourceBindings of a namespace.
pub(crate) fn bindings(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, "work.atoll.dev", "v1alpha1", "ResourceBinding", namespace)
}

/// The first of a row of ports that are free now.
pub(crate) fn free_ports(count: u16) -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if first.checked_add(count).is_some() && (first..first + count).all(free) {
            return first;
        }
    }
    panic!("no {count} free ports in a row");
}
