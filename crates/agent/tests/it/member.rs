//! The member: the embedded API server behind a connection that counts, delays and cuts requests.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_api::{Clock, ManifestHash, marks};
use atoll_apiserver::{Options, Server};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// Virtual time after which an expected state counts as never reached.
const PATIENCE: Duration = Duration::from_secs(300);
/// Virtual time between two checks.
const LOOK: Duration = Duration::from_millis(100);

/// Faults for the agent's requests whose path contains this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Never answers.
    Hang,
    /// 503.
    Unavailable,
    /// A webhook of the member rejects every write.
    Denied,
    /// The agent lacks permission.
    Forbidden,
    /// Writes are done, and answered [`LATE`] later.
    LateAnswer,
}

/// Virtual time between a write and its answer: events of the object arrive before it.
const LATE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Member {
    server: Server,
    /// The agent's writes to paths outside its own, as `METHOD path`.
    writes: Arc<Mutex<Vec<String>>>,
    /// Distinct requests of the agent.
    requests: Arc<Mutex<BTreeSet<String>>>,
    /// Paths that the agent watched, and the form of objects that it requested.
    watched: Arc<Mutex<BTreeMap<String, String>>>,
    faults: Arc<Mutex<BTreeMap<String, Fault>>>,
}

impl Member {
    pub(crate) fn start(clock: &Clock) -> Self {
        let clock = clock.clone();
        let options = Options { clock: Arc::new(move || clock.now()), ..Options::memory() };
        let server = Server::open(options).unwrap();
        let controllers = server.clone();
        tokio::spawn(async move { controllers.run_controllers(Default::default()).await });
        Self {
            server,
            writes: Default::default(),
            requests: Default::default(),
            watched: Default::default(),
            faults: Default::default(),
        }
    }

    /// The agent's client: counted and subject to faults.
    pub(crate) fn agent_client(&self) -> Client {
        let member = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let member = member.clone();
            async move {
                let path = request.uri().path().to_owned();
                let line = format!("{} {}", request.method(), request.uri());
                member.requests.lock().unwrap().insert(line);
                if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                    let accept = request.headers().get(http::header::ACCEPT);
                    let accept = accept.map_or("", |accept| accept.to_str().unwrap());
                    member.watched.lock().unwrap().insert(path.clone(), accept.to_owned());
                }
                if request.method() != http::Method::GET && !path.contains("/atoll-system/") {
                    let line = format!("{} {path}", request.method());
                    member.writes.lock().unwrap().push(line);
                }
                let fault = member.fault(&path);
                match fault {
                    Some(Fault::Hang) => std::future::pending().await,
                    Some(Fault::Unavailable) => {
                        Ok::<_, Infallible>(failure(503, "ServiceUnavailable", "it is on fire"))
                    }
                    Some(Fault::Forbidden) => {
                        Ok(failure(403, "Forbidden", "the agent may not do that"))
                    }
                    Some(Fault::Denied) if request.method() != http::Method::GET => {
                        let denied =
                            "admission webhook \"rules.example.io\" denied the request: no";
                        Ok(failure(403, "Forbidden", denied))
                    }
                    Some(Fault::Denied | Fault::LateAnswer) | None => {
                        let late = fault == Some(Fault::LateAnswer)
                            && request.method() != http::Method::GET;
                        let mut server = member.server.service();
                        let response = tower::Service::call(&mut server, request).await?;
                        if late {
                            tokio::time::sleep(LATE).await;
                        }
                        Ok(response)
                    }
                }
            }
        });
        Client::new(service, "default")
    }

    fn fault(&self, path: &str) -> Option<Fault> {
        let faults = self.faults.lock().unwrap();
        faults.iter().find(|(text, _)| path.contains(*text)).map(|(_, fault)| *fault)
    }

    pub(crate) fn set_fault(&self, path: &str, fault: Option<Fault>) {
        let mut faults = self.faults.lock().unwrap();
        match fault {
            Some(fault) => faults.insert(path.to_owned(), fault),
            None => faults.remove(path),
        };
    }

    /// The agent's writes since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }

    /// Every request of the agent so far.
    pub(crate) fn requests(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Paths that the agent began to watch since the last call, each with the requested form.
    pub(crate) fn watched(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.watched.lock().unwrap())
    }

    async fn call(&self, method: &str, path: &str, kind: &str, body: Value) -> kube::Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body)
            .unwrap();
        self.server.client().request(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        match self.call("GET", path, "application/json", Value::Null).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Creates an object as the given manager.
    pub(crate) async fn create(&self, path: &str, manager: &str, object: Value) -> Value {
        let path = format!("{path}?fieldManager={manager}");
        self.call("POST", &path, "application/json", object).await.unwrap()
    }

    /// Merge patch as the given manager.
    pub(crate) async fn edit(&self, path: &str, manager: &str, patch: Value) -> Value {
        let path = format!("{path}?fieldManager={manager}");
        self.call("PATCH", &path, "application/merge-patch+json", patch).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.call("DELETE", path, "application/json", Value::Null).await.unwrap();
    }

    /// Waits until the object meets the condition.
    pub(crate) async fn until(
        &self,
        path: &str,
        good: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut last = None;
        let wait = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.get(path).await;
                if good(last.as_ref()) {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let waited = wait.await;
        assert!(waited.is_ok(), "{path} stays {last:#?}");
        last
    }
}

type Answer = http::Response<atoll_apiserver::Body>;

/// A `Status` of a failure.
fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let mut response = http::Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

/// A manifest as the controller renders it.
pub(crate) fn marked(mut manifest: Value, hash: &str, claims: &str) -> Value {
    let metadata = &mut manifest["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][marks::MANAGED_BY] = json!(marks::MANAGED_BY_VALUE);
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][marks::HASH] = json!(hash);
    metadata["annotations"][marks::CLAIMS] = json!(claims);
    manifest
}

/// A manifest with its real hash, by which an agent that restarts knows it on the member.
pub(crate) fn rendered(mut manifest: Value) -> Value {
    let mut bare = manifest.clone();
    let metadata = bare["metadata"].as_object_mut().unwrap();
    metadata.remove("labels");
    metadata.remove("annotations");
    manifest["metadata"]["annotations"][marks::HASH] = json!(ManifestHash::of(&bare));
    manifest
}

pub(crate) fn config(namespace: &str, name: &str, hash: &str, value: &str) -> Value {
    marked(
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"key": value, "other": "constant"},
        }),
        hash,
        "claim-1",
    )
}

pub(crate) fn deployment(name: &str, hash: &str, replicas: i64) -> Value {
    marked(
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [
                        {"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80}]},
                    ]},
                },
            },
        }),
        hash,
        "claim-1",
    )
}

pub(crate) const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

pub(crate) fn config_path(name: &str) -> String {
    format!("{SHOP}/{name}")
}

pub(crate) fn deployment_path(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/shop/deployments/{name}")
}
