//! The controller under attack: its own process, with a hub in the test's process.
#![allow(dead_code, reason = "each topic uses its part of this")]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use atoll_api::Clock;
use atoll_controller::members;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Status};

use super::client;
use crate::support::cli::{atoll, run};
use crate::support::federation::{free_ports, objects};
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::{LIMIT, until};

/// An enrolled member, in the hands of an attacker who stole its certificate. No agent runs for it.
pub(crate) struct StolenMember {
    pub(crate) name: String,
    pub(crate) identity: MemberIdentity,
    /// The uid that it claims for its kube-system namespace.
    pub(crate) member_uid: String,
}

/// A running controller and its hub.
pub(crate) struct Target {
    pub(crate) hub: ApiServer,
    /// Where agents connect.
    pub(crate) agents: SocketAddr,
    /// Where /healthz, /readyz and /metrics are served.
    pub(crate) http: SocketAddr,
    /// Where /healthz and /readyz are served alone.
    pub(crate) probes: SocketAddr,
    /// The federation's own authority, read from the hub, for certificates that only it can issue.
    pub(crate) authority: Arc<CertificateAuthority>,
    pub(crate) controller: Process,
    folder: tempfile::TempDir,
}

impl Target {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts it with additional flags for `atoll controller`.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = ApiServer::hub(folder.path()).await;
        let port = free_ports(3);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (agents, http, probes) = (address(port), address(port + 1), address(port + 2));
        let mut command = atoll();
        command.args(["controller", "--listen", &agents.to_string(), "--http", &http.to_string()]);
        command.args(["--health-listen", &probes.to_string()]);
        command.args(flags).arg("--history").arg(folder.path().join("history.db"));
        command.arg("--kubeconfig").arg(&hub.kubeconfig);
        let controller = Process::spawn("atoll controller", command.stdin(Stdio::null()));
        let secrets = objects(&hub.client, "", "v1", "Secret", "atoll-system");
        until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
        let authority = members::load(&hub.client).await.unwrap().unwrap().signing().clone();
        Self { hub, agents, http, probes, authority, controller, folder }
    }

    /// A verb of `atoll` on this hub.
    pub(crate) fn atoll(&self, args: &[&str]) -> Command {
        let mut command = atoll();
        command.args(args).arg("--kubeconfig").arg(&self.hub.kubeconfig);
        command
    }

    /// A folder for files of the test.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Registers a member and enrols it with the token that `atoll join` prints.
    pub(crate) async fn join(&self, name: &str) -> StolenMember {
        let address = self.agents.to_string();
        let printed = run(&mut self.atoll(&["join", name, "--address", &address, "-o", "json"]));
        let printed: Value = serde_json::from_str(&printed).unwrap();
        let token = printed["token"].as_str().unwrap();
        // The process list shows the command line to every user of the machine.
        assert!(!printed["command"].as_str().unwrap().contains(token), "{printed}");
        self.enrol(name, token).await
    }

    /// Runs `atoll rejoin` with additional flags; returns the token.
    pub(crate) fn rejoin(&self, name: &str, flags: &[&str]) -> String {
        let address = self.agents.to_string();
        let mut verb = self.atoll(&["rejoin", name, "--address", &address, "-o", "json"]);
        let printed: Value = serde_json::from_str(&run(verb.args(flags))).unwrap();
        printed["token"].as_str().unwrap().to_owned()
    }

    /// Enrols a member with this token.
    pub(crate) async fn enrol(&self, name: &str, token: &str) -> StolenMember {
        self.enrol_key(name, token, KeyRequest::generate().unwrap()).await
    }

    /// Enrols a member with this token and key.
    pub(crate) async fn enrol_key(
        &self,
        name: &str,
        token: &str,
        request: KeyRequest,
    ) -> StolenMember {
        let member_uid = format!("kube-system-{name}");
        let message = v1::EnrollRequest {
            token: token.to_owned(),
            csr_der: request.csr_der().to_vec(),
            member_uid: member_uid.clone(),
            kubernetes_version: "v1.33.0".to_owned(),
            follows_authority: true,
        };
        let response = self.enrol_with(message).await.unwrap();
        let hash = self.authority.hash();
        let identity = MemberIdentity::from_response(&request, &response, &hash).unwrap();
        StolenMember { name: name.to_owned(), identity, member_uid }
    }

    /// Calls Enroll without a certificate; retries until the controller leads.
    pub(crate) async fn enrol_with(
        &self,
        message: v1::EnrollRequest,
    ) -> Result<v1::CertificateResponse, Status> {
        let answer = async {
            loop {
                // Refused: the controller does not listen yet.
                let Ok(mut client) = client::grpc(self.agents, None).await else { continue };
                match client.enroll(message.clone()).await {
                    Err(status) if status.code() == Code::Unavailable => {}
                    answer => return answer.map(tonic::Response::into_inner),
                }
            }
        };
        tokio::time::timeout(LIMIT, answer).await.expect("the controller leads in time")
    }

    /// A certificate for this Cluster uid, signed by an authority of the same trust domain that is not the federation's.
    pub(crate) fn foreign(&self, uid: &ClusterUid) -> MemberIdentity {
        let now = Clock::system().now();
        let foreign = CertificateAuthority::create(self.authority.trust_domain(), now).unwrap();
        signed_by(&foreign, uid, now)
    }

    /// A certificate of the federation's own authority, issued `age` ago.
    pub(crate) fn aged(&self, uid: &ClusterUid, age: SignedDuration) -> MemberIdentity {
        signed_by(&self.authority, uid, Clock::system().now() - age)
    }

    /// Resident memory of the controller, in bytes.
    pub(crate) fn memory(&mut self) -> u64 {
        let pid = self.controller.child().id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib * 1024
    }
}

/// A certificate for this Cluster uid, issued by this authority at this time.
pub(crate) fn signed_by(
    authority: &CertificateAuthority,
    uid: &ClusterUid,
    at: Timestamp,
) -> MemberIdentity {
    let request = KeyRequest::generate().unwrap();
    let issued = authority.sign_member(request.csr_der(), uid, at).unwrap();
    let response = v1::CertificateResponse {
        chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
        cluster_uid: uid.to_string(),
        cluster_name: "any".to_owned(),
        trust_domain: authority.trust_domain().to_string(),
        authority_change: None,
    };
    MemberIdentity::from_response(&request, &response, &authority.hash()).unwrap()
}

/// Status and body of a page over plain HTTP.
pub(crate) async fn page(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: atoll\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, body.to_owned()))
}
