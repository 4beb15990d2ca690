//! Bugs that random histories have found, each reduced to the necessary steps.

use std::time::Duration;

use atoll_simulator::world::soak::{Action, Damaged, Going, Poison, Step, play};
use atoll_simulator::world::{Events, Fuse, Skew, Way, Who};

pub(super) fn at(millis: u64, action: Action) -> Step {
    Step { at: Duration::from_millis(millis), action }
}

pub(super) fn holds(seed: u64, script: &[Step]) {
    if let Err(error) = play(seed, script) {
        panic!("seed {seed}: {error}");
    }
}

fn everybody() -> Vec<String> {
    ["member1", "member2", "member3"].map(str::to_owned).to_vec()
}

/// Seed 3000193. A late watch showed a deleted Deployment once more, and its binding was made anew. Then the old binding's
/// last events arrived, whose withdrawal counted as that of the new one: its copies stayed, and no binding claimed them.
#[test]
fn a_withdrawal_is_not_that_of_a_later_binding_of_the_same_name() {
    let late = Action::Watches {
        who: Who::Controller(1),
        events: Events::Late(Duration::from_millis(669)),
        span: Duration::from_millis(7_720),
    };
    holds(
        3_000_193,
        &[
            at(6_474, late),
            at(10_527, Action::Create { app: 2, replicas: 1, placement: 822_119_124 }),
            at(12_972, Action::Delete { app: 2 }),
        ],
    );
}

/// Seed 10501285. A new leader could not render the copy of a member, for an override that cannot be applied there. The
/// workload moved away, and nothing ordered that member to remove the copy of the earlier leadership.
#[test]
fn a_copy_that_the_leader_could_not_render_goes_when_its_member_is_left() {
    let fuse = Fuse { site: Some("POST resourcebindings".to_owned()), nth: 2, after: false };
    let (within, away) = (Duration::from_millis(7_763), Duration::from_millis(2_312));
    let inapplicable =
        Action::Poisoned { what: Poison::Inapplicable, span: Duration::from_millis(16_413) };
    let create = |replicas, placement| Action::Create { app: 0, replicas, placement };
    holds(
        10_501_285,
        &[
            at(0, create(1, 1_016_457_473)),
            at(6_860, Action::Die { who: Who::Controller(1), fuse, within, away }),
            at(17_350, inapplicable),
            at(20_637, create(8, 2_261_405_932)),
        ],
    );
}

/// Seed 10200016. A kind whose status has no observedGeneration counted as never observed, so that its old copies kept
/// their replicas for the whole grace period.
#[test]
fn an_object_without_an_observed_generation_moves_when_its_replacements_are_healthy() {
    let widget = |size, placement| Action::Widget { number: 0, size, placement };
    holds(10_200_016, &[at(16_340, widget(6, 209_920_429)), at(23_299, widget(7, 910_639_052))]);
}

/// Seed 9501626. A member was wiped, and then restored from a backup: an order to remove a copy named the uid before the
/// restore. The agent left the object alone, and nothing ordered its removal again.
#[test]
fn an_object_that_a_restore_brought_back_is_judged_under_its_uid() {
    let restore = |wiped, later| Action::Restore {
        member: "member1".to_owned(),
        wiped,
        later: Duration::from_millis(later),
    };
    holds(
        9_501_626,
        &[
            at(0, Action::Create { app: 1, replicas: 7, placement: 1_247_268_773 }),
            at(4_624, restore(true, 13_848)),
            at(12_752, Action::Scale { app: 1, replicas: 11 }),
            at(15_804, restore(false, 3_363)),
            at(17_059, Action::Create { app: 1, replicas: 9, placement: 3_949_438_088 }),
        ],
    );
}

/// Seed 9401252. A workload grew while old copies shrank on all of its clusters. The decision that ended their eviction
/// tasks still left these clusters out, and nothing woke the pending replicas afterwards.
#[test]
fn replicas_that_wait_for_evictions_are_placed_when_a_decision_ends_them() {
    holds(
        9_401_252,
        &[
            at(0, Action::Create { app: 0, replicas: 4, placement: 4_029_361_303 }),
            at(13_856, Action::Image { app: 0, tag: 394 }),
            at(15_663, Action::Place { app: 0, placement: 1_322_394_672 }),
            at(16_291, Action::Create { app: 0, replicas: 7, placement: 905_527_800 }),
            at(21_006, Action::Scale { app: 0, replicas: 10 }),
        ],
    );
}

/// Seed 9301374. A member was cut off before it removed its copy, whose place had moved. The next leader did not know of
/// that copy when the Deployment was deleted: history did not name the member, and its copy became an orphan.
#[test]
fn a_withdrawal_covers_members_that_the_leader_has_not_heard_from() {
    let members = vec!["member2".to_owned(), "member3".to_owned()];
    let gone = Action::Gone { members, how: Going::Cut, span: Duration::from_millis(19_515) };
    let fuse = Fuse { site: Some("POST resourcebindings".to_owned()), nth: 1, after: false };
    let (within, away) = (Duration::from_millis(2_772), Duration::from_millis(5_783));
    let taken = Action::Poisoned { what: Poison::Taken, span: Duration::from_millis(2_022) };
    holds(
        9_301_374,
        &[
            at(0, Action::Create { app: 1, replicas: 7, placement: 1_992_525_875 }),
            at(3_774, gone),
            at(7_889, Action::Create { app: 1, replicas: 1, placement: 3_427_648_210 }),
            at(8_992, taken),
            at(17_324, Action::Die { who: Who::Controller(1), fuse, within, away }),
            at(24_337, Action::Delete { app: 1 }),
        ],
    );
}

/// Seed 9200982. A policy changed while no controller led. The World took the workload for settled under the old policy,
/// and the next leader's decision for one without a cause.
#[test]
fn a_policy_that_changes_between_two_leaders_is_decided_once() {
    let hold = |millis| Action::Hold { span: Duration::from_millis(millis) };
    let fuse = Fuse { site: None, nth: 5, after: false };
    let (within, away) = (Duration::from_millis(7_321), Duration::from_millis(6_851));
    holds(
        9_200_982,
        &[
            at(0, Action::Create { app: 1, replicas: 2, placement: 247_582_075 }),
            at(8_388, hold(14_925)),
            at(14_664, hold(14_747)),
            at(15_336, Action::Die { who: Who::Controller(1), fuse, within, away }),
            at(20_214, Action::Place { app: 1, placement: 632_236_892 }),
        ],
    );
}

/// Seed 9000059. A new leader's watch was behind: late events of a deleted binding replaced the row of the binding that
/// the leader had made under the same name, and reports of members about that one were dropped meanwhile.
#[test]
fn late_events_of_a_deleted_binding_do_not_replace_its_successor() {
    let older = Action::Older {
        who: Who::Controller(1),
        after: Duration::from_millis(11_173),
        span: Duration::from_millis(22_055),
    };
    let flap = Action::Flap {
        member: "member1".to_owned(),
        down: Duration::from_millis(5_001),
        up: Duration::from_millis(3_001),
        times: 2,
    };
    holds(
        9_000_059,
        &[
            at(0, Action::Create { app: 0, replicas: 6, placement: 2_039_490_169 }),
            at(0, Action::Create { app: 1, replicas: 4, placement: 2_324_754_437 }),
            at(4_945, older),
            at(9_453, Action::Delete { app: 1 }),
            at(16_316, flap),
            at(16_743, Action::Create { app: 1, replicas: 9, placement: 3_975_572_861 }),
        ],
    );
}

/// Seed 6000286. A write of an earlier leadership arrived after the same process led again and had given history every
/// decision that its index held: the decision had no row in history.
#[test]
fn a_decision_that_arrives_after_the_next_leadership_began_is_recorded() {
    let hold = |millis| Action::Hold { span: Duration::from_millis(millis) };
    let fuse = Fuse { site: Some("DELETE deployments".to_owned()), nth: 2, after: false };
    let (within, away) = (Duration::from_millis(4_633), Duration::from_millis(8_563));
    holds(
        6_000_286,
        &[
            at(0, Action::Create { app: 0, replicas: 5, placement: 3_951_755_704 }),
            at(12_106, hold(12_318)),
            at(19_455, Action::Place { app: 0, placement: 644_362_754 }),
            at(21_283, hold(11_181)),
            at(26_020, Action::Die { who: Who::Agent("member2".to_owned()), fuse, within, away }),
        ],
    );
}

/// From Duplicated to Divided: the replacements of the old copies ran already, so no report of a member ended their
/// tasks. They stayed until their deadline.
#[test]
fn old_copies_go_when_what_replaces_them_runs_already() {
    holds(
        4,
        &[
            at(14_341, Action::Create { app: 0, replicas: 3, placement: 4_007_471_824 }),
            at(29_455, Action::Place { app: 0, placement: 610_787_322 }),
        ],
    );
}

/// With no replica requested anywhere, nothing replaced the old copies, and they were kept.
#[test]
fn old_copies_of_a_workload_without_replicas_go() {
    holds(
        3,
        &[
            at(6_366, Action::Create { app: 1, replicas: 0, placement: 3_360_288_378 }),
            at(20_108, Action::Place { app: 1, placement: 2_551_203_543 }),
        ],
    );
}

/// Shares were reduced while all members were lost. Each kept a share, so no member ever reported its copy as removed,
/// and the tasks stayed forever.
#[test]
fn a_share_that_becomes_smaller_behind_a_loss_leaves_no_task() {
    let span = Duration::from_millis(20_906);
    holds(
        7,
        &[
            at(4_674, Action::Create { app: 1, replicas: 5, placement: 2_289_652_585 }),
            at(15_180, Action::Gone { members: everybody(), how: Going::Dark, span }),
            at(29_424, Action::Place { app: 1, placement: 2_259_599_486 }),
        ],
    );
}

/// A leader was held with a status in flight that showed all members lost. It arrived after its successor had seen them
/// all back, and no later change corrected it.
#[test]
fn a_status_of_yesterday_is_set_right() {
    holds(
        41,
        &[
            at(0, Action::Create { app: 1, replicas: 5, placement: 1_378_504_331 }),
            at(
                14_232,
                Action::Gone {
                    members: everybody(),
                    how: Going::Dark,
                    span: Duration::from_millis(14_434),
                },
            ),
            at(20_204, Action::Hold { span: Duration::from_millis(14_795) }),
            at(
                20_401,
                Action::Watches {
                    who: Who::Agent("member3".to_owned()),
                    events: Events::Behind,
                    span: Duration::from_millis(14_189),
                },
            ),
        ],
    );
}

/// An agent reported an apply error and crashed, and the next one found everything applied. The error was never
/// cleared.
#[test]
fn what_hindered_an_agent_that_is_gone_hinders_no_more() {
    holds(
        61,
        &[
            at(0, Action::Create { app: 0, replicas: 6, placement: 4_067_034_527 }),
            at(21_269, Action::Hold { span: Duration::from_millis(14_403) }),
            at(
                22_668,
                Action::Die {
                    who: Who::Agent("member1".to_owned()),
                    fuse: Fuse { site: Some("PATCH deployments".to_owned()), nth: 1, after: true },
                    within: Duration::from_millis(7_779),
                    away: Duration::from_millis(2_174),
                },
            ),
            at(26_435, Action::Place { app: 0, placement: 1_041_185_684 }),
            at(
                28_092,
                Action::Watches {
                    who: Who::Agent("member3".to_owned()),
                    events: Events::Twice,
                    span: Duration::from_millis(9_318),
                },
            ),
        ],
    );
}

/// A controller led again with the desired state of its first term. A workload deleted under its successor stayed: its
/// copy matched that state, and nothing withdrew it.
#[test]
fn a_leader_that_leads_again_wants_nothing_of_its_earlier_term() {
    holds(
        183,
        &[
            at(0, Action::Create { app: 1, replicas: 1, placement: 1_204_119_445 }),
            at(11_777, Action::Hold { span: Duration::from_millis(10_085) }),
            at(17_491, Action::Delete { app: 1 }),
            at(21_133, Action::Hold { span: Duration::from_millis(9_025) }),
        ],
    );
}

/// The counter by which a controller tells an agent from its predecessor was unreadable. The agent counted from 1, was
/// taken for an outdated one, and its member was lost for good.
#[test]
fn an_agent_whose_counter_was_damaged_is_taken_back() {
    for what in [Damaged::Lease, Damaged::Index, Damaged::IndexUnreadable, Damaged::Hashes] {
        holds(
            600_011,
            &[
                at(0, Action::Create { app: 1, replicas: 5, placement: 3_300_336_991 }),
                at(7_495, Action::Damage { member: "member3".to_owned(), what }),
            ],
        );
    }
}

/// A wiped member returned, and within the same second its backup was restored: the agent of the empty one had counted
/// beyond the time of day, so that the next agent was refused forever.
#[test]
fn a_member_that_is_restored_twice_within_a_second_is_taken_back() {
    let restore = |wiped, later| Action::Restore {
        member: "member3".to_owned(),
        wiped,
        later: Duration::from_millis(later),
    };
    holds(
        79,
        &[
            at(0, Action::Create { app: 0, replicas: 3, placement: 2_346_275_812 }),
            at(6_230, restore(true, 13_804)),
            at(13_756, restore(false, 6_883)),
        ],
    );
}

/// Two leaders in turn were held while a workload was deleted and its member was cut off. The first one led again and
/// still had the verdict of its first term, that the copy was wanted, so nothing removed it.
#[test]
fn a_leader_that_leads_again_judges_nothing_by_its_earlier_term() {
    holds(
        700_416,
        &[
            at(0, Action::Create { app: 0, replicas: 1, placement: 871_335_137 }),
            at(14_296, Action::Hold { span: Duration::from_millis(14_216) }),
            at(15_136, Action::Delete { app: 0 }),
            at(
                19_637,
                Action::Gone {
                    members: vec!["member2".to_owned()],
                    how: Going::Cut,
                    span: Duration::from_millis(6_117),
                },
            ),
            at(21_125, Action::Hold { span: Duration::from_millis(9_238) }),
        ],
    );
}

/// An agent's counter was unreadable while its clock was an hour behind: the next one started below the last value, and
/// the member was lost for good.
#[test]
fn a_damaged_counter_under_a_wrong_clock_is_taken_back() {
    let who = Who::Agent("member1".to_owned());
    let skew = Skew::Behind(Duration::from_secs(3_600));
    let span = Duration::from_millis(17_343);
    let what = Damaged::Lease;
    holds(
        700_250,
        &[
            at(0, Action::Create { app: 0, replicas: 4, placement: 502_004_647 }),
            at(0, Action::Create { app: 1, replicas: 5, placement: 3_650_710_592 }),
            at(14_931, Action::Clock { who, skew, span }),
            at(18_284, Action::Damage { member: "member1".to_owned(), what }),
        ],
    );
}

/// An agent's index was unreadable at its start, while a workload left its member behind a partition. The agent found
/// no objects, so nothing was removed or reported.
#[test]
fn what_is_withdrawn_while_an_agents_index_is_damaged_goes_all_the_same() {
    for what in [Damaged::IndexUnreadable, Damaged::Index] {
        holds(
            119,
            &[
                at(0, Action::Create { app: 0, replicas: 6, placement: 702_877_407 }),
                at(0, Action::Create { app: 1, replicas: 5, placement: 3_506_990_497 }),
                at(4_313, Action::Scale { app: 0, replicas: 3 }),
                at(16_622, Action::Scale { app: 2, replicas: 11 }),
                at(19_901, Action::Create { app: 1, replicas: 1, placement: 1_307_787_294 }),
                at(
                    23_730,
                    Action::Cut {
                        member: "member2".to_owned(),
                        way: Way::ToAgent,
                        span: Duration::from_millis(21_649),
                    },
                ),
                at(26_207, Action::Damage { member: "member2".to_owned(), what }),
            ],
        );
    }
}

/// A policy changed while the controller's watch lagged, and the controller crashed before it saw that. The next one
/// decided after the World had already matched the old policy; the end of that move was taken for a decision without a
/// cause.
#[test]
fn a_policy_that_only_the_next_leader_sees_is_decided_once() {
    let who = Who::Controller(1);
    let behind = Action::Watches {
        who: who.clone(),
        events: Events::Behind,
        span: Duration::from_millis(11_684),
    };
    let fuse = Fuse { site: Some("INSERT history".to_owned()), nth: 2, after: true };
    let (within, away) = (Duration::from_millis(2_086), Duration::from_millis(7_316));
    holds(
        910_152,
        &[
            at(0, Action::Create { app: 1, replicas: 7, placement: 765_355_126 }),
            at(10_174, behind),
            at(12_439, Action::Place { app: 1, placement: 1_738_378_377 }),
            at(14_387, Action::Die { who, fuse, within, away }),
        ],
    );
}

/// A wiped member returned while its agent's clock was an hour behind. Its new Lease started to count at that time of
/// day, below the number that the controller had seen, and every session was refused for good.
#[test]
fn a_wiped_member_whose_clock_is_behind_is_taken_back() {
    let wiped = |later| Action::Restore {
        member: "member2".to_owned(),
        wiped: true,
        later: Duration::from_millis(later),
    };
    let behind = |span| Action::Clock {
        who: Who::Agent("member2".to_owned()),
        skew: Skew::Behind(Duration::from_secs(3_600)),
        span: Duration::from_millis(span),
    };
    holds(910_166, &[at(17_414, behind(21_564)), at(21_531, wiped(9_530))]);
    holds(910_217, &[at(3_435, wiped(6_940)), at(9_800, behind(37_445))]);
}

/// A new leader's watch lagged: it had listed a binding that its predecessor then withdrew, and sent it to the members
/// again. When its watch caught up, no evidence was left to remove the copies.
#[test]
fn what_a_lagging_leader_gives_again_after_its_withdrawal_goes_again() {
    let first = Who::Controller(1);
    let fuse = Fuse { site: None, nth: 6, after: true };
    let (within, away) = (Duration::from_millis(1_247), Duration::from_millis(1_787));
    let behind = Action::Watches {
        who: first.clone(),
        events: Events::Behind,
        span: Duration::from_millis(15_388),
    };
    let large = Action::Poisoned { what: Poison::Large, span: Duration::from_millis(17_332) };
    holds(
        910_564,
        &[
            at(2_600, Action::Die { who: first, fuse, within, away }),
            at(7_551, large),
            at(21_579, behind),
            at(26_352, Action::Hold { span: Duration::from_millis(10_852) }),
        ],
    );
}

/// A leader that started while a ClusterSet excluded the member of a running copy sent nothing there, so it read no status
/// of that copy. When the set was gone, the member held what it was ordered and reported nothing more. (Seed 11110169)
#[test]
fn a_copy_outside_a_new_cluster_set_is_reported_to_the_next_leader() {
    let member = |number: u64| format!("member{number}");
    let gone = Action::Gone {
        members: vec![member(1), member(2)],
        how: Going::Cut,
        span: Duration::from_millis(19_558),
    };
    let behind = Action::Watches {
        who: Who::Agent(member(3)),
        events: Events::Behind,
        span: Duration::from_millis(8_444),
    };
    let flap = Action::Flap {
        member: member(3),
        down: Duration::from_millis(2_001),
        up: Duration::from_secs(2),
        times: 3,
    };
    let fuse = Fuse { site: Some("DELETE resourcebindings".to_owned()), nth: 2, after: false };
    let (within, away) = (Duration::from_millis(1_106), Duration::from_millis(8_321));
    holds(
        11_110_169,
        &[
            at(0, Action::Create { app: 1, replicas: 5, placement: 2_629_724_312 }),
            at(8_110, gone),
            at(9_215, behind),
            at(17_005, flap),
            at(17_169, Action::Die { who: Who::Controller(1), fuse, within, away }),
            at(23_082, Action::Tenancy { site: 0, span: Duration::from_millis(17_029) }),
        ],
    );
}

/// Seed 23100252. A leader was held up, and the next one moved a workload. Then that one was held up too, and the first led
/// again, while its watch was late: it still saw the earlier placement, and removed the copies of the present one.
#[test]
fn a_leader_whose_watch_is_late_removes_nothing() {
    let hold = |millis| Action::Hold { span: Duration::from_millis(millis) };
    let late = Action::Watches {
        who: Who::Controller(1),
        events: Events::Behind,
        span: Duration::from_millis(11_463),
    };
    holds(
        23_100_252,
        &[
            at(0, Action::Create { app: 0, replicas: 5, placement: 672_524_432 }),
            at(0, Action::Create { app: 1, replicas: 8, placement: 2_754_396_397 }),
            at(4_233, hold(13_329)),
            at(10_312, Action::Place { app: 1, placement: 1_776_216_870 }),
            at(13_185, late),
            at(17_363, hold(13_567)),
        ],
    );
}

/// Seed 770000288. A member's last facts, up to a minute old, still counted replicas that had left it since. The plan was made with them, and
/// the change was decided by the next leader, which had new facts: another member got the odd replica. A plan is compared only
/// if both leaders know the same room.
#[test]
fn a_plan_is_compared_with_the_next_leader_when_both_know_the_same_room() {
    let fuse = Fuse { site: None, nth: 5, after: false };
    let (within, away) = (Duration::from_millis(6_992), Duration::from_millis(3_553));
    let agent = Who::Agent("member3".to_owned());
    let create = |app, replicas, placement| Action::Create { app, replicas, placement };
    holds(
        770_000_288,
        &[
            at(0, Action::Config { number: 0, text: 317 }),
            at(0, Action::Config { number: 1, text: 915 }),
            at(0, create(0, 5, 2_748_552_317)),
            at(0, create(1, 1, 1_253_397_205)),
            at(4_871, Action::Die { who: agent, fuse, within, away }),
            at(18_121, Action::Place { app: 0, placement: 489_261_064 }),
        ],
    );
}

/// Seed 7350000217. A leader lost its Lease because of late answers, and a policy was deleted before the next leadership began,
/// six seconds later. The world counted the time without a leader as rest, and then the decision about the policy as one without a reason.
#[test]
fn the_time_without_a_leader_does_not_count_as_rest() {
    let (late, span) = (Duration::from_secs(2), Duration::from_millis(4_959));
    let policy = Some(Duration::from_millis(17_334));
    holds(
        7_350_000_217,
        &[
            at(15_546, Action::Everything { left_out: 2, span: policy }),
            at(22_771, Action::Create { app: 2, replicas: 5, placement: 2_559_091_088 }),
            at(26_871, Action::Answers { who: Who::Controller(1), late, span }),
        ],
    );
}
