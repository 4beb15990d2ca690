//! WorkloadPolicy as in the Kosmos documentation: six replicas, domains with targets member 1 and host 3.

use std::collections::BTreeMap;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, POD, RESOURCE_BINDING};
use atoll_simulator::world::{View, World, shares};
use serde_json::{Value, json};

use crate::scenario::{LIMIT, apply, counts};

/// Soft and balanced, the defaults.
const SOFT: &str = include_str!("../../../../examples/06-workload-policy.yaml");
/// Required and Fill.
const HARD: &str = include_str!("../../../../examples/07-workload-policy-required.yaml");
const FLOATER: &str = "workload-test/clusterlink-floater-mix";
const BINDING: &str = "workload-test/clusterlink-floater-mix-deployment";

/// Three members: one in the domain `member`, two in `host`.
async fn world() -> World {
    let world = World::builder().seed(6).members(3).build().await;
    for (name, domain) in [("member1", "member"), ("member2", "host"), ("member3", "host")] {
        let label = json!({"metadata": {"labels": {"workload-test": domain}}});
        world.hub().merge(&CLUSTER, name, label).await;
    }
    world
}

/// Pods that run, by domain.
fn running(view: &View) -> BTreeMap<String, i64> {
    let mut domains = BTreeMap::new();
    for member in view.running() {
        let domain = &view.hub(&CLUSTER, member)["metadata"]["labels"]["workload-test"];
        let pods = view.all(member, &POD).filter(|(_, pod)| {
            pod["metadata"]["labels"]["app"] == "clusterlink-floater-mix"
                && pod["status"]["phase"] == "Running"
        });
        let domain = domain.as_str().unwrap_or_default().to_owned();
        *domains.entry(domain).or_insert(0) += i64::try_from(pods.count()).unwrap();
    }
    domains
}

async fn until_running(world: &World, expected: &[(&str, i64)]) -> Value {
    let wanted = counts(expected);
    let look = |view: &View| {
        let found = running(view);
        (found == wanted).then_some(()).ok_or_else(|| format!("{found:?} run"))
    };
    world.until(&format!("{expected:?} run"), LIMIT, look).await;
    world.until_settled(LIMIT).await;
    world.hub().get(&RESOURCE_BINDING, BINDING).await
}

#[tokio::test(start_paused = true)]
async fn soft_targets_are_followed_in_proportion() {
    let world = world().await;
    apply(&world, SOFT).await;
    let binding = until_running(&world, &[("member", 2), ("host", 4)]).await;
    assert_eq!(shares(&binding), counts(&[("member1", 2), ("member2", 2), ("member3", 2)]));
    assert_eq!(binding["spec"]["decision"]["pending"], Value::Null);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn hard_targets_leave_the_rest_waiting() {
    let world = world().await;
    apply(&world, HARD).await;
    let binding = until_running(&world, &[("member", 1), ("host", 3)]).await;
    let pending = &binding["spec"]["decision"]["pending"];
    assert_eq!(pending[0]["replicas"], 2, "{binding:#}");
    assert_eq!(pending.as_array().unwrap().len(), 1);
    assert!(!pending[0]["reason"].as_str().unwrap().is_empty());
    assert_eq!(binding["spec"]["decision"]["outcome"], "Partial");
    let four = |object: &Value| object["status"]["readyReplicas"] == 4;
    world.until_object("hub", &DEPLOYMENT, FLOATER, "the hub shows 4 ready", LIMIT, four).await;
    world.end().await;
}
