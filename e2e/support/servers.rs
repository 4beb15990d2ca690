//! API servers for hubs and members, reached over HTTPS with kubeconfig files, so that the processes under test can be
//! killed independently: embedded in the test's own process, or real ones (see [`atoll_envtest`]). Scenarios work with
//! both. On real ones, [`super::manager`] and, for workloads, the simulator replace kube-controller-manager.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_api::Clock;
use atoll_apiserver::pki::{self, Authority, Credentials};
use atoll_apiserver::{Authorization, Options, Server};
use atoll_envtest::{self as envtest, Envtest};
use atoll_simulator::{Member, MemberOptions};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::runtime::{conditions, wait::await_condition};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::kubelet::Greeting;
use super::{federation, manager};

/// An API server with its controllers, and its kubeconfig in a file.
pub(crate) struct ApiServer {
    /// A client with all rights.
    pub(crate) client: Client,
    /// A kubeconfig with all rights.
    pub(crate) kubeconfig: PathBuf,
    name: String,
    folder: PathBuf,
    url: String,
    authority: Authority,
    token: CancellationToken,
    _processes: Option<Envtest>,
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

    /// A member: the server with nodes, and the simulator that runs pods.
    pub(crate) async fn member(name: &str, folder: &Path) -> Self {
        let member = Self::start(name, folder).await;
        let options = MemberOptions::standard(name, Clock::system());
        Member::start(member.client.clone(), options, member.token.clone()).await.unwrap();
        member
    }

    async fn start(name: &str, folder: &Path) -> Self {
        // The simulator's log; only the first call has an effect.
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_test_writer();
        let _ = log.try_init();
        let authority = Authority::open(&folder.join("pki").join(name)).unwrap();
        let presented = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let token = CancellationToken::new();
        let mut processes = envtest::assets()
            .map(|assets| Envtest::start(&assets, &folder.join(name), &authority, &presented));
        let address = match &processes {
            Some(envtest) => envtest.address(),
            None => embed(name, &authority, &presented, &token).await,
        };
        let url = format!("https://{address}");
        let admin = authority.client("admin", "admin", &["system:masters"]).unwrap();
        let kubeconfig = write(folder, name, name, &url, &authority, admin);
        let client = federation::client(&kubeconfig, name).await;
        if let Some(envtest) = &mut processes {
            envtest.ready(&client).await;
            tokio::spawn(token.clone().run_until_cancelled_owned(manager::run(client.clone())));
        }
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { client, kubeconfig, name, folder, url, authority, token, _processes: processes }
    }

    /// A kubeconfig for a service account; on a server with RBAC it has only the account's rights.
    pub(crate) fn kubeconfig_of(&self, namespace: &str, account: &str) -> PathBuf {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let credentials = self.authority.client(account, &user, &["system:serviceaccounts"]);
        let file = format!("{}-{account}", self.name);
        write(&self.folder, &file, &self.name, &self.url, &self.authority, credentials.unwrap())
    }

    /// Makes an object in the namespace `default`.
    pub(crate) async fn create(&self, object: Value) {
        let version = object["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = object["kind"].as_str().unwrap();
        let api = federation::objects(&self.client, group, version, kind, "default");
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// Applies the documents of a manifest, as `kubectl apply --server-side` would, and returns them.
    pub(crate) async fn apply(&self, text: &str) -> Vec<Value> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for document in &documents {
            let version = document["apiVersion"].as_str().unwrap();
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let kind = document["kind"].as_str().unwrap();
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = match document["metadata"]["namespace"].as_str() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            let name = document["metadata"]["name"].as_str().unwrap();
            let applied =
                api.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(document)).await;
            applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        }
        documents
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// An embedded server in this process; its address.
async fn embed(
    name: &str,
    authority: &Authority,
    presented: &Credentials,
    token: &CancellationToken,
) -> String {
    // Servers with the same seed assign the same uids: two members would appear as one.
    let seed = name.bytes().map(u64::from).sum();
    // With RBAC, as on a real server.
    let options = Options { seed, authorization: Authorization::Rbac, ..Options::memory() };
    let server = Server::open(options).unwrap();
    server.set_kubelets(Arc::new(Greeting));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = authority.server_config(presented).unwrap();
    let serving = server.clone().serve(listener, tls, token.clone());
    tokio::spawn(async move { serving.await.unwrap() });
    let ends = token.clone();
    tokio::spawn(async move { server.run_controllers(ends).await });
    address.to_string()
}

/// Writes `<file>.kubeconfig` with one context.
fn write(
    folder: &Path,
    file: &str,
    context: &str,
    url: &str,
    authority: &Authority,
    user: Credentials,
) -> PathBuf {
    let path = folder.join(format!("{file}.kubeconfig"));
    let context = pki::Context {
        name: context.to_owned(),
        server: url.to_owned(),
        authority: authority.certificate().to_owned(),
        user,
        namespace: None,
    };
    let current = context.name.clone();
    std::fs::write(&path, pki::kubeconfig(&[context], &current)).unwrap();
    path
}
