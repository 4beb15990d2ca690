//! The page of a member.

use atoll_api::marks;
use atoll_console::Fault;
use atoll_console::data::Member;
use jiff::Timestamp;

use super::{Reader, missing, named, rows};
use crate::cluster;
use crate::print::causes;
use crate::read::decisions;
use crate::read::members;

/// Events and decisions that are shown.
const EVENTS: usize = 30;

impl Reader {
    pub(super) async fn read_member(&self, name: &str, page: usize) -> Result<Member, Fault> {
        named("a member", name)?;
        let now = Timestamp::now();
        let of = self.everything();
        let fields = vec![("spec.cluster", name.to_owned())];
        let member = name.to_owned();
        let (found, work, events, moved) = tokio::join!(
            cluster::get(&self.hub, name),
            self.fleet.ask(move |index| (index.work_on(&member, page), index.notes())),
            members::list(&self.hub, name, None, None, EVENTS),
            decisions::list(&self.hub, &of, &fields, EVENTS),
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
                moved.merge(events, EVENTS);
                page.events = moved.items.iter().map(|item| rows::decision(item, now)).collect();
            }
            (Err(error), _) | (_, Err(error)) => {
                page.notes.push(format!("what happened is not shown: {}", causes(&error)));
            }
        }
        Ok(page)
    }
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
