//! A member is drained with real agents over real sockets: the planned moves happen, and completion is reported.

use serde_json::{Value, json};

use super::{PORTS, are, ready, without_kubectl};
use crate::support::cli::run;
use crate::support::federation::{Federation, bindings, cluster_objects, deployments, free_ports};
use crate::support::wait::{until, until_gone};

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_member_is_empty_when_the_verb_says_so() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    without_kubectl(&federation).await;
    let hub = federation.client("hub").await;
    let binding = bindings(&hub, "default");
    let clusters = cluster_objects(&hub);
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&run(&mut federation.atoll(args))).expect("it is JSON")
    };

    // A dry run changes nothing, and predicts what the drain does.
    let plan = json(&["drain", "member1", "--dry-run", "-o", "json"]);
    assert_eq!((&plan["moving"], &plan["staying"]), (&json!(1), &json!(0)));
    assert_eq!(plan["items"][0]["moves"], json!([{"to": "member2", "replicas": 2}]));
    let held = serde_json::to_value(binding.get("nginx-deployment").await.unwrap()).unwrap();
    assert!(are(&held, &[("member1", 2), ("member2", 1)]), "{held:#}");

    let said = json(&["drain", "member1", "--timeout", "90", "-o", "json"]);
    assert_eq!((&said["member"], &said["emptied"]), (&json!("member1"), &json!(true)), "{said:#}");
    let moved = serde_json::to_value(binding.get("nginx-deployment").await.unwrap()).unwrap();
    assert!(are(&moved, &[("member2", 3)]), "{moved:#}");
    let member2 = deployments(&federation.client("member2").await, "default");
    until(&member2, "nginx", "3 ready on member2", |d| ready(d, 3)).await;
    until_gone(&deployments(&federation.client("member1").await, "default"), "nginx").await;

    run(&mut federation.atoll(&["uncordon", "member1"]));
    until(&clusters, "member1", "no taints", |cluster| {
        cluster["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}
