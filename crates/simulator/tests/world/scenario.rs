//! Shared by the tests: the documents of `examples/`, and the steps of the walk.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, POD, PROPAGATION_POLICY, RESOURCE_BINDING};
use atoll_simulator::world::{View, World, condition, shares};
use serde_json::{Value, json};

/// Limit of every wait, in simulated time. The longest is a failover with a toleration of 5 minutes.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);
pub(crate) const NGINX: &str = "default/nginx";
pub(crate) const BINDING: &str = "default/nginx-deployment";
const POLICY: &str = "default/nginx-propagation";

/// The Deployment with 3 replicas, and the policy over member1 and member2 with weights 2 and 1.
pub(crate) const FIRST: &str = include_str!("../../../../examples/01-nginx.yaml");
/// The policy with member3 too, at weight 1.
pub(crate) const MEMBER3: &str = include_str!("../../../../examples/03-add-member3.yaml");

/// The documents of a file, in its order.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

pub(crate) async fn apply(world: &World, text: &str) {
    for document in documents(text) {
        world.hub().apply(document).await;
    }
}

pub(crate) fn counts(expected: &[(&str, i64)]) -> BTreeMap<String, i64> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Waits until members run exactly these replicas of nginx.
async fn until_runs(world: &World, expected: &[(&str, i64)]) {
    let wanted = counts(expected);
    let look = |view: &View| {
        let (ready, asked) = (view.ready(&DEPLOYMENT, NGINX), view.wanted(&DEPLOYMENT, NGINX));
        let holds = ready == wanted && asked == wanted;
        holds.then_some(()).ok_or_else(|| format!("{ready:?} of {asked:?} are ready"))
    };
    world.until(&format!("members run {expected:?}"), LIMIT, look).await;
}

/// Waits until the hub's Deployment meets the condition of `kubectl rollout status`.
pub(crate) async fn until_rolled_out(world: &World, replicas: i64) {
    let what = format!("the hub shows {replicas} ready");
    let holds = |object: &Value| {
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        object["status"]["observedGeneration"] == object["metadata"]["generation"]
            && counts.iter().all(|field| object["status"][field] == replicas)
    };
    world.until_object("hub", &DEPLOYMENT, NGINX, &what, LIMIT, holds).await;
}

/// Waits until the binding's last decision, apart from finished evictions, has this trigger and these shares.
async fn until_decided(world: &World, trigger: &str, expected: &[(&str, i64)]) -> Value {
    let (what, wanted) = (format!("{trigger}: {expected:?}"), counts(expected));
    let holds = |binding: &Value| {
        binding["spec"]["decision"]["trigger"] == trigger && shares(binding) == wanted
    };
    world.until_object("hub", &RESOURCE_BINDING, BINDING, &what, LIMIT, holds).await
}

fn sum(counts: &BTreeMap<String, i64>) -> i64 {
    counts.values().sum()
}

/// Pods of nginx, running or pending, on members with power.
fn pods(view: &View) -> usize {
    let all = view.running().flat_map(|member| view.all(member, &POD));
    let alive = |pod: &Value| {
        pod["metadata"]["labels"]["app"] == "nginx"
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    all.filter(|(_, pod)| alive(pod)).count()
}

/// 1. Two thirds and one third.
pub(crate) async fn first(world: &World) {
    apply(world, FIRST).await;
    until_decided(world, "First", &[("member1", 2), ("member2", 1)]).await;
    until_runs(world, &[("member1", 2), ("member2", 1)]).await;
    until_rolled_out(world, 3).await;
    world.until_settled(LIMIT).await;
}

/// 2. More replicas.
pub(crate) async fn scale(world: &World) {
    world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 9}})).await;
    until_decided(world, "Scale", &[("member1", 6), ("member2", 3)]).await;
    until_runs(world, &[("member1", 6), ("member2", 3)]).await;
    until_rolled_out(world, 9).await;
    world.until_settled(LIMIT).await;
}

/// 3. A third member: old copies are removed only after the new ones are healthy, so 9 stay ready throughout.
pub(crate) async fn third_member(world: &World) {
    let enough = world.always("9 replicas stay ready", |view| {
        let ready = view.ready(&DEPLOYMENT, NGINX);
        (sum(&ready) >= 9).then_some(()).ok_or_else(|| format!("{ready:?}"))
    });
    let mut most = 0;
    let both = world.always("no more than what moves runs twice", move |view| {
        let asked = sum(&view.wanted(&DEPLOYMENT, NGINX));
        most = most.max(asked);
        (asked <= 11).then_some(()).ok_or_else(|| format!("{asked} are asked for"))
    });
    apply(world, MEMBER3).await;
    let split = [("member1", 5), ("member2", 2), ("member3", 2)];
    let moved = until_decided(world, "Reconcile", &split).await;
    let tasks = moved["spec"]["gracefulEvictionTasks"].as_array().unwrap();
    let task = |task: &Value| {
        (task["fromCluster"].as_str().unwrap().to_owned(), task["replicas"].as_i64().unwrap())
    };
    let tasks: BTreeMap<_, _> = tasks.iter().map(task).collect();
    assert_eq!(tasks, counts(&[("member1", 1), ("member2", 1)]));
    until_runs(world, &split).await;
    until_rolled_out(world, 9).await;
    world.until_settled(LIMIT).await;
    world.lift(enough);
    world.lift(both);
}

/// 4. A member is lost and comes back.
pub(crate) async fn failover(world: &mut World) {
    world.stop_member("member1").await;
    let taken_over = |binding: &Value| {
        let shares = shares(binding);
        binding["spec"]["decision"]["trigger"] == "Failover"
            && !shares.contains_key("member1")
            && sum(&shares) == 9
    };
    let what = "member1's share is elsewhere";
    let binding =
        world.until_object("hub", &RESOURCE_BINDING, BINDING, what, LIMIT, taken_over).await;
    let others = shares(&binding);
    let expected: Vec<_> = others.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    until_runs(world, &expected).await;
    until_rolled_out(world, 9).await;
    // The pods of member1 at the power cut are still in its store.
    let old = world.member("member1").get(&DEPLOYMENT, NGINX).await;
    assert_eq!(old["spec"]["replicas"], 5);

    let steady = world.always("9 replicas stay ready on the others", |view| {
        let mut ready = view.ready(&DEPLOYMENT, NGINX);
        ready.remove("member1");
        (sum(&ready) == 9).then_some(()).ok_or_else(|| format!("{ready:?}"))
    });
    world.start_member("member1").await;
    until_runs(world, &expected).await;
    until_rolled_out(world, 9).await;
    world.until_settled(LIMIT).await;
    world
        .until("nothing runs twice", LIMIT, |view| match pods(view) {
            9 => Ok(()),
            other => Err(format!("{other} Pods")),
        })
        .await;
    world.lift(steady);
}

/// 5. The policy is deleted, then the Deployment.
pub(crate) async fn leave(world: &World) {
    let before = world.read(|view| view.ready(&DEPLOYMENT, NGINX));
    let stays = before.clone();
    let untouched = world.always("nothing leaves with the policy", move |view| {
        let now = view.ready(&DEPLOYMENT, NGINX);
        (now == stays).then_some(()).ok_or_else(|| format!("{now:?}"))
    });
    world.hub().delete(&PROPAGATION_POLICY, POLICY).await;
    let unclaimed = |binding: &Value| condition(binding, "Claimed") == "False";
    let what = "nobody claims it";
    world.until_object("hub", &RESOURCE_BINDING, BINDING, what, LIMIT, unclaimed).await;
    world.rest(Duration::from_secs(120)).await;
    assert_eq!(world.read(|view| view.ready(&DEPLOYMENT, NGINX)), before);
    world.lift(untouched);

    world.hub().delete(&DEPLOYMENT, NGINX).await;
    until_runs(world, &[]).await;
    world
        .until_object("hub", &RESOURCE_BINDING, BINDING, "the binding goes", LIMIT, Value::is_null)
        .await;
    world
        .until("every Pod goes", LIMIT, |view| match pods(view) {
            0 => Ok(()),
            other => Err(format!("{other} Pods")),
        })
        .await;
}
