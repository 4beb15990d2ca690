//! Bugs that random histories have found in what the next session of a member starts from.

use std::time::Duration;

use atoll_simulator::world::soak::{Action, Going};
use atoll_simulator::world::{Fuse, Who};

use super::regressions::{at, holds};

/// Seed 9001989. A member's session ended while its agent applied an object. The next session's inventory lacked the
/// object, which had a new place meanwhile: nothing removed the copy that the agent then made.
#[test]
fn an_order_of_an_earlier_session_that_is_not_applied_yet_is_in_the_inventory() {
    let fuse = Fuse { site: None, nth: 5, after: true };
    let (within, away) = (Duration::from_millis(4_695), Duration::from_millis(8_355));
    let slow = Action::Slow {
        member: "member3".to_owned(),
        bytes: 1,
        pause: Duration::from_millis(1_912),
        span: Duration::from_millis(9_246),
    };
    holds(
        9_001_989,
        &[
            at(0, Action::Create { app: 0, replicas: 6, placement: 3_858_606_384 }),
            at(0, Action::Create { app: 1, replicas: 4, placement: 932_512_030 }),
            at(20_546, Action::Die { who: Who::Agent("member1".to_owned()), fuse, within, away }),
            at(26_431, slow),
        ],
    );
}

/// Seed 990000000268. A member's session ended while its agent removed an object, and the workload was placed there again. The next
/// session's inventory had the object with its hash: the controller sent nothing, and the object was missing after its removal.
#[test]
fn an_object_that_is_being_removed_by_an_earlier_session_is_sent_again() {
    let together = Action::Together {
        app: 0,
        apart: true,
        placement: 2_839_507_431,
        span: Duration::from_millis(13_861),
    };
    let (members, span) = (vec!["member2".to_owned()], Duration::from_millis(5_732));
    let older = |member: &str, after, span| Action::Older {
        who: Who::Agent(member.to_owned()),
        after: Duration::from_millis(after),
        span: Duration::from_millis(span),
    };
    let slow = Action::Slow {
        member: "member2".to_owned(),
        bytes: 4,
        pause: Duration::from_millis(1_610),
        span: Duration::from_millis(11_827),
    };
    holds(
        990_000_000_268,
        &[
            at(3_207, together),
            at(5_961, Action::Gone { members, how: Going::Dark, span }),
            at(8_663, older("member3", 3_335, 13_161)),
            at(10_021, Action::Create { app: 0, replicas: 4, placement: 147_978_157 }),
            at(10_479, older("member2", 5_848, 17_555)),
            at(18_253, slow),
        ],
    );
}
