//! Kubelets whose sessions greet and then say nothing more, for scenarios about connections.

use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{Body, JSON, respond};
use atoll_apiserver::{Kubelets, PodRequest};
use atoll_http::upgrade;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Response};
use tokio::io::AsyncWriteExt;

/// A WebSocket message on the channel of standard output.
pub(crate) const GREETING: &[u8] = b"\x82\x06\x01hello";

pub(crate) struct Greeting;

impl Kubelets for Greeting {
    fn answer(&self, request: PodRequest) -> BoxFuture<'_, Result<Response<Body>, ApiError>> {
        async move {
            let PodRequest { mut parts, closing, .. } = request;
            let connection = upgrade::take(&mut parts.extensions)
                .ok_or_else(|| ApiError::bad_request("only upgrades"))?;
            tokio::spawn(async move {
                let mut io = connection.io().await.unwrap();
                io.write_all(GREETING).await.unwrap();
                closing.cancelled().await;
            });
            let mut response = respond(101, JSON, Bytes::new());
            let headers = response.headers_mut();
            headers.clear();
            let answers = [
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ];
            for (name, value) in answers {
                headers.insert(name, HeaderValue::from_static(value));
            }
            Ok(response)
        }
        .boxed()
    }
}
