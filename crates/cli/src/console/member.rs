//! The page of a member.

use atoll_api::binding::TargetCluster;
use atoll_api::marks;
use atoll_console::Fault;
use atoll_console::data::{Course, Member};
use atoll_history::MemberEventKind;
use jiff::Timestamp;
use serde_json::Value;

use super::{Reader, missing, named, rows};
use crate::cluster;
use crate::print::causes;
use crate::read::decisions;
use crate::read::item::Item;
use crate::read::members;

/// Events and decisions that are shown.
const EVENTS: usize = 30;
/// Decisions from which its replicas over time are drawn.
const COURSE: usize = 300;
/// Samples from which its use over time is drawn.
const SAMPLES: usize = 300;

impl Reader {
    pub(super) async fn read_member(&self, name: &str, page: usize) -> Result<Member, Fault> {
        named("a member", name)?;
        let now = Timestamp::now();
        let of = self.everything();
        let fields = vec![("spec.cluster", name.to_owned())];
        let member = name.to_owned();
        let (found, work, events, moved, samples) = tokio::join!(
            cluster::get(&self.hub, name),
            self.fleet.ask(move |index| (index.work_on(&member, page), index.notes())),
            members::list(&self.hub, name, None, None, None, EVENTS),
            decisions::list(&self.hub, &of, &fields, COURSE),
            members::list(&self.hub, name, Some(MemberEventKind::Used), None, None, SAMPLES),
        );
        let cluster = found.map_err(missing)?;
        let ((replicas, shares), notes) = work?;
        let mut page = Member { name: name.to_owned(), notes, ..Member::default() };
        page.tile = Some(rows::tile(&cluster, replicas, shares.all, now));
        page.shares = shares;
        page.facts = facts(&cluster);
        page.taints = cluster
            .spec
            .taints
            .iter()
            .map(|taint| match &taint.value {
                Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
                None => format!("{}:{}", taint.key, taint.effect),
            })
            .collect();
        page.cordoned =
            cluster.spec.taints.iter().any(|taint| {
                [marks::TAINT_CORDONED, marks::TAINT_DRAIN].contains(&taint.key.as_str())
            });
        if let Some(status) = &cluster.status {
            page.conditions = rows::conditions(&status.conditions, now);
        }
        match (events, moved) {
            (Ok(events), Ok(mut moved)) => {
                page.course = course(name, replicas, &moved.items, now);
                moved.merge(events, EVENTS);
                page.events = moved.items.iter().map(|item| rows::decision(item, now)).collect();
            }
            (Err(error), _) | (_, Err(error)) => {
                page.notes.push(format!("what happened is not shown: {}", causes(&error)));
            }
        }
        match samples {
            Ok(samples) => page.uses = uses(&samples, now),
            // A hub of an earlier version knows no samples.
            Err(error) if crate::hub::status(&error) == Some(400) => {}
            Err(error) => {
                page.notes.push(format!("its use over time is not shown: {}", causes(&error)));
            }
        }
        Ok(page)
    }
}

/// The requested percentage of each resource over time, from samples, newest first.
fn uses(samples: &[Value], now: Timestamp) -> Vec<(String, Course)> {
    let mut found: Vec<(String, Course)> = Vec::new();
    for item in samples.iter().rev().map(Item) {
        let Some(at) = item.at() else { continue };
        for part in item.text("reason").split(',') {
            let Some((resource, percent)) = part.split_once('=') else { continue };
            let Ok(percent) = percent.parse() else { continue };
            match found.iter_mut().find(|(name, _)| name == resource) {
                Some((_, course)) => course.steps.push((at, percent)),
                None => found
                    .push((resource.to_owned(), Course { steps: vec![(at, percent)], until: now })),
            }
        }
    }
    found
}

/// The replicas of a member over time: as many as now, less what each decision changed, newest first.
fn course(member: &str, now_has: i64, items: &[Value], now: Timestamp) -> Option<Course> {
    let share = |shares: Option<Vec<TargetCluster>>| {
        let shares = shares.unwrap_or_default();
        shares.iter().find(|share| share.name == member).map_or(0, |share| share.replicas)
    };
    let (mut steps, mut count) = (Vec::new(), now_has);
    for item in items.iter().map(Item) {
        let Some(at) = item.at() else { continue };
        let (before, after) = (item.before(), item.after());
        // Without the shares before it, it is not known what it changed.
        if before.is_none() && item.text("trigger") != "First" {
            continue;
        }
        let changed = share(after).saturating_sub(share(before));
        if changed != 0 {
            steps.push((at, count));
            count = count.saturating_sub(changed);
        }
    }
    steps.reverse();
    (!steps.is_empty()).then_some(Course { steps, until: now })
}

fn facts(cluster: &atoll_api::Cluster) -> Vec<(String, String)> {
    let mut facts = vec![("Agent runs".to_owned(), format!("{:?}", cluster.spec.mode))];
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    fact("Provider", cluster.spec.provider.clone());
    fact("Region", cluster.spec.region.clone());
    fact("Zones", Some(cluster.spec.zones.join(", ")).filter(|zones| !zones.is_empty()));
    let Some(status) = &cluster.status else { return facts };
    fact("Kubernetes", status.kubernetes_version.clone());
    fact(
        "Nodes",
        status
            .node_summary
            .map(|nodes| format!("{} of {} ready", nodes.ready_num, nodes.total_num)),
    );
    if let Some(session) = &status.session {
        fact("Session", Some(format!("{:?}", session.state)));
        fact("Since", session.since.as_ref().map(|since| since.0.to_string()));
        fact("Agent version", session.agent_version.clone());
        let until = session.certificate_until.as_ref();
        fact("Certificate valid until", until.map(|until| until.0.to_string()));
    }
    fact("Orphans", status.orphans.filter(|n| *n > 0).map(|n| n.to_string()));
    fact("Removals held", status.removals_held.filter(|n| *n > 0).map(|n| n.to_string()));
    facts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_replicas_of_a_member_are_counted_back_from_now() {
        let decision = |second: u32, trigger: &str, before: Value, after: Value| json!({"spec": {"at": format!("2026-01-01T00:00:{second:02}Z"), "trigger": trigger, "before": before, "after": after}});
        let on =
            |count: i64| json!([{"name": "m1", "replicas": count}, {"name": "m2", "replicas": 9}]);
        let items = [
            decision(40, "Scale", on(2), on(5)),
            decision(30, "Scale", Value::Null, on(2)),
            decision(20, "Scale", on(4), on(2)),
            decision(10, "First", Value::Null, on(4)),
        ];
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let course = course("m1", 25, &items, now).unwrap();
        let counts: Vec<i64> = course.steps.iter().map(|(_, count)| *count).collect();
        assert_eq!((&counts[..], course.until), (&[24, 22, 25][..], now));
        assert_eq!(super::course("m3", 0, &items, now), None);
    }

    #[test]
    fn samples_are_drawn_for_each_resource_and_hostile_ones_are_left_out() {
        let sample = |second: u32, reason: &str| json!({"spec": {"at": format!("2026-01-01T00:00:{second:02}Z"), "reason": reason}});
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let samples =
            [sample(30, "cpu=54,memory=27"), sample(20, "cpu=x,,=,memory"), sample(10, "cpu=9")];
        let found = uses(&samples, now);
        let numbers: Vec<(&str, Vec<i64>)> = found
            .iter()
            .map(|(name, course)| (name.as_str(), course.steps.iter().map(|step| step.1).collect()))
            .collect();
        assert_eq!(numbers, [("cpu", vec![9, 54]), ("memory", vec![27])]);
    }
}
