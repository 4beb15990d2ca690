//! An interpreter webhook on loopback: real TLS, answers that a test chooses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::ByteString;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What the server does with a question.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers with `response`, to which it adds uid and success.
    Answer(Value),
    /// Answers with this text.
    Text(String),
    /// Answers with this status.
    Status(u16),
    /// Reads the question and does not answer.
    Nothing,
    /// Begins an answer that never ends.
    Endless,
}

type Choose = dyn Fn(&Value) -> Reply + Send + Sync;

/// The server; it stops when this is dropped.
pub(crate) struct Webhook {
    address: std::net::SocketAddr,
    authority: String,
    reply: Arc<Mutex<Arc<Choose>>>,
    /// Whole messages.
    questions: Arc<Mutex<Vec<Value>>>,
    running: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Webhook {
    pub(crate) async fn start(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(atoll_http::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reply: Arc<Mutex<Arc<Choose>>> = Arc::new(Mutex::new(Arc::new(reply)));
        let questions: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (choose, seen, tls) =
            (reply.clone(), questions.clone(), TlsAcceptor::from(Arc::new(tls)));
        let running = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (choose, seen, tls) = (choose.clone(), seen.clone(), tls.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate hangs up.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    serve(stream, &choose, &seen).await;
                });
            }
        });
        Self { address, authority: issued.cert.pem(), reply, questions, running }
    }

    /// Answers differently from now on.
    pub(crate) fn reply(&self, reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.reply.lock().unwrap() = Arc::new(reply);
    }

    /// The questions since the last look.
    pub(crate) fn take_questions(&self) -> Vec<Value> {
        self.take_messages().into_iter().map(|mut message| message["request"].take()).collect()
    }

    /// The messages with the questions since the last look.
    pub(crate) fn take_messages(&self) -> Vec<Value> {
        std::mem::take(&mut *self.questions.lock().unwrap())
    }

    /// Its entry in a configuration, for all operations of `apps.example.io/v1 WebApp`.
    pub(crate) fn entry(&self) -> Value {
        json!({
            "name": "meaning",
            "clientConfig": {
                "url": format!("https://localhost:{}/ask", self.address.port()),
                "caBundle": ByteString(self.authority.clone().into_bytes()),
            },
            "rules": [{"operations": ["*"], "apiGroups": ["apps.example.io"],
                "apiVersions": ["v1"], "kinds": ["WebApp"]}],
            "timeoutSeconds": 1,
            "interpreterContextVersions": ["v1alpha1"],
        })
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    choose: &Mutex<Arc<Choose>>,
    seen: &Mutex<Vec<Value>>,
) {
    let Some(question) = read(&mut stream).await else { return };
    seen.lock().unwrap().push(question.clone());
    let choose = choose.lock().unwrap().clone();
    let (status, text) = match choose(&question["request"]) {
        Reply::Answer(mut response) => {
            response["uid"] = match &response["uid"] {
                Value::Null => question["request"]["uid"].clone(),
                chosen => chosen.clone(),
            };
            if response["successful"].is_null() {
                response["successful"] = true.into();
            }
            let message = json!({"apiVersion": question["apiVersion"],
                "kind": "ResourceInterpreterContext", "response": response});
            (200, message.to_string())
        }
        Reply::Text(text) => (200, text),
        Reply::Status(status) => (status, "no".to_owned()),
        Reply::Nothing => return tokio::time::sleep(Duration::from_secs(60)).await,
        Reply::Endless => return endless(stream).await,
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    // The client may not wait for the answer.
    let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn endless(mut stream: impl AsyncWrite + Unpin) {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() {
        sent = stream.write_all(chunk.as_bytes()).await;
    }
}

/// A request's body as JSON; `None` if the client hangs up.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        bytes.extend(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let length = text[..end].lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = &bytes[end + 4..];
        if body.len() >= length.unwrap().parse::<usize>().unwrap() {
            return Some(serde_json::from_slice(body).unwrap());
        }
    }
}
