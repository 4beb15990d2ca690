//! `metrics.k8s.io/v1beta1` of a simulated member, for `kubectl top`.

use atoll_api::Clock;
use atoll_api::quantity::Quantity;
use atoll_apimachinery::ApiError;
use atoll_apimachinery::read_only::{
    Column, VirtualKind, VirtualList, VirtualQuery, VirtualResource, VirtualStream,
};
use atoll_simulator::runtime::{of_node, of_pod};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

/// Kinds of the metrics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Nodes,
    Pods,
}

/// The use of nodes or pods.
pub(super) struct Metrics {
    pub(super) of: Of,
    pub(super) client: Client,
    pub(super) clock: Clock,
}

impl Metrics {
    async fn read(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let mut answer: Value = self.client.request(request).await.map_err(|error| {
            ApiError::unavailable(format!("the member's objects cannot be read: {error}"))
        })?;
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err(ApiError::internal("the member's list has no items")),
        }
    }

    async fn all(&self, namespace: Option<&str>) -> Result<Vec<Value>, ApiError> {
        let now = self.clock.now();
        Ok(match (self.of, namespace) {
            (Of::Pods, None) => {
                let pods = self.read("/api/v1/pods").await?;
                pods.iter().filter_map(|pod| of_pod(pod, now)).collect()
            }
            (Of::Pods, Some(namespace)) => {
                let pods = self.read(&format!("/api/v1/namespaces/{namespace}/pods")).await?;
                pods.iter().filter_map(|pod| of_pod(pod, now)).collect()
            }
            (Of::Nodes, _) => {
                let nodes = self.read("/api/v1/nodes").await?;
                let pods = self.read("/api/v1/pods").await?;
                nodes.iter().map(|node| of_node(node, &pods, now)).collect()
            }
        })
    }
}

impl VirtualResource for Metrics {
    fn kind(&self) -> VirtualKind {
        let (kind, plural) = match self.of {
            Of::Nodes => ("NodeMetrics", "nodes"),
            Of::Pods => ("PodMetrics", "pods"),
        };
        VirtualKind {
            group: "metrics.k8s.io".to_owned(),
            version: "v1beta1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: self.of == Of::Pods,
            selectable: Vec::new(),
            columns: vec![Column::text("Name"), Column::text("CPU"), Column::text("Memory")],
            schema: None,
        }
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let usage = |resource: &str| {
            let containers = object["containers"].as_array().into_iter().flatten();
            let of_each = containers.map(|container| &container["usage"]);
            let all =
                of_each.chain([&object["usage"]]).filter_map(|usage| usage[resource].as_str());
            all.filter_map(|text| Quantity::new(text).milli().ok()).sum::<i128>()
        };
        let cpu = Quantity::from_milli_canonical(usage("cpu"));
        let memory = Quantity::from_bytes(usage("memory") / 1000);
        vec![object["metadata"]["name"].clone(), cpu.as_str().into(), memory.as_str().into()]
    }

    fn get<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        async move {
            let all = self.all(namespace).await?;
            Ok(all.into_iter().find(|object| object["metadata"]["name"] == name))
        }
        .boxed()
    }

    fn list(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualList, ApiError>> {
        async move {
            let mut items = self.all(query.namespace.as_deref()).await?;
            items.retain(|object| query.selectors.matches(object, &[]));
            // As a metrics server, which has no versions and no pages.
            Ok(VirtualList { items, ..VirtualList::default() })
        }
        .boxed()
    }

    fn watch(&self, _: VirtualQuery) -> BoxFuture<'_, Result<VirtualStream, ApiError>> {
        std::future::ready(Err(ApiError::method_not_allowed())).boxed()
    }
}
