//! When many members are lost at once, the controller suspects its own network first: that is the likelier fault, and
//! moving everything would be the costlier mistake.

use std::time::Duration;

use tokio::time::Instant;

use super::heartbeats::Presence;

/// Minimum number of losses that count as many, unless all members are lost.
const MANY: usize = 3;

/// Result of an evaluation of all members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuspicionChange {
    None,
    /// From now on no taint is written: this many of that many went silent.
    Begins {
        silent: usize,
        of: usize,
    },
    /// Two thirds are connected again.
    Ends,
}

#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    active: bool,
    /// A user confirmed losses up to this time.
    dismissed: Option<Instant>,
}

impl Suspicion {
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// A user confirms the losses.
    pub(crate) fn dismiss(&mut self, now: Instant) -> bool {
        self.dismissed = Some(now);
        std::mem::take(&mut self.active)
    }

    /// Evaluates the counts. Suspicion begins when, within `window`, more than a third of the connected members and at
    /// least three, or all of them, were lost or fell quiet, at least one being lost; it ends when two thirds of all
    /// members that ever joined, or of those connected when it began, are connected again.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        window: Duration,
        members: impl IntoIterator<Item = Presence>,
    ) -> SuspicionChange {
        let (mut live, mut quiet, mut recent, mut old) = (0, 0, 0, 0);
        for presence in members {
            match presence {
                Presence::Absent => (),
                Presence::Live => live += 1,
                Presence::Quiet => quiet += 1,
                Presence::Lost(judged) => {
                    let acknowledged = self.dismissed.is_some_and(|at| judged <= at);
                    if !acknowledged && now.saturating_duration_since(judged) < window {
                        recent += 1;
                    } else {
                        old += 1;
                    }
                }
            }
        }
        let silent: usize = quiet + recent;
        let there = live + silent;
        if self.active {
            // While suspicion lasts, losses older than the window still count.
            if live * 3 >= (there + old) * 2 {
                self.active = false;
                return SuspicionChange::Ends;
            }
            return SuspicionChange::None;
        }
        if recent > 0 && (silent == there || (silent >= MANY && silent * 3 > there)) {
            self.active = true;
            return SuspicionChange::Begins { silent, of: there };
        }
        SuspicionChange::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn look(live: usize, quiet: usize, lost: usize, old: usize) -> bool {
        let now = Instant::now() + 10 * WINDOW;
        let members = [
            vec![Presence::Live; live],
            vec![Presence::Quiet; quiet],
            vec![Presence::Lost(now); lost],
            vec![Presence::Lost(now - 2 * WINDOW); old],
            vec![Presence::Absent; 5],
        ];
        let mut suspicion = Suspicion::default();
        suspicion.look(now, WINDOW, members.concat());
        suspicion.is_active()
    }

    #[tokio::test]
    async fn many_at_once_or_all_of_them_are_suspicious_and_single_losses_are_not() {
        // (live, quiet, just lost, lost before) -> suspicious.
        for (counts, suspicious) in [
            ((2, 0, 1, 0), false), // one of three
            ((1, 0, 2, 0), false), // two of three: not three, not all
            ((0, 0, 3, 0), true),  // all three
            ((0, 2, 1, 0), true),  // the first of all three is lost, the others are quiet
            ((0, 0, 1, 0), true),  // the only one
            ((1, 0, 0, 1), false),
            ((0, 0, 1, 2), true),  // the last one
            ((7, 0, 3, 0), false), // three of ten are no more than a third
            ((6, 0, 4, 0), true),
            ((6, 3, 1, 0), true),
            ((6, 4, 0, 0), false), // quiet ones alone do not count
            ((3, 0, 3, 30), true), // relative to the connected ones
            ((0, 0, 0, 0), false),
        ] {
            let (live, quiet, lost, old) = counts;
            assert_eq!(look(live, quiet, lost, old), suspicious, "{counts:?}");
        }
    }

    #[tokio::test]
    async fn it_ends_with_two_thirds_back_or_an_operators_confirmation() {
        let start = Instant::now();
        let lost = Presence::Lost(start);
        let mut suspicion = Suspicion::default();
        assert_eq!(
            suspicion.look(start, WINDOW, [lost; 3]),
            SuspicionChange::Begins { silent: 3, of: 3 }
        );
        let later = start + 10 * WINDOW;
        assert_eq!(
            suspicion.look(later, WINDOW, [lost; 3]),
            SuspicionChange::None,
            "time does not end it"
        );
        assert_eq!(
            suspicion.look(later, WINDOW, [lost, lost, Presence::Live]),
            SuspicionChange::None
        );
        let back = [lost, Presence::Live, Presence::Live];
        assert_eq!(suspicion.look(later, WINDOW, back), SuspicionChange::Ends);

        let lost = Presence::Lost(later);
        suspicion.look(later, WINDOW, [lost; 3]);
        assert!(suspicion.dismiss(later));
        assert_eq!(suspicion.look(later, WINDOW, [lost; 3]), SuspicionChange::None);
        assert!(!suspicion.is_active());
    }
}
