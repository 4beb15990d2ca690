//! The walk of the README.

use atoll_simulator::world::World;

use crate::rights;
use crate::scenario::{self, BINDING};

#[tokio::test(start_paused = true)]
async fn a_workload_is_placed_scaled_moved_fails_over_and_leaves() {
    let mut world = World::builder().seed(1).members(3).build().await;
    scenario::first(&world).await;
    scenario::scale(&world).await;
    scenario::third_member(&world).await;
    scenario::failover(&mut world).await;
    scenario::leave(&world).await;
    world.check_history().await;
    assert_eq!(
        world.triggers(BINDING).await,
        ["First", "Scale", "Reconcile", "EvictionDone", "Failover", "EvictionDone", "Withdrawn"]
    );
    rights::assert_allowed(&world);
    world.end().await;
}
