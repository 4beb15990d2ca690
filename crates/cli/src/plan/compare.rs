//! The difference between two sets of decisions: what a change moves, and how full members are before and after. Pure.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::TargetCluster;
use atoll_api::quantity::ResourceList;
use atoll_decision::{Decision, explain};
use atoll_scheduler::offline::{Answer, Fate, World};
use serde::{Deserialize, Serialize};

/// Share of a member's resource from which the summary warns, in percent.
pub(super) const FULL: i128 = 80;

/// What would be different.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    pub(super) id: String,
    pub(super) changes: Vec<Change>,
    pub(super) members: Vec<Member>,
    pub(super) summary: Summary,
    /// Why a ChangeGuard would hold the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held_by: Option<String>,
    /// The state of the leader that it was computed from; absent if the command computed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<String>,
    /// Workloads that would change and that the user may not read. They are in the summary.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) hidden: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) workloads: usize,
    pub(super) unchanged: usize,
    pub(super) moved_replicas: i64,
    /// Pending replicas after the change, less those before.
    pub(super) more_pending: i64,
    pub(super) manifests: usize,
    /// Members of which more than 80 % of a resource would be requested.
    pub(super) full: Vec<String>,
}

/// A workload for which something is different.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    pub(super) object: String,
    /// Whether shares are numbers of replicas; otherwise a share is a copy.
    pub(super) counted: bool,
    /// As it is placed now.
    pub(super) before: Vec<TargetCluster>,
    /// As the change places it.
    pub(super) after: Vec<TargetCluster>,
    /// As the next decision would place it without the change, if that is not `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) otherwise: Option<Vec<TargetCluster>>,
    pub(super) moved: i64,
    pub(super) outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trigger: Option<String>,
    pub(super) why: String,
    pub(super) pending_before: i64,
    pub(super) pending: i64,
    /// What ends the wait of pending replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waits_for: Vec<String>,
    /// What leaves a member, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) leaves: Vec<String>,
}

/// How full a member is.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) replicas_before: i64,
    pub(super) replicas: i64,
    /// Percent of each resource that is requested, before and after; resources that the member does not report are missing.
    pub(super) used: BTreeMap<String, Use>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Use {
    pub(super) before: i128,
    pub(super) after: i128,
}

/// One of the two sides.
pub(super) struct Side<'a> {
    pub(super) world: &'a World,
    pub(super) answers: &'a [Answer],
}

impl Side<'_> {
    fn by_object(&self) -> BTreeMap<String, &Answer> {
        self.answers.iter().map(|answer| (answer.object.to_string(), answer)).collect()
    }

    /// The shares of an object after its decision; those in force if there is none.
    fn shares(&self, answer: Option<&Answer>) -> Vec<TargetCluster> {
        match answer.map(|answer| &answer.fate) {
            Some(Fate::Decided(decision)) => decision.clusters().to_vec(),
            Some(Fate::Attached(on)) => on.clone(),
            _ => self.held(answer),
        }
    }

    /// The shares in force.
    fn held(&self, answer: Option<&Answer>) -> Vec<TargetCluster> {
        let binding = answer.and_then(|answer| self.world.bindings.get(&answer.object.binding()));
        binding.map(|binding| binding.spec.clusters.clone()).unwrap_or_default()
    }
}

/// What the change makes different.
pub(super) fn compare(before: &Side<'_>, after: &Side<'_>) -> Plan {
    let (old, new) = (before.by_object(), after.by_object());
    let mut plan = Plan::default();
    let mut load = Load::default();
    for (object, answer) in &new {
        let was = old.get(object).copied();
        let change = change(before, after, was, answer);
        load.add(before, was, after, Some(answer));
        match change {
            None => plan.summary.unchanged += 1,
            Some(change) => {
                plan.summary.moved_replicas += change.moved;
                plan.summary.more_pending += change.pending - change.pending_before;
                plan.changes.push(change);
            }
        }
    }
    for (_, was) in old.iter().filter(|(object, _)| !new.contains_key(*object)) {
        load.add(before, Some(was), after, None);
        if let Some(change) = deleted(before, was) {
            plan.summary.more_pending -= change.pending_before;
            plan.changes.push(change);
        }
    }
    plan.changes.sort_by(|a, b| a.object.cmp(&b.object));
    plan.summary.workloads = plan.changes.len();
    plan.members = members(before.world, after.world, &load);
    let is_full = |member: &&Member| member.used.values().any(|used| used.after > FULL);
    plan.summary.full = plan.members.iter().filter(is_full).map(|m| m.name.clone()).collect();
    plan
}

fn change(
    before: &Side<'_>,
    after: &Side<'_>,
    was: Option<&Answer>,
    answer: &Answer,
) -> Option<Change> {
    let held = before.held(was);
    let (otherwise, shares) = (before.shares(was), after.shares(Some(answer)));
    let (old, new) = (was.and_then(decided), decided(answer));
    let pending = |decision: Option<&Decision>| decision.map_or(0, Decision::pending_replicas);
    let same_fate = match (was.map(|was| &was.fate), &answer.fate) {
        (Some(Fate::Decided(_)), Fate::Decided(_)) | (None, Fate::NotClaimed(_)) => true,
        (Some(was), now) => text(was) == text(now),
        (None, _) => false,
    };
    if otherwise == shares && pending(old) == pending(new) && same_fate {
        return None;
    }
    let moved = moved(&otherwise, &shares);
    Some(Change {
        object: answer.object.to_string(),
        counted: new.is_some_and(|decision| decision.desired.is_some()),
        moved,
        outcome: new.map_or_else(|| word(&answer.fate).to_owned(), |d| d.outcome().to_string()),
        trigger: new.map(|decision| decision.trigger().to_string()),
        why: new.map_or_else(|| text(&answer.fate), why),
        pending_before: pending(old),
        pending: pending(new),
        waits_for: new.map(waits_for).unwrap_or_default(),
        leaves: new.map(|decision| leaves(decision, &held)).unwrap_or_default(),
        otherwise: (otherwise != held).then_some(otherwise),
        before: held,
        after: shares,
    })
}

/// The change of a workload that is deleted; `None` if it was nowhere.
fn deleted(before: &Side<'_>, was: &Answer) -> Option<Change> {
    let decision = decided(was);
    let (held, otherwise) = (before.held(Some(was)), before.shares(Some(was)));
    let pending_before = decision.map_or(0, Decision::pending_replicas);
    if held.is_empty() && otherwise.is_empty() && pending_before == 0 {
        return None;
    }
    Some(Change {
        object: was.object.to_string(),
        counted: decision.is_some_and(|decision| decision.desired.is_some()),
        moved: 0,
        outcome: "Deleted".to_owned(),
        trigger: None,
        why: "it is deleted".to_owned(),
        pending_before,
        pending: 0,
        waits_for: Vec::new(),
        leaves: held.iter().map(|share| format!("{}: at once", share.name)).collect(),
        otherwise: (otherwise != held).then_some(otherwise),
        before: held,
        after: Vec::new(),
    })
}

fn decided(answer: &Answer) -> Option<&Decision> {
    match &answer.fate {
        Fate::Decided(decision) => Some(decision),
        Fate::Attached(_) | Fate::NotClaimed(_) | Fate::Unusable(_) => None,
    }
}

fn word(fate: &Fate) -> &'static str {
    match fate {
        Fate::Decided(_) => "Decided",
        Fate::Attached(_) => "Attached",
        Fate::NotClaimed(_) => "NotClaimed",
        Fate::Unusable(_) => "Unusable",
    }
}

fn text(fate: &Fate) -> String {
    match fate {
        Fate::Decided(_) => String::new(),
        Fate::Attached(_) => Fate::ATTACHED.to_owned(),
        Fate::NotClaimed(why) | Fate::Unusable(why) => why.clone(),
    }
}

/// Why the decision is made, and why replicas stay without a place.
fn why(decision: &Decision) -> String {
    let trigger = decision.trigger();
    let cause =
        decision.triggers.iter().find(|checked| checked.holds && checked.trigger == trigger);
    let mut lines = vec![match cause {
        Some(cause) if !cause.why.is_empty() => cause.why.to_string(),
        _ => trigger.to_string(),
    }];
    let pending = decision.pending.iter().filter(|group| group.replicas > 0);
    lines.extend(pending.map(|group| format!("{} pending: {}", group.replicas, group.reason)));
    if lines.len() == 1 && !decision.reason.is_empty() {
        lines.push(decision.reason.clone());
    }
    lines.join("\n")
}

fn waits_for(decision: &Decision) -> Vec<String> {
    if decision.pending_replicas() == 0 {
        return Vec::new();
    }
    explain::wakes(decision)
}

/// What leaves a member that runs it, and when.
fn leaves(decision: &Decision, held: &[TargetCluster]) -> Vec<String> {
    let on = |shares: &[TargetCluster], name: &str| {
        shares.iter().find(|share| share.name == name).map(|share| share.replicas)
    };
    let fewer = held.iter().filter_map(|share| {
        let left = on(decision.clusters(), &share.name);
        (left.is_none() || left < Some(share.replicas)).then_some((share, left))
    });
    let describe = |(share, left): (&TargetCluster, Option<i64>)| {
        let task = decision.evictions().iter().find(|task| task.from_cluster == share.name);
        let when = match task {
            Some(task) if task.keep => "after the replacements are healthy",
            Some(_) => "at once",
            None if left.is_some() => "with the next manifest",
            None => "at once",
        };
        format!("{}: {when}", share.name)
    };
    fewer.map(describe).collect()
}

/// Replicas that leave a member and have a place on another one.
fn moved(before: &[TargetCluster], after: &[TargetCluster]) -> i64 {
    let on = |shares: &[TargetCluster], name: &str| {
        shares.iter().find(|share| share.name == name).map_or(0, |share| share.replicas)
    };
    let lost: i64 =
        before.iter().map(|share| (share.replicas - on(after, &share.name)).max(0)).sum();
    let won: i64 =
        after.iter().map(|share| (share.replicas - on(before, &share.name)).max(0)).sum();
    lost.min(won)
}

/// What members run, and what is requested of them beyond what they report.
#[derive(Default)]
struct Load {
    /// Replicas before and after.
    replicas: BTreeMap<String, (i64, i64)>,
    /// Thousandths of each resource before and after, relative to the shares in force: those are in the members' reports.
    requested: BTreeMap<String, BTreeMap<String, (i128, i128)>>,
}

/// What a replica of a workload requests.
fn requests(world: &World, answer: Option<&Answer>) -> Option<ResourceList> {
    let workload = world.workload(&answer?.object)?;
    Some(workload.template.requirements.as_ref()?.resource_request.clone())
}

impl Load {
    /// Adds a workload: its shares without the change and with it, less those in force.
    fn add(
        &mut self,
        before: &Side<'_>,
        was: Option<&Answer>,
        after: &Side<'_>,
        answer: Option<&Answer>,
    ) {
        let without = before.shares(was);
        let with = answer.map_or_else(Vec::new, |answer| after.shares(Some(answer)));
        for share in &without {
            self.replicas.entry(share.name.clone()).or_default().0 += share.replicas;
        }
        for share in &with {
            self.replicas.entry(share.name.clone()).or_default().1 += share.replicas;
        }
        // What members report contains the shares in force with the requests before the change.
        let old = requests(before.world, was);
        self.request(old.as_ref(), &before.held(was), (-1, -1));
        self.request(old.as_ref(), &without, (1, 0));
        self.request(requests(after.world, answer).as_ref(), &with, (0, 1));
    }

    /// Adds what these shares request to one of the sides, or takes it off.
    fn request(
        &mut self,
        requests: Option<&ResourceList>,
        shares: &[TargetCluster],
        sides: (i128, i128),
    ) {
        for (resource, quantity) in requests.into_iter().flatten() {
            // The hub and the reader of files refuse anything else.
            let Ok(milli) = quantity.milli() else { continue };
            for share in shares {
                let resources = self.requested.entry(share.name.clone()).or_default();
                let of = resources.entry(resource.clone()).or_default();
                let all = milli * i128::from(share.replicas);
                *of = (of.0 + sides.0 * all, of.1 + sides.1 * all);
            }
        }
    }
}

/// Members whose shares change, and those that would be full.
fn members(before: &World, after: &World, load: &Load) -> Vec<Member> {
    let mut all = Vec::new();
    let names: BTreeSet<&String> = before.clusters.keys().chain(after.clusters.keys()).collect();
    for name in names {
        let (replicas_before, replicas) = load.replicas.get(name).copied().unwrap_or_default();
        let cluster = after.clusters.get(name).or_else(|| before.clusters.get(name));
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        let summary = status.and_then(|status| status.resource_summary.as_ref());
        let mut used = BTreeMap::new();
        for resource in ["cpu", "memory"] {
            let of = |list: &ResourceList| list.get(resource).and_then(|q| q.milli().ok());
            let Some(summary) = summary else { continue };
            let Some(all) = of(&summary.allocatable).filter(|all| *all > 0) else { continue };
            let taken = of(&summary.allocated).unwrap_or_default();
            let more = load.requested.get(name).and_then(|r| r.get(resource));
            let (old, new) = more.copied().unwrap_or_default();
            let percent = |taken: i128| (taken.max(0) * 100 + all / 2) / all;
            let figures = Use { before: percent(taken + old), after: percent(taken + new) };
            used.insert(resource.to_owned(), figures);
        }
        let fuller = used.values().any(|used| used.after > FULL);
        if replicas_before != replicas || used.values().any(|u| u.before != u.after) || fuller {
            all.push(Member { name: name.clone(), replicas_before, replicas, used });
        }
    }
    all
}
