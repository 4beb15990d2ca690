//! Gauges for each member, computed when metrics are read, so that they cost nothing otherwise and a deleted member has
//! none.

use std::fmt;
use std::sync::Arc;

use atoll_api::cluster::ResourceSummary;
use atoll_api::{Cluster, conditions};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use super::context::Context;
use super::state::Member;

/// Limit of members with gauges, the first by name: 12 series for each.
const MEMBERS: usize = 1_000;
/// Resources of members that are shown.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// Reads all members. Only a leader has values.
pub(crate) struct MemberGauges(Arc<Context>);

impl MemberGauges {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self(context)
    }
}

impl fmt::Debug for MemberGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberGauges")
    }
}

/// What is shown of a member.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    cluster: String,
    ready: bool,
    connected: bool,
    silence: f64,
    objects: i64,
    /// Known only while it is connected.
    unsent: Option<i64>,
    removals_held: i64,
    /// Resource, allocatable, requested by scheduled pods.
    resources: Vec<(&'static str, f64, f64)>,
}

impl Shown {
    fn of(member: &Member, now: Instant) -> Option<Self> {
        let state = member.lock();
        let cluster = state.cluster.as_deref()?;
        let status = cluster.status.as_ref();
        let connected = state.session.is_some();
        let (objects, unsent) = (state.desired.len(), state.desired.unsent());
        Some(Self {
            cluster: member.name.as_str().to_owned(),
            ready: is_ready(cluster),
            connected,
            silence: state.heartbeats.silence(now).as_secs_f64(),
            objects: count(objects),
            unsent: connected.then(|| count(unsent)),
            removals_held: count(state.desired.held_back().len()),
            resources: resources(status.and_then(|status| status.resource_summary.as_ref())),
        })
    }
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn is_ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    conditions::is_true(conditions.unwrap_or_default(), conditions::READY)
}

/// Cores, bytes and pods.
#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
fn resources(summary: Option<&ResourceSummary>) -> Vec<(&'static str, f64, f64)> {
    let Some(summary) = summary else { return Vec::new() };
    let amount = |list: &atoll_api::quantity::ResourceList, name: &str| {
        let milli = list.get(name).and_then(|quantity| quantity.milli().ok());
        milli.map(|milli| milli as f64 / 1000.0)
    };
    let shown = RESOURCES.into_iter().filter_map(|name| {
        let allocatable = amount(&summary.allocatable, name)?;
        Some((name, allocatable, amount(&summary.allocated, name).unwrap_or_default()))
    });
    shown.collect()
}

impl Collector for MemberGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cx = &self.0;
        let members = if cx.term().is_some() { cx.registry.all() } else { Vec::new() };
        let now = Instant::now();
        let known = members.len();
        let shown = members.iter().take(MEMBERS).filter_map(|member| Shown::of(member, now));
        write(&mut encoder, &shown.collect::<Vec<_>>(), known)
    }
}

fn write(encoder: &mut DescriptorEncoder<'_>, shown: &[Shown], known: usize) -> fmt::Result {
    let help = "Members that the hub has; gauges exist for the first 1,000 by name";
    let all = encoder.encode_descriptor("atoll_members_known", help, None, MetricType::Gauge)?;
    ConstGauge::new(count(known)).encode(all)?;
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Shown) -> Option<f64>| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for member in shown {
            if let Some(value) = value(member) {
                let labels = [("cluster", member.cluster.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    };
    let flag = |flag: bool| Some(if flag { 1.0 } else { 0.0 });
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let number = |count: i64| Some(count as f64);
    gauge("atoll_member_ready", "1 while the member is Ready", &|m| flag(m.ready))?;
    gauge("atoll_member_connected", "1 while its agent has a session", &|m| flag(m.connected))?;
    gauge("atoll_member_silence_seconds", "Time since the last message", &|m| Some(m.silence))?;
    gauge("atoll_member_objects", "Objects that it should hold, or holds", &|m| number(m.objects))?;
    gauge("atoll_member_unsent", "Objects with a message to send", &|m| number(m.unsent?))?;
    let help = "Removals that are held back by their limit";
    gauge("atoll_member_removals_held", help, &|m| number(m.removals_held))?;
    type Amount = fn(&(&'static str, f64, f64)) -> f64;
    let amounts: [(&str, &str, Amount); 2] = [
        ("atoll_member_allocatable", "Allocatable on its ready nodes: cores, bytes, pods", |r| r.1),
        ("atoll_member_allocated", "Requested by its scheduled pods: cores, bytes, pods", |r| r.2),
    ];
    for (name, help, amount) in amounts {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for member in shown {
            for resource in &member.resources {
                let labels = [("cluster", member.cluster.as_str()), ("resource", resource.0)];
                ConstGauge::new(amount(resource)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Vec<Shown>);

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            write(&mut encoder, &self.0, self.0.len())
        }
    }

    /// A page with every gauge of a member.
    pub(crate) fn page() -> String {
        let summary = json!({
            "allocatable": {"cpu": "7500m", "memory": "2Gi", "pods": "110", "nvidia.com/gpu": "1"},
            "allocated": {"cpu": "500m"},
        });
        let shown = Shown {
            cluster: "member1".to_owned(),
            ready: true,
            connected: true,
            silence: 1.5,
            objects: 3,
            unsent: Some(2),
            removals_held: 1,
            resources: resources(Some(&serde_json::from_value(summary).unwrap())),
        };
        let away = Shown { ready: false, unsent: None, cluster: "member2".into(), ..shown.clone() };
        let (mut registry, mut page) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Fixed(vec![shown, away])));
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn a_member_has_gauges_of_its_state_and_resources() {
        let page = page();
        for line in [
            "atoll_members_known 2",
            r#"atoll_member_ready{cluster="member1"} 1.0"#,
            r#"atoll_member_ready{cluster="member2"} 0.0"#,
            r#"atoll_member_silence_seconds{cluster="member1"} 1.5"#,
            r#"atoll_member_unsent{cluster="member1"} 2.0"#,
            r#"atoll_member_allocatable{cluster="member1",resource="cpu"} 7.5"#,
            r#"atoll_member_allocatable{cluster="member1",resource="memory"} 2147483648.0"#,
            r#"atoll_member_allocated{cluster="member1",resource="cpu"} 0.5"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(
            !page.contains(r#"unsent{cluster="member2"}"#),
            "unknown while it is disconnected: {page}"
        );
        assert!(!page.contains("gpu"), "only resources that every member has: {page}");
    }
}
