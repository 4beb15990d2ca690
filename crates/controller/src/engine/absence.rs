//! Events of members while there was no leader, recorded once by the next leader when its term begins.

use std::sync::Arc;
use std::time::Duration;

use atoll_history::{Event, MemberEvent, MemberFilter, Store};
use jiff::{SignedDuration, Timestamp};

use super::Engine;
use super::jobs::JobDone;
use super::recovery::limited;
use crate::chronicle::Found;
use crate::leader::LeaderTerm;

/// Events per read.
const PAGE: usize = 1_000;
/// Limit of events to read, newest first: some 20 MB. Older ones count as recorded.
const MOST: usize = 100_000;
/// Delay before history is queried again after a failure.
const AGAIN: Duration = Duration::from_secs(10);

impl Engine {
    /// Queries the recorded member events from history, to find the missing ones.
    pub(super) fn recover_members(&mut self, term: LeaderTerm) {
        let clusters = self.index.clusters().map(|(name, c)| (name.clone(), Arc::clone(c)));
        // Their current state: this leader sees all later changes.
        let found = Found { clusters: clusters.collect(), at: self.clock.now() };
        let (store, retention) = (self.store.clone(), self.retention);
        self.jobs.spawn(async move {
            let mut told = false;
            // Ends with the leadership at the latest, like every job.
            loop {
                match ask(&store, found.at, retention).await {
                    Ok((history, since)) => {
                        let missed = found.missed(&history, since);
                        return JobDone::Missed { term, missed };
                    }
                    Err(why) if !std::mem::replace(&mut told, true) => {
                        tracing::warn!(why, "history does not say what happened to members");
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// Records the events that history lacked.
    pub(super) fn members_missed(&self, term: LeaderTerm, missed: Vec<MemberEvent>) {
        if self.led == Some(term) {
            for event in missed {
                self.recorder.note(Event::Member(event));
            }
        }
    }
}

/// The events in history, newest first, and the time since when they are complete.
async fn ask(
    store: &Arc<dyn Store>,
    now: Timestamp,
    retention: Duration,
) -> Result<(Vec<MemberEvent>, Timestamp), String> {
    let retention = SignedDuration::try_from(retention).unwrap_or(SignedDuration::MAX);
    let since = now.checked_sub(retention).unwrap_or(Timestamp::MIN);
    let filter = MemberFilter { since: Some(since), ..MemberFilter::default() };
    let mut events: Vec<MemberEvent> = Vec::new();
    let mut after = None;
    loop {
        let page = limited(store.member_events(&filter, PAGE, after)).await?;
        events.extend(page.events);
        after = page.next;
        if after.is_none() {
            return Ok((events, since));
        }
        if events.len() >= MOST {
            let oldest = events.last().map_or(since, |event| event.at);
            return Ok((events, oldest));
        }
    }
}
