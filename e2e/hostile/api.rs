//! Users of the Decision API, and other users of the machine.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;

use super::target::Target;
use crate::support::federation::{Federation, free_ports};

/// Ports that `atoll up` takes with three members.
const PORTS: u16 = 5;

async fn get(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => Err((0, error.to_string())),
    }
}

/// Files below a folder that somebody else than their owner may open, apart from certificates, which are public.
fn open_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            open_files(&path, found);
            continue;
        }
        let public = path.extension().is_some_and(|ending| ending == "crt" || ending == "sock");
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
        if !public && mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", path.display()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_controller_is_readable_by_its_owner_alone() {
    let target = Target::start().await;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(target.folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("history.db") {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            found.push(format!("{name} {mode:o}"));
        }
    }
    assert!(found.iter().any(|file| file.starts_with("history.db ")), "{found:?}");
    assert!(found.iter().all(|file| file.ends_with(" 600")), "{found:?}");
}

async fn uids(federation: &Federation) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    for context in ["hub", "member1", "member2", "member3"] {
        let client = federation.client(context).await;
        let system = get(&client, "/api/v1/namespaces/kube-system").await.unwrap();
        uids.insert(system["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    uids
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_queries_are_refused_and_other_users_of_the_machine_read_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let federation = Federation::start(&folder, free_ports(PORTS));
    let hub = federation.client("hub").await;
    for kind in ["decisions", "clusterdecisions", "memberevents", "namespaces/default/decisions"] {
        let path = format!("/apis/history.atoll.dev/v1alpha1/{kind}");
        for query in ["fieldSelector=metadata.namespace%3D", "limit=x", "timeoutSeconds=-1"] {
            let (code, message) = get(&hub, &format!("{path}?{query}")).await.unwrap_err();
            assert_eq!(code, 400, "{kind} {query}: {message}");
        }
        let query = format!("watch=true&timeoutSeconds={}", u64::MAX);
        let request = Request::get(format!("{path}?{query}")).body(Vec::new()).unwrap();
        let begun = tokio::time::timeout(Duration::from_secs(30), hub.request_stream(request));
        let begun = begun.await.expect("the watch begins");
        assert!(begun.is_ok(), "{kind}: {:?}", begun.err());
    }

    let mode = std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "{mode:o}");
    let mut open = Vec::new();
    open_files(&folder, &mut open);
    assert_eq!(open, Vec::<String>::new());

    // Hub and members of one federation, and of two: no uid twice, and the same after a restart.
    let first = uids(&federation).await;
    assert_eq!(first.len(), 4, "{first:?}");
    let port = federation.port;
    federation.signal("-INT");
    let federation = Federation::start(&folder, port);
    assert_eq!(uids(&federation).await, first);
    let other = Federation::start(&parent.path().join("other"), free_ports(PORTS));
    assert!(uids(&other).await.is_disjoint(&first));
}
