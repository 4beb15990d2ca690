//! Recovers milestones that an earlier leader observed and history lacks, because that leader died, or the database was
//! unreachable for longer than its queue lasts: derived once from bindings when a leadership begins.
//!
//! Times come from the objects, to the second; steps without a time stay unknown. From then on, unfinished decisions
//! are followed as if this leader had made them.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI64;
use std::sync::Arc;

use atoll_api::binding::{
    DecisionRecord, ResourceBindingStatus, ResourceHealth, TargetCluster, Trigger,
};
use atoll_api::conditions::{self, FULLY_APPLIED, SCHEDULED};
use atoll_api::{ClusterName, DecisionId};
use atoll_history::{Event, Milestone, Record, Stage, Store};
use jiff::{SignedDuration, Timestamp};

use super::Audit;
use super::query::{AGAIN, limited};
use crate::env::Env;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::placements::Placements;

/// Older decisions that are done everywhere are skipped: their steps were recorded long ago, or lost in an equally long
/// database outage.
const RECENT: SignedDuration = SignedDuration::from_hours(1);
/// Limit of decisions to recover, newest first: two single-row reads each, beside all other work.
const MOST: usize = 10_000;
/// Decisions whose steps are read at once.
const CHUNK: usize = 500;
/// Limit of consecutive eviction task ends to skip in search of the decision that set the shares.
const MOST_UNCHANGED: usize = 8;

/// What history has about a binding's last decision.
#[derive(Debug)]
pub(crate) struct KnownProgress {
    key: BindingKey,
    id: DecisionId,
    /// When it recorded that the decision was made and stored in the hub.
    decided: Option<Timestamp>,
    committed: Option<Timestamp>,
    /// The decision that it replaced.
    parent: Option<DecisionRecord>,
    /// The decision that set the members' shares: this one, or an earlier one whose shares it kept.
    followed: DecisionRecord,
    /// Shares before that one; `None` if history lacks both it and its parent.
    before: Option<Vec<TargetCluster>>,
    /// Recorded steps of members for that one.
    steps: Vec<Milestone>,
}

/// Queries history for the decisions in force; `None` if there are none. Ends with the leadership at the latest.
pub(crate) fn known_progress(
    env: &Env,
    index: &Index,
) -> Option<impl Future<Output = Vec<KnownProgress>> + Send + 'static> {
    let now = env.clock.now();
    let mut open: Vec<(BindingKey, DecisionRecord)> = index
        .bindings()
        .filter(|binding| !binding.deleting())
        .filter_map(|binding| {
            let decision = binding.spec.decision.clone()?;
            let recent = now.duration_since(decision.at.0) <= RECENT;
            (recent || !is_done(binding)).then(|| (binding.key.clone(), decision))
        })
        .collect();
    if open.is_empty() {
        return None;
    }
    open.sort_by_key(|(_, decision)| std::cmp::Reverse(decision.at.0));
    open.truncate(MOST);
    let store = env.store.clone();
    Some(async move {
        let mut warned = false;
        loop {
            match ask(&store, &open).await {
                Ok(known) => return known,
                Err(why) if !std::mem::replace(&mut warned, true) => {
                    tracing::warn!(
                        why,
                        "history database unreachable: progress of decisions of earlier leaders is not recorded yet"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    })
}

impl Audit {
    /// History answered: records the steps that it lacks, and follows unfinished decisions from there.
    pub(crate) fn recover(
        &mut self,
        index: &Index,
        placements: &Placements,
        known: Vec<KnownProgress>,
    ) {
        for known in known {
            let Some(binding) = index.binding(&known.key).cloned() else { continue };
            // A decision made since then is followed from its start.
            let decision = binding.spec.decision.clone().filter(|held| held.id == known.id);
            let Some(decision) = decision else { continue };
            self.resume(&binding, &decision, &known);
            for target in &binding.spec.clusters {
                self.look_how_far(placements, &binding, &ClusterName::from(&target.name));
            }
        }
    }

    fn resume(&mut self, binding: &Binding, decision: &DecisionRecord, known: &KnownProgress) {
        let mut steps = vec![Milestone::of(decision, None, Stage::Decided, decision.at.0)];
        // A time in whole seconds may precede the earlier step's time in milliseconds.
        let decided = known.decided.unwrap_or(decision.at.0);
        let committed =
            known.committed.or_else(|| committed(binding, decision).map(|at| at.max(decided)));
        if let Some(at) = committed {
            steps.push(Milestone::of(decision, None, Stage::Committed, at));
            let parent = known.parent.as_ref();
            steps.extend(parent.map(|parent| Milestone::of(parent, None, Stage::Superseded, at)));
        }
        let mut reached: BTreeSet<(ClusterName, Stage)> = BTreeSet::new();
        for step in &known.steps {
            reached.extend(step.cluster.clone().map(|name| (name, step.stage.clone())));
        }
        let followed = &known.followed;
        let before = known.before.as_deref();
        let clusters = &binding.spec.clusters;
        let status = binding.status.read();
        for target in clusters.iter().filter(|t| before.is_none_or(|shares| !shares.contains(t))) {
            let earliest =
                committed.filter(|_| followed.id == decision.id).unwrap_or(followed.at.0);
            // A step that the status shows as done is done, with or without a time: no longer awaited.
            for (stage, at) in seen(binding, &status, followed, &target.name) {
                let at = at.map(|at| at.max(earliest));
                steps.extend(
                    at.map(|at| Milestone::of(followed, Some(&target.name), stage.clone(), at)),
                );
                reached.insert(((&target.name).into(), stage));
            }
            steps.extend(dispatched(&target.name, followed, &known.steps, &steps));
        }
        // Duplicates are stored once, as first recorded.
        for step in steps {
            self.note(Event::Milestone(step));
        }
        let before = before.unwrap_or_default();
        self.progress.resume(&binding.key, followed, before, clusters, &reached);
    }

    /// A member may have progressed while history was queried.
    fn look_how_far(&mut self, placements: &Placements, binding: &Binding, cluster: &ClusterName) {
        let key = &binding.key;
        let Some(placement) = placements.get(key, cluster) else { return };
        let Some(sent) = &placement.sent else { return };
        // Sent by this leader; no report shows that an earlier leader sent it.
        if self.progress.awaits(key, cluster, &Stage::Applied) {
            self.reached(key, cluster, Stage::Dispatched);
        }
        if placement.observed.as_ref().is_some_and(|observed| observed.holds(&sent.hash)) {
            self.reached(key, cluster, Stage::Applied);
            self.note_health(placements, binding, cluster);
        }
    }
}

/// Whether the status is for the current spec.
fn is_current(binding: &Binding, status: &ResourceBindingStatus) -> bool {
    let scheduled = conditions::find(&status.conditions, SCHEDULED);
    scheduled.is_some_and(|c| c.observed_generation == binding.meta.generation.map(NonZeroI64::get))
}

/// Whether every target had applied it and was healthy, according to the status.
fn is_done(binding: &Binding) -> bool {
    let status = binding.status.read();
    let items = &status.aggregated_status;
    is_current(binding, &status)
        && binding.spec.clusters.iter().all(|target| {
            let item = items.iter().find(|item| item.cluster_name == target.name);
            item.is_some_and(|item| item.applied && item.health == ResourceHealth::Healthy)
        })
}

/// When the hub stored a decision: for the first one, when the binding was created. Of a later commit the hub keeps no
/// time, and it began when the decision was made.
fn committed(binding: &Binding, decision: &DecisionRecord) -> Option<Timestamp> {
    let at = decision.at.0;
    if decision.parent.is_none() {
        return binding.meta.created.time().map(|made| made.max(at));
    }
    Some(at)
}

/// The steps of a member according to the status, with times where it has them.
fn seen(
    binding: &Binding,
    status: &ResourceBindingStatus,
    decision: &DecisionRecord,
    cluster: &str,
) -> Vec<(Stage, Option<Timestamp>)> {
    let items = &status.aggregated_status;
    let item = items.iter().find(|item| item.cluster_name == cluster && item.applied);
    let Some(item) = item.filter(|_| is_current(binding, status)) else { return Vec::new() };
    let since = |at: Option<Timestamp>| at.filter(|at| *at >= decision.at.0);
    let full = conditions::find(&status.conditions, FULLY_APPLIED);
    let full = full.filter(|condition| condition.status == "True");
    let applied = since(full.map(|condition| condition.last_transition_time.0));
    let healthy = since(item.healthy_since.as_ref().map(|since| since.0));
    // A healthy member had applied it by then.
    let applied = applied.map(|at| healthy.map_or(at, |healthy| at.min(healthy)));
    let mut stages = vec![(Stage::Applied, applied)];
    if item.health == ResourceHealth::Healthy {
        stages.push((Stage::Healthy, healthy));
    }
    stages
}

/// A member that applied it was sent it before, at that time at the latest: the sender died before recording that.
fn dispatched(
    cluster: &str,
    decision: &DecisionRecord,
    noted: &[Milestone],
    read: &[Milestone],
) -> Option<Milestone> {
    let of = |steps: &[Milestone], stage: Stage| {
        let mut own = steps.iter().filter(|step| step.cluster.as_deref() == Some(cluster));
        own.find(|step| step.decision == decision.id && step.stage == stage).map(|step| step.at)
    };
    if of(noted, Stage::Dispatched).is_some() {
        return None;
    }
    let applied = of(noted, Stage::Applied).or_else(|| of(read, Stage::Applied))?;
    Some(Milestone::of(decision, Some(cluster), Stage::Dispatched, applied))
}

async fn ask(
    store: &Arc<dyn Store>,
    open: &[(BindingKey, DecisionRecord)],
) -> Result<Vec<KnownProgress>, String> {
    let mut found = Vec::with_capacity(open.len());
    for chunk in open.chunks(CHUNK) {
        let ids: Vec<_> = chunk.iter().map(|(_, decision)| decision.id.clone()).collect();
        let mut steps: BTreeMap<DecisionId, Vec<Milestone>> = BTreeMap::new();
        for step in limited(store.milestones(&ids)).await? {
            steps.entry(step.decision.clone()).or_default().push(step);
        }
        for (key, decision) in chunk {
            let steps = steps.remove(decision.id.as_str()).unwrap_or_default();
            found.push(known(store, key, decision, steps).await?);
        }
    }
    Ok(found)
}

async fn known(
    store: &Arc<dyn Store>,
    key: &BindingKey,
    decision: &DecisionRecord,
    mut steps: Vec<Milestone>,
) -> Result<KnownProgress, String> {
    let at = |stage: Stage| steps.iter().find(|step| step.stage == stage).map(|step| step.at);
    let (decided, committed) = (at(Stage::Decided), at(Stage::Committed));
    let mut parent = parent(store, decision).await?;
    let superseded = parent.as_ref().map(|parent| parent.record.clone());
    let mut followed = decision.clone();
    let mut before = match row(store, &decision.id).await? {
        Some(Record { before: Some(before), .. }) => Some(before),
        _ if decision.parent.is_none() => Some(Vec::new()),
        _ => parent.as_ref().map(|parent| parent.after.clone()),
    };
    for _ in 0..MOST_UNCHANGED {
        let Some(earlier) = parent.take().filter(|p| before.as_ref() == Some(&p.after)) else {
            break;
        };
        if !matches!(followed.trigger, Trigger::EvictionDone) {
            break;
        }
        followed = earlier.record;
        before = earlier.before;
        parent = self::parent(store, &followed).await?;
    }
    if followed.id != decision.id {
        steps = limited(store.milestones(std::slice::from_ref(&followed.id))).await?;
    }
    let key = key.clone();
    let id = decision.id.clone();
    Ok(KnownProgress { key, id, decided, committed, parent: superseded, followed, before, steps })
}

async fn parent(
    store: &Arc<dyn Store>,
    decision: &DecisionRecord,
) -> Result<Option<Record>, String> {
    match &decision.parent {
        Some(parent) => row(store, parent).await,
        None => Ok(None),
    }
}

async fn row(store: &Arc<dyn Store>, id: &str) -> Result<Option<Record>, String> {
    let row = limited(store.get(id)).await?;
    Ok(row.and_then(|row| row.entry.record().cloned()))
}
