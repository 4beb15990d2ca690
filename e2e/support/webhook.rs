//! An interpreter webhook on loopback.

use std::sync::Arc;
use std::time::Duration;

use atoll_http::connections::Limits;
use atoll_http::serve::{Incoming, Settings, serve};
use atoll_http::tls::{ServerCertificate, client_verifier, server_config};
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

const SETTINGS: Settings = Settings {
    connections: Limits { total: 64, each: 64, grace: Duration::from_secs(30) },
    head: Duration::from_secs(30),
    lifetime: None,
    stop: Duration::ZERO,
};

/// The server; it stops when this is dropped.
pub(crate) struct Webhook {
    port: u16,
    authority: String,
    _running: DropGuard,
}

impl Webhook {
    /// `answer` gets the request of a message and returns the response; without one the status is 503.
    pub(crate) async fn start(
        answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let certificate = ServerCertificate::new(vec![issued.cert.der().clone()], key).unwrap();
        let authority = issued.cert.pem();
        let tls = server_config(certificate, client_verifier(&authority).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let token = CancellationToken::new();
        let answer = Arc::new(answer);
        let service = move |_: &_| {
            let answer = answer.clone();
            tower::service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move { Ok(respond(request, &*answer).await) }
            })
        };
        tokio::spawn(serve(listener, Some(tls), SETTINGS, service, token.clone()));
        Self { port, authority, _running: token.drop_guard() }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/interpret", self.port)
    }

    /// Its certificate, as `caBundle`.
    pub(crate) fn authority(&self) -> ByteString {
        ByteString(self.authority.clone().into_bytes())
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: &(impl Fn(&Value) -> Option<Value> + ?Sized),
) -> Response<String> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let Some(mut response) = answer(&message["request"]) else {
        return Response::builder().status(503).body("away".to_owned()).unwrap();
    };
    response["uid"] = message["request"]["uid"].clone();
    response["successful"] = true.into();
    let message =
        json!({"apiVersion": message["apiVersion"], "kind": message["kind"], "response": response});
    Response::new(message.to_string())
}
