//! A hub in this process; its client's requests are recorded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use atoll_api::Clock;
use atoll_apiserver::{Options, Server, Service};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::client::Body;
use kube::{Client, discovery};
use serde_json::{Value, json};
use tokio::time::Instant;

/// One request that the hub has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) status: StatusCode,
}

impl Call {
    fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// A write other than the election's.
    pub(crate) fn counts(&self) -> bool {
        self.is_write() && self.status.is_success() && !self.path.contains("/leases")
    }
}

/// A fault for the next matching request.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) method: Method,
    /// Part of the path.
    pub(crate) path: &'static str,
    pub(crate) how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It arrives and takes effect; the reply is lost.
    LoseAnswer,
    /// It never arrives.
    LoseRequest,
}

#[derive(Clone, Default)]
pub(crate) struct Spy {
    calls: Arc<Mutex<Vec<Call>>>,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    cut: Arc<Mutex<bool>>,
    forbidden: Arc<Mutex<Vec<&'static str>>>,
    rewrite: Arc<Mutex<Option<Rewrite>>>,
}

/// Changes the JSON of a patch to a path.
type Rewrite = fn(path: &str, patch: &mut Value);

impl Spy {
    /// From now on, requests whose path has this suffix are rejected as forbidden.
    pub(crate) fn forbid(&self, path: &'static str) {
        self.forbidden.lock().unwrap().push(path);
    }

    /// Allows all requests again.
    pub(crate) fn allow_all(&self) {
        self.forbidden.lock().unwrap().clear();
    }

    /// From now on, patches arrive as this function leaves them.
    pub(crate) fn rewrite(&self, rewrite: Rewrite) {
        *self.rewrite.lock().unwrap() = Some(rewrite);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Counted writes since the last call, in short form.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        let writes = calls.into_iter().filter(Call::counts);
        writes.map(|call| format!("{} {}", call.method, call.path)).collect()
    }

    pub(crate) fn fail_next(&self, method: Method, path: &'static str, how: How) {
        self.faults.lock().unwrap().push_back(Fault { method, path, how });
    }

    /// Whether requests arrive at all.
    pub(crate) fn cut(&self, cut: bool) {
        *self.cut.lock().unwrap() = cut;
    }

    fn fault(&self, method: &Method, path: &str) -> Option<How> {
        if *self.cut.lock().unwrap() {
            return Some(How::LoseRequest);
        }
        let mut faults = self.faults.lock().unwrap();
        let at = faults.iter().position(|f| f.method == *method && path.contains(f.path))?;
        faults.remove(at).map(|fault| fault.how)
    }
}

#[derive(Clone)]
struct Spied {
    inner: Service,
    spy: Spy,
}

impl tower::Service<Request<Body>> for Spied {
    type Response = Response<atoll_apiserver::Body>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let ready = tower::Service::<Request<Body>>::poll_ready(&mut self.inner, cx);
        ready.map_err(|never: Infallible| match never {})
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let fault = self.spy.fault(&method, &path);
        let lost = || std::io::Error::other("the test lost it");
        if fault == Some(How::LoseRequest) {
            return Box::pin(async move { Err(lost()) });
        }
        if self.spy.forbidden.lock().unwrap().iter().any(|end| path.ends_with(end)) {
            return Box::pin(async move { Ok(forbidden(&path)) });
        }
        let rewrite = self.spy.rewrite.lock().unwrap().filter(|_| method == Method::PATCH);
        let (calls, mut inner) = (self.spy.calls.clone(), self.inner.clone());
        Box::pin(async move {
            let request = match rewrite {
                Some(rewrite) => rewritten(request, rewrite).await,
                None => request,
            };
            let Ok(response) = inner.call(request).await;
            calls.lock().unwrap().push(Call { method, path, status: response.status() });
            if fault == Some(How::LoseAnswer) { Err(lost()) } else { Ok(response) }
        })
    }
}

async fn rewritten(request: Request<Body>, rewrite: Rewrite) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    let mut patch = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
    rewrite(parts.uri.path(), &mut patch);
    parts.headers.remove("content-length");
    Request::from_parts(parts, Body::from(patch.to_string().into_bytes()))
}

fn forbidden(path: &str) -> Response<atoll_apiserver::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("{path} is forbidden"),
    });
    let body = http_body_util::Full::from(status.to_string());
    let response = Response::builder().status(StatusCode::FORBIDDEN);
    let response = response.header("content-type", "application/json");
    response.body(body.map_err(|never| match never {}).boxed_unsync()).unwrap()
}

/// A hub.
pub(crate) struct Hub {
    pub(crate) server: Server,
    pub(crate) clock: Clock,
    /// The test's own client, which is not recorded.
    pub(crate) client: Client,
}

impl Hub {
    /// With Atoll's CRDs, and the namespaces `atoll-system` and `shop`.
    pub(crate) async fn open() -> Self {
        let (base, start): (Timestamp, _) =
            ("2026-01-01T00:00:00Z".parse().unwrap(), Instant::now());
        let now = move || base + jiff::SignedDuration::try_from(start.elapsed()).unwrap();
        let options = Options { clock: Arc::new(now), ..Options::memory() };
        let server = Server::open(options).unwrap();
        let client = server.client();
        let hub = Self { server, clock: Clock::from_fn(now), client };
        let crds: Api<CustomResourceDefinition> = Api::all(hub.client.clone());
        for crd in atoll_api::crds::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        for namespace in ["atoll-system", "shop"] {
            hub.apply("v1", "Namespace", None, json!({"metadata": {"name": namespace}})).await;
        }
        hub
    }

    /// A hub restored from a backup made now.
    pub(crate) fn copy(&self) -> Self {
        let now = self.clock.clone();
        let options = Options { clock: Arc::new(move || now.now()), seed: 99, ..Options::memory() };
        let server = self.server.copy(options).unwrap();
        let client = server.client();
        Self { server, clock: self.clock.clone(), client }
    }

    /// A client whose requests are recorded.
    pub(crate) fn spied(&self) -> (Client, Spy) {
        let spy = Spy::default();
        let service = Spied { inner: self.server.service(), spy: spy.clone() };
        (Client::new(service, "default"), spy)
    }

    pub(crate) async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> (Api<DynamicObject>, ApiResource) {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, _) = discovery::pinned_kind(&self.client, &gvk).await.unwrap();
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        (api, resource)
    }

    /// Creates an object, or replaces its spec.
    pub(crate) async fn apply(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        mut object: Value,
    ) {
        let (api, _) = self.api(api_version, kind, namespace).await;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if api.get_opt(&name).await.unwrap().is_some() {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&object)).await.unwrap();
        } else {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
    }

    pub(crate) async fn patch_status(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        status: Value,
    ) {
        let (api, _) = self.api(api_version, kind, None).await;
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// An object as JSON, or null.
    pub(crate) async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Value {
        let (api, _) = self.api(api_version, kind, namespace).await;
        let found = api.get_opt(name).await.unwrap();
        found.map_or(Value::Null, |object| serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn delete(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) {
        let (api, _) = self.api(api_version, kind, namespace).await;
        api.delete(name, &Default::default()).await.unwrap();
    }

    /// A member that counts as connected.
    pub(crate) async fn cluster(&self, name: &str) {
        let kind = ("cluster.atoll.dev/v1alpha1", "Cluster");
        self.apply(kind.0, kind.1, None, json!({"metadata": {"name": name}, "spec": {}})).await;
        let apis = json!([
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
        ]);
        let status = json!({
            "session": {"state": "Connected", "epoch": 1}, "apiEnablements": apis,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        self.patch_status(kind.0, kind.1, name, status).await;
    }

    pub(crate) async fn policy(&self, name: &str, kind: (&str, &str), placement: Value) {
        let spec = json!({
            "resourceSelectors": [{"apiVersion": kind.0, "kind": kind.1}],
            "placement": placement,
        });
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.apply("policy.atoll.dev/v1alpha1", "PropagationPolicy", Some("shop"), object).await;
    }

    pub(crate) async fn deployment(&self, name: &str, replicas: i64) {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
                },
            },
        });
        self.apply("apps/v1", "Deployment", Some("shop"), object).await;
    }

    pub(crate) async fn binding(&self, name: &str) -> Value {
        self.get("work.atoll.dev/v1alpha1", "ResourceBinding", Some("shop"), name).await
    }
}
