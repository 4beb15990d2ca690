//! Writes and look-ups that run beside the event loop. They are aborted when the leadership is dropped: every write is
//! guarded, and the next leader finds the result of an abandoned write in the hub.

use std::time::Duration;

use atoll_api::{BindingUid, ClusterName, DecisionId};
use atoll_history::{Detail, MemberEvent, RecordState};
use atoll_scheduler::Decision;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::later::Later;
use crate::audit::recovery::KnownProgress;
use crate::commit::{self, Ended, Write};
use crate::env::Env;
use crate::guards::release::Released;
use crate::hub_load::HubLoad;
use crate::index::binding_object::BindingObject;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::received::Received;
use crate::interpret::{Interpreted, ReportRead, Revised, RuleNews};
use crate::object::Object;
use crate::placements::readings::Place;
use crate::placements::revisions::Origin;
use crate::placements::{reissued, removal_limits};
use crate::reconcile::Purpose;
use crate::reconcile::template_lookup::Presence;
use crate::schedule::extend::Passage;
use crate::status::due::Subject;
use crate::status::stage::{Computed, Content};
use crate::status::write::{self, Failure, Target};

/// Result of a job.
pub(crate) enum JobDone {
    /// Result of a write to a binding.
    Wrote(Box<Wrote>),
    /// Result of a template look-up.
    LookedUp { key: BindingKey, presence: Presence },
    /// History's answer about the record of a withdrawal.
    WithdrawalRecorded { key: BindingKey, id: DecisionId, state: RecordState },
    /// Result of a status write: the object, or `None` if there was nothing to write; what is to be shown of the rules
    /// that were asked; and whether a webhook has to be asked again.
    Published {
        subject: Subject,
        result: Result<Option<Box<Received>>, Failure>,
        news: Vec<RuleNews>,
        unreachable: bool,
    },
    /// What users' rules say about a template.
    Interpreted { key: BindingKey, template: TemplateKey, found: Box<Interpreted> },
    /// A template with other numbers of replicas.
    Revised { key: BindingKey, origin: Origin, revised: Revised },
    /// What webhooks say about a report of a member.
    Read { place: Place, read: Box<ReportRead> },
    /// Whether a release was written to its guards.
    Released(Released),
    /// Withdrawals in history that members have not confirmed: bindings by member.
    Unconfirmed(Vec<(ClusterName, Vec<BindingUid>)>),
    /// Progress of decisions according to history.
    Progress(Vec<KnownProgress>),
    /// Member events missing in history.
    MembersMissed(Vec<MemberEvent>),
    /// Whether history has newer decisions than the hub.
    Compared(removal_limits::Compared),
    /// Which bindings that were sent again are withdrawn according to history.
    Reissued(reissued::Answer),
}

/// A write to a binding that ended.
pub(crate) struct Wrote {
    pub(super) key: BindingKey,
    pub(super) ended: Ended,
    /// The binding as read after a conflict.
    pub(super) fresh: Option<BindingObject>,
    pub(super) purpose: Purpose,
    /// The decision as history stores it in full. Encoding it is the slowest part of a commit.
    pub(super) detail: Option<Detail>,
    /// How long it took, for metrics.
    pub(super) took: Duration,
}

/// Limit of concurrent jobs of all kinds. How many of them may write is limited by the hub's load.
const MOST: usize = 192;
/// While decisions are pending, statuses get this part of the writes that the hub takes at once.
const PART_OF_STATUSES: usize = 4;

/// Limit of jobs that ask users' rules: a rule that runs away must not take the place of other work.
const MOST_RULES: usize = 16;

/// The running jobs.
pub(super) struct Jobs {
    set: JoinSet<JobDone>,
    load: HubLoad,
    commits: usize,
    statuses: usize,
    rules: usize,
    /// When webhooks that did not answer are asked again.
    pub(super) later: Later,
}

impl Jobs {
    pub(super) fn new(load: HubLoad) -> Self {
        Self {
            set: JoinSet::new(),
            load,
            commits: 0,
            statuses: 0,
            rules: 0,
            later: Later::default(),
        }
    }

    pub(super) fn spawn(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.set.spawn(job);
    }

    /// Writes to a binding. A decision passes the plugins of its profile first.
    pub(super) fn write(&mut self, env: &Env, write: Write, purpose: Purpose) {
        let (client, extensions) = (env.client.clone(), env.extensions.clone());
        self.write_with(async move {
            let decision = match &purpose {
                Purpose::Decision(committing) => committing.decision.as_ref(),
                Purpose::Upkeep(_) | Purpose::Delete | Purpose::Release => None,
            };
            let (detail, profile) =
                (decision.and_then(detail), decision.map(|decision| decision.profile.to_string()));
            let start = Instant::now();
            let (ended, write) = match profile {
                Some(profile) => {
                    let passage = Passage { client: client.clone(), write };
                    (extensions.carry(&profile, &passage).await, passage.write)
                }
                None => (commit::perform(&client, &write).await, write),
            };
            let took = start.elapsed();
            // On a conflict, decide again from the current state, not from what the watch will deliver later.
            let fresh = match ended {
                Ended::Conflict => commit::read(&client, &write.key).await,
                _ => None,
            };
            JobDone::Wrote(Box::new(Wrote { key: write.key, ended, fresh, purpose, detail, took }))
        });
    }

    fn write_with(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.commits += 1;
        self.set.spawn(job);
    }

    /// Writes a status; the result is [`JobDone::Published`].
    pub(super) fn publish(
        &mut self,
        env: &Env,
        subject: Subject,
        target: Target,
        content: Content,
    ) {
        let client = env.client.clone();
        self.publish_with(async move {
            let Computed { patch, news, unreachable } = content.compute().await;
            let written = match (patch, &subject) {
                (Some(patch), Subject::Binding(_)) => {
                    write::write::<BindingObject>(&client, &target, &patch).await.map(Some)
                }
                (Some(patch), _) => {
                    write::write::<Object>(&client, &target, &patch).await.map(Some)
                }
                (None, _) => Ok(None),
            };
            let result = written.map(|object| object.map(Box::new));
            JobDone::Published { subject, result, news, unreachable }
        });
    }

    fn publish_with(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.statuses += 1;
        self.set.spawn(job);
    }

    /// Asks users' rules; the result is [`JobDone::Interpreted`], [`JobDone::Revised`] or [`JobDone::Read`].
    pub(super) fn ask_rules(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.rules += 1;
        self.set.spawn(job);
    }

    /// Whether another job may ask users' rules.
    pub(super) fn has_room_for_rules(&self) -> bool {
        self.has_room() && self.rules < MOST_RULES
    }

    fn has_room(&self) -> bool {
        self.set.len() < MOST
    }

    /// Whether a job that may write to a binding may start.
    pub(super) fn has_room_for_commit(&self) -> bool {
        self.has_room() && self.commits < self.load.most()
    }

    /// Whether another status write may start. Statuses have their own places, so that slow ones delay no commit.
    pub(super) fn has_room_for_status(&self, decides: bool) -> bool {
        let most = self.load.most();
        let most = if decides { most.div_ceil(PART_OF_STATUSES) } else { most };
        self.has_room() && self.statuses < most
    }

    /// Whether writes to bindings are running.
    pub(super) fn commits(&self) -> bool {
        self.commits > 0
    }

    /// The next result; waits forever while there is no job.
    pub(super) async fn next(&mut self) -> JobDone {
        loop {
            match self.set.join_next().await {
                Some(Ok(done)) => {
                    self.commits -= usize::from(matches!(done, JobDone::Wrote(_)));
                    self.statuses -= usize::from(matches!(done, JobDone::Published { .. }));
                    let of_rules = matches!(
                        done,
                        JobDone::Interpreted { .. }
                            | JobDone::Revised { .. }
                            | JobDone::Read { .. }
                    );
                    self.rules -= usize::from(of_rules);
                    return done;
                }
                Some(Err(error)) if error.is_cancelled() => {}
                // A panic in a job is a bug that must not pass as a result.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }
}

/// The decision in the form that history stores in full.
fn detail(decision: &Decision) -> Option<Detail> {
    Detail::of(decision).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statuses_and_commits_have_their_own_places() {
        fn key() -> BindingKey {
            BindingKey::of(None, "web")
        }
        let published = || async {
            let subject = Subject::Binding(key());
            JobDone::Published { subject, result: Ok(None), news: Vec::new(), unreachable: false }
        };
        let wrote = || async {
            let (key, purpose) = (key(), Purpose::Release);
            JobDone::Wrote(Box::new(Wrote {
                key,
                ended: Ended::Gone,
                fresh: None,
                purpose,
                detail: None,
                took: Duration::ZERO,
            }))
        };
        let load = HubLoad::default();
        let mut jobs = Jobs::new(load.clone());
        while jobs.has_room_for_status(true) {
            jobs.publish_with(published());
        }
        assert_eq!(jobs.statuses, load.most().div_ceil(PART_OF_STATUSES));
        while jobs.has_room_for_status(false) {
            jobs.publish_with(published());
        }
        assert_eq!(jobs.statuses, load.most());
        while jobs.has_room_for_commit() {
            jobs.write_with(wrote());
        }
        assert_eq!(jobs.commits, load.most(), "statuses take no place of a commit");
        while !jobs.set.is_empty() {
            jobs.next().await;
        }
        assert_eq!((jobs.statuses, jobs.commits), (0, 0));
    }
}
