//! A controller, the agent's service and a member's API server over real sockets.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_access::identity::Passed;
use atoll_protocol::tunnel;
use atoll_protocol::v1::member_proxy_client::MemberProxyClient;
use atoll_protocol::v1::tunnel_request::Message as Sent;
use atoll_protocol::v1::tunnel_response::Message;
use atoll_protocol::v1::{
    ProxyAnswer, ProxyHeader, ProxyRequest, ProxyUser, TunnelRequest, TunnelResponse,
};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::Proxy;
use super::service::Service;

const LIMIT: Duration = Duration::from_secs(10);

/// What the member received: line, headers, body.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

/// A member's API server that records requests and echoes upgraded connections.
async fn member() -> (kube::Client, Seen) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let seen = Seen::default();
    let recorded = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = recorded.clone();
            let service = hyper::service::service_fn(move |request| answer(request, seen.clone()));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.half_close(true);
            let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
            tokio::spawn(connection);
        }
    });
    (crate::member_client(kube::Config::new(url)).unwrap(), seen)
}

type Answer = Response<Full<Bytes>>;

async fn answer(mut request: Request<Incoming>, seen: Seen) -> Result<Answer, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let headers = request.headers().clone();
    let upgrade = headers.get("upgrade").cloned();
    let mut response = Response::new(Full::from("{\"kind\":\"Status\"}"));
    if let Some(protocol) = upgrade.filter(|_| !line.contains("/denied")) {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            let mut buffer = [0; 5];
            io.read_exact(&mut buffer).await.unwrap();
            io.write_all(&buffer).await.unwrap();
            io.shutdown().await.unwrap();
        });
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let to = if line.contains("/liar") { "websocket".parse().unwrap() } else { protocol };
        response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", to);
    }
    let body = match request.body_mut().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    seen.lock().unwrap().push((line, headers, body));
    Ok(response)
}

/// The controller's end of a tunnel to this member.
async fn tunnel(client: kube::Client, passed: Passed) -> MemberProxyClient<Channel> {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let service = Service { proxy: Proxy::new(client, passed), term: 5 };
    tokio::spawn(async move { tunnel::serve(theirs, service, tunnel::MAX_STREAMS).await });
    tunnel::client(ours, tunnel::MAX_STREAMS).await.unwrap()
}

fn head(method: &str, path: &str) -> ProxyRequest {
    let groups = ["devs", "system:masters", "system:authenticated"].map(str::to_owned).to_vec();
    ProxyRequest {
        term: 5,
        method: method.to_owned(),
        path: path.to_owned(),
        user: Some(ProxyUser { name: "jane".to_owned(), groups, ..ProxyUser::default() }),
        ..ProxyRequest::default()
    }
}

fn header(name: &str, value: &'static str) -> ProxyHeader {
    ProxyHeader { name: name.to_owned(), value: Bytes::from_static(value.as_bytes()) }
}

/// A request with its body; the answer's head, its body, and how it ended.
async fn ask(
    tunnel: &mut MemberProxyClient<Channel>,
    head: ProxyRequest,
    body: &'static str,
) -> Result<(ProxyAnswer, Vec<u8>, Option<Status>), Status> {
    let mut messages = vec![TunnelRequest { message: Some(Sent::Head(head)) }];
    if !body.is_empty() {
        let body = Bytes::from_static(body.as_bytes());
        messages.push(TunnelRequest { message: Some(Sent::Body(body)) });
    }
    let answer = tunnel.tunnel(futures::stream::iter(messages)).await?;
    let mut stream = answer.into_inner();
    let answer = first(&mut stream).await;
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout(LIMIT, stream.message()).await.unwrap() {
            Ok(Some(TunnelResponse { message: Some(Message::Body(bytes)) })) => body.extend(bytes),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return Ok((answer, body, None)),
            Err(status) => return Ok((answer, body, Some(status))),
        }
    }
}

async fn first(stream: &mut Streaming<TunnelResponse>) -> ProxyAnswer {
    match tokio::time::timeout(LIMIT, stream.message()).await.unwrap().unwrap() {
        Some(TunnelResponse { message: Some(Message::Head(head)) }) => head,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_runs_on_the_member_as_the_hubs_user_and_never_as_the_agent() {
    let (client, seen) = member().await;
    let groups: BTreeSet<String> = ["devs".to_owned()].into();
    let mut tunnel = tunnel(client, Passed { groups, ..Passed::default() }).await;
    let mut request = head("POST", "/api/v1/namespaces/shop/pods?dryRun=All");
    request.headers = vec![
        header("content-type", "application/json"),
        header("content-length", "9999"),
        header("transfer-encoding", "chunked"),
        header("authorization", "Bearer stolen"),
        header("impersonate-user", "system:admin"),
        header("impersonate-group", "system:masters"),
    ];
    let (answer, body, end) = ask(&mut tunnel, request, "{\"kind\":\"Pod\"}").await.unwrap();
    assert_eq!(
        (answer.status, &body[..], end.is_none()),
        (200, &b"{\"kind\":\"Status\"}"[..], true)
    );
    let (line, headers, body) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(line, "POST /api/v1/namespaces/shop/pods?dryRun=All");
    assert_eq!(&body[..], b"{\"kind\":\"Pod\"}");
    let all = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(all("impersonate-user"), ["jane"]);
    assert_eq!(all("impersonate-group"), ["devs", "system:authenticated"]);
    assert_eq!((all("content-length"), all("transfer-encoding")), (vec!["14".to_owned()], vec![]));
    assert_eq!(all("authorization"), Vec::<String>::new());
}

#[tokio::test]
async fn requests_that_a_rule_refuses_do_not_reach_the_member() {
    let (client, seen) = member().await;
    let mut tunnel = tunnel(client, Passed::default()).await;
    let code = |refused: Result<(ProxyAnswer, Vec<u8>, Option<Status>), Status>| {
        refused.unwrap_err().code()
    };
    for path in ["/api/../x", "//evil/", "http://evil/", "/a%2fb", "/a\r\nHost: evil"] {
        assert_eq!(
            code(ask(&mut tunnel, head("GET", path), "").await),
            Code::InvalidArgument,
            "{path}"
        );
    }
    for method in ["CONNECT", "TRACE", "G T"] {
        assert_eq!(
            code(ask(&mut tunnel, head(method, "/api"), "").await),
            Code::InvalidArgument,
            "{method}"
        );
    }
    for user in ["", "system:admin", " jane", "atoll:hub:serviceaccount:a:b"] {
        let user = Some(ProxyUser { name: user.to_owned(), ..ProxyUser::default() });
        let refused = ask(&mut tunnel, ProxyRequest { user, ..head("GET", "/api") }, "").await;
        assert_eq!(code(refused), Code::PermissionDenied);
    }
    assert_eq!(
        code(ask(&mut tunnel, ProxyRequest { user: None, ..head("GET", "/api") }, "").await),
        Code::PermissionDenied
    );
    let old = ProxyRequest { term: 4, ..head("GET", "/api") };
    assert_eq!(code(ask(&mut tunnel, old, "").await), Code::FailedPrecondition);
    let h2c = ProxyRequest { upgrade: "h2c".to_owned(), ..head("GET", "/api") };
    assert_eq!(code(ask(&mut tunnel, h2c, "").await), Code::InvalidArgument);
    let large = "x".repeat(500_000).leak();
    let messages = std::iter::once(Sent::Head(head("POST", "/api")))
        .chain((0..9).map(|_| Sent::Body(Bytes::from_static(large.as_bytes()))))
        .map(|message| TunnelRequest { message: Some(message) });
    let refused = tunnel.tunnel(futures::stream::iter(messages.collect::<Vec<_>>())).await;
    assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_mistaken_for_a_complete_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = crate::member_client(kube::Config::new(url)).unwrap();
    let mut tunnel = tunnel(client, Passed::default()).await;
    let (answer, body, end) = ask(&mut tunnel, head("GET", "/broken"), "").await.unwrap();
    assert_eq!((answer.status, &body[..]), (200, &b"half"[..]));
    assert_eq!(end.map(|status| status.code()), Some(Code::DataLoss));
}

#[tokio::test]
async fn an_upgraded_connection_carries_raw_bytes_both_ways_until_both_ends_close() {
    let (client, seen) = member().await;
    let mut tunnel = tunnel(client, Passed::default()).await;
    let exec = "/api/v1/namespaces/shop/pods/web-0/exec?command=sh";
    let request = ProxyRequest { upgrade: "SPDY/3.1".to_owned(), ..head("POST", exec) };
    let (mut send, messages) = futures::channel::mpsc::channel(4);
    send.send(TunnelRequest { message: Some(Sent::Head(request)) }).await.unwrap();
    let mut stream = tunnel.tunnel(messages).await.unwrap().into_inner();
    assert_eq!(first(&mut stream).await.status, 101);
    let bytes = Bytes::from_static(b"hello");
    send.send(TunnelRequest { message: Some(Sent::Body(bytes)) }).await.unwrap();
    let mut echoed = Vec::new();
    while let Some(message) = tokio::time::timeout(LIMIT, stream.next()).await.unwrap() {
        let Some(Message::Body(bytes)) = message.unwrap().message else { panic!("a second head") };
        echoed.extend(bytes);
    }
    assert_eq!(echoed, b"hello");
    let (_, headers, _) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(headers["upgrade"], "SPDY/3.1");

    let denied = ProxyRequest { upgrade: "SPDY/3.1".to_owned(), ..head("POST", "/denied") };
    let (answer, body, _) = ask(&mut tunnel, denied, "").await.unwrap();
    assert_eq!((answer.status, body.is_empty()), (200, false), "a refusal is an ordinary answer");
    let liar = ProxyRequest { upgrade: "SPDY/3.1".to_owned(), ..head("POST", "/liar") };
    assert_eq!(ask(&mut tunnel, liar, "").await.unwrap_err().code(), Code::Internal);
}
