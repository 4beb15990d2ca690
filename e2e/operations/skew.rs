//! Controllers and agents of two versions, both ways round. `cargo xtask skew` builds the other version and names it in
//! `ATOLL_SKEW_OTHER`; without it there is nothing to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::cli;
use crate::support::federation::deployments;
use crate::support::plane::Plane;

/// From a command to the readiness of Pods on the members, on a busy machine.
const ARRIVES: Duration = Duration::from_secs(60);

async fn generations(plane: &Plane) -> Vec<Option<i64>> {
    let mut all = Vec::new();
    for member in &plane.members {
        let api = deployments(&member.server.client, "default");
        all.push(api.get("web").await.unwrap().metadata.generation);
    }
    all
}

/// Starts with these, then replaces first the controller and then the agents by the other version.
async fn upgrade(controller: &Path, agents: &Path, to: &Path) {
    let mut plane = Plane::start_of(controller, agents, 1, 2, &[]).await;
    plane.create("web", 4).await;
    plane.until_ready("web", 4, ARRIVES).await;
    plane.scale("web", 6).await;
    plane.until_ready("web", 6, ARRIVES).await;
    let wrote = generations(&plane).await;

    plane.controllers[0].take().unwrap().signal("-TERM");
    plane.program = to.to_owned();
    plane.start_controller(0);
    plane.until_says(0, true).await;
    // Another workload arrives, so the first one could have been touched before.
    plane.create("next", 2).await;
    plane.until_ready("next", 2, ARRIVES).await;
    assert_eq!(generations(&plane).await, wrote, "the other controller wrote to members");

    for member in &mut plane.members {
        member.agent.take().unwrap().signal("-TERM");
        member.program = to.to_owned();
        member.start_agent();
    }
    plane.scale("next", 4).await;
    plane.until_ready("next", 4, ARRIVES).await;
    assert_eq!(generations(&plane).await, wrote, "the other agents wrote to members");
    plane.scale("web", 3).await;
    plane.until_ready("web", 3, ARRIVES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_work_together_in_both_directions() {
    let Some(other) = std::env::var_os("ATOLL_SKEW_OTHER").map(PathBuf::from) else {
        println!(
            "skipped: ATOLL_SKEW_OTHER names no program of another version (cargo xtask skew)"
        );
        return;
    };
    let own = cli::own();
    assert!(other.is_file(), "ATOLL_SKEW_OTHER: {} is no file", other.display());
    // Upgrade: all are old, then the controller is new, then the agents. Downgrade: the reverse. Then agents first.
    upgrade(&other, &other, &own).await;
    upgrade(&own, &own, &other).await;
    upgrade(&other, &own, &own).await;
    upgrade(&own, &other, &other).await;
}
