//! Real sockets: the test acts as the front proxy, with its certificate and headers, and as the hub that authorises.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use atoll_apiserver::pki::Authority as ProxyAuthority;
use atoll_history::MemoryStore;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::TrustDomain;
use http::{Method, Request, Response};
use k8s_openapi::ByteString;
use kube::client::Body;
use kube::config::{AuthInfo, Config};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::Attributes;
use atoll_apimachinery::identity::Identity;
use futures::future::BoxFuture;

use super::*;
use crate::member_api;
use crate::review_api::ReviewApi;

mod review;

const NAME: &str = "atoll-api.atoll-system.svc";
const MANIFESTS: &str = include_str!("../../../../../deploy/controller/api.yaml");
const CONTROLLER: &str = include_str!("../../../../../deploy/controller/controller.yaml");

/// The requests that the hub received, and its answers.
#[derive(Default)]
struct HubState {
    reviews: Vec<Value>,
    bundle: Option<Value>,
    away: bool,
    /// What was written to the guard's status.
    released: Option<Value>,
}

/// A hub that describes the front proxy, lets alice see decisions of shop and everyone discover, and holds one
/// APIService.
fn hub(authority: String) -> (Client, Arc<Mutex<HubState>>) {
    let state = Arc::new(Mutex::new(HubState::default()));
    let shared = state.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (state, authority) = (shared.clone(), authority.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = answer(&state, &authority, &parts.method, parts.uri.path(), sent);
            let response =
                Response::builder().status(code).header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    (Client::new(service, "default"), state)
}

fn answer(
    state: &Mutex<HubState>,
    authority: &str,
    method: &Method,
    path: &str,
    sent: Value,
) -> (u16, Value) {
    let mut state = state.lock().unwrap();
    match (method, path) {
        (_, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication") => {
            let data = json!({
                "requestheader-client-ca-file": authority,
                "requestheader-allowed-names": "[\"front-proxy-client\"]",
                "requestheader-username-headers": "[\"X-Remote-User\"]",
                "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            });
            (
                200,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}),
            )
        }
        (&Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews") if state.away => {
            (500, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}))
        }
        (&Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews") => {
            let spec = sent["spec"].clone();
            let attributes = &spec["resourceAttributes"];
            let allowed = match attributes.is_null() {
                true => spec["groups"].as_array().unwrap().contains(&json!("system:authenticated")),
                false => {
                    spec["user"] == "alice"
                        && attributes["group"] == "history.atoll.dev"
                        && attributes["resource"] == "decisions"
                        && attributes["namespace"] == "shop"
                        || spec["user"] == "alice"
                            && attributes["verb"] == "get"
                            && attributes["group"] == "proxy.atoll.dev"
                            && attributes["resource"] == "clusters"
                            && attributes["subresource"] == "proxy"
                            && attributes["name"] == "m1"
                        || spec["user"] == "alice"
                            && attributes["verb"] == "create"
                            && attributes["group"] == "review.atoll.dev"
                            && attributes["resource"] == "plans"
                            && attributes["subresource"] == "approval"
                }
            };
            state.reviews.push(spec);
            (
                201,
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "metadata": {}, "spec": {}, "status": {"allowed": allowed, "reason": "by the test"}}),
            )
        }
        (method, "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.history.atoll.dev") => {
            if *method == Method::PATCH {
                state.bundle = Some(sent["spec"]["caBundle"].clone());
            }
            let bundle = state.bundle.clone();
            (
                200,
                json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {},
                "spec": {"caBundle": bundle, "groupPriorityMinimum": 1, "versionPriority": 1}}),
            )
        }
        (&Method::GET, "/apis/policy.atoll.dev/v1alpha1/changeguards") => {
            (200, json!({"metadata": {}, "items": [review::guard(&state)]}))
        }
        (method, "/apis/policy.atoll.dev/v1alpha1/changeguards/prod") if *method == Method::GET => {
            (200, review::guard(&state))
        }
        (_, "/apis/policy.atoll.dev/v1alpha1/changeguards/prod/status") => {
            state.released = Some(sent["status"]["released"].clone());
            (200, review::guard(&state))
        }
        _ => (
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": path}),
        ),
    }
}

/// Answers with the caller and the path.
struct Echo;

impl RawApi for Echo {
    fn names(&self) -> atoll_apimachinery::raw::RawNames {
        member_api::NAMES
    }

    fn attributes(&self, parts: &http::request::Parts) -> Result<Attributes, ApiError> {
        member_api::attributes(parts)
    }

    fn answer(
        &self,
        caller: Identity,
        parts: http::request::Parts,
        _: atoll_apimachinery::raw::RequestBody,
    ) -> BoxFuture<'_, Response<atoll_apimachinery::response::Body>> {
        let seen = json!({"user": caller.user, "groups": caller.groups, "extra": caller.extra["scopes"],
            "path": parts.uri.path()});
        Box::pin(async move { atoll_apimachinery::response::respond_json(200, &seen) })
    }
}

struct Serving {
    address: SocketAddr,
    proxies: ProxyAuthority,
    others: ProxyAuthority,
    own: Arc<CertificateAuthority>,
    published: watch::Sender<Option<Arc<Authorities>>>,
    hub: Arc<Mutex<HubState>>,
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _folder: tempfile::TempDir,
}

impl Serving {
    async fn start() -> Self {
        // The same provider as main installs; a second installation is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let proxies = ProxyAuthority::open(&folder.path().join("proxy")).unwrap();
        let others = ProxyAuthority::open(&folder.path().join("other")).unwrap();
        let clock = Clock::system();
        let domain = TrustDomain::new("atoll.local".to_owned()).unwrap();
        let authorities = CertificateAuthority::create(&domain, clock.now()).unwrap();
        let authorities = Authorities::of(authorities);
        let own = authorities.signing().clone();
        let store = MemoryStore::default();
        store.insert(&[record("shop", "aaaa"), record("bank", "bbbb")]).await.unwrap();
        let (client, hub) = hub(proxies.certificate().to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let parts = Parts {
            client: client.clone(),
            clock: clock.clone(),
            history: Arc::new(store),
            raw: vec![Arc::new(Echo), ReviewApi::alone(client.clone(), clock.clone())],
            listener,
            names: vec![NAME.to_owned()],
        };
        let token = CancellationToken::new();
        let (published, authorities) = watch::channel(Some(Arc::new(authorities)));
        let task = tokio::spawn(serve(parts, authorities, token.clone()));
        Self { address, proxies, others, own, published, hub, token, task, _folder: folder }
    }

    /// A client like the front proxy: it trusts the APIService's caBundle, requests the Service's name, and sends this
    /// certificate and these headers.
    fn proxy(&self, by: Option<(&ProxyAuthority, &str)>, headers: &[(&str, &str)]) -> Client {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.own.certificate().as_ref().to_vec()]);
        config.tls_server_name = Some(NAME.to_owned());
        config.default_retry = false;
        if let Some((authority, name)) = by {
            let shown = authority.client(name, name, &[]).unwrap();
            let base64 = |pem: &str| {
                let text = serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap();
                text.as_str().unwrap().to_owned()
            };
            config.auth_info = AuthInfo {
                client_certificate_data: Some(base64(&shown.certificate)),
                client_key_data: Some(base64(&shown.key).into()),
                ..AuthInfo::default()
            };
        }
        for (header, value) in headers {
            config.headers.push((header.parse().unwrap(), value.parse().unwrap()));
        }
        Client::try_from(config).unwrap()
    }

    fn user(&self, name: &str) -> Client {
        let headers = [
            ("x-remote-user", name),
            ("x-remote-group", "devs"),
            ("x-remote-uid", "8a7f"),
            ("x-remote-extra-scopes", "read"),
            ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", "%2F stays"),
            ("x-remote-extra-100%", "no escape"),
        ];
        self.proxy(Some((&self.proxies, "front-proxy-client")), &headers)
    }

    async fn stop(self) {
        self.token.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), self.task).await;
        ended.expect("it stops in time").unwrap().unwrap();
    }
}

fn record(namespace: &str, id: &str) -> atoll_history::Record {
    let row = json!({
        "id": id, "trigger": "First", "mode": "Fresh", "outcome": "Placed", "desired": 1,
        "at": "2026-01-01T00:00:00Z", "term": 1,
    });
    let binding = atoll_history::BindingRef {
        kind: "ResourceBinding".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: "web-deployment".to_owned(),
        uid: id.into(),
    };
    let spec = serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web"},
        "clusters": [{"name": "member1", "replicas": 1}], "decision": row,
    }));
    atoll_history::outbox::records(&binding, &spec.unwrap()).remove(0)
}

async fn get(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => Err((0, error.to_string())),
    }
}

/// Retries until the server has its front proxy configuration.
async fn ready(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(client, path).await;
        let early = matches!(&answer, Err((0 | 401, _)));
        if !early || tokio::time::Instant::now() > limit {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_reached_by_users_whom_the_hub_lets_and_upgrades_need_the_verb_create() {
    let serving = Serving::start().await;
    let alice = serving.user("alice");
    let path = |name: &str| {
        format!("/apis/proxy.atoll.dev/v1alpha1/clusters/{name}/proxy/api/v1/namespaces/shop/pods")
    };
    let seen = ready(&alice, &path("m1")).await.unwrap();
    let expected = json!({"user": "alice", "groups": ["devs", "system:authenticated"],
        "extra": ["read"], "path": path("m1")});
    assert_eq!(seen, expected);
    let (code, why) = get(&alice, &path("m2")).await.unwrap_err();
    assert_eq!(code, 403);
    assert!(why.contains("cannot get resource \"clusters\" in API group"), "{why}");
    assert_eq!(get(&serving.user("bob"), &path("m1")).await.unwrap_err().0, 403);
    let upgrade = [("x-remote-user", "alice"), ("connection", "Upgrade"), ("upgrade", "websocket")];
    let socket = serving.proxy(Some((&serving.proxies, "front-proxy-client")), &upgrade);
    let (code, why) = get(&socket, &path("m1")).await.unwrap_err();
    assert_eq!(code, 403);
    assert!(why.contains("cannot create"), "{why}");
    let forged = [("x-remote-user", "alice")];
    for by in [None, Some((&serving.proxies, "someone-else"))] {
        assert_eq!(get(&serving.proxy(by, &forged), &path("m1")).await.unwrap_err().0, 401);
    }
    assert!(
        get(&serving.proxy(Some((&serving.others, "front-proxy-client")), &forged), &path("m1"))
            .await
            .is_err()
    );
    // kubectl must not take the resource for the clusters of another group.
    let list = get(&alice, "/apis/proxy.atoll.dev/v1alpha1").await.unwrap();
    let names: Vec<_> =
        list["resources"].as_array().unwrap().iter().map(|r| r["name"].clone()).collect();
    assert_eq!(names, ["clusters/proxy", "fleet/proxy"]);
    // All members together are a right of their own.
    let (code, why) = get(&alice, "/apis/proxy.atoll.dev/v1alpha1/fleet/all/proxy/api/v1/pods")
        .await
        .unwrap_err();
    assert!(code == 403 && why.contains("cannot get resource \"fleet\""), "{why}");
    serving.stop().await;
}

const SHOP: &str = "/apis/history.atoll.dev/v1alpha1/namespaces/shop/decisions";

#[tokio::test(flavor = "multi_thread")]
async fn the_front_proxys_users_read_what_the_hub_lets_them_read() {
    let serving = Serving::start().await;
    let alice = serving.user("alice");
    let list = ready(&alice, SHOP).await.unwrap();
    assert_eq!(list["kind"], "DecisionList");
    assert_eq!(list["items"][0]["metadata"]["name"], "aaaa");
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "only of shop: {list}");
    let one = get(&alice, &format!("{SHOP}/aaaa")).await.unwrap();
    assert_eq!(one["spec"]["workload"]["name"], "web");
    // The review has the form of upstream's delegating authoriser.
    let asked = serving.hub.lock().unwrap().reviews.last().unwrap().clone();
    assert_eq!(
        asked,
        json!({
            "user": "alice", "uid": "8a7f", "groups": ["devs", "system:authenticated"],
            "extra": {"scopes": ["read"], "100%": ["no escape"],
                "authentication.kubernetes.io/credential-id": ["%2F stays"]},
            "resourceAttributes": {"verb": "get", "group": "history.atoll.dev", "version": "v1alpha1",
                "resource": "decisions", "namespace": "shop", "name": "aaaa"},
        })
    );
    for (client, path) in [
        (serving.user("alice"), "/apis/history.atoll.dev/v1alpha1/namespaces/bank/decisions"),
        (serving.user("alice"), "/apis/history.atoll.dev/v1alpha1/decisions"),
        (serving.user("alice"), "/apis/history.atoll.dev/v1alpha1/memberevents"),
        (serving.user("bob"), SHOP),
    ] {
        let (code, message) = get(&client, path).await.unwrap_err();
        assert_eq!(code, 403, "{path}: {message}");
        assert!(
            message.contains("cannot list resource") && message.contains("by the test"),
            "{message}"
        );
    }
    // Without an answer from the hub every request is refused.
    serving.hub.lock().unwrap().away = true;
    assert_eq!(get(&alice, SHOP).await.unwrap_err().0, 503);
    serving.stop().await;
}

/// A front proxy that does not support the header does not strip it from its clients' requests either.
#[test]
fn a_uid_is_accepted_only_where_the_hub_names_its_header() {
    let mut headers = http::HeaderMap::new();
    headers.insert("x-remote-user", "alice".parse().unwrap());
    headers.insert("x-remote-uid", "forged".parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let authority = ProxyAuthority::open(folder.path()).unwrap();
    let mut data = std::collections::BTreeMap::from([
        ("requestheader-client-ca-file".to_owned(), authority.certificate().to_owned()),
        ("requestheader-username-headers".to_owned(), "[\"X-Remote-User\"]".to_owned()),
    ]);
    let uid = |data: &std::collections::BTreeMap<String, String>| {
        let map = k8s_openapi::api::core::v1::ConfigMap {
            data: Some(data.clone()),
            ..Default::default()
        };
        gate::user(&proxy::read(&map).unwrap(), &headers).unwrap().uid
    };
    assert_eq!(uid(&data), "");
    data.insert("requestheader-uid-headers".to_owned(), "[\"X-Remote-Uid\"]".to_owned());
    assert_eq!(uid(&data), "forged");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_queries_are_refused_and_stop_no_request() {
    let serving = Serving::start().await;
    let alice = serving.user("alice");
    ready(&alice, SHOP).await.unwrap();
    let most = u64::MAX;
    for query in [
        format!("timeoutSeconds={most}&watch=true"),
        format!("timeoutSeconds={}&watch=true", i64::MAX),
    ] {
        // The watch starts; its first event may take until the next decision.
        let request = Request::get(format!("{SHOP}?{query}")).body(Vec::new()).unwrap();
        let begun = alice.request_stream(request).await;
        assert!(begun.is_ok(), "{query}: {:?}", begun.err());
    }
    for query in [
        "timeoutSeconds=-1&watch=true",
        "timeoutSeconds=18446744073709551616",
        "limit=x",
        "limit=99999999999999999999",
        "resourceVersion=99999999999999999999",
        "resourceVersion=18446744073709551615&watch=true",
        "continue=ffffffffffffffff.ffffffffffffffff",
        "continue=%00",
        "fieldSelector=metadata.namespace%3D",
        "fieldSelector=metadata.name%3D",
    ] {
        let (code, message) = get(&alice, &format!("{SHOP}?{query}")).await.unwrap_err();
        assert_eq!(code, 400, "{query}: {message}");
    }
    for query in ["limit=-1", "limit=9223372036854775807", "limit=0"] {
        let list = get(&alice, &format!("{SHOP}?{query}")).await.unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{query}");
    }
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_front_proxy_may_name_users() {
    let serving = Serving::start().await;
    ready(&serving.user("alice"), SHOP).await.unwrap();
    let headers = [("x-remote-user", "alice"), ("x-remote-group", "system:masters")];
    let none = serving.proxy(None, &headers);
    assert_eq!(get(&none, SHOP).await.unwrap_err().0, 401, "headers without a certificate");
    assert!(get(&none, "/apis").await.is_err());
    let health =
        none.request_text(Request::get("/readyz").body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(health, "ok");
    let wrong = serving.proxy(Some((&serving.proxies, "another-client")), &headers);
    assert_eq!(get(&wrong, SHOP).await.unwrap_err().0, 401, "not an allowed name");
    let nameless = serving.proxy(Some((&serving.proxies, "front-proxy-client")), &[]);
    assert_eq!(get(&nameless, SHOP).await.unwrap_err().0, 401, "a proxy that names no user");
    let foreign = serving.proxy(Some((&serving.others, "front-proxy-client")), &headers);
    assert_eq!(get(&foreign, SHOP).await.unwrap_err().0, 0, "another authority: no connection");
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_aggregator_finds_what_it_asks_for() {
    let mut serving = Serving::start().await;
    let aggregator = serving.user("system:kube-aggregator");
    let found = ready(&aggregator, "/apis/history.atoll.dev/v1alpha1").await.unwrap();
    let resources = found["resources"].as_array().unwrap();
    let names: Vec<_> = resources.iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["clusterdecisions", "decisioninputs", "decisions", "memberevents"]);
    assert!(resources.iter().all(|r| r["verbs"] == json!(["get", "list", "watch"])), "{found}");
    let groups = get(&aggregator, "/apis").await.unwrap();
    let served = groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]);
    assert_eq!(
        served.collect::<Vec<_>>(),
        ["history.atoll.dev", "proxy.atoll.dev", "review.atoll.dev"]
    );
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/apis").header("accept", accept).body(Vec::new()).unwrap();
    let aggregated: Value = aggregator.request(request).await.unwrap();
    assert_eq!(aggregated["items"][0]["metadata"]["name"], "history.atoll.dev", "{aggregated}");
    let index = get(&aggregator, "/openapi/v3").await.unwrap();
    let path =
        index["paths"]["apis/history.atoll.dev/v1alpha1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(&aggregator, path).await.unwrap();
    assert!(
        document["components"]["schemas"]
            .as_object()
            .unwrap()
            .keys()
            .any(|k| k.ends_with(".Decision"))
    );
    let second = get(&aggregator, "/openapi/v2").await.unwrap();
    let path = "/apis/history.atoll.dev/v1alpha1/namespaces/{namespace}/decisions/{name}";
    let answer = &second["paths"][path]["get"]["responses"]["200"]["schema"]["$ref"];
    assert_eq!(answer, "#/definitions/dev.atoll.history.v1alpha1.Decision");
    let trigger =
        "/definitions/dev.atoll.history.v1alpha1.Decision/properties/spec/properties/trigger";
    assert_eq!(second.pointer(trigger).unwrap()["type"], "string");
    assert_eq!(get(&aggregator, "/api/v1/namespaces/x/secrets").await.unwrap_err().0, 403);
    // The hub learns our authority from the APIService.
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while serving.hub.lock().unwrap().bundle.is_none() && tokio::time::Instant::now() < limit {
        tokio::task::yield_now().await;
    }
    let bundle = serving.hub.lock().unwrap().bundle.clone().unwrap();
    let expected = ByteString(serving.own.certificate_pem().as_bytes().to_vec());
    assert_eq!(bundle, serde_json::to_value(expected).unwrap());

    // During a rotation the hub trusts both authorities, and the new one signs what is served.
    let both = serving.published.borrow().as_ref().unwrap().succeeded(Clock::system().now());
    let both = Arc::new(both.unwrap().unwrap());
    serving.published.send_replace(Some(both.clone()));
    let expected = serde_json::to_value(ByteString(both.bundle_pem().into_bytes())).unwrap();
    while serving.hub.lock().unwrap().bundle.as_ref() != Some(&expected) {
        assert!(tokio::time::Instant::now() < limit, "the bundle does not follow");
        tokio::task::yield_now().await;
    }
    serving.own = both.signing().clone();
    let aggregator = serving.user("system:kube-aggregator");
    let path = "/apis/history.atoll.dev/v1alpha1";
    while get(&aggregator, path).await.is_err() {
        assert!(tokio::time::Instant::now() < limit, "the certificate does not follow");
    }
    serving.stop().await;
}

/// The documents of a manifest file.
fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").map(|part| serde_saphyr::from_str(part).unwrap());
    documents.collect()
}

#[test]
fn the_manifests_say_what_the_code_does() {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
    let all = documents(MANIFESTS);
    let of = |kind: &str, name: &str| -> Value {
        let found = all.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    };
    let registered: APIService =
        serde_json::from_value(of("APIService", "v1alpha1.history.atoll.dev")).unwrap();
    let spec = registered.spec.unwrap();
    assert_eq!(spec.group.as_deref(), Some(atoll_api::HISTORY_GROUP));
    assert_eq!(spec.version.as_deref(), Some(atoll_api::VERSION));
    let target = spec.service.unwrap();
    assert_eq!(format!("{}.{}.svc", target.name.unwrap(), target.namespace.unwrap()), NAME);
    let service: Service = serde_json::from_value(of("Service", "atoll-api")).unwrap();
    let deployment: Deployment = documents(CONTROLLER)
        .into_iter()
        .find(|object| object["kind"] == "Deployment")
        .map(|object| serde_json::from_value(object).unwrap())
        .unwrap();
    let template = deployment.spec.unwrap().template;
    let service = service.spec.unwrap();
    for (label, value) in service.selector.unwrap() {
        assert_eq!(template.metadata.as_ref().unwrap().labels.as_ref().unwrap()[&label], value);
    }
    let container = template.spec.unwrap().containers.remove(0);
    let port =
        container.ports.unwrap().into_iter().find(|p| p.name.as_deref() == Some("api")).unwrap();
    assert!(
        container.args.unwrap().contains(&format!("--api-address=0.0.0.0:{}", port.container_port))
    );
    let role: ClusterRole = serde_json::from_value(of("ClusterRole", "atoll-api")).unwrap();
    let rights: Vec<_> = role
        .rules
        .unwrap()
        .into_iter()
        .map(|r| (r.resources.unwrap().remove(0), r.verbs))
        .collect();
    assert_eq!(rights[0], ("subjectaccessreviews".to_owned(), vec!["create".to_owned()]));
    assert_eq!(rights[1], ("apiservices".to_owned(), vec!["get".to_owned(), "patch".to_owned()]));
}
