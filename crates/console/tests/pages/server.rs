//! The server over real sockets.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_console::data::Action;
use atoll_console::{Settings, StartError, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::fixed::Fixed;

/// Limit of everything that a test waits for.
const LIMIT: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    url: String,
    source: Arc<Fixed>,
    /// Addresses that were announced.
    announced: Arc<Mutex<Vec<String>>>,
    _stop: DropGuard,
}

async fn run(read_only: bool) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (source, token) = (Arc::new(Fixed::default()), CancellationToken::new());
    let announced: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = announced.clone();
    let announce = Box::new(move |url: &str| heard.lock().unwrap().push(url.to_owned()));
    let settings = Settings { hub: "test".to_owned(), read_only, announce };
    let serving = start(listener, settings, source.clone(), token.clone()).unwrap();
    tokio::spawn(serving.task);
    Running { address, url: serving.url, source, announced, _stop: token.drop_guard() }
}

/// An answer: status, head and body.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }
}

impl Running {
    async fn raw(&self, request: String) -> Reply {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.unwrap();
            String::from_utf8_lossy(&text).into_owned()
        };
        let text = tokio::time::timeout(LIMIT, exchange).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer with a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        self.raw(request + "\r\n").await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nConnection: close\r\nHost: {}\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        self.raw(request + "\r\n" + body).await
    }

    /// Opens a session, and returns its cookie.
    async fn enter(&self) -> String {
        let path = self.url.split_once(&self.address.to_string()).unwrap().1;
        let reply = self.get(path, &[]).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")), "{reply:?}");
        let cookie = reply.header("set-cookie").unwrap();
        assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
        cookie.split_once(';').unwrap().0.to_owned()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The CSRF token of a session.
    async fn csrf(&self, cookie: &str) -> String {
        let page = self.get("/what-if", &[("Cookie", cookie)]).await;
        let (_, rest) = page.body.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    }
}

#[tokio::test]
async fn only_a_session_sees_pages_and_a_token_opens_one() {
    let console = run(false).await;
    for path in ["/", "/members/member1", "/events?topic=fleet", "/nothing", "/?token=guess"] {
        let reply = console.get(path, &[]).await;
        assert_eq!(reply.status, 401, "{path}");
        assert!(!reply.body.contains("member1"), "{path}");
    }
    let cookie = console.enter().await;
    assert_eq!(console.get("/", &[("Cookie", &cookie)]).await.status, 200);
    let other = format!("a=b; {cookie}");
    assert_eq!(console.get("/", &[("Cookie", &other)]).await.status, 200);
    let path = console.url.split_once(&console.address.to_string()).unwrap().1;
    assert_eq!(console.get(path, &[]).await.status, 401, "a token is used once");
    let announced = console.announced.lock().unwrap().clone();
    assert_eq!(announced.len(), 1, "the next address is announced");
    assert_ne!(announced[0], console.url);
    let forged = format!("{}x", cookie);
    assert_eq!(console.get("/", &[("Cookie", &forged)]).await.status, 401);
    // Assets have no secrets; the page without a session needs its style.
    assert_eq!(console.get("/assets/style.css", &[]).await.status, 200);
    assert_eq!(console.get("/assets/../Cargo.toml", &[]).await.status, 401);
}

#[tokio::test]
async fn requests_of_other_sites_are_refused_whatever_they_know() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let with = ("Cookie", cookie.as_str());
    let port = console.address.port();
    let localhost = format!("localhost:{port}");
    assert_eq!(console.get("/", &[with, ("Host", &localhost)]).await.status, 200);
    for host in ["evil.example", "127.0.0.1", "localhost", "", "127.0.0.1:1"] {
        assert_eq!(console.get("/", &[with, ("Host", host)]).await.status, 421, "{host}");
    }
    let two = format!(
        "GET / HTTP/1.1\r\nConnection: close\r\nCookie: {cookie}\r\nHost: {}\r\nHost: evil\r\n\r\n",
        console.address
    );
    assert!((400..500).contains(&console.raw(two).await.status));
    let own = console.origin();
    assert_eq!(console.get("/", &[with, ("Origin", &own)]).await.status, 200);
    for origin in
        ["http://evil.example", "null", "https://127.0.0.1", &format!("http://{localhost}")]
    {
        assert_eq!(console.get("/", &[with, ("Origin", origin)]).await.status, 403, "{origin}");
    }
    let csrf = console.csrf(&cookie).await;
    let body = format!("csrf={csrf}&member=m&confirm=m");
    let path = "/act/cordon";
    for headers in [
        &[with][..],
        &[with, ("Origin", "null")],
        &[with, ("Origin", "http://evil.example")],
        &[with, ("Origin", &own), ("Sec-Fetch-Site", "cross-site")],
        &[with, ("Origin", &own), ("Sec-Fetch-Site", "same-site")],
    ] {
        assert_eq!(console.post(path, headers, &body).await.status, 403, "{headers:?}");
    }
    let put = format!(
        "PUT / HTTP/1.1\r\nConnection: close\r\nHost: {}\r\nOrigin: {own}\r\nCookie: {cookie}\r\n\r\n",
        console.address
    );
    assert_eq!(console.raw(put).await.status, 405);
    assert!(console.source.done.lock().unwrap().is_empty());
}

#[tokio::test]
async fn actions_need_the_token_of_the_session_and_a_confirmation() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let (csrf, own) = (console.csrf(&cookie).await, console.origin());
    let headers =
        [("Cookie", cookie.as_str()), ("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let preview = console.get("/act/drain?member=member1", &headers[..1]).await;
    assert_eq!(preview.status, 200);
    assert!(preview.body.contains("1 of 3 workloads would change."), "the plan is shown first");
    for (body, status) in [
        ("member=member1&confirm=member1".to_owned(), 403),
        ("csrf=guess&member=member1&confirm=member1".to_owned(), 403),
        (format!("csrf={csrf}&member=member1"), 422),
        (format!("csrf={csrf}&member=member1&confirm=member2"), 422),
        (format!("csrf={csrf}&confirm=member1"), 400),
    ] {
        assert_eq!(console.post("/act/drain", &headers, &body).await.status, status, "{body}");
    }
    assert_eq!(console.post("/act/nothing", &headers, &format!("csrf={csrf}")).await.status, 404);
    assert!(console.source.done.lock().unwrap().is_empty(), "nothing was done so far");
    let body = format!("csrf={csrf}&member=member1&confirm=member1");
    let reply = console.post("/act/drain", &headers, &body).await;
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/members/member1?done=drain"))
    );
    assert_eq!(*console.source.done.lock().unwrap(), [Action::Drain("member1".to_owned())]);
    let page = console.get("/members/member1?done=drain", &headers[..1]).await;
    assert!(page.body.contains("The drain began"));
    let page = console.get("/members/member1?done=%3Cb%3Eowned", &headers[..1]).await;
    assert!(!page.body.contains("owned"), "an address cannot make a page say something");
}

#[tokio::test]
async fn a_plan_is_approved_after_its_id_was_typed() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let (csrf, own) = (console.csrf(&cookie).await, console.origin());
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    let overview = console.get("/", &headers[..1]).await;
    assert!(overview.body.contains("href=\"/act/approve?plan=5f0c7f0e2a1b9d34\""));
    let preview = console.get("/act/approve?plan=5f0c", &headers[..1]).await;
    assert!(preview.status == 200 && preview.body.contains("1 of 3 workloads would change."));
    for (body, status) in [
        ("plan=5f0c&confirm=5f0c".to_owned(), 403),
        (format!("csrf={csrf}&plan=5f0c&confirm=5f0"), 422),
        (format!("csrf={csrf}&confirm=5f0c"), 400),
    ] {
        assert_eq!(console.post("/act/approve", &headers, &body).await.status, status, "{body}");
    }
    assert!(console.source.done.lock().unwrap().is_empty(), "nothing was done so far");
    let body = format!("csrf={csrf}&plan=5f0c&confirm=5f0c");
    let reply = console.post("/act/approve", &headers, &body).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some("/?done=approve")));
    assert_eq!(*console.source.done.lock().unwrap(), [Action::Approve("5f0c".to_owned())]);
    let page = console.get("/?done=approve", &headers[..1]).await;
    assert!(page.body.contains("The plan is approved"));
}

#[tokio::test]
async fn a_read_only_console_does_nothing() {
    let console = run(true).await;
    let cookie = console.enter().await;
    let (csrf, own) = (console.csrf(&cookie).await, console.origin());
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    for verb in ["cordon", "uncordon", "drain", "rebalance", "confirm-lost", "approve"] {
        let path = format!("/act/{verb}");
        let body = format!("csrf={csrf}&member=m&namespace=a&type=b&name=c&plan=m&confirm=m");
        assert_eq!(console.get(&format!("{path}?member=m"), &headers[..1]).await.status, 403);
        assert_eq!(console.post(&path, &headers, &body).await.status, 403, "{verb}");
    }
    assert!(console.source.done.lock().unwrap().is_empty());
    let plan = console.post("/what-if", &headers, &format!("csrf={csrf}&drain=m")).await;
    assert_eq!(plan.status, 200, "plans write nothing");
}

#[tokio::test]
async fn every_link_of_every_page_answers_with_the_security_headers() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let mut seen: BTreeSet<String> = BTreeSet::from(["/".to_owned()]);
    let mut open: VecDeque<String> = VecDeque::from(["/".to_owned()]);
    while let Some(path) = open.pop_front() {
        let reply = console.get(&path, &[("Cookie", &cookie)]).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        for (_, rest) in
            reply.body.match_indices("href=\"/").map(|(at, _)| reply.body.split_at(at + 6))
        {
            let link = rest.split_once('"').unwrap().0.replace("&amp;", "&");
            if seen.insert(link.clone()) {
                assert!(seen.len() < 500, "the pages have a bounded number of addresses");
                open.push_back(link);
            }
        }
    }
    for part in
        ["/placement", "/decisions", "/policies", "/what-if", "/diff", "/act/drain", "/on/member1"]
    {
        assert!(seen.iter().any(|path| path.contains(part)), "{part} is linked: {seen:?}");
    }
}

#[tokio::test]
async fn errors_are_pages_with_their_status() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let headers = [("Cookie", cookie.as_str())];
    let absent = console.get("/workloads/shop/Deployment.apps/absent", &headers).await;
    assert_eq!(absent.status, 404);
    assert!(absent.body.contains("&lt;script&gt;") && !absent.body.contains("<script>alert"));
    assert_eq!(console.get("/nothing", &headers).await.status, 404);
    assert_eq!(console.get("/diff?from=x", &headers).await.status, 400);
    assert_eq!(console.get("/act/drain", &headers).await.status, 400);
    let (csrf, own) = (console.csrf(&cookie).await, console.origin());
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    let refused =
        console.post("/what-if", &headers, &format!("csrf={csrf}&scale=x&objects=kept")).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("kept"), "nothing typed is lost");
    let large = format!("csrf={csrf}&objects={}", "x".repeat(300 * 1024));
    assert_eq!(console.post("/what-if", &headers, &large).await.status, 413);
}

#[tokio::test]
async fn changes_are_announced_and_streams_are_bounded() {
    let console = run(false).await;
    let cookie = console.enter().await;
    let follow = async || {
        let mut stream = TcpStream::connect(console.address).await.unwrap();
        let request = format!(
            "GET /events?topic=fleet HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n",
            console.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };
    let until = async |stream: &mut TcpStream, times: usize| {
        let mut text = String::new();
        let read = async {
            while text.matches("event: changed").count() < times {
                let mut part = [0; 1024];
                let count = stream.read(&mut part).await.unwrap();
                assert_ne!(count, 0, "the stream ended: {text}");
                text.push_str(&String::from_utf8_lossy(&part[..count]));
            }
        };
        tokio::time::timeout(LIMIT, read).await.unwrap();
        text
    };
    let mut first = follow().await;
    // At once, and once for two changes that came together.
    let text = until(&mut first, 2).await;
    assert!(text.contains("text/event-stream") && text.contains("retry: 3000"), "{text}");
    let mut open = vec![first];
    for _ in 1..32 {
        let mut stream = follow().await;
        until(&mut stream, 1).await;
        open.push(stream);
    }
    let cookie = [("Cookie", cookie.as_str())];
    assert_eq!(console.get("/events?topic=fleet", &cookie).await.status, 503);
    assert_eq!(console.get("/", &cookie).await.status, 200, "pages are served");
    drop(open);
}

#[tokio::test]
async fn only_loopback_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let settings = Settings { hub: String::new(), read_only: true, announce: Box::new(|_| {}) };
    let started = start(listener, settings, Arc::new(Fixed::default()), CancellationToken::new());
    assert!(matches!(started.err(), Some(StartError::NotLoopback(_))));
}
