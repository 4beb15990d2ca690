//! `atoll ca rotate`: the authority is replaced while members work, and at once after a theft.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::cli::{atoll, fail, on_member, printed_words, run};
use crate::support::federation::{cluster_objects, deployments, objects};
use crate::support::plane::Plane;
use crate::support::process::Process;
use crate::support::wait::until;

/// From a command to the readiness of Pods on the members, on a busy machine.
const ARRIVES: Duration = Duration::from_secs(60);

fn ca(plane: &Plane, args: &[&str]) -> Command {
    let mut command = atoll();
    command.arg("ca").args(args).arg("--kubeconfig").arg(&plane.hub.kubeconfig);
    command
}

fn status(plane: &Plane) -> Value {
    serde_json::from_str(&run(&mut ca(plane, &["status", "-o", "json"]))).unwrap()
}

/// The authority that signs.
fn signing(status: &Value) -> String {
    let all = status["authorities"].as_array().unwrap();
    let signing = all.iter().find(|one| one["signs"] == true).unwrap();
    signing["hash"].as_str().unwrap().to_owned()
}

fn certificate<'a>(status: &'a Value, member: &str) -> &'a str {
    let members = status["members"].as_array().unwrap();
    members.iter().find(|one| one["name"] == member).unwrap()["certificate"].as_str().unwrap()
}

/// Versions of the workload's object on each member: what was written there in between.
async fn generations(plane: &Plane) -> Vec<Option<i64>> {
    let mut all = Vec::new();
    for member in &plane.members {
        let object = deployments(&member.server.client, "default").get("web").await.unwrap();
        all.push(object.metadata.generation);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_replaced_while_members_work_and_one_is_away() {
    let mut plane = Plane::start(2, 2, &[]).await;
    plane.create("web", 4).await;
    plane.until_ready("web", 4, ARRIVES).await;
    let clusters = cluster_objects(&plane.hub.client);
    let before = status(&plane);
    assert_eq!((&before["rotating"], certificate(&before, "member1")), (&false.into(), "Present"));
    let old = signing(&before);
    let wrote = generations(&plane).await;

    // One agent is away while the rotation begins.
    plane.members[1].agent.take().unwrap().signal("-KILL");
    let said = run(&mut ca(&plane, &["rotate"]));
    assert!(said.contains("signs from now on") && said.contains("ca status"), "{said}");
    let new = signing(&status(&plane));
    assert_ne!(old, new);
    until(&clusters, "member1", "a certificate of the new authority", |cluster| {
        cluster["status"]["session"]["authority"] == new.as_str()
            && cluster["status"]["session"]["state"] == "Connected"
    })
    .await;
    let during = status(&plane);
    assert_eq!(during["rotating"], true);
    assert_eq!(certificate(&during, "member1"), "Present", "{during}");
    assert_eq!(certificate(&during, "member2"), "Old", "{during}");
    let table = run(&mut ca(&plane, &["status"]));
    assert!(table.contains("Being replaced") && table.contains("1 of 2 members"), "{table}");
    let late = fail(&mut ca(&plane, &["rotate", "--wait", "1"]));
    assert!(late.contains("already going on") && late.contains("for member2"), "{late}");

    // Another leader continues, and the absent agent comes back with its old certificate.
    let (leader, _) = plane.leader(&[]).await;
    plane.controllers[leader].take().unwrap().signal("-TERM");
    plane.leader(&[leader]).await;
    plane.members[1].start_agent();
    let done = run(&mut ca(&plane, &["rotate", "--wait", "60"]));
    assert!(done.contains("The old one is no longer trusted"), "{done}");
    let after = status(&plane);
    assert_eq!((signing(&after), &after["rotating"]), (new.clone(), &false.into()));
    assert_eq!(after["authorities"].as_array().unwrap().len(), 1);

    // Nothing was written on the members meanwhile, and work arrives.
    assert_eq!(generations(&plane).await, wrote);
    plane.scale("web", 6).await;
    plane.until_ready("web", 6, ARRIVES).await;
    // An agent that starts again, with the command that named the old authority, uses what it has stored.
    plane.members[0].agent.take().unwrap().signal("-TERM");
    plane.members[0].start_agent();
    plane.scale("web", 2).await;
    plane.until_ready("web", 2, ARRIVES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_authority_is_cut_off_at_once_and_a_lost_one_is_written_again() {
    let mut plane = Plane::start(1, 1, &[]).await;
    plane.create("web", 2).await;
    plane.until_ready("web", 2, ARRIVES).await;
    let clusters = cluster_objects(&plane.hub.client);
    let old = signing(&status(&plane));

    // Someone deletes the Secret: the leader still has it.
    let secrets = objects(&plane.hub.client, "", "v1", "Secret", "atoll-system");
    secrets.delete("atoll-ca", &kube::api::DeleteParams::default()).await.unwrap();
    until(&secrets, "atoll-ca", "the Secret again", |_| true).await;
    assert_eq!(signing(&status(&plane)), old);

    let refused = fail(&mut ca(&plane, &["rotate", "--at-once"]));
    assert!(
        refused.contains("1 member has to join again") && refused.contains("--yes"),
        "{refused}"
    );
    run(&mut ca(&plane, &["rotate", "--at-once", "--yes"]));
    // Its agent tries again all the time, with its certificate of the old authority: were that accepted anywhere, the member
    // would not be lost.
    until(&clusters, "member1", "its loss", |cluster| {
        cluster["status"]["session"]["state"] != "Connected"
            && cluster["status"]["conditions"][0]["status"] != "True"
    })
    .await;
    let wrote = generations(&plane).await;
    let mut rejoin = atoll();
    let address = plane.forwarder.address.to_string();
    rejoin.args(["rejoin", "member1", "--address", &address, "-o", "json"]);
    rejoin.arg("--kubeconfig").arg(&plane.hub.kubeconfig);
    let words = printed_words(&mut rejoin);
    let member = &mut plane.members[0];
    drop(member.agent.take());
    let mut command = on_member(&words, &member.server.kubeconfig);
    member.agent = Some(Process::spawn("member1", command.stdin(Stdio::null())));
    let new = signing(&status(&plane));
    assert_ne!(new, old);
    until(&clusters, "member1", "a session with the new authority", |cluster| {
        cluster["status"]["session"]["authority"] == new.as_str()
            && cluster["status"]["session"]["state"] == "Connected"
    })
    .await;
    assert_eq!(generations(&plane).await, wrote, "its workloads ran on");
    plane.scale("web", 3).await;
    plane.until_ready("web", 3, ARRIVES).await;
}
