//! Shared by the tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use atoll_apiserver::{Options, Server};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

/// 2026-01-01T00:00:00Z, where the tests' clock starts.
pub(crate) const START: i64 = 1_767_225_600;

/// A server in memory with a clock that moves only when told to.
pub(crate) struct Api {
    pub(crate) server: Server,
    clock: Arc<AtomicI64>,
}

/// An answer: code, body, and the Warning headers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{self:#?}");
        self.body
    }

    /// Checks a refusal's code and reason; returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str) -> &str {
        assert_eq!((self.code, self.body["reason"].as_str()), (code, Some(reason)), "{self:#?}");
        assert_eq!(self.body["kind"], "Status");
        self.body["message"].as_str().unwrap()
    }
}

impl Api {
    pub(crate) fn new() -> Self {
        Self::with(Options::memory())
    }

    pub(crate) fn with(options: Options) -> Self {
        let clock = Arc::new(AtomicI64::new(START));
        let now = clock.clone();
        let server = Server::open(Options {
            clock: Arc::new(move || {
                jiff::Timestamp::from_second(now.load(Ordering::Relaxed)).unwrap()
            }),
            ..options
        })
        .unwrap();
        Api { server, clock }
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.server.service().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|v| v.to_str().unwrap().to_owned())
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
        Answer { code, body, warnings }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn table(&self, path: &str) -> Value {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        self.send(Method::GET, path, &[("accept", accept)], "").await.ok()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], "").await
    }

    async fn patch(&self, kind: &str, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, &[("content-type", kind)], body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.patch("application/merge-patch+json", path, body).await
    }

    pub(crate) async fn json_patch(&self, path: &str, body: &Value) -> Answer {
        self.patch("application/json-patch+json", path, body).await
    }

    pub(crate) async fn strategic(&self, path: &str, body: &Value) -> Answer {
        self.patch("application/strategic-merge-patch+json", path, body).await
    }

    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Answer {
        self.patch("application/apply-patch+yaml", path, body).await
    }

    /// Opens a watch; frames are read with [`Frames::next`].
    pub(crate) async fn watch(&self, path: &str) -> Frames {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Frames {
        let request =
            Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
        let response = self.server.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Frames { body: response.into_body(), buffer: Vec::new() }
    }
}

/// The frames of a watch.
pub(crate) struct Frames {
    body: atoll_apiserver::Body,
    buffer: Vec<u8>,
}

impl Frames {
    /// The next frame; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let wait = Duration::from_secs(3 * 3600);
            let frame =
                tokio::time::timeout(wait, self.body.frame()).await.expect("watch is stuck")?;
            self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// The next frame as (type, name, data), for objects with `data.v`.
    pub(crate) async fn short(&mut self) -> String {
        let Some(frame) = self.next().await else { return "end".to_owned() };
        let name = frame["object"]["metadata"]["name"].as_str().unwrap_or("");
        format!("{} {name}", frame["type"].as_str().unwrap()).trim_end().to_owned()
    }

    /// Whether no frame is ready now.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.body.frame() => false,
            () = tokio::task::yield_now() => true,
        }
    }
}

/// The resourceVersion of an object or list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": "1"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1.25"}]},
    })
}

pub(crate) fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx:1.25"}]},
            },
        },
    })
}
