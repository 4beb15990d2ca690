//! API servers for hub and member in this process, behind HTTPS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_api::Clock;
use atoll_api::cluster::{Cluster, ClusterSpec};
use atoll_apiserver::{Options, Server, pki};
use atoll_controller::members;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::TrustDomain;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Clusters made at once.
const AT_ONCE: usize = 64;

pub(crate) struct ApiServer {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    token: CancellationToken,
}

impl ApiServer {
    pub(crate) async fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let seed = name.bytes().map(u64::from).sum();
        let server = Server::open(Options { seed, ..Options::memory() }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = pki::Authority::open(&folder.path().join("pki")).unwrap();
        let presented = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let context = pki::Context {
            name: name.to_owned(),
            server: format!("https://{}", listener.local_addr().unwrap()),
            authority: authority.certificate().to_owned(),
            user: authority.client("admin", "admin", &["system:masters"]).unwrap(),
            namespace: None,
        };
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, pki::kubeconfig(&[context], name)).unwrap();
        let token = CancellationToken::new();
        let tls = authority.server_config(&presented).unwrap();
        let serving = server.clone().serve(listener, tls, token.clone());
        tokio::spawn(async move { serving.await.unwrap() });
        let (controllers, ends) = (server.clone(), token.clone());
        tokio::spawn(async move { controllers.run_controllers(ends).await });
        Self { client: server.client(), server, kubeconfig, _folder: folder, token }
    }

    /// A hub with so many Clusters, and its certificate authority.
    pub(crate) async fn hub(members: usize) -> (Self, Arc<CertificateAuthority>) {
        let hub = Self::start("hub").await;
        let crds: Api<CustomResourceDefinition> = Api::all(hub.client.clone());
        for crd in atoll_api::crds::all() {
            let name = crd.metadata.name.clone().unwrap();
            crds.create(&PostParams::default(), &crd).await.unwrap();
            let established = conditions::is_crd_established();
            await_condition(crds.clone(), &name, established).await.unwrap();
        }
        let clusters = hub.clusters();
        futures::stream::iter(0..members)
            .map(|n| {
                let mut cluster = Cluster::new(&name(n), ClusterSpec::default());
                // Ten groups of equal size, which policies select.
                let tenth = (n * 10 / members).to_string();
                cluster.metadata.labels = Some([("tenth".to_owned(), tenth)].into());
                let clusters = &clusters;
                async move { clusters.create(&PostParams::default(), &cluster).await }
            })
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await
            .unwrap();
        let domain = TrustDomain::new("atoll.bench").unwrap();
        let authority =
            members::load_or_create(&hub.client, &Clock::system(), &domain).await.unwrap();
        (hub, authority.signing().clone())
    }

    pub(crate) fn clusters(&self) -> Api<Cluster> {
        Api::all(self.client.clone())
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// Name of a member.
pub(crate) fn name(n: usize) -> String {
    format!("member-{n:04}")
}

/// A client as another process has it.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}
