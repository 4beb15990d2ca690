//! A browser that asks for one page after the other, and a server that only sends bytes.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Latencies of one page.
pub(crate) struct Times {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Times {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
    }
}

/// One connection that is kept, with the cookie of its session.
pub(crate) struct Browser {
    stream: BufReader<TcpStream>,
    host: String,
    cookie: Option<String>,
}

struct Reply {
    status: u16,
    cookie: Option<String>,
    body: Vec<u8>,
}

impl Browser {
    /// Opens the console with its printed address.
    pub(crate) async fn enter(url: &str) -> Self {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut browser = Self::plain(host).await;
        let reply = browser.ask(&format!("/{path}")).await;
        assert!((300..400).contains(&reply.status), "the token is taken: {}", reply.status);
        browser.cookie = reply.cookie;
        assert!(browser.cookie.is_some(), "there is a cookie");
        browser
    }

    pub(crate) async fn plain(host: &str) -> Self {
        let stream = TcpStream::connect(host).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), host: host.to_owned(), cookie: None }
    }

    /// The page.
    pub(crate) async fn get(&mut self, path: &str) -> Vec<u8> {
        let reply = self.ask(path).await;
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.status, 200, "{path}: {text}");
        reply.body
    }

    async fn ask(&mut self, path: &str) -> Reply {
        let cookie = self.cookie.as_ref().map_or(String::new(), |c| format!("Cookie: {c}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let first = self.line().await;
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut cookie) = (0, None);
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "set-cookie" => cookie = value.split(';').next().map(str::to_owned),
                "transfer-encoding" => panic!("{path}: the length is not known"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        Reply { status, cookie, body }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await.unwrap();
        assert!(read > 0, "the server closed the connection");
        line.trim_end().to_owned()
    }
}

/// Serves these bytes; returns where.
pub(crate) async fn bare(page: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let page = bytes::Bytes::from(page);
    let router = Router::new().route("/", get(move || std::future::ready(page.clone())));
    // It ends with the process.
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}
