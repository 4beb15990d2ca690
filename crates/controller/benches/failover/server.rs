//! The hub's API server: the embedded one in this process, or kube-apiserver and etcd beside it.

use std::time::Duration;

use atoll_apiserver::pki::{self, Authority};
use atoll_apiserver::{Options, Server};
use atoll_envtest::Envtest;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tempfile::TempDir;
use tower::ServiceBuilder;

use crate::board::Board;

/// Which API server is the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In memory, in this process.
    Embedded,
    /// kube-apiserver and etcd from the folder `KUBEBUILDER_ASSETS`.
    Real,
}

/// A running API server.
pub(crate) struct ApiServer {
    /// For the benchmark.
    pub(crate) client: Client,
    /// For the controller: counts its writes.
    pub(crate) counted: Client,
    processes: Option<(Envtest, TempDir)>,
}

impl ApiServer {
    pub(crate) async fn start(kind: Kind, board: &Board) -> Self {
        match kind {
            Kind::Embedded => {
                let server = Server::open(Options::memory()).unwrap();
                let service = ServiceBuilder::new().layer(board.clone()).service(server.service());
                let counted = Client::new(service, "default");
                Self { client: server.client(), counted, processes: None }
            }
            Kind::Real => Self::real(board).await,
        }
    }

    async fn real(board: &Board) -> Self {
        let assets = atoll_envtest::assets().expect(
            "--real needs KUBEBUILDER_ASSETS: a folder with the programs etcd and kube-apiserver",
        );
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(&folder.path().join("pki")).unwrap();
        let presented = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let mut envtest = Envtest::start(&assets, folder.path(), &authority, &presented);
        let context = pki::Context {
            name: "hub".to_owned(),
            server: format!("https://{}", envtest.address()),
            authority: authority.certificate().to_owned(),
            user: authority.client("admin", "admin", &["system:masters"]).unwrap(),
            namespace: None,
        };
        let kubeconfig = Kubeconfig::from_yaml(&pki::kubeconfig(&[context], "hub")).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        // As in the controller, which has its own retries.
        config.default_retry = false;
        let client = Client::try_from(config.clone()).unwrap();
        envtest.ready(&client).await;
        let counted = ClientBuilder::try_from(config).unwrap().with_layer(board).build();
        Self { client, counted, processes: Some((envtest, folder)) }
    }

    /// CPU time of the server's own processes; zero for the embedded one.
    pub(crate) fn cpu(&self) -> Duration {
        self.processes.as_ref().map_or(Duration::ZERO, |(envtest, _)| envtest.cpu())
    }
}
