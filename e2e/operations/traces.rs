//! Traces of decisions, as a collector gets them over its socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::restoring::{create, until_ready};
use crate::support::cli::run;
use crate::support::federation::{Federation, bindings, free_ports};
use crate::support::wait::LIMIT;

/// A span, and the service that recorded it.
type Received = (String, Value);

/// A collector on a port of its own: the URL, and every span that it gets.
fn collector() -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (spans, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, spans) = (stream.unwrap(), spans.clone());
            // It ends with the connection, at the latest when `atoll` does.
            std::thread::spawn(move || take(&stream, &spans));
        }
    });
    (url, received)
}

/// Takes requests from a connection until it ends.
fn take(stream: &TcpStream, spans: &Sender<Received>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        assert_eq!(line.trim(), "POST /v1/traces HTTP/1.1");
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let header = line.trim().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        for group in body["resourceSpans"].as_array().unwrap() {
            let service = &group["resource"]["attributes"][0]["value"]["stringValue"];
            for span in group["scopeSpans"][0]["spans"].as_array().unwrap() {
                spans.send((service.as_str().unwrap().to_owned(), span.clone())).ok()?;
            }
        }
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").ok()?;
    }
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    let found = attributes.iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str()
}

fn times(span: &Value) -> (u128, u128) {
    let time = |field: &str| span[field].as_str().unwrap().parse().unwrap();
    (time("startTimeUnixNano"), time("endTimeUnixNano"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_one_trace_from_the_queue_to_the_apply_on_each_member() {
    let data = tempfile::tempdir().unwrap();
    let (url, received) = collector();
    let flags = ["--otlp-endpoint", &url];
    let federation = Federation::start_with(&data.path().join("atoll"), free_ports(5), &flags);
    let hub = federation.client("hub").await;
    create(&hub, "web", 3).await;
    until_ready(&hub, "web", 3).await;
    let binding = bindings(&hub, "default").get("web-deployment").await.unwrap();
    let id = binding.data["spec"]["decision"]["id"].as_str().unwrap().to_owned();

    // The spans of this decision: root, queue, decide, commit, and two for each member.
    let (mut spans, ends) = (Vec::new(), Instant::now() + LIMIT);
    while spans.len() < 10 {
        let left = ends.saturating_duration_since(Instant::now());
        let next = received.recv_timeout(left.max(Duration::from_millis(1)));
        let next = next.unwrap_or_else(|_| panic!("only these spans came: {spans:#?}"));
        if next.1["traceId"] == id.as_str() {
            spans.push(next);
        }
    }
    let by_id: BTreeMap<&str, &Value> =
        spans.iter().map(|(_, span)| (span["spanId"].as_str().unwrap(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "each span has its own id: {spans:#?}");
    let named = |name: &str| -> Vec<&Received> {
        spans.iter().filter(|(_, span)| span["name"] == name).collect()
    };
    let [(service, root)] = named("decision")[..] else { panic!("{spans:#?}") };
    assert_eq!(
        (service.as_str(), attribute(root, "atoll.name")),
        ("atoll-controller", Some("web"))
    );
    assert!(root.get("parentSpanId").is_none() && root.get("status").is_none(), "{root:#}");
    for step in ["queue", "decide", "commit"] {
        let [(_, span)] = named(step)[..] else { panic!("{step}: {spans:#?}") };
        assert_eq!(span["parentSpanId"], root["spanId"]);
    }
    let mut members = Vec::new();
    for (service, span) in named("apply") {
        assert_eq!(service, "atoll-agent");
        let way = by_id[span["parentSpanId"].as_str().unwrap()];
        assert_eq!((&way["name"], &way["parentSpanId"]), (&"dispatch".into(), &root["spanId"]));
        assert_eq!(attribute(span, "atoll.result"), Some("applied"));
        members.extend(attribute(way, "atoll.cluster"));
    }
    members.sort_unstable();
    assert_eq!(members, ["member1", "member2", "member3"]);
    // All processes here have one clock, so each span lies within its parent. The controller reads it once in a turn.
    let slack = Duration::from_millis(5).as_nanos();
    for (_, span) in &spans {
        let Some(parent) = span["parentSpanId"].as_str() else { continue };
        let ((start, end), (first, last)) = (times(span), times(by_id[parent]));
        assert!(first <= start + slack && end <= last + slack, "{span:#}\n{:#}", by_id[parent]);
    }

    let explained = run(&mut federation.atoll(&["explain", "deployment/web"]));
    assert!(explained.contains(&format!("trace {id}")), "{explained}");
    federation.signal("-TERM");
}
