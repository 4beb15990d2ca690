//! A running `atoll up` gets one more member, keeps it over a restart, and shows its metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::{PORTS, without_kubectl};
use crate::support::cli::{fail, run};
use crate::support::federation::{Federation, cluster_objects, free_ports};
use crate::support::wait::until;

/// Histograms that count after one Deployment is healthy on two members.
const HISTOGRAMS: [&str; 8] = [
    "atoll_decision_seconds_count{strategy=\"staticWeight\"}",
    "atoll_queue_wait_seconds_count",
    "atoll_commit_seconds_count{result=\"written\"}",
    "atoll_hub_request_seconds_count{verb=\"patch\",code=\"2xx\"}",
    "atoll_status_lag_seconds_count{what=\"binding\"}",
    "atoll_history_record_seconds_count",
    "atoll_dispatch_applied_seconds_count{cluster=\"member2\"}",
    "atoll_dispatch_healthy_seconds_count{cluster=\"member2\"}",
];

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn value(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn names(listed: &str) -> Vec<String> {
    let listed: Value = serde_json::from_str(listed).unwrap();
    let members = listed["members"].as_array().unwrap().iter();
    members.map(|member| member["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_added_while_it_runs_and_the_metrics_show_what_happens() {
    let data = tempfile::tempdir().unwrap();
    let (folder, history) = (data.path().join("atoll"), data.path().join("elsewhere.db"));
    // The last one is for metrics.
    let port = free_ports(PORTS + 1);
    let http = port + PORTS;
    let address = format!("127.0.0.1:{http}");
    let flags = ["--http", &address, "--history", history.to_str().unwrap()];
    let federation =
        Federation::start_with(&folder, port, &[&["--members", "1"], &flags[..]].concat());
    assert_eq!(names(&run(&mut federation.sim(&["-o", "json", "add"]))), ["member1", "member2"]);
    without_kubectl(&federation).await;
    assert!(history.exists(), "history is where the flag says");

    let page = metrics(http);
    assert_eq!(value(&page, "atoll_leader"), Some(1.0), "{page}");
    assert_eq!(value(&page, "atoll_member_ready{cluster=\"member2\"}"), Some(1.0), "{page}");
    assert!(value(&page, "atoll_member_objects{cluster=\"member2\"}") >= Some(1.0), "{page}");
    let cpu = "atoll_member_allocatable{cluster=\"member2\",resource=\"cpu\"}";
    assert!(value(&page, cpu) > Some(0.0), "{page}");
    for histogram in HISTOGRAMS {
        assert!(value(&page, histogram) >= Some(1.0), "{histogram}\n{page}");
    }

    federation.signal("-TERM");
    let federation = Federation::start_with(&folder, port, &flags);
    assert_eq!(names(&run(&mut federation.sim(&["list", "-o", "json"]))), ["member1", "member2"]);
    let clusters = cluster_objects(&federation.client("hub").await);
    until(&clusters, "member2", "Ready again", |cluster| {
        let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "True")
    })
    .await;
    // A port in use is named, and the member is not half there.
    let taken = std::net::TcpListener::bind(("127.0.0.1", port + 4)).unwrap();
    let refused = fail(&mut federation.sim(&["add"]));
    assert!(refused.contains(&(port + 4).to_string()), "{refused}");
    assert_eq!(names(&run(&mut federation.sim(&["-o", "json", "list"]))).len(), 2);
    drop(taken);
}
