//! Members on the command line: the table, their orphans, and confirmation before a deletion.

use serde_json::{Value, json};

use crate::served::Hub;

/// A member that joined three hours ago.
fn member(name: &str, orphans: usize, listed: &[&str]) -> Value {
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(3);
    let since = jiff::Timestamp::from_second(since.as_second()).unwrap().to_string();
    let object = |name: &&str| json!({"group": "apps", "kind": "Deployment", "namespace": "shop", "name": name});
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"mode": "Hosted", "kubeconfigSecret": "somewhere", "region": "north"},
        "status": {
            "kubernetesVersion": "v1.33.2",
            "session": {"state": "Connected", "epoch": 3, "since": since},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "MemberReady", "message": "",
                "lastTransitionTime": since,
            }],
            "resourceSummary": {
                "allocatable": {"cpu": "24", "memory": "96Gi", "pods": "330"},
                "allocated": {"cpu": "1500m", "memory": "3Gi", "pods": "9"},
            },
            "orphans": orphans,
            "orphanedObjects": listed.iter().map(object).collect::<Vec<_>>(),
        },
    })
}

async fn federation() -> Hub {
    let hub = Hub::without_history().await;
    hub.install_crds().await;
    hub.create_cluster(member("member1", 0, &[])).await;
    hub.create_cluster(member("member2", 102, &["left", "right"])).await;
    let empty = json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "member3"}, "spec": {},
    });
    hub.create_cluster(empty).await;
    hub.create_binding(&crate::served::decision(
        "0000eeee",
        atoll_api::binding::Trigger::First,
        100,
        &[("member1", 6), ("member2", 3)],
    ))
    .await;
    hub
}

#[tokio::test(flavor = "multi_thread")]
async fn members_in_a_table() {
    let hub = federation().await;
    insta::assert_snapshot!("members", hub.atoll("get", &["members"]).await.ok());
    let whole = hub.atoll("get", &["members", "-o", "json"]).await.json();
    assert_eq!(whole["items"][0]["spec"]["region"], "north");
    assert!(whole["items"][0]["metadata"].get("managedFields").is_none(), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_listed_and_nothing_goes_unasked() {
    let hub = federation().await;
    let listed = hub.atoll("orphans", &[]).await;
    assert!(listed.stderr.contains("member2: 100 more orphans than these 2"), "{}", listed.stderr);
    insta::assert_snapshot!("orphans", listed.ok());
    assert_eq!(hub.atoll("orphans", &["member1"]).await.ok().trim(), "No orphans.");
    let items = hub.atoll("orphans", &["member2", "-o", "json"]).await.json();
    assert_eq!(items["orphans"][1]["name"], "right");
    assert_eq!(items["orphans"][1]["cluster"], "member2");

    for (args, part) in [
        (&["member9"][..], "atoll get members"),
        (&["member2"], "--yes"),
        (&["member2", "Deployment.apps/shop/web", "--yes"], "is not an orphan of member2"),
        (&["member1", "--confirm", "--yes"], "no removals are held on member1"),
    ] {
        let error = hub.atoll("prune", args).await.failed(1);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let error = hub.atoll("prune", &["member2", "nonsense"]).await.failed(2);
    assert!(error.contains("KIND[.GROUP]/NAMESPACE/NAME"), "{error}");
    assert!(hub.atoll("prune", &["member1", "--yes"]).await.ok().contains("no orphans"));
    let error = hub.atoll("confirm-lost", &["--yes"]).await.failed(1);
    assert!(error.contains("no member is lost"), "{error}");
    let error = hub.atoll("accept-term", &["member2", "--yes"]).await.failed(1);
    assert!(error.contains("member2 has no condition TermAhead"), "{error}");
    assert_eq!(
        hub.annotations("member2").await,
        json!(null),
        "nothing was asked of the controller"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_drained_shows_it_in_both_tables() {
    let hub = Hub::without_history().await;
    hub.install_crds().await;
    let mut drained = member("member1", 0, &[]);
    drained["spec"]["taints"] = json!([
        {"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"},
        {"key": "cluster.atoll.dev/drain", "effect": "NoExecute"},
    ]);
    drained["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "Emptied", "status": "False", "reason": "NothingTakes", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let state = "Ready,SchedulingDisabled,Draining";
    drained["status"]["state"] = state.into();
    drained["status"]["reason"] = "NothingTakes".into();
    hub.create_cluster(drained).await;
    insta::assert_snapshot!("drained-member", hub.atoll("get", &["members"]).await.ok());
    if hub.has_kubectl() {
        let table = hub.kubectl(&["get", "clusters"]).await.ok();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap()[..3], ["NAME", "STATUS", "REASON"], "{table}");
        assert_eq!(lines.next().unwrap()[..3], ["member1", state, "NothingTakes"], "{table}");
    }
}
