//! Sockets: TLS, client certificates, bearer tokens, HTTP/2, stopping.

use std::{net::SocketAddr, path::Path, time::Duration};

use atoll_apiserver::{
    Options, Server,
    pki::{Authority, Context, kubeconfig},
};
use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest},
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// A server on a loopback port, with a kubeconfig for it.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: String,
    pub(crate) authority: String,
    token: CancellationToken,
    task: JoinHandle<()>,
}

impl Listening {
    pub(crate) async fn start(folder: &Path, server: Server) -> Self {
        let authority = Authority::open(&folder.join("pki")).unwrap();
        let certificate = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let tls = authority.server_config(&certificate).unwrap();
        let user = authority.client("admin", "kubernetes-admin", &["system:masters"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let context = Context {
            name: "hub".to_owned(),
            server: format!("https://{address}"),
            authority: authority.certificate().to_owned(),
            user,
            namespace: None,
        };
        let token = CancellationToken::new();
        let task = tokio::spawn({
            let token = token.clone();
            async move {
                let controllers = server.run_controllers(token.clone());
                let serving = server.clone().serve(listener, tls, token.clone());
                let ((), served) = tokio::join!(controllers, serving);
                served.unwrap();
            }
        });
        Listening {
            address,
            kubeconfig: kubeconfig(&[context], "hub"),
            authority: authority.certificate().to_owned(),
            token,
            task,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let file = Kubeconfig::from_yaml(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .expect("stops in time")
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_and_service_account_tokens_identify_users() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(Options::memory()).unwrap();
    let listening = Listening::start(folder.path(), server).await;
    let client = listening.client().await;
    let who = |client: Client| async move {
        let review: SelfSubjectReview = serde_json::from_value(json!({"metadata": {}})).unwrap();
        let review =
            Api::<SelfSubjectReview>::all(client).create(&PostParams::default(), &review).await;
        review.map(|r| r.status.unwrap().user_info.unwrap())
    };
    let info = who(client.clone()).await.unwrap();
    assert_eq!(info.username.as_deref(), Some("kubernetes-admin"));
    assert_eq!(info.groups.unwrap(), ["system:masters", "system:authenticated"]);

    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest =
        serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let made =
        accounts.create_token_request("robot", &PostParams::default(), &request).await.unwrap();
    let bearer = |token: String| {
        let mut file = Kubeconfig::from_yaml(&listening.kubeconfig).unwrap();
        let auth = file.auth_infos[0].auth_info.as_mut().unwrap();
        auth.client_certificate_data = None;
        auth.client_key_data = None;
        auth.token = Some(token.into());
        async move {
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            Client::try_from(config.unwrap()).unwrap()
        }
    };
    let token = made.status.unwrap().token;
    let robot = bearer(token.clone()).await;
    let info = who(robot.clone()).await.unwrap();
    assert_eq!(info.username.as_deref(), Some("system:serviceaccount:default:robot"));
    let forged = who(bearer(format!("{}x", &token[..token.len() - 1])).await).await;
    assert!(matches!(forged, Err(kube::Error::Api(status)) if status.code == 401));
    // Tokens of a deleted account are invalid.
    accounts.delete("robot", &Default::default()).await.unwrap();
    assert!(matches!(who(robot).await, Err(kube::Error::Api(status)) if status.code == 401));
    listening.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_ends_open_watches_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(Options::memory()).unwrap();
    let listening = Listening::start(folder.path(), server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(listening.client().await);
    let stream = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let watching = tokio::spawn(async move {
        use futures::StreamExt;
        stream.collect::<Vec<_>>().await.len()
    });
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 0);
    listening.stop().await;
    let ended = tokio::time::timeout(Duration::from_secs(5), watching).await;
    ended.expect("the watch ends with the server").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_the_same_for_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || Options { data: Some(folder.path().join("objects.redb")), ..Options::memory() };
    let first = Listening::start(folder.path(), Server::open(options()).unwrap()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(first.client().await);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    let (authority, kubeconfig) = (first.authority.clone(), first.kubeconfig.clone());
    drop(maps);
    first.stop().await;

    let second = Listening::start(folder.path(), Server::open(options()).unwrap()).await;
    assert_eq!(second.authority, authority);
    let users = |text: &str| {
        let config = Kubeconfig::from_yaml(text).unwrap();
        serde_json::to_value(config.auth_infos).unwrap()
    };
    assert_eq!(users(&second.kubeconfig), users(&kubeconfig));
    assert_ne!(second.address.port(), 0);
    let maps: Api<ConfigMap> = Api::default_namespaced(second.client().await);
    let found = maps.get("a").await.unwrap();
    assert_eq!((found.uid(), found.resource_version()), (made.uid(), made.resource_version()));
    second.stop().await;
}
