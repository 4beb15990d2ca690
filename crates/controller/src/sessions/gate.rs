//! Authorises each call before any byte of its body is read, so that a refused caller costs no memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use atoll_protocol::transport::{MAX_FROM_AGENT, MAX_MESSAGE, MAX_UNARY_MESSAGE};
use atoll_protocol::v1::agent_service_server::AgentServiceServer;
use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::Service as Call;
use tonic::server::NamedService;

use super::service::Service;

/// The service behind the authorisation.
#[derive(Clone)]
pub(super) struct Gate {
    service: Arc<Service>,
    /// For unary calls.
    unary: AgentServiceServer<Service>,
    sessions: AgentServiceServer<Service>,
}

impl Gate {
    pub(super) fn new(service: Arc<Service>) -> Self {
        let server = || AgentServiceServer::from_arc(service.clone());
        Self {
            unary: server()
                .max_decoding_message_size(MAX_UNARY_MESSAGE)
                .max_encoding_message_size(MAX_UNARY_MESSAGE),
            sessions: server()
                .max_decoding_message_size(MAX_FROM_AGENT)
                .max_encoding_message_size(MAX_MESSAGE),
            service,
        }
    }
}

impl NamedService for Gate {
    const NAME: &'static str = <AgentServiceServer<Service> as NamedService>::NAME;
}

impl Call<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let extensions = request.extensions();
        let (allowed, server) = match method {
            "Enroll" => (self.service.may_enrol(extensions), &mut self.unary),
            "Session" => (self.service.authorise(extensions.get()).map(drop), &mut self.sessions),
            // `Renew`, and methods that do not exist.
            _ => (self.service.authorise(extensions.get()).map(drop), &mut self.unary),
        };
        match allowed {
            Ok(()) => server.call(request),
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
