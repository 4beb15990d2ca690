//! Serves one request of a user.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::headers::Upgrade;
use atoll_protocol::tunnel;
use atoll_protocol::v1::member_proxy_server::MemberProxy;
use atoll_protocol::v1::tunnel_request::Message;
use atoll_protocol::v1::{ProxyRequest, TunnelRequest, TunnelResponse};
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use http::{Request as HttpRequest, StatusCode};
use kube::client::Body;
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status, Streaming};

use super::super::enrol::chain;
use super::answer;
use super::proxy::Proxy;
use super::request::{Prepared, prepare};

/// Limit of the body of a request in bytes, a little above kube-apiserver's 3 MiB. Files go over upgraded connections.
const MAX_BODY: usize = 4 << 20;
/// Limit of the wait for the whole body.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// The requests of one connection.
pub(super) struct Service {
    pub(super) proxy: Arc<Proxy>,
    /// The term of the session that the connection belongs to.
    pub(super) term: u64,
}

#[tonic::async_trait]
impl MemberProxy for Service {
    type TunnelStream = BoxStream<'static, Result<TunnelResponse, Status>>;

    async fn tunnel(
        &self,
        request: Request<Streaming<TunnelRequest>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let mut inbound = request.into_inner();
        let head = tunnel::head(&mut inbound).await?;
        self.check_term(&head)?;
        let Prepared { request, upgrade } = prepare(&self.proxy.passed, head)?;
        match upgrade {
            None => {
                let body = tokio::time::timeout(BODY_LIMIT, self.body(&mut inbound)).await;
                let (body, memory) =
                    body.map_err(|_| Status::deadline_exceeded("the body takes too long"))??;
                let answered = self.send(HttpRequest::from_parts(request, body.into())).await?;
                drop(memory);
                if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Err(Status::internal("the member switched protocols without a cause"));
                }
                Ok(Response::new(answer::plain(answered)))
            }
            Some(asked) => {
                let mut answered =
                    self.send(HttpRequest::from_parts(request, Body::empty())).await?;
                if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
                    return Ok(Response::new(answer::plain(answered)));
                }
                if Upgrade::of(answered.headers()) != Ok(Some(asked)) {
                    return Err(Status::internal("the member switched to another protocol"));
                }
                let io = hyper::upgrade::on(&mut answered).await.map_err(|error| {
                    Status::unavailable(format!("the member did not switch: {}", chain(&error)))
                })?;
                Ok(Response::new(answer::upgraded(&answered, io, inbound)))
            }
        }
    }
}

impl Service {
    fn check_term(&self, head: &ProxyRequest) -> Result<(), Status> {
        if head.term < self.term {
            return Err(Status::failed_precondition(format!(
                "the request has term {}; the agent has already obeyed term {}",
                head.term, self.term
            )));
        }
        Ok(())
    }

    async fn send(&self, request: HttpRequest<Body>) -> Result<http::Response<Body>, Status> {
        self.proxy.client.send(request).await.map_err(|error| {
            Status::unavailable(format!(
                "the member's API server did not answer: {}",
                chain(&error)
            ))
        })
    }

    /// The body of a request, and its share of the memory for bodies. It is sent to the member as a whole, with a length
    /// that the agent counted itself.
    async fn body(
        &self,
        inbound: &mut Streaming<TunnelRequest>,
    ) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Status> {
        let (mut body, mut held) = (BytesMut::new(), Vec::new());
        while let Some(message) = inbound.message().await? {
            let Some(Message::Body(chunk)) = message.message else {
                return Err(Status::invalid_argument("a second head"));
            };
            if body.len() + chunk.len() > MAX_BODY {
                let text = format!("the body has more than {MAX_BODY} bytes");
                return Err(Status::out_of_range(text));
            }
            let kib = u32::try_from(chunk.len().div_ceil(1024)).unwrap_or(u32::MAX);
            let memory = self.proxy.bodies.clone().try_acquire_many_owned(kib);
            held.push(memory.map_err(|_| {
                Status::resource_exhausted("too many bodies of requests wait for this member")
            })?);
            body.extend_from_slice(&chunk);
        }
        Ok((body.freeze(), held))
    }
}
