//! One seed, one history.

use atoll_simulator::world::{Identities, World, simulate};

use crate::scenario;

/// Runs the walk; returns its hash and all observations.
fn walk(seed: u64, identities: Identities) -> (String, Vec<String>) {
    simulate(async {
        let builder = World::builder().seed(seed).members(3).identities(identities);
        let mut world = builder.build().await;
        scenario::first(&world).await;
        scenario::scale(&world).await;
        scenario::third_member(&world).await;
        scenario::failover(&mut world).await;
        scenario::leave(&world).await;
        world.check_history().await;
        let account = (world.digest().await, world.account().await);
        world.end().await;
        account
    })
}

fn compare(identities: Identities) {
    let (first, second) = (walk(11, identities), walk(11, identities));
    let pairs = first.1.iter().zip(&second.1).enumerate();
    for (at, (one, other)) in pairs {
        assert_eq!(one, other, "line {at} of {} differs", first.1.len());
    }
    assert_eq!(first.1.len(), second.1.len(), "one account is longer");
    assert_eq!(first.0, second.0);
    assert_ne!(first.0, walk(12, identities).0, "the seed makes no difference");
}

#[test]
fn two_runs_of_one_seed_have_one_history() {
    compare(Identities::Known);
}

#[test]
fn enrolment_and_tls_do_not_change_a_history() {
    compare(Identities::Enrolled);
}
