//! StatefulSets.

use serde_json::json;

use super::sandbox::{Sandbox, template, workload};
use crate::index::kind::Kind;

fn names(sandbox: &Sandbox) -> Vec<String> {
    sandbox.active().iter().map(|pod| pod.key.name.clone()).collect()
}

fn settled(sandbox: &Sandbox, replicas: usize) -> bool {
    let field = |pointer: &str| sandbox.field(Kind::StatefulSet, "db", pointer);
    sandbox.ready() == replicas
        && sandbox.pods().len() == replicas
        && field("/status/observedGeneration") == field("/metadata/generation")
        && field("/status/currentRevision") == field("/status/updateRevision")
        && field("/status/availableReplicas") == json!(replicas)
}

fn image(sandbox: &Sandbox, ordinal: usize) -> String {
    let pod = sandbox.get(Kind::Pod, &format!("db-{ordinal}")).unwrap();
    pod.text("/spec/containers/0/image").unwrap().to_owned()
}

fn set_template(sandbox: &mut Sandbox, image: &str) {
    let patch = json!({"spec": {"template": template("db", image, "100m")}});
    sandbox.patch(Kind::StatefulSet, "db", patch);
}

#[test]
fn ordered_pods_come_one_after_the_other_and_leave_in_reverse() {
    let mut sandbox = Sandbox::with_nodes(3).lagging(5);
    // Each Pod starts only when all before it are Ready; scaling down deletes the later Pod first.
    sandbox.check_each_write(|sandbox| {
        let pods = sandbox.pods();
        for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| pod.pod().ready_since.is_some())
        {
            let before = pods[..at].iter().all(|before| before.pod().ready_since.is_some());
            assert!(before, "{} is Ready before its predecessors", pod.key.name);
        }
    });
    sandbox.create(workload("StatefulSet", "db", 4));
    sandbox.until(60, "four", |s| settled(s, 4));
    assert_eq!(names(&sandbox), ["db-0", "db-1", "db-2", "db-3"]);
    sandbox.patch(Kind::StatefulSet, "db", json!({"spec": {"replicas": 1}}));
    sandbox.until(60, "one", |s| settled(s, 1));
    assert_eq!(names(&sandbox), ["db-0"]);
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn parallel_pods_come_at_once() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut db = workload("StatefulSet", "db", 4);
    db["spec"]["podManagementPolicy"] = json!("Parallel");
    db["spec"]["ordinals"] = json!({"start": 2});
    sandbox.create(db);
    sandbox.settle();
    assert_eq!(names(&sandbox), ["db-2", "db-3", "db-4", "db-5"]);
    sandbox.until(10, "four", |s| settled(s, 4));
}

#[test]
fn a_rolling_update_goes_from_the_last_ordinal_to_the_partition() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut db = workload("StatefulSet", "db", 4);
    db["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    sandbox.create(db);
    sandbox.until(60, "four", |s| settled(s, 4));
    sandbox.check_each_write(|sandbox| assert!(sandbox.ready() >= 3, "one at a time"));
    set_template(&mut sandbox, "image:2");
    sandbox.advance(60);
    let images = |s: &Sandbox| [0, 1, 2, 3].map(|ordinal| image(s, ordinal));
    assert_eq!(images(&sandbox), ["image:1", "image:1", "image:2", "image:2"]);
    assert_eq!(sandbox.field(Kind::StatefulSet, "db", "/status/updatedReplicas"), json!(2));
    assert_eq!(sandbox.field(Kind::StatefulSet, "db", "/status/currentReplicas"), json!(2));
    // A lost Pod below the partition is recreated with its old revision.
    sandbox.delete(Kind::Pod, "db-0");
    sandbox.advance(10);
    assert_eq!(image(&sandbox, 0), "image:1");
    sandbox.patch(
        Kind::StatefulSet,
        "db",
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
    );
    sandbox.until(60, "all", |s| settled(s, 4));
    assert_eq!(images(&sandbox), ["image:2"; 4]);
    // Back to the first template: its revision is reused instead of a third one.
    set_template(&mut sandbox, "image:1");
    sandbox.until(60, "back", |s| settled(s, 4) && image(s, 0) == "image:1");
    assert_eq!(sandbox.all(Kind::ControllerRevision).len(), 2);
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn every_pod_has_its_own_volume_and_keeps_it() {
    let mut sandbox = Sandbox::with_nodes(3);
    let mut db = workload("StatefulSet", "db", 2);
    let claim = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
    });
    db["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    sandbox.create(db);
    sandbox.until(30, "two", |s| settled(s, 2));
    let claims = |s: &Sandbox| -> Vec<_> {
        s.all(Kind::PersistentVolumeClaim)
            .iter()
            .map(|claim| (claim.key.name.clone(), claim.text("/status/phase").unwrap().to_owned()))
            .collect()
    };
    let both = [
        ("data-db-0".to_owned(), "Bound".to_owned()),
        ("data-db-1".to_owned(), "Bound".to_owned()),
    ];
    assert_eq!(claims(&sandbox), both);
    let volumes = sandbox.field(Kind::Pod, "db-1", "/spec/volumes");
    assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "data-db-1");
    assert_eq!(sandbox.all(Kind::PersistentVolume).len(), 2);
    sandbox.delete(Kind::StatefulSet, "db");
    sandbox.advance(10);
    assert_eq!((sandbox.pods().len(), claims(&sandbox)), (0, both.to_vec()));
    sandbox.delete(Kind::PersistentVolumeClaim, "data-db-0");
    sandbox.settle();
    assert_eq!(sandbox.all(Kind::PersistentVolume).len(), 1, "the volume goes with its claim");
}
