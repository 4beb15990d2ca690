//! What an agent counts, for Prometheus. Names and labels are the interface of dashboards and alerts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_traces::{Kind, Span, TraceContext, Tracer};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::key::{GroupKind, Key};

/// Upper bounds in seconds of applies: a call to the member's API server, and users' rules.
const SECONDS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Limit of kinds with a histogram of their own.
const KINDS: usize = 50;
/// Label of all further kinds.
const OTHERS: &str = "_others";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    operation: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waiting {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Metrics of an agent. Clones share them.
#[derive(Debug, Clone)]
pub struct AgentMetrics {
    connected: Gauge,
    sessions: Counter,
    holds_lease: Gauge,
    objects: Gauge,
    work: Family<Waiting, Gauge>,
    calls: Family<Call, Counter>,
    apply: Family<OfKind, Histogram, fn() -> Histogram>,
    kinds: Arc<Mutex<BTreeSet<String>>>,
    tracer: Tracer,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self {
            connected: Gauge::default(),
            sessions: Counter::default(),
            holds_lease: Gauge::default(),
            objects: Gauge::default(),
            work: Family::default(),
            calls: Family::default(),
            apply: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            kinds: Arc::default(),
            tracer: Tracer::default(),
        }
    }
}

/// Sets a gauge to 1 for as long as it exists.
pub(crate) struct While(Gauge);

impl While {
    fn new(gauge: &Gauge) -> Self {
        gauge.set(1);
        Self(gauge.clone())
    }
}

impl Drop for While {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

impl AgentMetrics {
    /// Also records its part of traces of decisions. The caller ends the exporter after the agent.
    #[must_use]
    pub fn with_traces(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// The page for Prometheus, in the format OpenMetrics.
    ///
    /// # Errors
    /// When a metric cannot be written, which is a bug.
    pub fn page(&self) -> Result<String, std::fmt::Error> {
        let (mut root, mut page) = (Registry::default(), String::new());
        let registry = root.sub_registry_with_prefix("atoll_agent");
        registry.register("connected", "1 while it has a session", self.connected.clone());
        registry.register("sessions", "Sessions since the start", self.sessions.clone());
        registry.register(
            "holds_lease",
            "1 while this agent holds the member's Lease; only then it acts",
            self.holds_lease.clone(),
        );
        registry.register("objects", "Objects that it manages", self.objects.clone());
        registry.register("work", "Objects with work, by state", self.work.clone());
        registry.register(
            "calls",
            "Applies and withdrawals of objects, by result",
            self.calls.clone(),
        );
        registry.register_with_unit(
            "apply",
            "Time to apply an object, by kind",
            Unit::Seconds,
            self.apply.clone(),
        );
        self.tracer.register(registry);
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "1, with the version of this program", build);
        encode(&mut page, &root)?;
        Ok(page)
    }

    /// A session began; it lasts as long as the result.
    pub(crate) fn connected(&self) -> While {
        self.sessions.inc();
        While::new(&self.connected)
    }

    /// The agent holds the Lease as long as the result exists.
    pub(crate) fn holds_lease(&self) -> While {
        While::new(&self.holds_lease)
    }

    /// How many objects there are, how many wait for work, and on how many work runs.
    pub(crate) fn objects(&self, objects: usize, queued: usize, running: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.objects.set(number(objects));
        self.work.get_or_create(&Waiting { state: "queued" }).set(number(queued));
        self.work.get_or_create(&Waiting { state: "running" }).set(number(running));
    }

    /// An object was applied, or that failed.
    pub(crate) fn applied(&self, kind: &GroupKind, result: &'static str, took: Duration) {
        self.calls.get_or_create(&Call { operation: "apply", result }).inc();
        let labels = OfKind { kind: self.kind(kind) };
        self.apply.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The span of an apply that began at `start`, in the trace of the decision that it carries out.
    pub(crate) fn trace(
        &self,
        context: TraceContext,
        key: &Key,
        result: &'static str,
        (start, end): (Timestamp, Timestamp),
    ) {
        let TraceContext { trace, parent } = context;
        // An apply may be tried several times, and each try is a span.
        let id = trace.span(&["apply", &parent.to_string(), &start.as_nanosecond().to_string()]);
        let span = Span::new((trace, id), Some(parent), "apply", (start, end))
            .kind(Kind::Server)
            .with("atoll.kind", key.kind.to_string())
            .with("atoll.namespace", key.namespace.as_str())
            .with("atoll.name", key.name.as_str())
            .with("atoll.result", result);
        let is_done = matches!(result, "applied" | "unchanged");
        self.tracer.record(if is_done { span } else { span.failed(result) });
    }

    /// Whether it records traces.
    pub(crate) fn traces(&self) -> bool {
        self.tracer.is_on()
    }

    /// An object was removed or released, or that failed.
    pub(crate) fn withdrawn(&self, result: &'static str) {
        self.calls.get_or_create(&Call { operation: "withdraw", result }).inc();
    }

    fn kind(&self, kind: &GroupKind) -> String {
        let name = kind.to_string();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if !kinds.contains(&name) {
            if kinds.len() >= KINDS {
                return OTHERS.to_owned();
            }
            kinds.insert(name.clone());
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_the_lease_count_while_they_last_and_kinds_are_bounded() {
        let metrics = AgentMetrics::default();
        let held = metrics.holds_lease();
        let session = metrics.connected();
        for number in 0..=KINDS {
            let kind = GroupKind::new("example.com", format!("Kind{number}"));
            metrics.applied(&kind, "applied", Duration::from_millis(20));
        }
        let page = metrics.page().unwrap();
        for line in [
            "atoll_agent_connected 1",
            "atoll_agent_holds_lease 1",
            r#"atoll_agent_calls_total{operation="apply",result="applied"} 51"#,
            r#"atoll_agent_apply_seconds_count{kind="_others"} 1"#,
            r#"atoll_agent_apply_seconds_bucket{le="0.025",kind="_others"} 1"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        drop((held, session));
        let page = metrics.page().unwrap();
        assert!(page.lines().any(|line| line == "atoll_agent_connected 0"), "{page}");
        assert!(page.contains("atoll_agent_sessions_total 1"), "{page}");
    }

    #[tokio::test]
    async fn every_metric_of_the_agent_is_documented_and_nothing_else() {
        let collector = atoll_traces::Collector::new("http://127.0.0.1:9", None).unwrap();
        let exporter = atoll_traces::start(collector, atoll_traces::Ratio::ALL);
        let metrics = AgentMetrics::default().with_traces(exporter.tracer("atoll-agent", "one"));
        metrics.applied(&GroupKind::new("", "ConfigMap"), "applied", Duration::ZERO);
        metrics.objects(1, 1, 1);
        let page = metrics.page().unwrap();
        let name = |line: &str| line.split([' ', '{']).next().unwrap_or_default().to_owned();
        let shown: BTreeSet<String> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| name(line).trim_end_matches("_bucket").to_owned())
            .filter(|name| {
                !["_seconds_sum", "_seconds_count"].iter().any(|end| name.ends_with(end))
            })
            .collect();
        let documented: BTreeSet<String> = include_str!("../../../docs/metrics.md")
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()))
            .filter(|name| name.starts_with("atoll_agent_"))
            .collect();
        assert_eq!(shown, documented);
    }
}
