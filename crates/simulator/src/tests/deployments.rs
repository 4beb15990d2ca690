//! Deployments.

use serde_json::json;

use super::sandbox::{Dice, Sandbox, template, workload};
use crate::index::kind::Kind;

const PODS: [&str; 2] = ["image:1", "image:2"];

fn complete(sandbox: &Sandbox, name: &str) -> bool {
    let field = |pointer: &str| sandbox.field(Kind::Deployment, name, pointer);
    let wanted = field("/spec/replicas");
    field("/metadata/generation") == field("/status/observedGeneration")
        && ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|counter| {
            let value = field(&format!("/status/{counter}"));
            if wanted == json!(0) { value.is_null() } else { value == wanted }
        })
}

fn of_image(sandbox: &Sandbox, image: &str) -> usize {
    let is =
        |pod: &crate::index::object::Object| pod.text("/spec/containers/0/image") == Some(image);
    sandbox.active().iter().filter(|pod| is(pod)).count()
}

fn set_image(sandbox: &mut Sandbox, name: &str, image: &str) {
    let patch = json!({"spec": {"template": template(name, image, "100m")}});
    sandbox.patch(Kind::Deployment, name, patch);
}

#[test]
fn a_deployment_becomes_complete_and_says_so() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(workload("Deployment", "web", 3));
    sandbox.until(30, "complete", |s| complete(s, "web"));
    assert_eq!(sandbox.ready(), 3);
    let is = |type_: &str| sandbox.condition(Kind::Deployment, "web", type_).unwrap();
    assert_eq!(is("Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(is("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    let sets = sandbox.all(Kind::ReplicaSet);
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0].annotation("deployment.kubernetes.io/revision"), Some("1"));
    assert_eq!(sets[0].annotation("deployment.kubernetes.io/max-replicas"), Some("4"));
    let hash = sets[0].label("pod-template-hash").unwrap();
    assert_eq!(sets[0].key.name, format!("web-{hash}"));
    assert!(sandbox.pods().iter().all(|pod| pod.label("pod-template-hash") == Some(hash)));
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn what_many_pods_do_at_once_is_reported_once() {
    let mut sandbox = Sandbox::with_nodes(3);
    let before = sandbox.log.len();
    sandbox.create(workload("Deployment", "web", 50));
    sandbox.until(30, "complete", |s| complete(s, "web"));
    let of = |what: &str| sandbox.log[before..].iter().filter(|line| line.contains(what)).count();
    assert_eq!(of(" Pod "), 50 * 4, "created, bound, admitted, ready");
    let owners = of("ReplicaSet") + of("Deployment");
    assert!(owners <= 10, "{owners} writes for the owners");
}

/// Over random sizes, margins, lags, scalings and restarts: never fewer available Pods than `maxUnavailable` allows,
/// never more than `maxSurge` allows, and in the end only new ones.
#[test]
fn a_rollout_keeps_its_availability_bounds() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let replicas = i64::try_from(dice.below(9)).unwrap() + 1;
        let surge = i64::try_from(dice.below(4)).unwrap();
        let missing = i64::try_from(dice.below(4)).unwrap();
        let may_miss = if surge == 0 { missing.max(1) } else { missing }.min(replicas);
        let mut sandbox = Sandbox::with_nodes(3).lagging(seed);
        let mut web = workload("Deployment", "web", replicas);
        web["spec"]["strategy"] =
            json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}});
        web["spec"]["minReadySeconds"] = json!(dice.below(3) * 5);
        sandbox.create(web);
        sandbox.until(120, "first rollout", |s| complete(s, "web"));
        sandbox.check_each_write(move |sandbox| {
            let ready = i64::try_from(sandbox.ready()).unwrap();
            assert!(
                ready >= replicas - may_miss,
                "seed {seed}: {ready} of {replicas} - {may_miss}"
            );
            let active = i64::try_from(sandbox.active().len()).unwrap();
            assert!(active <= replicas + surge, "seed {seed}: {active} over {replicas} + {surge}");
        });
        for image in ["image:2", "image:3", "image:2"] {
            set_image(&mut sandbox, "web", image);
            if dice.below(2) == 0 {
                // The next change comes in the middle of this one.
                sandbox.advance(dice.below(6));
                sandbox.writes_after_restart();
            } else {
                sandbox.until(600, image, |s| complete(s, "web"));
            }
        }
        sandbox.until(600, "last rollout", |s| complete(s, "web"));
        sandbox.advance(5);
        assert_eq!(of_image(&sandbox, "image:2"), usize::try_from(replicas).unwrap());
        assert_eq!(sandbox.pods().len(), usize::try_from(replicas).unwrap(), "seed {seed}");
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn two_runs_of_one_seed_write_the_same() {
    let run = || {
        let mut sandbox = Sandbox::with_nodes(3).lagging(7);
        sandbox.create(workload("Deployment", "web", 7));
        sandbox.advance(3);
        set_image(&mut sandbox, "web", "image:2");
        sandbox.until(60, "complete", |s| complete(s, "web"));
        sandbox.log
    };
    assert_eq!(run(), run());
}

#[test]
fn scaling_in_the_middle_of_a_rollout_is_proportional() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut web = workload("Deployment", "web", 10);
    web["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    sandbox.create(web);
    sandbox.until(60, "complete", |s| complete(s, "web"));
    // The new Pods never become ready, so the rollout stops at 8 old and 5 new.
    let mut stuck = template("web", "image:2", "100m");
    stuck["metadata"]["annotations"] = json!({"simulator.atoll.dev/fail": "unready"});
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"template": stuck}}));
    sandbox.advance(60);
    assert_eq!(PODS.map(|image| of_image(&sandbox, image)), [8, 5]);
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"replicas": 15}}));
    sandbox.advance(1);
    // The example in the Kubernetes documentation: five more, three to the larger set and two to the smaller.
    assert_eq!(PODS.map(|image| of_image(&sandbox, image)), [11, 7]);
}

#[test]
fn recreate_never_runs_two_templates_at_once() {
    let mut sandbox = Sandbox::with_nodes(3).lagging(3);
    let mut web = workload("Deployment", "web", 4);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    sandbox.create(web);
    sandbox.until(60, "complete", |s| complete(s, "web"));
    sandbox.check_each_write(|sandbox| {
        let images: std::collections::BTreeSet<_> = sandbox
            .pods()
            .iter()
            .map(|pod| pod.text("/spec/containers/0/image").unwrap().to_owned())
            .collect();
        assert!(images.len() < 2, "{images:?}");
    });
    set_image(&mut sandbox, "web", "image:2");
    sandbox.until(60, "complete", |s| complete(s, "web"));
    assert_eq!(of_image(&sandbox, "image:2"), 4);
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn a_rollout_without_progress_times_out_and_recovers() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut web = workload("Deployment", "web", 2);
    web["spec"]["progressDeadlineSeconds"] = json!(60);
    web["spec"]["template"]["metadata"]["annotations"] =
        json!({"simulator.atoll.dev/fail": "unready"});
    sandbox.create(web);
    sandbox.advance(50);
    let progressing = |s: &Sandbox| s.condition(Kind::Deployment, "web", "Progressing").unwrap();
    assert_eq!(progressing(&sandbox).0, "True");
    sandbox.advance(20);
    assert_eq!(progressing(&sandbox), ("False".into(), "ProgressDeadlineExceeded".into()));
    let available = sandbox.condition(Kind::Deployment, "web", "Available").unwrap();
    assert_eq!(available, ("False".into(), "MinimumReplicasUnavailable".into()));
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    let mut healthy = template("web", "image:2", "100m");
    healthy["metadata"]["annotations"] = json!({"simulator.atoll.dev/fail": null});
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"template": healthy}}));
    sandbox.until(60, "complete", |s| complete(s, "web"));
    assert_eq!(progressing(&sandbox), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn going_back_reuses_the_old_set_under_a_new_revision() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut web = workload("Deployment", "web", 2);
    web["spec"]["revisionHistoryLimit"] = json!(1);
    sandbox.create(web);
    for image in ["image:1", "image:2", "image:1"] {
        set_image(&mut sandbox, "web", image);
        sandbox.until(60, image, |s| complete(s, "web"));
    }
    let sets = sandbox.all(Kind::ReplicaSet);
    assert_eq!(sets.len(), 2);
    let current = sets.iter().find(|set| set.int("/spec/replicas") == Some(2)).unwrap();
    assert_eq!(current.annotation("deployment.kubernetes.io/revision"), Some("3"));
    assert_eq!(current.annotation("deployment.kubernetes.io/revision-history"), Some("1"));
    let own = sandbox.get(Kind::Deployment, "web").unwrap();
    assert_eq!(own.annotation("deployment.kubernetes.io/revision"), Some("3"));
    // A third template pushes the oldest idle set over the limit.
    set_image(&mut sandbox, "web", "image:3");
    sandbox.until(60, "complete", |s| complete(s, "web"));
    sandbox.advance(5);
    let mut revisions: Vec<_> = sandbox
        .all(Kind::ReplicaSet)
        .iter()
        .map(|set| set.annotation("deployment.kubernetes.io/revision").unwrap().to_owned())
        .collect();
    revisions.sort();
    assert_eq!(revisions, ["3", "4"]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(workload("Deployment", "web", 2));
    sandbox.until(60, "complete", |s| complete(s, "web"));
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"paused": true}}));
    set_image(&mut sandbox, "web", "image:2");
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"replicas": 4}}));
    sandbox.advance(30);
    assert_eq!(PODS.map(|image| of_image(&sandbox, image)), [4, 0]);
    let progressing = sandbox.condition(Kind::Deployment, "web", "Progressing").unwrap();
    assert_eq!(progressing, ("Unknown".into(), "DeploymentPaused".into()));
    sandbox.patch(Kind::Deployment, "web", json!({"spec": {"paused": false}}));
    sandbox.until(60, "complete", |s| complete(s, "web"));
    assert_eq!(PODS.map(|image| of_image(&sandbox, image)), [0, 4]);
}

#[test]
fn scaling_up_and_down_follows_and_zero_is_a_number() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(workload("Deployment", "web", 1));
    for replicas in [5, 2, 0, 3] {
        sandbox.patch(Kind::Deployment, "web", json!({"spec": {"replicas": replicas}}));
        sandbox.until(60, "complete", |s| complete(s, "web"));
        sandbox.advance(10);
        assert_eq!(sandbox.pods().len(), replicas);
    }
    sandbox.delete(Kind::Deployment, "web");
    sandbox.advance(10);
    assert_eq!((sandbox.all(Kind::ReplicaSet).len(), sandbox.pods().len()), (0, 0));
}
