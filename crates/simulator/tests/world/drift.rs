//! Changes of members' objects that agents have to revert, found by random histories.

use std::time::Duration;

use atoll_simulator::world::Who;
use atoll_simulator::world::soak::{Action, Tampering};

use super::regressions::{at, holds};

/// Seed 81234500007. A member's object was edited in the second in which the agent had applied it. The agent missed the event,
/// because its watches were behind, and restarted. It took the edit for earlier than the apply.
#[test]
fn an_edit_in_the_second_of_the_apply_is_reverted_although_the_agent_restarts() {
    changed_before_a_restart(Tampering::Edit);
}

#[test]
fn a_removed_field_is_put_back_although_the_agent_restarts() {
    changed_before_a_restart(Tampering::Unset);
}

fn changed_before_a_restart(what: Tampering) {
    let behind = Action::Older {
        who: Who::Agent("member2".to_owned()),
        after: Duration::from_millis(8_402),
        span: Duration::from_millis(22_215),
    };
    let change = Action::Tamper {
        member: "member2".to_owned(),
        what,
        times: 3,
        pause: Duration::from_millis(1_056),
    };
    holds(
        81_234_500_007,
        &[
            at(9_787, behind),
            at(14_952, Action::Widget { number: 1, size: 7, placement: 1_963_088_039 }),
            at(15_595, change),
        ],
    );
}
