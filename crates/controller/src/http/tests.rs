use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::metrics::Counters;
use crate::queue::{Lengths, WaitingLengths};

struct Served {
    address: std::net::SocketAddr,
    counters: Counters,
    ready: watch::Sender<Option<LeaderTerm>>,
    leadership: watch::Sender<Option<Leadership>>,
    history: watch::Sender<Progress>,
    token: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn served() -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (counters, mut registry) = (Counters::default(), Registry::default());
    counters.register(&mut registry);
    let (ready, is_ready) = watch::channel(None);
    let (leadership, leads) = watch::channel(None);
    let (history, progress) = watch::channel(Progress::default());
    let pages = Arc::new(Pages::new(registry, is_ready, leads, progress));
    let token = CancellationToken::new();
    let task = tokio::spawn(serve(listener, pages, Scope::All, token.clone()));
    Served { address, counters, ready, leadership, history, token, task }
}

impl Served {
    /// Status and body of an endpoint.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: atoll\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

#[tokio::test]
async fn ready_is_who_leads_and_who_could_take_over_at_once() {
    let served = served().await;
    assert_eq!(served.ask("GET", "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(served.ask("GET", "/readyz").await.0, 503);
    served.ready.send_replace(Some(LeaderTerm::default()));
    let (status, body) = served.ask("GET", "/readyz").await;
    assert!(status == 200 && body.starts_with("follower"), "{body}");
    let deadline = Instant::now() + Duration::from_secs(60);
    served.leadership.send_replace(Some(Leadership { term: LeaderTerm::new(7), deadline }));
    assert_eq!(served.ask("GET", "/readyz").await, (200, "leader, term 7\n".to_owned()));
    assert_eq!(served.ask("POST", "/readyz").await.0, 405);
    assert_eq!(served.ask("GET", "/debug").await.0, 404);
    assert_eq!(served.ask("HEAD", "/healthz").await, (200, String::new()));
    served.token.cancel();
    served.task.await.unwrap();
    assert!(TcpStream::connect(served.address).await.is_err(), "it has stopped listening");
}

#[tokio::test]
async fn slow_clients_keep_neither_probes_nor_scrapers_of_other_addresses_out() {
    let served = served().await;
    let mut slow = Vec::new();
    for _ in 0..220 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(served.address).await.unwrap();
        // Connections beyond the limit may be closed by now.
        let _ = stream.write_all(b"GET /metrics HT").await;
        slow.push(stream);
    }
    let answer = tokio::time::timeout(SETTINGS.head / 2, served.ask("GET", "/healthz")).await;
    assert_eq!(answer.expect("other clients do not delay it").0, 200);
}

#[tokio::test]
async fn metrics_have_the_names_that_dashboards_know() {
    let served = served().await;
    served.counters.avoided.inc();
    served.counters.conflicts.inc();
    served.counters.wrote("binding", "written");
    served.counters.queued(Lengths {
        waiting: WaitingLengths { unplaced: 3, improvable: 5, ..WaitingLengths::default() },
        ..Lengths::default()
    });
    served.history.send_replace(Progress { queued: 2, inputs_dropped: 3, ..Progress::default() });
    let (status, page) = served.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "atoll_decisions_avoided_total 1",
        "atoll_commit_conflicts_total 1",
        r#"atoll_hub_writes_total{what="binding",result="written"} 1"#,
        r#"atoll_queue_depth{place="unplaced"} 3"#,
        r#"atoll_queue_depth{place="improvable"} 5"#,
        r#"atoll_queue_depth{place="active"} 0"#,
        "atoll_history_backlog 2",
        "atoll_history_lag_seconds 0",
        r#"atoll_history_dropped{what="inputs"} 3"#,
        "atoll_leader 0",
        "# EOF",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn every_metric_is_documented_and_nothing_else() {
    let served = served().await;
    let record = serde_json::from_value(serde_json::json!({
        "id": "a", "trigger": "First", "mode": "Fresh", "outcome": "Placed", "desired": 1, "at": "2026-01-31T00:00:00Z",
        "term": 1
    }));
    // A family shows once it has a member.
    served.counters.decided(&record.unwrap());
    served.counters.wrote("binding", "written");
    served.counters.event("written");
    served.counters.webhooks.show();
    served.counters.latency.show();
    served.counters.queued(Lengths::default());
    let page = served.ask("GET", "/metrics").await.1;
    let mut members = Registry::default();
    crate::members::Metrics::of_every_kind().register(&mut members);
    let collector = atoll_traces::Collector::new("http://127.0.0.1:9", None).unwrap();
    let exporter = atoll_traces::start(collector, atoll_traces::Ratio::ALL);
    let tracer = exporter.tracer("atoll-controller", "one");
    tracer.register(members.sub_registry_with_prefix("atoll"));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &members).unwrap();
    let gauges = crate::member::gauges::tests::page();
    let shown: BTreeSet<&str> = [&page, &text, &gauges]
        .into_iter()
        .flat_map(|page| page.lines())
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split([' ', '{']).next())
        // A histogram has a line for each bucket.
        .map(|name| name.strip_suffix("_bucket").unwrap_or(name))
        .filter(|name| !["_seconds_sum", "_seconds_count"].iter().any(|end| name.ends_with(end)))
        .collect();
    let documented: BTreeSet<&str> = include_str!("../../../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        // A test of the agent compares those.
        .filter(|name| !name.starts_with("atoll_agent_"))
        .collect();
    assert_eq!(shown, documented);
}
