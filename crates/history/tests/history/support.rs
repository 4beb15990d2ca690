//! Records for tests.

use atoll_api::binding::{DecisionRecord, Mode, ObjectReference, Outcome, TargetCluster, Trigger};
use atoll_history::{BindingRef, Record, Row};
use jiff::Timestamp;

pub(crate) fn shares(shares: &[(&str, i64)]) -> Vec<TargetCluster> {
    let share = |(name, replicas): &(&str, i64)| TargetCluster {
        name: (*name).to_owned(),
        replicas: *replicas,
    };
    shares.iter().map(share).collect()
}

/// A decision `id` about a Deployment in namespace `shop`, `at` seconds after 1970.
pub(crate) fn record(id: &str, binding: u32, workload: &str, at: i64) -> Record {
    Record {
        record: DecisionRecord {
            id: id.into(),
            parent: None,
            trigger: Trigger::Scale,
            mode: Mode::Steady,
            outcome: Outcome::Placed,
            desired: 3,
            pending: vec![],
            affinity_name: None,
            reason: None,
            full_clusters: Vec::new(),
            at: Timestamp::from_second(at).expect("a time of this era").into(),
            term: 1,
        },
        binding: BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: Some("shop".to_owned()),
            name: format!("{workload}-deployment"),
            uid: format!("binding-{binding}").into(),
        },
        workload: ObjectReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("shop".to_owned()),
            name: workload.to_owned(),
            uid: Some("template".to_owned()),
        },
        before: Some(vec![]),
        after: vec![],
        reason: None,
        gap: None,
        withdrawal: None,
        provenance: None,
        rejections: None,
        detail: None,
        inputs: None,
    }
}

pub(crate) fn ids(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.entry.id().to_owned()).collect()
}
