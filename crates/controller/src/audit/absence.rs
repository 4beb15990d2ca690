//! Events of members while there was no leader, derived from history and the current Clusters.
//!
//! Times come from the objects where they have one. Otherwise the event has the time at which it was noticed, and a
//! reason that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Cluster, ClusterName, marks};
use atoll_history::{MemberEvent, MemberEventKind as Kind, MemberFilter, Store};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use super::member_events::event;
use super::query::{AGAIN, limited};
use crate::env::Env;
use crate::index::Index;

/// Reason of an event that was noticed later. For taints their key follows.
const NOTICED_LATER: &str = "NoticedLater";
/// Events per read.
const PAGE: usize = 1_000;
/// Limit of events to read, newest first: some 20 MB. Older ones count as recorded.
const MOST: usize = 100_000;

/// History of one Cluster object: one name may have had several.
#[derive(Debug, Default)]
struct Past {
    joined: bool,
    left: bool,
    /// Taints that were added and not removed, in the text form of history.
    taints: BTreeMap<(String, String), String>,
}

/// Clusters as found by a new leader.
#[derive(Debug)]
pub(crate) struct Found {
    /// By name.
    pub(crate) clusters: BTreeMap<ClusterName, Arc<Cluster>>,
    /// When they were found.
    pub(crate) at: Timestamp,
}

impl Found {
    /// The unrecorded events. `history` has every event since `since`, newest first.
    pub(crate) fn missed(&self, history: &[MemberEvent], since: Timestamp) -> Vec<MemberEvent> {
        let mut pasts: BTreeMap<(&ClusterName, &str), Past> = BTreeMap::new();
        for event in history.iter().rev() {
            // Suspicion events have a name and no uid.
            let Some(uid) = event.uid.as_deref() else { continue };
            pasts.entry((&event.cluster, uid)).or_default().take(event);
        }
        let mut missed = Vec::new();
        for ((name, uid), past) in &pasts {
            let now = self.clusters.get(*name);
            let there = now.is_some_and(|now| now.metadata.uid.as_deref() == Some(uid));
            if !past.left && !there {
                missed.push(MemberEvent {
                    cluster: (*name).clone(),
                    uid: Some((*uid).to_owned()),
                    at: self.at,
                    kind: Kind::Left,
                    reason: NOTICED_LATER.to_owned(),
                    message: "the Cluster was gone when this leader began".to_owned(),
                });
            }
        }
        for (name, cluster) in &self.clusters {
            let past = cluster.metadata.uid.as_deref().and_then(|uid| pasts.get(&(name, uid)));
            missed.extend(joined(cluster, past, since));
            missed.extend(past.into_iter().flat_map(|past| self.untainted(cluster, past)));
        }
        missed
    }

    fn untainted(&self, cluster: &Cluster, past: &Past) -> Vec<MemberEvent> {
        let held: BTreeSet<_> = cluster.spec.taints.iter().map(id).collect();
        let gone = past.taints.iter().filter(|(id, _)| !held.contains(id));
        gone.map(|((key, _), words)| {
            let kind =
                if key == marks::TAINT_CORDONED { Kind::Uncordoned } else { Kind::Untainted };
            event(cluster, kind, self.at, &format!("{NOTICED_LATER}: {key}"), words.clone())
        })
        .collect()
    }
}

/// A `Joined` event if the Cluster has an id, and history has no such event. Its earliest possible time is the
/// Cluster's own. An object older than `since` may have been recorded before.
fn joined(cluster: &Cluster, past: Option<&Past>, since: Timestamp) -> Option<MemberEvent> {
    let id = cluster.status.as_ref()?.cluster_id.as_ref()?;
    let made = cluster.creation_timestamp()?.0;
    if past.is_some_and(|past| past.joined) || made < since {
        return None;
    }
    let message = format!("its cluster id is {id}; the time is that of the Cluster");
    Some(event(cluster, Kind::Joined, made, NOTICED_LATER, message))
}

fn id(taint: &Taint) -> (String, String) {
    (taint.key.clone(), taint.effect.clone())
}

impl Past {
    fn take(&mut self, event: &MemberEvent) {
        match &event.kind {
            Kind::Joined => self.joined = true,
            Kind::Left => self.left = true,
            Kind::Tainted | Kind::Cordoned | Kind::Draining => {
                if let Some(id) = read(&event.message) {
                    self.taints.insert(id, event.message.clone());
                }
            }
            Kind::Untainted | Kind::Uncordoned => {
                if let Some(id) = read(&event.message) {
                    self.taints.remove(&id);
                }
            }
            _ => {}
        }
    }
}

/// Parses key and effect of a taint in text form: `key=value:effect`, where `=value` may be missing.
fn read(words: &str) -> Option<(String, String)> {
    let (what, effect) = words.rsplit_once(':')?;
    let key = what.split_once('=').map_or(what, |(key, _)| key);
    Some((key.to_owned(), effect.to_owned()))
}

/// The member events that history lacks when a leadership begins. The leader sees all later changes itself. History is
/// queried until it answers: at the latest, the end of the leadership ends the job.
pub(crate) fn missed(
    env: &Env,
    index: &Index,
) -> impl Future<Output = Vec<MemberEvent>> + Send + 'static {
    let clusters = index.clusters().map(|(name, cluster)| (name.clone(), Arc::clone(cluster)));
    let found = Found { clusters: clusters.collect(), at: env.clock.now() };
    let (store, retention) = (env.store.clone(), env.retention);
    async move {
        let mut warned = false;
        loop {
            match recorded(&store, found.at, retention).await {
                Ok((history, since)) => return found.missed(&history, since),
                Err(why) if !std::mem::replace(&mut warned, true) => {
                    tracing::warn!(
                        why,
                        "history database unreachable: member events without a leader are not recorded yet"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The events in history, newest first, and the time since when they are complete.
async fn recorded(
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::member_events::{between, in_words};

    fn time(day: u32) -> Timestamp {
        format!("2026-01-{day:02}T00:00:00Z").parse().unwrap()
    }

    fn cluster(name: &str, uid: &str, taints: Value, id: Option<&str>) -> Arc<Cluster> {
        let object = json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2026-01-05T00:00:00Z"},
            "spec": {"taints": taints}, "status": {"clusterId": id},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Events of a leader that saw these versions of a Cluster, one per day.
    fn told(versions: &[Option<&Cluster>]) -> Vec<MemberEvent> {
        let mut history: Vec<MemberEvent> = Vec::new();
        for (day, pair) in (6..).zip(versions.windows(2)) {
            history.splice(0..0, between(pair[0], pair[1], time(day)));
        }
        history
    }

    fn missed(clusters: &[&Arc<Cluster>], history: &[MemberEvent]) -> Vec<String> {
        let clusters = clusters.iter().map(|c| (c.name_any().into(), Arc::clone(c))).collect();
        let found = Found { clusters, at: time(20) };
        let missed = found.missed(history, time(1));
        // Once recorded, the next leader no longer misses it.
        let mut after = missed.clone();
        after.extend(history.iter().cloned());
        assert_eq!(found.missed(&after, time(1)), []);
        let day = |e: &MemberEvent| e.at.to_string()[8..10].to_owned();
        missed.iter().map(|e| format!("{} {} {} {}", e.cluster, e.kind, day(e), e.reason)).collect()
    }

    #[test]
    fn what_nobody_saw_is_told_with_the_time_that_is_known() {
        let taints = json!([
            {"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"},
            {"key": "disk", "value": "slow", "effect": "NoSchedule"},
        ]);
        let new = cluster("m1", "u1", json!([]), None);
        let well = cluster("m1", "u1", json!([]), Some("id"));
        let cordoned = cluster("m1", "u1", taints.clone(), Some("id"));
        let seen = told(&[None, Some(&new), Some(&well), Some(&cordoned)]);
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(missed(&[&cordoned], &seen), Vec::<String>::new(), "nothing happened");
        assert_eq!(
            missed(&[&well], &seen),
            [
                "m1 Uncordoned 20 NoticedLater: cluster.atoll.dev/cordoned",
                "m1 Untainted 20 NoticedLater: disk"
            ]
        );
        assert_eq!(missed(&[], &seen), ["m1 Left 20 NoticedLater"]);
        // Another Cluster with that name.
        let again = cluster("m1", "u2", taints, Some("id2"));
        assert_eq!(
            missed(&[&again], &seen),
            ["m1 Left 20 NoticedLater", "m1 Joined 05 NoticedLater"]
        );
        let gone = told(&[None, Some(&new), Some(&well), None]);
        assert_eq!(missed(&[], &gone), Vec::<String>::new(), "it was seen to leave");
    }

    #[test]
    fn who_joined_before_history_was_asked_may_have_been_told() {
        let old = cluster("m1", "u1", json!([]), Some("id"));
        let clusters: BTreeMap<_, _> = [("m1".into(), old)].into();
        let found = Found { clusters, at: time(20) };
        assert_eq!(found.missed(&[], time(5)).len(), 1);
        assert_eq!(found.missed(&[], time(6)), []);
    }

    #[test]
    fn taints_are_read_as_they_were_put_in_words() {
        for (key, value, effect) in [
            ("a.b/c", None, "NoSchedule"),
            ("disk", Some("slow"), "NoExecute"),
            ("disk", Some(""), "NoExecute"),
        ] {
            let taint = Taint {
                key: key.to_owned(),
                value: value.map(str::to_owned),
                effect: effect.to_owned(),
                ..Taint::default()
            };
            assert_eq!(read(&in_words(&taint)), Some((key.to_owned(), effect.to_owned())));
        }
    }
}
