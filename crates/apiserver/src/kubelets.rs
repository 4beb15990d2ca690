//! Subresources of pods that kube-apiserver passes on to the kubelet of the pod's node: logs and sessions.

use std::sync::Arc;

use atoll_apimachinery::{ApiError, response::Body};
use futures::future::BoxFuture;
use http::{Response, request::Parts};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A request to the kubelet of a pod, authorised by the server.
pub struct PodRequest {
    /// The pod.
    pub pod: Arc<Value>,
    /// `log`, `exec`, `attach` or `portforward`.
    pub subresource: String,
    /// Method, query, headers, and the connection if it can change its protocol.
    pub parts: Parts,
    /// Cancelled when the listener stops: answers that stream must end then.
    pub closing: CancellationToken,
}

/// The kubelets behind a server.
pub trait Kubelets: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    /// When the request is not valid, or the pod's container cannot answer it.
    fn answer(&self, request: PodRequest) -> BoxFuture<'_, Result<Response<Body>, ApiError>>;
}
