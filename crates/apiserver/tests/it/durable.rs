//! Acknowledged writes survive a kill of the process.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use atoll_apiserver::Options;
use serde_json::json;

use crate::common::{Api, CONFIG_MAPS, config_map, version};

/// Passes the data file to the child process that will be killed.
const CHILD: &str = "ATOLL_APISERVER_TEST_FILE";
/// Acknowledged writes before the kill.
const ENOUGH: usize = 200;

fn options(path: &std::path::Path) -> Options {
    Options { data: Some(path.to_owned()), ..Options::memory() }
}

/// Writes until it is killed, printing each acknowledged write. Does nothing unless the test below starts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let api = std::sync::Arc::new(Api::with(options(path.as_ref())));
    let writers = (0..8).map(|writer| {
        let api = api.clone();
        tokio::spawn(async move {
            for n in 0.. {
                let name = format!("m{writer}-{n}");
                let made = api.post(CONFIG_MAPS, &config_map(&name)).await.ok();
                println!("wrote {name} {}", version(&made));
            }
        })
    });
    futures::future::join_all(writers).await;
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durable::child_that_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.by_ref() {
        let line = line.unwrap();
        // The test harness may print before the first line.
        let Some((_, write)) = line.split_once("wrote ") else { continue };
        let (name, version) = write.split_once(' ').unwrap();
        acknowledged.push((name.to_owned(), version.parse::<u64>().unwrap()));
        if acknowledged.len() == ENOUGH {
            child.kill().unwrap();
            break;
        }
    }
    // Writes printed after the kill were acknowledged too; the last line may be incomplete.
    for line in lines.map_while(Result::ok) {
        if let Some((name, version)) = line.strip_prefix("wrote ").and_then(|w| w.split_once(' '))
            && let Ok(version) = version.parse()
        {
            acknowledged.push((name.to_owned(), version));
        }
    }
    child.wait().unwrap();

    let api = Api::with(options(&path));
    let newest = acknowledged.iter().map(|(_, v)| *v).max().unwrap();
    for (name, written) in &acknowledged {
        // A line cut within its number names an older version.
        let found = api.get(&format!("{CONFIG_MAPS}/{name}")).await.ok();
        assert!(version(&found) >= *written, "{name}");
    }
    let list = api.get(CONFIG_MAPS).await.ok();
    assert!(version(&list) >= newest);
    let made = api.post(CONFIG_MAPS, &config_map("after")).await.ok();
    assert!(version(&made) > version(&list));
    let old = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", acknowledged[0].1);
    api.get(&old).await.refused(410, "Expired");
}

#[tokio::test]
async fn uids_and_generated_names_do_not_repeat_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let generated = json!({"metadata": {"generateName": "x-"}});
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let api = Api::with(options(&path));
        // Dry runs draw ids too, and the next opening must not repeat used ones.
        api.post(&format!("{CONFIG_MAPS}?dryRun=All"), &generated).await.ok();
        for _ in 0..5 {
            let made = api.post(CONFIG_MAPS, &generated).await.ok();
            assert!(seen.insert(made["metadata"]["uid"].as_str().unwrap().to_owned()));
            assert!(seen.insert(made["metadata"]["name"].as_str().unwrap().to_owned()));
        }
    }
}

#[tokio::test]
async fn one_seed_gives_one_history() {
    let run = async || {
        let api = Api::with(Options { seed: 42, ..Options::memory() });
        for name in ["a", "b"] {
            api.post(CONFIG_MAPS, &config_map(name)).await.ok();
        }
        api.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "x-"}})).await.ok();
        api.get(CONFIG_MAPS).await.ok()
    };
    assert_eq!(run().await, run().await);
}
