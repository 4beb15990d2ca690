//! Watches of all members.

use super::*;

#[tokio::test(start_paused = true)]
async fn watches_of_members_are_one_watch_that_begins_where_the_list_ended() {
    let hub = Hub::with(&["m1", "m2"], &["*"]);
    let fleet = Fleet::of(&hub, |member, path| {
        if !path.contains("watch=true") {
            return Does::Answers(200, pods(&["a"], None));
        }
        match (member, path) {
            // Its server ends the watch; the next one begins after the newest event.
            ("m1", path) if path.contains("resourceVersion=7") => Does::Ends(vec![
                event("ADDED", "b", 8),
                event("MODIFIED", "b", 9)[..20].to_owned(),
                event("MODIFIED", "b", 9)[20..].to_owned(),
                event("BOOKMARK", "", 12),
            ]),
            ("m1", path) if path.contains("resourceVersion=12") => {
                Does::Streams(vec![event("DELETED", "b", 13)])
            }
            ("m2", path) if path.contains("resourceVersion=7") => Does::Hangs,
            ("m3", path) if !path.contains("resourceVersion") => {
                Does::Streams(vec![event("ADDED", "new", 3)])
            }
            _ => panic!("{member} {path}"),
        }
    });
    let (_, _, list) = fleet.json(PODS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{PODS}?watch=1&resourceVersion={version}");
    let answer = fleet.get(&path, "*/*").await;
    assert!(warnings(&answer)[0].contains("m2: no answer"), "{:?}", warnings(&answer));
    let mut body = answer.into_body();
    let seen = events(&mut body, 3).await;
    assert_eq!(seen, ["ADDED m1/b", "DELETED m1/b", "MODIFIED m1/b"]);
    // A new member joins the watch; when one is gone, its objects are too: the client lists again.
    hub.clusters.lock().unwrap().push("m3");
    assert_eq!(events(&mut body, 1).await, ["ADDED m3/new"]);
    hub.clusters.lock().unwrap().remove(0);
    assert_eq!(events(&mut body, 2).await, ["ERROR 410"]);

    // The version of a single object says nothing about the other members.
    assert_eq!(fleet.json(&format!("{PODS}?watch=1&resourceVersion=8")).await.0, 410);
    assert_eq!(fleet.json(&format!("{PODS}?watch=1&sendInitialEvents=true")).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_a_member_cannot_continue_makes_the_client_list_again() {
    let hub = Hub::with(&["m1"], &["*"]);
    let fleet = Fleet::of(&hub, |_, path| match path.contains("resourceVersion") {
        false => Does::Breaks(vec![event("ADDED", "a", 1)]),
        true => Does::Answers(410, json!({"code": 410, "message": "too old"})),
    });
    let mut body = fleet.get(&format!("{PODS}?watch=1"), "*/*").await.into_body();
    assert_eq!(events(&mut body, 3).await, ["ADDED m1/a", "ERROR 410"]);
    // It ends in time, as a watch does.
    let fleet = Fleet::of(&hub, |_, _| Does::Streams(vec![]));
    let began = tokio::time::Instant::now();
    for (seconds, lasts) in [(20, 20), (0, 1_800), (9_999, 1_800)] {
        let path = format!("{PODS}?watch=1&timeoutSeconds={seconds}");
        let before = began.elapsed().as_secs();
        let mut body = fleet.get(&path, "*/*").await.into_body();
        assert_eq!(events(&mut body, 1).await, Vec::<String>::new());
        assert_eq!(began.elapsed().as_secs() - before, lasts, "timeoutSeconds={seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stays_silent_during_a_watch_makes_the_client_list_again() {
    let hub = Hub::with(&["m1"], &["*"]);
    let fleet = Fleet::of(&hub, |_, path| match path.contains("resourceVersion") {
        false => Does::Breaks(vec![event("ADDED", "a", 1)]),
        true => Does::Refuses(ProxyError::NotConnected("m1".to_owned())),
    });
    let mut body = fleet.get(&format!("{PODS}?watch=1"), "*/*").await.into_body();
    let began = tokio::time::Instant::now();
    assert_eq!(events(&mut body, 3).await, ["ADDED m1/a", "ERROR 410"]);
    assert!((60..90).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn watched_tables_have_few_columns_and_events_of_another_shape_end_the_members_watch() {
    let hub = Hub::with(&["m1", "m2"], &["*"]);
    let wide: Vec<_> = (0..20_000).map(|at| json!({"name": format!("c{at}")})).collect();
    let table = json!({"type": "ADDED", "object": {"kind": "Table", "columnDefinitions": wide,
        "rows": [5, {"cells": [1], "object": {"metadata": {"name": "a"}}}]}});
    let fleet = Fleet::of(&hub, move |member, _| match member {
        "m1" => Does::Streams(vec![format!("{table}\n")]),
        _ => {
            Does::Streams(vec!["5\n".to_owned(), "{\"type\":\"ADDED\",\"object\":5}\n".to_owned()])
        }
    });
    let path = format!("{PODS}?watch=1&timeoutSeconds=20");
    let answer = fleet.get(&path, "*/*").await.into_body().collect().await.unwrap().to_bytes();
    let lines: Vec<Value> = answer
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let columns = lines[0]["object"]["columnDefinitions"].as_array().unwrap().len();
    assert_eq!(columns, 65, "the member's first 64, and the member");
    assert!(lines.iter().all(|line| line["object"] != 5));
}

#[test]
fn above_200_members_a_watch_begins_with_what_exists() {
    let mut versions = versions::Versions::default();
    for number in 0..200 {
        versions.add(&format!("member{number}"), "123456789");
    }
    let text = versions.write();
    assert_eq!(versions::Versions::read(&text), Ok(versions.clone()));
    versions.add("member200", "1");
    assert_eq!(versions.write(), "");
    // The place of the next page has them only if there is room.
    let form = serde_json::from_value(json!({"kind": "PodList", "apiVersion": "v1"})).unwrap();
    let place = versions::Continue {
        member: "m1".to_owned(),
        token: None,
        form,
        versions: versions.clone(),
    };
    let read = versions::Continue::read(&place.write()).unwrap();
    assert_eq!((read.member.as_str(), read.versions), ("m1", versions::Versions::default()));
}
