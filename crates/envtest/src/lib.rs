//! kube-apiserver and etcd as processes, for tests and benchmarks against a real API server instead of the embedded one.
//!
//! The convention is envtest's: a folder, named by `KUBEBUILDER_ASSETS`, with the programs `etcd` and `kube-apiserver`,
//! and no controllers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests and benchmarks only"
)]
#![allow(clippy::missing_panics_doc, reason = "it panics where a test would")]

use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_apiserver::pki::{Authority, Credentials};
use kube::Client;

/// Environment variable with the folder of the programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Common name of the client certificate for aggregated APIs, as in kubeadm.
const FRONT_PROXY: &str = "front-proxy-client";
/// Startup timeout: normally a few seconds, many more on a busy machine with two cores.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Poll interval while a server starts.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of a log shown when a start fails.
const TAIL: usize = 40;

/// The folder with the programs, when scenarios are to run on them.
#[must_use]
pub fn assets() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(ASSETS).filter(|value| !value.is_empty())?);
    for program in ["etcd", "kube-apiserver"] {
        let path = folder.join(program);
        assert!(path.is_file(), "{ASSETS}: {} is missing", path.display());
    }
    Some(folder)
}

/// A running API server with its etcd. Both are killed when this is dropped, the API server first.
pub struct Envtest {
    apiserver: Process,
    etcd: Process,
    log: PathBuf,
    port: u16,
}

impl Envtest {
    /// Starts both; all their files are in `folder`. `authority` signs the clients' certificates, and RBAC grants their
    /// rights.
    #[must_use]
    pub fn start(
        assets: &Path,
        folder: &Path,
        authority: &Authority,
        presented: &Credentials,
    ) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let first = free_ports(3);
        let etcd_url = format!("http://127.0.0.1:{first}");
        let peer_url = format!("http://127.0.0.1:{}", first + 1);
        let mut etcd = Command::new(assets.join("etcd"));
        etcd.arg("--data-dir").arg(folder.join("etcd")).args(["--unsafe-no-fsync=true"]);
        etcd.args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
        etcd.args(["--listen-peer-urls", &peer_url]);
        let etcd = spawn(&mut etcd, &folder.join("etcd.log"));

        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = file("tls.crt", &presented.certificate);
        let key = file("tls.key", &presented.key);
        let client_ca = file("client-ca.crt", authority.certificate());
        // Tokens of service accounts are signed with a key of their own.
        let accounts = authority.client("service-accounts", "service-accounts", &[]).unwrap();
        let verifies = file("service-accounts.crt", &accounts.certificate);
        let signs = file("service-accounts.key", &accounts.key);
        // The front proxy's identity towards aggregated APIs.
        let front_proxy = Authority::open(&folder.join("front-proxy")).unwrap();
        let front = front_proxy.client("front-proxy", FRONT_PROXY, &[]).unwrap();
        let front_ca = file("front-proxy-ca.crt", front_proxy.certificate());
        let front_certificate = file("front-proxy.crt", &front.certificate);
        let front_key = file("front-proxy.key", &front.key);
        let log = folder.join("kube-apiserver.log");
        let port = first + 2;
        let mut apiserver = Command::new(assets.join("kube-apiserver"));
        apiserver.args(["--etcd-servers", &etcd_url, "--bind-address", "127.0.0.1"]);
        apiserver.args(["--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"]);
        apiserver.args(["--secure-port", &port.to_string(), "--authorization-mode", "RBAC"]);
        // As in envtest: nothing mounts the tokens that this plugin requires.
        apiserver.args(["--disable-admission-plugins", "ServiceAccount"]);
        apiserver.args(["--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged=true"]);
        apiserver.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        apiserver.args(["--requestheader-allowed-names", FRONT_PROXY]);
        apiserver.args(["--requestheader-username-headers", "X-Remote-User"]);
        apiserver.args(["--requestheader-group-headers", "X-Remote-Group"]);
        apiserver.args(["--requestheader-extra-headers-prefix", "X-Remote-Extra-"]);
        for (flag, value) in [
            ("--requestheader-client-ca-file", &front_ca),
            ("--proxy-client-cert-file", &front_certificate),
            ("--proxy-client-key-file", &front_key),
            ("--cert-dir", &folder.to_owned()),
            ("--tls-cert-file", &certificate),
            ("--tls-private-key-file", &key),
            ("--client-ca-file", &client_ca),
            ("--service-account-key-file", &verifies),
            ("--service-account-signing-key-file", &signs),
        ] {
            apiserver.arg(flag).arg(value);
        }
        let apiserver = spawn(&mut apiserver, &log);
        Self { apiserver, etcd, log, port }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// CPU time of both processes since their start.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        cpu_of(self.apiserver.0.id()) + cpu_of(self.etcd.0.id())
    }

    /// Waits until the server is ready and has created its namespaces.
    pub async fn ready(&mut self, client: &Client) {
        let paths = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"];
        let started = Instant::now();
        for path in paths {
            loop {
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                if client.request_text(request).await.is_ok() {
                    break;
                }
                let ended = self.apiserver.0.try_wait().unwrap();
                if ended.is_some() || started.elapsed() > START_LIMIT {
                    let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                    let lines: Vec<_> = log.lines().collect();
                    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
                    panic!("kube-apiserver is not ready, {ended:?}; its log ends with\n{tail}");
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// CPU time of a process, in kernel ticks (100 per second).
#[must_use]
pub fn cpu_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    Duration::from_millis(10) * ticks.map(|field| field.parse::<u32>().unwrap()).sum()
}

/// Ports below the range that the kernel takes for outgoing connections, in blocks of [`PORTS_PER_BLOCK`].
const PORT_BLOCKS: Range<u16> = 512..1024;
/// Most ports that one test can ask for at once.
const PORTS_PER_BLOCK: u16 = 32;

/// The first of several consecutive free ports. They are reserved until this process ends, so a server that a test
/// stops and starts again gets its port back.
#[must_use]
pub fn free_ports(count: u16) -> u16 {
    assert!(count <= PORTS_PER_BLOCK, "at most {PORTS_PER_BLOCK} ports at once");
    let folder = std::env::temp_dir().join("atoll-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    let blocks = u32::from(PORT_BLOCKS.end - PORT_BLOCKS.start);
    // Each process starts its search elsewhere.
    let start = std::process::id().wrapping_mul(7) % blocks;
    for step in 0..blocks {
        let block = PORT_BLOCKS.start + u16::try_from((start + step) % blocks).unwrap();
        // Another user's file cannot be opened: that block is taken too.
        let Ok(reserved) = File::create(folder.join(block.to_string())) else { continue };
        if reserved.try_lock().is_err() {
            continue;
        }
        let first = block * PORTS_PER_BLOCK;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(free) {
            // The lock ends with the process.
            std::mem::forget(reserved);
            return first;
        }
    }
    panic!("no {count} free ports in a row");
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command, log: &Path) -> Process {
    let file = File::create(log).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    Process(command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}")))
}
