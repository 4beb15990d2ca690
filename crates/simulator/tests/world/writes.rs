//! The number of hub writes for a workload, and for a restart: none. Replies to writes that come late.

use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, PROPAGATION_POLICY};
use atoll_simulator::world::soak::{Action, Step, play};
use atoll_simulator::world::{Actor, Fuse, Mark, Who, World, Write, condition};
use serde_json::{Value, json};

use crate::scenario::{BINDING, LIMIT, NGINX, until_rolled_out};

const ALL: &str = "default/all";
/// Without a write for this long the system is quiet: longer than every window in which writes are batched.
const QUIET: Duration = Duration::from_secs(30);

/// Writes of the controller to the hub, without renewals of its own Lease, which never end.
fn by_controller(write: &Write) -> bool {
    write.actor == Actor::Controller && write.resource != "leases"
}

/// Writes of an agent to its member, without its own Lease (which also holds the leader's term).
fn by_agent(write: &Write) -> bool {
    write.actor == Actor::Agent && write.resource != "leases"
}

fn any(write: &Write) -> bool {
    by_controller(write) || by_agent(write)
}

fn lines(writes: &[Write]) -> String {
    writes.iter().map(|write| format!("{write}\n")).collect()
}

/// nginx and `more` other workloads, each with a replica on three members, everything quiet; with the mark from before
/// them.
async fn propagated(more: usize) -> (World, Mark) {
    let world = World::builder().seed(3).members(3).build().await;
    world
        .hub()
        .apply(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                }},
            },
        }))
        .await;
    let accepted = |policy: &Value| condition(policy, "Accepted") == "True";
    let what = "the policy is accepted";
    world.until_object("hub", &PROPAGATION_POLICY, ALL, what, LIMIT, accepted).await;
    world.quiet(QUIET, LIMIT, any).await;
    let mark = world.mark();
    let names = std::iter::once("nginx".to_owned()).chain((0..more).map(|n| format!("more{n}")));
    for name in names {
        world
            .hub()
            .apply(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 3, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
                    },
                },
            }))
            .await;
    }
    until_rolled_out(&world, 3).await;
    world.until_settled(LIMIT).await;
    world.quiet(QUIET, LIMIT, any).await;
    assert_eq!(world.read(|view| view.ready(&DEPLOYMENT, NGINX)).len(), 3);
    (world, mark)
}

/// The binding, its Event, its status, the template's status; and for all workloads of a policy together, at most every
/// 10 s, the policy's own status.
#[tokio::test(start_paused = true)]
async fn a_workload_on_three_members_costs_the_hub_four_writes() {
    for more in [0, 9] {
        let (world, mark) = propagated(more).await;
        let all = world.writes(mark, by_controller);
        let of = |resource: &str| all.iter().filter(|write| write.resource == resource).count();
        for resource in
            ["resourcebindings", "events", "resourcebindings/status", "deployments/status"]
        {
            assert_eq!(of(resource), 1 + more, "writes to {resource}:\n{}", lines(&all));
        }
        let policy = of("propagationpolicies/status");
        assert!(policy <= 1, "the policy's figures are written once:\n{}", lines(&all));
        assert_eq!(all.len(), 4 * (1 + more) + policy, "other writes:\n{}", lines(&all));
        assert!(all.iter().all(|write| write.status < 300), "refused:\n{}", lines(&all));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_writes_nothing() {
    let (mut world, _) = propagated(2).await;
    let mark = world.mark();
    world.stop_controller().await;
    world.start_controller();
    // Past a new leader's grace period and the agents' longest wait for it.
    world.rest(Duration::from_secs(180)).await;
    let leases = world.writes(mark, |write| {
        write.actor == Actor::Controller && write.resource == "leases" && write.status == 200
    });
    assert!(!leases.is_empty(), "the new controller leads");
    let writes = world.writes(mark, any);
    assert!(writes.is_empty(), "{} writes:\n{}", writes.len(), lines(&writes));
    // It does lead: a change now takes effect.
    world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 6}})).await;
    until_rolled_out(&world, 6).await;
    world.until_settled(LIMIT).await;
    assert_eq!(world.triggers(BINDING).await, ["First", "Scale"]);
    world.end().await;
}

/// Seed 1000000153 of the random histories. The reply to a status write came after the event of a later change, and took
/// the template back: the change was lost until the template changed again.
#[test]
fn a_late_reply_takes_no_template_back() {
    let millis = Duration::from_millis;
    let at = |after, action| Step { at: millis(after), action };
    let member = || "member3".to_owned();
    let follow = Action::Follow {
        replicas: 3,
        placement: 1_457_447_466,
        member: member(),
        runs: 3,
        later: millis(13_473),
    };
    let crash = Action::Die {
        who: Who::Agent(member()),
        fuse: Fuse { site: None, nth: 1, after: true },
        within: millis(6_126),
        away: millis(1_879),
    };
    let late =
        Action::Answers { who: Who::Controller(1), late: millis(2_271), span: millis(7_175) };
    let script = [at(444, follow), at(7_355, crash), at(17_930, late)];
    assert_eq!(play(1_000_000_153, &script).err(), None);
}
