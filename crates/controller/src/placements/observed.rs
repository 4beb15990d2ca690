//! State of a binding on one member as its agent reported it, and how certain it is.

use atoll_api::ManifestHash;
use atoll_api::binding::{AggregatedStatusItem, ResourceHealth};
use atoll_scheduler::{Report as SchedulerReport, has_ended};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::members::{ApplyResult, ObjectHealth, Report};
use crate::optional_number::OptionalNumber;
use crate::since::Since;

/// Message for an object that is no longer on its member.
const GONE: &str = "the object is gone from the member";

/// How certain an observation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Certainty {
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
pub(crate) struct Trouble {
    /// CamelCase.
    pub reason: String,
    /// Text for users.
    pub message: String,
}

/// A member's entry in the binding's status, without its name and the object's status. There is one for each workload on
/// each member, so the texts, which few have, are boxed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Item {
    /// Whether the member applied the last decision, according to an earlier leader.
    pub applied: bool,
    pub health: ResourceHealth,
    pub why: Option<Box<Why>>,
    pub unhealthy_since: Since,
    pub healthy_since: Since,
    pub replicas: OptionalNumber,
    pub ready_replicas: OptionalNumber,
    pub unschedulable_replicas: OptionalNumber,
}

/// Why an object is not applied, or unhealthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Why {
    pub applied_message: Option<String>,
    pub health_reason: Option<String>,
    pub health_message: Option<String>,
}

impl Why {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl Item {
    fn of(item: &AggregatedStatusItem) -> Self {
        let why = Why {
            applied_message: item.applied_message.clone(),
            health_reason: item.health_reason.clone(),
            health_message: item.health_message.clone(),
        };
        Self {
            applied: item.applied,
            health: item.health,
            why: why.boxed(),
            unhealthy_since: item.unhealthy_since.as_ref().map(|since| since.0).into(),
            healthy_since: item.healthy_since.as_ref().map(|since| since.0).into(),
            replicas: item.replicas.into(),
            ready_replicas: item.ready_replicas.into(),
            unschedulable_replicas: item.unschedulable_replicas.into(),
        }
    }

    /// As the hub's API has it.
    pub(crate) fn entry(&self, cluster: &str) -> AggregatedStatusItem {
        let why = self.why.as_deref().cloned().unwrap_or_default();
        AggregatedStatusItem {
            cluster_name: cluster.to_owned(),
            applied: self.applied,
            applied_message: why.applied_message,
            health: self.health,
            health_reason: why.health_reason,
            health_message: why.health_message,
            unhealthy_since: self.unhealthy_since.time().map(Time),
            healthy_since: self.healthy_since.time().map(Time),
            replicas: self.replicas.get(),
            ready_replicas: self.ready_replicas.get(),
            unschedulable_replicas: self.unschedulable_replicas.get(),
            status: None,
        }
    }
}

/// A number in 32 bits. Sizes of statuses are bounded when they arrive, and Kubernetes counts pods in 32 bits; only a member that
/// lies reports more.
fn narrow(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// An object's status as text: as a tree it would take ten times the memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RawStatus {
    text: Option<Box<str>>,
    /// Whether it says that a Job has ended.
    ended: bool,
    /// Its field `succeeded`, a number of pods.
    succeeded: u32,
}

impl RawStatus {
    pub(crate) fn of(status: Option<&Value>) -> Self {
        Self {
            text: status.map(|status| status.to_string().into()),
            ended: status.is_some_and(has_ended),
            succeeded: status
                .and_then(|s| s["succeeded"].as_i64())
                .map_or(0, |pods| narrow(pods.max(0))),
        }
    }

    pub(crate) fn value(&self) -> Option<Value> {
        // `of` wrote it from a value, so it can be parsed.
        serde_json::from_str(self.text.as_ref()?).ok()
    }
}

/// State of one binding on one member.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Observed {
    /// How certain it is.
    pub certainty: Certainty,
    /// Hash of what the member holds; empty while unknown.
    pub hash: ManifestHash,
    /// Why it does not hold what it was sent.
    pub trouble: Option<Box<Trouble>>,
    /// The member's own controllers have seen the newest version.
    pub observed: bool,
    /// Its entry in the binding's status.
    pub item: Item,
    /// Size of the object's status in bytes of JSON, as it arrived.
    pub status_bytes: u32,
    /// The object's status.
    pub status: RawStatus,
    /// Since when replicas find no node.
    pub unschedulable_since: Since,
}

impl Observed {
    /// State of a binding on a member according to the binding's status, as an earlier leader wrote it.
    pub(super) fn seeded(item: &AggregatedStatusItem) -> Self {
        let status = RawStatus::of(item.status.as_ref());
        let status_bytes = status.text.as_ref().map_or(0, |text| narrow(text.len()));
        Self { item: Item::of(item), status, status_bytes, ..Self::default() }
    }

    /// Its entry in the binding's status, with the object's status.
    pub(crate) fn whole_item(&self, cluster: &str) -> AggregatedStatusItem {
        AggregatedStatusItem { status: self.status.value(), ..self.item.entry(cluster) }
    }

    /// The member reported the result of an apply or a removal.
    pub(super) fn applied(&mut self, result: ApplyResult, hash: &ManifestHash, trouble: Trouble) {
        self.certainty = Certainty::Fresh;
        match result {
            ApplyResult::Applied => {
                if self.hash != *hash {
                    self.hash.clone_from(hash);
                    self.observed = false;
                }
                self.trouble = None;
            }
            ApplyResult::Removed | ApplyResult::Released => {
                *self = Self { certainty: Certainty::Fresh, ..Self::default() };
            }
            ApplyResult::Conflict
            | ApplyResult::Failed
            | ApplyResult::NotOurs
            | ApplyResult::Waiting => self.trouble = Some(Box::new(trouble)),
        }
    }

    /// The member reported the object's state at `now`.
    pub(super) fn reported(&mut self, report: &Report, now: Timestamp) {
        self.certainty = Certainty::Fresh;
        // The time in an earlier leader's status continues. A report without health neither starts nor ends it.
        let since = self.item.unhealthy_since.time();
        let unhealthy_since = match report.health.state {
            ObjectHealth::Healthy => None,
            ObjectHealth::Unhealthy => since.or(Some(now)),
            ObjectHealth::Unknown => since,
        };
        if report.gone {
            self.hash = ManifestHash::default();
            self.observed = false;
            self.status_bytes = 0;
            self.status = RawStatus::default();
            let why = Why {
                applied_message: Some(GONE.to_owned()),
                health_reason: Some("Missing".to_owned()),
                health_message: Some(GONE.to_owned()),
            };
            self.item = Item {
                health: ResourceHealth::Unhealthy,
                why: why.boxed(),
                unhealthy_since: since.or(Some(now)).into(),
                ..Item::default()
            };
            return;
        }
        // If it was healthy before, the time is set already, or unknown.
        let healthy_since = match (report.health.state, self.item.health) {
            (ObjectHealth::Healthy, ResourceHealth::Healthy) => self.item.healthy_since,
            (ObjectHealth::Healthy, _) => Some(now).into(),
            (ObjectHealth::Unhealthy | ObjectHealth::Unknown, _) => Since::default(),
        };
        self.hash.clone_from(&report.hash);
        self.observed = report.observed_generation >= report.generation;
        self.unschedulable_since = report.unschedulable_since.into();
        self.status_bytes = narrow(report.status_bytes);
        self.status = RawStatus::of(report.status.as_ref());
        let (health_reason, health_message) = why_unhealthy(report);
        let applied_message = (report.status_left_out > 0).then(|| {
            format!(
                "status left out: it has {} bytes, at most 65536 are taken from a member",
                report.status_left_out
            )
        });
        self.item = Item {
            applied: false,
            why: Why { applied_message, health_reason, health_message }.boxed(),
            health: match report.health.state {
                ObjectHealth::Healthy => ResourceHealth::Healthy,
                ObjectHealth::Unhealthy => ResourceHealth::Unhealthy,
                ObjectHealth::Unknown => ResourceHealth::Unknown,
            },
            unhealthy_since: unhealthy_since.into(),
            healthy_since,
            replicas: report.replicas.into(),
            ready_replicas: report.ready.into(),
            unschedulable_replicas: (report.unschedulable > 0)
                .then_some(report.unschedulable)
                .into(),
        };
    }

    /// Whether the member holds this manifest, as far as it reported in its present session.
    #[must_use]
    pub(crate) fn holds(&self, hash: &str) -> bool {
        self.certainty == Certainty::Fresh && self.trouble.is_none() && self.hash == hash
    }

    /// The report for the scheduler, if it is fresh; with the object's status where requested. Of earlier reports it gets
    /// what stays true: that a Job has ended, and the last status, of which the clusters that take over may need a part.
    pub(super) fn report(&self, with_status: bool) -> Option<SchedulerReport> {
        if self.certainty == Certainty::Fresh && !self.hash.is_empty() {
            return Some(report(self, with_status));
        }
        let ended = self.status.ended;
        let status = if with_status { self.status.value() } else { None };
        (ended || status.is_some()).then(|| SchedulerReport {
            ended,
            status,
            ..SchedulerReport::default()
        })
    }
}

/// Reason and message of an unhealthy object; the message only for a fault.
fn why_unhealthy(report: &Report) -> (Option<String>, Option<String>) {
    let health = &report.health;
    if health.state == ObjectHealth::Healthy {
        return (None, None);
    }
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let fault = health.failing && health.state == ObjectHealth::Unhealthy;
    let reason = some(&health.reason).or_else(|| fault.then(|| "Unhealthy".to_owned()));
    let message = some(&health.message).or_else(|| reason.clone());
    (reason, message.filter(|_| fault))
}

fn report(view: &Observed, with_status: bool) -> SchedulerReport {
    let item = &view.item;
    SchedulerReport {
        replicas: item.replicas.get().unwrap_or_default(),
        ready: item.ready_replicas.get().unwrap_or_default(),
        unschedulable: item.unschedulable_replicas.get().unwrap_or_default(),
        unschedulable_since: view.unschedulable_since.time(),
        healthy: match item.health {
            ResourceHealth::Healthy => Some(true),
            ResourceHealth::Unhealthy => Some(false),
            ResourceHealth::Unknown => None,
        },
        unhealthy_since: item.unhealthy_since.time(),
        status: if with_status { view.status.value() } else { None },
        succeeded: view.status.succeeded.into(),
        ended: view.status.ended,
    }
}
