//! Histograms of how long the steps take that lead from a change on the hub to healthy copies on members.
//!
//! Times are those of the runtime's clock. Every label has a bounded number of values: clusters beyond [`CLUSTERS`]
//! share one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_scheduler::Decision;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds of one decision: a divided workload over a thousand clusters takes some milliseconds.
const DECIDING: [f64; 9] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0];
/// Upper bounds in seconds of single requests: the hub's clients give up after 30 s.
const REQUEST: [f64; 10] = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Upper bounds in seconds of waits.
const WAIT: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Upper bounds in seconds of what members do.
const ROLLOUT: [f64; 10] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// Limit of clusters with histograms of their own: 26 series for each.
const CLUSTERS: usize = 500;
/// Label of all further clusters. It is no name of a cluster.
const OTHERS: &str = "_others";

/// Starts of the descriptions of strategies in decisions, and their labels.
const STRATEGIES: [(&str, &str); 9] = [
    ("a copy", "copies"),
    ("all components", "wholeSet"),
    ("Duplicated", "duplicated"),
    ("Divided by", "staticWeight"),
    ("Divided in proportion", "dynamicWeight"),
    ("Divided over", "aggregated"),
    ("WorkloadPolicy", "workloadPolicy"),
    ("WorkloadSpread", "workloadSpread"),
    ("none", "invalid"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Strategy {
    strategy: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    verb: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnCluster {
    cluster: String,
}

/// A histogram for each set of labels.
type Histograms<Labels> = Family<Labels, Histogram, fn() -> Histogram>;

/// The histograms. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    deciding: Histograms<Strategy>,
    queue_wait: Histogram,
    commit: Histograms<Ended>,
    hub_request: Histograms<Asked>,
    status_lag: Histograms<Status>,
    history_record: Histogram,
    applied: Histograms<OnCluster>,
    healthy: Histograms<OnCluster>,
    clusters: Arc<Mutex<BTreeSet<String>>>,
}

impl Default for Latency {
    fn default() -> Self {
        fn of<Labels: Clone + std::hash::Hash + Eq>(new: fn() -> Histogram) -> Histograms<Labels> {
            Family::new_with_constructor(new)
        }
        Self {
            deciding: of(|| Histogram::new(DECIDING)),
            queue_wait: Histogram::new(WAIT),
            commit: of(|| Histogram::new(REQUEST)),
            hub_request: of(|| Histogram::new(REQUEST)),
            status_lag: of(|| Histogram::new(WAIT)),
            history_record: Histogram::new(WAIT),
            applied: of(|| Histogram::new(ROLLOUT)),
            healthy: of(|| Histogram::new(ROLLOUT)),
            clusters: Arc::default(),
        }
    }
}

impl Latency {
    /// Registers them, in a registry with the prefix of Atoll.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut register = |name: &str, help: &str, metric| {
            registry.register_with_unit(name, help, Unit::Seconds, metric);
        };
        register("queue_wait", "Time of bindings in the active queue", self.queue_wait.clone());
        register(
            "history_record",
            "Time from a commit to the durable row in the history database",
            self.history_record.clone(),
        );
        let seconds = || Unit::Seconds;
        registry.register_with_unit(
            "decision",
            "Time of the scheduler for one decision, by strategy",
            seconds(),
            self.deciding.clone(),
        );
        registry.register_with_unit(
            "commit",
            "Time to commit a decision to the hub, with the plugins on the way",
            seconds(),
            self.commit.clone(),
        );
        registry.register_with_unit(
            "hub_request",
            "Time until the hub answers requests of commits and statuses",
            seconds(),
            self.hub_request.clone(),
        );
        registry.register_with_unit(
            "status_lag",
            "Time from a change to the status on the hub that shows it",
            seconds(),
            self.status_lag.clone(),
        );
        registry.register_with_unit(
            "dispatch_applied",
            "Time from dispatch of a decision until the member has applied it",
            seconds(),
            self.applied.clone(),
        );
        registry.register_with_unit(
            "dispatch_healthy",
            "Time from dispatch of a decision until the member's copy is healthy",
            seconds(),
            self.healthy.clone(),
        );
    }

    /// The scheduler made a decision.
    pub(crate) fn decided(&self, decision: &Decision, took: Duration) {
        let labels = Strategy { strategy: strategy(&decision.strategy) };
        self.deciding.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A binding left the active queue.
    pub(crate) fn queued(&self, waited: Duration) {
        self.queue_wait.observe(waited.as_secs_f64());
    }

    /// The write of a decision ended.
    pub(crate) fn committed(&self, result: &'static str, took: Duration) {
        self.commit.get_or_create(&Ended { result }).observe(took.as_secs_f64());
    }

    /// The hub answered with this status, or not at all.
    pub(crate) fn asked(&self, method: &http::Method, code: Option<u16>, took: Duration) {
        let verb = match *method {
            http::Method::GET => "get",
            http::Method::POST => "create",
            http::Method::PUT => "update",
            http::Method::PATCH => "patch",
            http::Method::DELETE => "delete",
            _ => "other",
        };
        let code = match code {
            None => "none",
            Some(200..300) => "2xx",
            Some(429) => "429",
            Some(400..500) => "4xx",
            Some(500..600) => "5xx",
            Some(_) => "other",
        };
        self.hub_request.get_or_create(&Asked { verb, code }).observe(took.as_secs_f64());
    }

    /// A status was written that shows changes of this age.
    pub(crate) fn status_written(&self, what: &'static str, lag: Duration) {
        self.status_lag.get_or_create(&Status { what }).observe(lag.as_secs_f64());
    }

    /// A decision is durable in history.
    pub(crate) fn recorded(&self, waited: Duration) {
        self.history_record.observe(waited.as_secs_f64());
    }

    /// A member applied a decision.
    pub(crate) fn applied(&self, cluster: &str, took: Duration) {
        self.applied.get_or_create(&self.labels(cluster)).observe(took.as_secs_f64());
    }

    /// A member's copy became healthy.
    pub(crate) fn healthy(&self, cluster: &str, took: Duration) {
        self.healthy.get_or_create(&self.labels(cluster)).observe(took.as_secs_f64());
    }

    /// The Cluster was deleted.
    pub(crate) fn forget(&self, cluster: &str) {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if clusters.remove(cluster) {
            let labels = OnCluster { cluster: cluster.to_owned() };
            self.applied.remove(&labels);
            self.healthy.remove(&labels);
        }
    }

    fn labels(&self, cluster: &str) -> OnCluster {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if !clusters.contains(cluster) {
            if clusters.len() >= CLUSTERS {
                return OnCluster { cluster: OTHERS.to_owned() };
            }
            clusters.insert(cluster.to_owned());
        }
        OnCluster { cluster: cluster.to_owned() }
    }
}

fn strategy(described: &str) -> &'static str {
    let mut all = STRATEGIES.into_iter();
    all.find(|(start, _)| described.starts_with(start)).map_or("other", |(_, label)| label)
}

#[cfg(test)]
impl Latency {
    /// Gives each family a member.
    pub(crate) fn show(&self) {
        drop(self.deciding.get_or_create(&Strategy { strategy: "duplicated" }));
        self.committed("written", Duration::ZERO);
        self.asked(&http::Method::GET, Some(200), Duration::ZERO);
        self.status_written("binding", Duration::ZERO);
        self.applied("member1", Duration::ZERO);
        self.healthy("member1", Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(latency: &Latency) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        latency.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn clusters_beyond_the_limit_share_a_label_and_a_deleted_one_makes_room() {
        let latency = Latency::default();
        for number in 0..=CLUSTERS {
            latency.applied(&format!("c{number}"), Duration::from_secs(2));
        }
        let shown = page(&latency);
        let counts = shown.lines().filter(|l| l.starts_with("dispatch_applied_seconds_count{"));
        assert_eq!(counts.count(), CLUSTERS + 1);
        let rest = format!("dispatch_applied_seconds_count{{cluster=\"{OTHERS}\"}} 1");
        assert!(shown.lines().any(|line| line == rest), "{shown}");
        latency.forget("c0");
        latency.applied("late", Duration::from_secs(2));
        let shown = page(&latency);
        assert!(shown.contains("cluster=\"late\"") && !shown.contains("cluster=\"c0\""));
    }

    #[test]
    fn strategies_and_answers_have_labels_of_a_bounded_number() {
        for (described, label) in [
            ("Divided by 3 static weight rules", "staticWeight"),
            ("Divided by equal weights", "staticWeight"),
            (
                "Divided in proportion to the replicas that still fit on each cluster",
                "dynamicWeight",
            ),
            ("Divided over as few clusters as possible", "aggregated"),
            ("WorkloadSpread web: ordered over 2 subsets", "workloadSpread"),
            ("none: the request is invalid", "invalid"),
            ("", "other"),
        ] {
            assert_eq!(strategy(described), label);
        }
        let latency = Latency::default();
        for code in [Some(200), Some(201), Some(409), Some(429), Some(503), None] {
            latency.asked(&http::Method::PATCH, code, Duration::from_millis(3));
        }
        let shown = page(&latency);
        for code in ["2xx", "4xx", "429", "5xx", "none"] {
            let line = format!("hub_request_seconds_count{{verb=\"patch\",code=\"{code}\"}}");
            assert!(shown.contains(&line), "{line}\n{shown}");
        }
    }
}
