//! WorkloadSpread as in the README: four reserved, the rest elastic, and each subset's copies with its patch.

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, WORKLOAD_SPREAD};
use atoll_simulator::world::{View, World};
use serde_json::{Value, json};

use crate::rights;
use crate::scenario::{LIMIT, apply, counts, documents};

const SPREAD: &str = include_str!("../../../../examples/10-workload-spread.yaml");
const WEB: &str = "spread-demo/web";

async fn until_runs(world: &World, expected: &[(&str, i64)]) {
    let wanted = counts(expected);
    let look = |view: &View| {
        let found = view.ready(&DEPLOYMENT, WEB);
        (found == wanted).then_some(()).ok_or_else(|| format!("{found:?} are ready"))
    };
    world.until(&format!("{expected:?} are ready"), LIMIT, look).await;
    world.until_settled(LIMIT).await;
}

async fn until_spread(world: &World, name: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    let key = format!("spread-demo/{name}");
    world.until_object("hub", &WORKLOAD_SPREAD, &key, what, LIMIT, holds).await;
}

/// The WorkloadSpread of the example under another name, with another limit.
fn another(limit: i64) -> Value {
    let is_spread = |document: &Value| document["kind"] == "WorkloadSpread";
    let mut spread = documents(SPREAD).into_iter().find(is_spread).unwrap();
    spread["metadata"]["name"] = json!("another");
    spread["spec"]["subsets"][0]["maxReplicas"] = json!(limit);
    spread
}

#[tokio::test(start_paused = true)]
async fn subsets_are_filled_in_order_and_their_copies_patched() {
    let world = World::builder().seed(10).members(2).build().await;
    for (name, pool) in [("member1", "reserved"), ("member2", "elastic")] {
        let label = json!({"metadata": {"labels": {"pool": pool}}});
        world.hub().merge(&CLUSTER, name, label).await;
    }
    apply(&world, SPREAD).await;
    until_runs(&world, &[("member1", 4), ("member2", 2)]).await;
    for (member, pool) in [("member1", "reserved"), ("member2", "elastic")] {
        let copy = world.member(member).get(&DEPLOYMENT, WEB).await;
        let labels = &copy["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({"app": "web", "pool": pool}), "{member}");
    }
    let placed = |spread: &Value| {
        let subsets = &spread["status"]["subsets"];
        spread["status"]["conditions"][0]["reason"] == "Accepted"
            && subsets[0]["replicas"] == 4
            && subsets[1]["replicas"] == 2
    };
    until_spread(&world, "web", "the subsets are counted", placed).await;
    // Last in, first out.
    world.hub().merge(&DEPLOYMENT, WEB, json!({"spec": {"replicas": 3}})).await;
    until_runs(&world, &[("member1", 3)]).await;
    rights::assert_allowed(&world);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_spread_waits_for_the_first_and_a_wrong_patch_is_named() {
    let world = World::builder().seed(11).members(1).build().await;
    let pool = json!({"metadata": {"labels": {"pool": "reserved"}}});
    world.hub().merge(&CLUSTER, "member1", pool).await;
    let reason = |reason: &'static str| {
        move |spread: &Value| spread["status"]["conditions"][0]["reason"] == reason
    };
    apply(&world, SPREAD).await;
    until_spread(&world, "web", "it is in force", reason("Accepted")).await;
    until_runs(&world, &[("member1", 4)]).await;
    world.hub().apply(another(1)).await;
    until_spread(&world, "another", "the older one is in force", reason("Conflicted")).await;
    until_runs(&world, &[("member1", 4)]).await;
    world.hub().delete(&WORKLOAD_SPREAD, WEB).await;
    until_spread(&world, "another", "it is in force now", reason("Accepted")).await;

    let mut wrong = another(1);
    wrong["spec"]["subsets"][0]["patch"] = json!({"metadata": {"name": "elsewhere"}});
    world.hub().apply(wrong).await;
    let named = |spread: &Value| {
        let message = spread["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        reason("Invalid")(spread) && message.contains("spec.subsets[0].patch: metadata.name")
    };
    until_spread(&world, "another", "the field of the mistake is named", named).await;
    world.end().await;
}
