use std::collections::BTreeMap;

use atoll_api::ClusterName;
use atoll_api::conditions::find;
use serde_json::{Value, json};

use super::*;
use crate::index::status_text::StatusText;
use crate::placements::observed::{Item, RawStatus, Why};

#[derive(Default)]
struct Fixed {
    views: BTreeMap<ClusterName, Observed>,
    hindrance: Option<(&'static str, String)>,
    unclaimed: Option<String>,
    unrecorded: Option<String>,
}

impl Knowledge for Fixed {
    fn held(&self) -> Held<'_> {
        Held::No
    }

    fn observed(&self, cluster: &str) -> Option<&Observed> {
        self.views.get(cluster)
    }

    fn sent(&self, _: &str) -> Option<&str> {
        Some("new")
    }

    fn refused(&self) -> Option<String> {
        None
    }

    fn gated(&self) -> Option<String> {
        None
    }

    fn hindrance(&self) -> Option<(&'static str, String)> {
        self.hindrance.clone()
    }

    fn unclaimed(&self) -> Option<(&'static str, String)> {
        Some(("NoPolicy", self.unclaimed.clone()?))
    }

    fn obstacles(&self) -> Option<(&'static str, Vec<String>)> {
        None
    }

    fn affinity_violations(&self) -> Option<Vec<String>> {
        None
    }

    fn unrecorded(&self) -> Option<String> {
        self.unrecorded.clone()
    }
}

fn view(cluster: &str, hash: &str, ready: i64) -> (ClusterName, Observed) {
    let item = Item {
        health: ResourceHealth::Healthy,
        replicas: Some(ready).into(),
        ready_replicas: Some(ready).into(),
        ..Item::default()
    };
    let view = Observed {
        certainty: Certainty::Fresh,
        hash: hash.into(),
        observed: true,
        item,
        status: RawStatus::of(Some(&json!({"readyReplicas": ready}))),
        ..Observed::default()
    };
    (cluster.into(), view)
}

fn binding(clusters: Value, outcome: &str, pending: i64) -> Binding {
    Binding::read(&json!({
        "metadata": {"namespace": "shop", "name": "web-deployment", "uid": "b", "generation": 4},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 3, "clusters": clusters,
            "decision": {
                "id": "d", "trigger": "First", "mode": "Steady", "outcome": outcome, "desired": 3,
                "pending": [{"replicas": pending, "reason": "cpu"}],
                "at": "2026-01-01T00:00:00Z", "term": 1,
            },
        },
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn two() -> Value {
    json!([{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}])
}

#[test]
fn a_report_under_another_hash_counts_as_not_applied() {
    let binding = binding(two(), "Placed", 0);
    let mut known = Fixed::default();
    known.views.extend([view("a", "new", 2), view("b", "old", 1)]);
    let status = status(&binding, &known, now());
    let applied = find(&status.conditions, FULLY_APPLIED).unwrap();
    assert_eq!((applied.status.as_str(), applied.message.as_str()), ("False", "b"));
    assert_eq!(status.summary.unwrap().applied, 1);
    assert!(!is_settled(&binding, &known));
    known.views.extend([view("b", "new", 1)]);
    assert!(is_settled(&binding, &known));
    let status = super::status(&binding, &known, now());
    for type_ in [SCHEDULED, FULLY_APPLIED, HEALTHY, CLAIMED] {
        assert!(conditions::is_true(&status.conditions, type_), "{type_}");
    }
}

#[test]
fn a_workload_scaled_to_zero_is_applied_and_one_without_a_place_is_not() {
    let reason = |binding: &Binding| {
        let status = status(binding, &Fixed::default(), now());
        let applied = find(&status.conditions, FULLY_APPLIED).unwrap().clone();
        (applied.status, applied.reason)
    };
    let mut zero = binding(json!([]), "Placed", 0);
    zero.spec.replicas = Some(0);
    assert_eq!(reason(&zero), ("True".to_owned(), "NothingWanted".to_owned()));
    let homeless = binding(json!([]), "NoFit", 3);
    assert_eq!(reason(&homeless), ("False".to_owned(), "NothingPlaced".to_owned()));
}

#[test]
fn what_a_lost_member_said_last_is_remembered_as_unknown_never_as_zero() {
    let mut known = Fixed::default();
    let (name, mut lost) = view("a", "new", 2);
    lost.certainty = Certainty::Lost;
    known.views.insert(name, lost);
    known.views.extend([view("b", "new", 1)]);
    let status = status(&binding(two(), "Placed", 0), &known, now());
    let summary = status.summary.unwrap();
    assert_eq!((summary.ready, summary.unknown, summary.unhealthy), (1, 1, 0));
    let item = status.aggregated_status.iter().find(|item| item.cluster_name == "a").unwrap();
    assert_eq!((item.health, item.replicas), (ResourceHealth::Unknown, Some(2)));
}

#[test]
fn seeded_knowledge_reads_as_it_was_written() {
    let mut known = Fixed::default();
    known.views.extend([view("a", "new", 2), view("b", "new", 1)]);
    let mut binding = binding(two(), "Placed", 0);
    binding.status = StatusText::of(&status(&binding, &known, now()));
    let mut seeded = crate::placements::Placements::default();
    seeded.seed(&binding);
    let seeded = Fixed {
        views: seeded
            .all_observed(&binding.key)
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect(),
        ..Fixed::default()
    };
    let later = "2026-01-01T09:00:00Z".parse().unwrap();
    assert_eq!(status(&binding, &seeded, later), binding.status.read());
}

#[test]
fn the_conditions_say_why() {
    let nothing = binding(json!([]), "NoFit", 3);
    let status = status(&nothing, &Fixed::default(), now());
    let scheduled = find(&status.conditions, SCHEDULED).unwrap();
    assert_eq!((scheduled.status.as_str(), scheduled.reason.as_str()), ("False", "NoFit"));
    assert!(scheduled.message.contains("3 replicas pending: cpu"), "{}", scheduled.message);
    let known = Fixed {
        hindrance: Some(("KindUnreadable", "gone".to_owned())),
        unclaimed: Some("no policy".to_owned()),
        ..Fixed::default()
    };
    let status = super::status(&binding(two(), "Placed", 0), &known, now());
    let frozen = find(&status.conditions, FULLY_APPLIED).unwrap();
    assert_eq!((frozen.status.as_str(), frozen.reason.as_str()), ("Unknown", "KindUnreadable"));
    assert_eq!(find(&status.conditions, CLAIMED).unwrap().status, "False");
}

#[test]
fn a_wide_binding_shows_trouble_first_and_says_that_it_leaves_members_out() {
    let clusters: Vec<_> =
        (0..150).map(|n| json!({"name": format!("m{n:03}"), "replicas": 1})).collect();
    let mut known = Fixed::default();
    known.views.extend((0..150).map(|n| view(&format!("m{n:03}"), "new", 1)));
    let sick = known.views.get_mut("m140").unwrap();
    sick.item.health = ResourceHealth::Unhealthy;
    let status = status(&binding(json!(clusters), "Placed", 0), &known, now());
    assert!(status.truncated);
    assert_eq!(status.aggregated_status.len(), MOST_ITEMS);
    assert_eq!(status.aggregated_status[0].cluster_name, "m140");
    let raw = status.aggregated_status.iter().filter(|item| item.status.is_some()).count();
    assert_eq!(raw, MOST_RAW);
}

#[test]
fn large_raw_statuses_are_left_out_before_a_binding_outgrows_the_hub() {
    let clusters: Vec<_> =
        (0..20).map(|n| json!({"name": format!("m{n:02}"), "replicas": 1})).collect();
    let mut known = Fixed::default();
    known.views.extend((0..20).map(|n| view(&format!("m{n:02}"), "new", 1)));
    for view in known.views.values_mut() {
        // As measured when the report arrived, whatever it would have in bytes now.
        view.status_bytes = 60 * 1024;
    }
    let status = status(&binding(json!(clusters), "Placed", 0), &known, now());
    let raw = status.aggregated_status.iter().filter(|item| item.status.is_some()).count();
    assert_eq!(raw, 4, "four of 60 KiB fit into 256 KiB");
    assert_eq!(status.aggregated_status.len(), 20);
}

#[test]
fn history_is_spoken_of_once_it_was_behind() {
    let mut row = binding(two(), "Placed", 0);
    let mut known =
        Fixed { views: [view("a", "new", 2), view("b", "new", 1)].into(), ..Fixed::default() };
    let recorded = |row: &Binding, known: &Fixed| {
        let status = status(row, known, now());
        let found = find(&status.conditions, RECORDED).cloned();
        (status, found.map(|found| (found.status, found.reason, found.message)))
    };
    assert_eq!(recorded(&row, &known).1, None);
    known.unrecorded = Some("the disk is full".to_owned());
    let (status, said) = recorded(&row, &known);
    let (holds, reason, message) = said.unwrap();
    assert_eq!(
        (holds.as_str(), reason.as_str(), message.as_str()),
        ("False", "HistoryBehind", "the disk is full")
    );
    row.status = StatusText::of(&status);
    known.unrecorded = None;
    assert_eq!(recorded(&row, &known).1.unwrap().0, "True");
}

#[test]
fn an_application_that_is_sick_on_a_member_is_not_healthy_and_the_pods_reason_says_why() {
    let row = binding(two(), "Placed", 0);
    let mut known = Fixed::default();
    known.views.extend([view("a", "new", 2), view("b", "new", 1)]);
    let healthy = |known: &Fixed| {
        let status = status(&row, known, now());
        let found = find(&status.conditions, HEALTHY).unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    };
    let expected = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(healthy(&known), expected("True", "Healthy", ""));

    let sick = &mut known.views.get_mut("b").unwrap().item;
    sick.health = ResourceHealth::Unhealthy;
    let why = |reason: &str, message: Option<&str>| {
        let (reason, message) = (Some(reason.to_owned()), message.map(str::to_owned));
        Some(Box::new(Why { health_reason: reason, health_message: message, ..Why::default() }))
    };
    sick.why = why("Updating", None);
    assert_eq!(healthy(&known), expected("False", "Progressing", "b"), "a rollout is no fault");

    let sick = &mut known.views.get_mut("b").unwrap().item;
    sick.why = why("ImagePullBackOff", Some("cannot pull image \"x\""));
    assert_eq!(
        healthy(&known),
        expected("False", "ImagePullBackOff", "b: ImagePullBackOff: cannot pull image \"x\"")
    );
    let item = &status(&row, &known, now()).aggregated_status[0];
    assert_eq!((item.cluster_name.as_str(), item.applied), ("b", true));
    assert_eq!(item.health_reason.as_deref(), Some("ImagePullBackOff"));

    known.views.get_mut("b").unwrap().certainty = Certainty::Lost;
    assert_eq!(healthy(&known), expected("Unknown", "NotReported", "b"));
}
