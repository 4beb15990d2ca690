//! API servers in the test's own process, reached over HTTPS by kubeconfig files, so that what is under test can be
//! killed without them.

use std::path::{Path, PathBuf};

use atoll_api::Clock;
use atoll_apiserver::{Options, Server, pki};
use atoll_simulator::{Member, MemberOptions};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{conditions, wait::await_condition};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// An API server with its controllers, and its kubeconfig in a file.
pub(crate) struct ApiServer {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    token: CancellationToken,
}

impl ApiServer {
    /// A hub: the server with Atoll's kinds.
    pub(crate) async fn hub(folder: &Path) -> Self {
        let hub = Self::start("hub", folder).await;
        let crds: Api<CustomResourceDefinition> = Api::all(hub.client.clone());
        for crd in atoll_api::crds::all() {
            let name = crd.metadata.name.clone().unwrap();
            let params = PatchParams::apply("test").force();
            crds.patch(&name, &params, &Patch::Apply(&crd)).await.unwrap();
            let established = conditions::is_crd_established();
            await_condition(crds.clone(), &name, established).await.unwrap();
        }
        hub
    }

    /// A member: the server with nodes, and everything that makes pods run.
    pub(crate) async fn member(name: &str, folder: &Path) -> Self {
        let member = Self::start(name, folder).await;
        let options = MemberOptions::standard(name, Clock::system());
        Member::start(member.client.clone(), options, member.token.clone()).await.unwrap();
        member
    }

    async fn start(name: &str, folder: &Path) -> Self {
        // Servers with one seed give out the same uids: two members would be one.
        let seed = name.bytes().map(u64::from).sum();
        let server = Server::open(Options { seed, ..Options::memory() }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let authority = pki::Authority::open(&folder.join("pki").join(name)).unwrap();
        let presented = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let tls = authority.server_config(&presented).unwrap();
        let user = authority.client("admin", "admin", &["system:masters"]).unwrap();
        let context = pki::Context {
            name: name.to_owned(),
            server: format!("https://{address}"),
            authority: authority.certificate().to_owned(),
            user,
            namespace: None,
        };
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, pki::kubeconfig(&[context], name)).unwrap();
        let token = CancellationToken::new();
        let serving = server.clone().serve(listener, tls, token.clone());
        tokio::spawn(async move { serving.await.unwrap() });
        let (controllers, ends) = (server.clone(), token.clone());
        tokio::spawn(async move { controllers.run_controllers(ends).await });
        Self { client: server.client(), kubeconfig, token }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.token.cancel();
    }
}
