//! The state of each binding on its members, and its certainty.

use std::collections::BTreeMap;

use atoll_api::binding::{AggregatedStatusItem, ResourceBindingStatus, ResourceHealth};
use atoll_scheduler::Report as SchedulerReport;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::index::key::BindingKey;
use crate::members::{ApplyResult, ObjectHealth, Report};

/// Message for an object that is no longer on its member.
const GONE: &str = "the object is gone from the member";

/// How certain a view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Certainty {
    /// From the binding's status, as an earlier leader wrote it.
    #[default]
    Seeded,
    /// From the member, in its present session.
    Fresh,
    /// From the member, which was lost since.
    Lost,
}

/// The last failed attempt to apply or remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// CamelCase.
    pub reason: String,
    /// Text for users.
    pub message: String,
}

/// State of one binding on one member.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// How certain it is.
    pub certainty: Certainty,
    /// Hash of what the member holds; empty while unknown.
    pub hash: String,
    /// Why it does not hold what it was sent.
    pub trouble: Option<Trouble>,
    /// The member's own controllers have seen the newest version.
    pub observed: bool,
    /// Its entry in the binding's status.
    pub item: AggregatedStatusItem,
    /// Since when replicas find no node.
    pub unschedulable_since: Option<Timestamp>,
}

/// All views.
#[derive(Debug, Default)]
pub struct Views(BTreeMap<BindingKey, BTreeMap<String, View>>);

impl Views {
    /// The views of a binding.
    pub fn of(&self, key: &BindingKey) -> impl Iterator<Item = (&String, &View)> {
        self.0.get(key).into_iter().flatten()
    }

    /// One view.
    #[must_use]
    pub fn get(&self, key: &BindingKey, cluster: &str) -> Option<&View> {
        self.0.get(key)?.get(cluster)
    }

    /// Stores an earlier leader's status, where nothing better is known.
    pub fn seed(&mut self, key: &BindingKey, status: &ResourceBindingStatus) {
        for item in &status.aggregated_status {
            let views = self.0.entry(key.clone()).or_default();
            views
                .entry(item.cluster_name.clone())
                .or_insert_with(|| View { item: item.clone(), ..View::default() });
        }
    }

    /// A member reported the result of an apply or a removal. Returns whether that changed anything.
    pub fn applied(
        &mut self,
        key: &BindingKey,
        cluster: &str,
        result: ApplyResult,
        hash: &str,
        trouble: Trouble,
    ) -> bool {
        let view = self.view(key, cluster);
        let before = view.clone();
        view.certainty = Certainty::Fresh;
        match result {
            ApplyResult::Applied => {
                if view.hash != hash {
                    hash.clone_into(&mut view.hash);
                    view.observed = false;
                }
                view.trouble = None;
            }
            ApplyResult::Removed | ApplyResult::Released => {
                *view = View { certainty: Certainty::Fresh, ..View::default() };
                cluster.clone_into(&mut view.item.cluster_name);
            }
            ApplyResult::Conflict
            | ApplyResult::Failed
            | ApplyResult::NotOurs
            | ApplyResult::Waiting => view.trouble = Some(trouble),
        }
        *view != before
    }

    /// A session begins: the agent retries what failed in the last one, and reports persistent failures again. Returns
    /// whether there was a failure.
    pub fn tried_again(&mut self, key: &BindingKey, cluster: &str) -> bool {
        let view = self.0.get_mut(key).and_then(|views| views.get_mut(cluster));
        view.is_some_and(|view| view.trouble.take().is_some())
    }

    /// A member's inventory shows the object as it was sent.
    pub fn held(&mut self, key: &BindingKey, cluster: &str, hash: &str) {
        hash.clone_into(&mut self.view(key, cluster).hash);
    }

    /// A member reported the object's state at `now`. Returns whether that changed anything.
    pub fn reported(
        &mut self,
        key: &BindingKey,
        cluster: &str,
        report: &Report,
        now: Timestamp,
    ) -> bool {
        let view = self.view(key, cluster);
        let before = view.clone();
        view.certainty = Certainty::Fresh;
        // The time in an earlier leader's status continues. A report without health neither starts nor ends it.
        let since = view.item.unhealthy_since.clone();
        let unhealthy_since = match report.health {
            ObjectHealth::Healthy => None,
            ObjectHealth::Unhealthy => since.or(Some(Time(now))),
            ObjectHealth::Unknown => since,
        };
        // If it was healthy before, the time is set already, or unknown.
        let healthy_since = match (report.health, view.item.health) {
            (ObjectHealth::Healthy, ResourceHealth::Healthy) => view.item.healthy_since.clone(),
            (ObjectHealth::Healthy, _) => Some(Time(now)),
            (ObjectHealth::Unhealthy | ObjectHealth::Unknown, _) => None,
        };
        if report.gone {
            view.hash.clear();
            view.observed = false;
            view.item = AggregatedStatusItem {
                cluster_name: cluster.to_owned(),
                health: ResourceHealth::Unhealthy,
                health_reason: Some("Missing".to_owned()),
                health_message: Some(GONE.to_owned()),
                unhealthy_since: view.item.unhealthy_since.clone().or(Some(Time(now))),
                applied_message: Some(GONE.to_owned()),
                ..AggregatedStatusItem::default()
            };
            return *view != before;
        }
        view.hash.clone_from(&report.hash);
        view.observed = report.observed_generation >= report.generation;
        view.unschedulable_since = report.unschedulable_since;
        let (health_reason, health_message) = why_unhealthy(report);
        view.item = AggregatedStatusItem {
            cluster_name: cluster.to_owned(),
            applied: false,
            applied_message: (report.status_left_out > 0).then(|| {
                format!(
                    "status left out: it has {} bytes, at most 65536 are taken from a member",
                    report.status_left_out
                )
            }),
            health_reason,
            health_message,
            health: match report.health {
                ObjectHealth::Healthy => ResourceHealth::Healthy,
                ObjectHealth::Unhealthy => ResourceHealth::Unhealthy,
                ObjectHealth::Unknown => ResourceHealth::Unknown,
            },
            unhealthy_since,
            healthy_since,
            replicas: report.replicas,
            ready_replicas: report.ready,
            unschedulable_replicas: (report.unschedulable > 0).then_some(report.unschedulable),
            status: report.status.clone(),
        };
        *view != before
    }

    /// A member was lost: its views become memories.
    pub fn lost(&mut self, key: &BindingKey, cluster: &str) -> bool {
        let Some(view) = self.0.get_mut(key).and_then(|views| views.get_mut(cluster)) else {
            return false;
        };
        let before = view.certainty;
        view.certainty = Certainty::Lost;
        before != Certainty::Lost
    }

    /// A member holds no object of the binding any more.
    pub fn withdrawn(&mut self, key: &BindingKey, cluster: &str) {
        if let Some(views) = self.0.get_mut(key) {
            views.remove(cluster);
        }
    }

    /// The binding was deleted.
    pub fn forget(&mut self, key: &BindingKey) {
        self.0.remove(key);
    }

    /// Leadership lost: drop all views; the next term learns them again from the hub.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Reports for the scheduler: fresh ones only; with the objects' status where requested.
    #[must_use]
    pub fn reports(
        &self,
        key: &BindingKey,
        with_status: bool,
    ) -> BTreeMap<String, SchedulerReport> {
        let fresh = self
            .of(key)
            .filter(|(_, view)| view.certainty == Certainty::Fresh && !view.hash.is_empty());
        fresh.map(|(cluster, view)| (cluster.clone(), report(view, with_status))).collect()
    }

    /// Known replicas on members: a seeded figure is better than none, because a reservation for replicas that already
    /// run would count them twice.
    #[must_use]
    pub fn replicas(&self, key: &BindingKey) -> BTreeMap<String, i64> {
        let known = self.of(key).filter_map(|(cluster, view)| {
            view.item.replicas.map(|replicas| (cluster.clone(), replicas))
        });
        known.collect()
    }

    fn view(&mut self, key: &BindingKey, cluster: &str) -> &mut View {
        let views = self.0.entry(key.clone()).or_default();
        views.entry(cluster.to_owned()).or_insert_with(|| View {
            item: AggregatedStatusItem {
                cluster_name: cluster.to_owned(),
                ..AggregatedStatusItem::default()
            },
            ..View::default()
        })
    }
}

/// Reason and message of an unhealthy object; the message only for a fault.
fn why_unhealthy(report: &Report) -> (Option<String>, Option<String>) {
    if report.health == ObjectHealth::Healthy {
        return (None, None);
    }
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let fault = report.failing && report.health == ObjectHealth::Unhealthy;
    let reason = some(&report.health_reason).or_else(|| fault.then(|| "Unhealthy".to_owned()));
    let message = some(&report.health_message).or_else(|| reason.clone());
    (reason, message.filter(|_| fault))
}

fn report(view: &View, with_status: bool) -> SchedulerReport {
    let item = &view.item;
    let succeeded = item.status.as_ref().and_then(|status| status["succeeded"].as_i64());
    SchedulerReport {
        replicas: item.replicas.unwrap_or_default(),
        ready: item.ready_replicas.unwrap_or_default(),
        unschedulable: item.unschedulable_replicas.unwrap_or_default(),
        unschedulable_since: view.unschedulable_since,
        healthy: match item.health {
            ResourceHealth::Healthy => Some(true),
            ResourceHealth::Unhealthy => Some(false),
            ResourceHealth::Unknown => None,
        },
        unhealthy_since: item.unhealthy_since.as_ref().map(|since| since.0),
        status: if with_status { item.status.clone() } else { None },
        succeeded: succeeded.unwrap_or_default(),
    }
}
