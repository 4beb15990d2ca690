//! Attacks on memory, connections and time without a certificate.

use std::net::SocketAddr;
use std::time::Duration;

use atoll_protocol::member::KeyRequest;
use atoll_protocol::token::BootstrapToken;
use atoll_protocol::v1;
use atoll_protocol::v1::controller_message::Message as Hear;
use bytes::Bytes;
use h2::SendStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use super::client::{self, Session, hello};
use super::target::{Target, page};
use crate::support::wait::LIMIT;

/// An address different from the honest clients'.
const ATTACKER: [u8; 4] = [127, 0, 0, 2];
/// Longest wait of a probe: below the 5 s after which the server closes a connection with half a request.
const SOON: Duration = Duration::from_secs(3);
const MIB: u64 = 1 << 20;

/// Sends as much as the other end takes, up to this many bytes.
async fn pour(stream: &mut SendStream<Bytes>, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        stream.reserve_capacity(left.min(64 << 10));
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx));
        // The window does not reopen, or the stream was reset: it accepts no more.
        let Ok(Some(Ok(room))) = timeout(Duration::from_millis(500), capacity).await else {
            return;
        };
        let part = room.min(left);
        if stream.send_data(vec![0; part].into(), false).is_err() {
            return;
        }
        left -= part;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_enrolments_cost_no_memory_and_end_by_themselves() {
    let mut target = Target::start().await;
    let before = target.memory();
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut requests = client::http2(target.agents, None).await.unwrap().ready().await.unwrap();
        let (answer, mut body) = requests.send_request(client::call("Enroll"), false).unwrap();
        // Announces 16 MiB, and sends all but the last byte.
        body.send_data(client::prefix(16 << 20), false).unwrap();
        pour(&mut body, (16 << 20) - 1).await;
        open.push((requests, answer, body));
    }
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB for 16 half-sent enrolments", grown / MIB);
    drop(open);

    // A client that sends nothing after the handshake is disconnected.
    let mut idle = client::tls(target.agents, None).await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(LIMIT, idle.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a connection without a certificate stays open without end");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_call_is_checked_before_the_body() {
    let target = Target::start().await;
    let member = target.join("member1").await;
    let unknown = atoll_protocol::identity::ClusterUid::new("no-such-cluster").unwrap();
    let unknown = target.aged(&unknown, jiff::SignedDuration::from_secs(1));
    for (identity, method, code) in [
        (None, "Renew", Code::Unauthenticated),
        (None, "Session", Code::Unauthenticated),
        (Some(&unknown), "Renew", Code::PermissionDenied),
        (Some(&unknown), "Session", Code::PermissionDenied),
    ] {
        let requests = client::http2(target.agents, identity).await.unwrap();
        let mut requests = requests.ready().await.unwrap();
        // The body is never sent.
        let (answer, _body) = requests.send_request(client::call(method), false).unwrap();
        let answer = timeout(LIMIT, answer).await.expect("the answer waits for no body").unwrap();
        let status = answer.headers().get("grpc-status").unwrap().to_str().unwrap();
        assert_eq!(status, (code as i32).to_string(), "{method} of {identity:?}");
    }
    // A body over the limit is refused by its prefix, also from a member.
    let mut member = client::http2(target.agents, Some(&member.identity)).await.unwrap();
    let (answer, mut body) = member.send_request(client::call("Renew"), false).unwrap();
    body.send_data(client::prefix(65 << 10), false).unwrap();
    let answer = timeout(LIMIT, answer).await.expect("the answer waits for no body").unwrap();
    let status = answer.headers().get("grpc-status").unwrap();
    assert_eq!(status, &(Code::OutOfRange as i32).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_sockets_keep_no_member_out() {
    let target = Target::start().await;
    let member = target.join("member1").await;
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(client::tcp_from(ATTACKER, target.agents).await.unwrap());
    }
    let session = async {
        let hello = hello(&member);
        let mut session = Session::open(target.agents, &member.identity, hello).await.unwrap();
        session.next().await
    };
    let welcome = tokio::select! {
        welcome = session => welcome,
        _ = silent[0].read_u8() => panic!("the member gets in only after silent sockets are closed"),
    };
    assert!(matches!(welcome, Ok(Hear::Welcome(_))), "{welcome:?}");
    // And they are disconnected.
    let closed = async {
        for stream in &mut silent {
            let _ = stream.read_u8().await;
        }
    };
    timeout(LIMIT, closed).await.expect("silent sockets are closed");
}

/// Clients that start a request and do not continue.
async fn slow(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for _ in 0..count {
        let mut stream = client::tcp_from(ATTACKER, address).await.unwrap();
        // Those over the limit may be closed by now.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await;
        slow.push(stream);
    }
    slow
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_fail_no_probe() {
    let target = Target::start().await;
    let _slow = slow(target.http, 220).await;
    let ask = async |address, path| {
        let answer = timeout(SOON, page(address, path)).await;
        answer.unwrap_or_else(|_| panic!("{path} of {address} waits")).unwrap().0
    };
    assert_eq!(ask(target.probes, "/healthz").await, 200);
    assert_eq!(ask(target.http, "/healthz").await, 200);
    assert_eq!(ask(target.probes, "/metrics").await, 404, "probes only");
}

#[tokio::test(flavor = "multi_thread")]
async fn enrolments_that_guess_are_slowed_down() {
    let target = Target::start().await;
    target.join("member1").await;
    let request = KeyRequest::generate().unwrap();
    let mut refused = false;
    for _ in 0..200 {
        let message = v1::EnrollRequest {
            token: BootstrapToken::generate().unwrap().reveal(),
            csr_der: request.csr_der().to_vec(),
            member_uid: "kube-system".to_owned(),
            kubernetes_version: "v1.33.0".to_owned(),
            follows_authority: true,
        };
        let status = target.enrol_with(message).await.unwrap_err();
        match status.code() {
            Code::Unauthenticated => {}
            Code::ResourceExhausted => {
                refused = true;
                break;
            }
            _ => panic!("{status:?}"),
        }
    }
    assert!(refused, "200 guesses are let through");
}
