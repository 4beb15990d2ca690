//! A client of the console that speaks HTTP/1.1 over a socket and keeps a cookie.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Limit of one exchange.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval of looks at a page.
const LOOK: Duration = Duration::from_millis(50);

/// A browser's session.
pub(crate) struct Session {
    pub(crate) address: SocketAddr,
    cookie: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The local addresses in its links.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.body.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
        let local = links.map(|(link, _)| link.replace("&amp;", "&"));
        local.filter(|link| link.starts_with('/')).collect()
    }
}

impl Session {
    /// Opens a session with a printed address.
    pub(crate) async fn enter(url: &str) -> Self {
        let rest = url.strip_prefix("http://").expect("the console has a plain address");
        let (address, path) = rest.split_once('/').expect("the address has a path");
        let address = address.parse().expect("the console has an IP address");
        let mut session = Self { address, cookie: String::new() };
        let reply = session.get(&format!("/{path}")).await;
        assert_eq!(reply.status, 303, "{reply:?}");
        let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
        session.cookie = cookie.split(';').next().unwrap().to_owned();
        let read = async {
            while session.get("/").await.body.contains("still being read from the hub") {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(LIMIT, read).await.expect("the console reads its lists");
        session
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\n"), "").await
    }

    /// Waits until a page has this text.
    pub(crate) async fn until(&self, path: &str, text: &str) {
        let shown = async {
            while !self.get(path).await.body.contains(text) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let waited = tokio::time::timeout(LIMIT, shown).await;
        waited.unwrap_or_else(|_| panic!("{path} does not show {text:?} within {LIMIT:?}"));
    }

    pub(crate) async fn post(&self, path: &str, form: &str) -> Reply {
        let head = format!(
            "POST {path} HTTP/1.1\r\nOrigin: http://{}\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n",
            self.address,
            form.len()
        );
        self.send(head, form).await
    }

    async fn send(&self, head: String, body: &str) -> Reply {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let rest = format!(
                "Connection: close\r\nHost: {}\r\nCookie: {}\r\n\r\n",
                self.address, self.cookie
            );
            stream.write_all((head + &rest + body).as_bytes()).await.unwrap();
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.unwrap();
            String::from_utf8_lossy(&text).into_owned()
        };
        let text = tokio::time::timeout(LIMIT, exchange).await.expect("the console answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer with a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The CSRF token of the session.
    pub(crate) async fn csrf(&self) -> String {
        let page = self.get("/what-if").await;
        let (_, rest) = page.body.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split_once('"').unwrap().0.to_owned()
    }

    /// Follows changes of the fleet until one is announced after those at the beginning.
    pub(crate) async fn follow(&self) -> Changes {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET /events?topic=fleet HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
            self.address, self.cookie
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Changes { stream, text: String::new() }
    }
}

/// A stream of server-sent events.
pub(crate) struct Changes {
    stream: TcpStream,
    text: String,
}

impl Changes {
    /// Waits for the next announced change.
    pub(crate) async fn next(&mut self) {
        const EVENT: &str = "event: changed";
        let read = async {
            while !self.text.contains(EVENT) {
                let mut part = [0; 1024];
                let count = self.stream.read(&mut part).await.unwrap();
                assert_ne!(count, 0, "the stream ended: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&part[..count]));
            }
        };
        tokio::time::timeout(LIMIT, read).await.expect("a change is announced");
        self.text = self.text.split_once(EVENT).unwrap().1.to_owned();
    }
}
