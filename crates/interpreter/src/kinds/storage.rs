//! PersistentVolumeClaims and PersistentVolumes.

use serde_json::{Map, Value, json};

use super::{Member, reported, worst_phase};
use crate::{Health, read::text};

pub(super) fn claim_health(obj: &Value) -> Health {
    match text(obj, &["status", "phase"]) {
        "Bound" => Health::healthy("Bound"),
        "Lost" => Health::unhealthy("Lost", "the volume of the claim is gone"),
        _ => Health::progressing("Pending", "not bound to a volume yet"),
    }
}

pub(super) fn volume_health(obj: &Value) -> Health {
    match text(obj, &["status", "phase"]) {
        phase @ ("Available" | "Bound" | "Released") => Health::healthy(phase),
        "Failed" => Health::unhealthy("Failed", text(obj, &["status", "message"])),
        _ => Health::progressing("Pending", "not available yet"),
    }
}

/// Bound when every claim is bound; lost when one is lost.
pub(super) fn aggregate_claim(members: &[Member<'_>]) -> Map<String, Value> {
    let mut out = phase(members, &["Lost", "Pending", "Bound"]);
    // The capacity is reported only if all claims have the same.
    let mut capacities = reported(members).into_iter().filter_map(|(_, s)| s.get("capacity"));
    if let Some(first) = capacities.next().filter(|first| capacities.all(|c| c == *first)) {
        out.insert("capacity".to_owned(), first.clone());
    }
    out
}

pub(super) fn aggregate_volume(members: &[Member<'_>]) -> Map<String, Value> {
    phase(members, &["Failed", "Pending", "Available", "Bound", "Released"])
}

fn phase(members: &[Member<'_>], order: &[&str]) -> Map<String, Value> {
    let phase = worst_phase(members, order, "Pending");
    phase.map(|phase| ("phase".to_owned(), json!(phase))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy},
        kinds::testing::{aggregated, judged, object},
    };

    fn claim(status: Value) -> Value {
        object("v1", "PersistentVolumeClaim", json!({}), status)
    }

    fn of(phase: &str) -> Value {
        json!({ "phase": phase })
    }

    #[test]
    fn a_claim_is_healthy_when_bound_and_a_volume_when_usable() {
        assert_eq!(judged(&claim(of("Bound"))).0, Healthy);
        assert_eq!(judged(&claim(of("Pending"))).0, Progressing);
        assert_eq!(judged(&claim(json!({}))).0, Progressing);
        assert_eq!(judged(&claim(of("Lost"))).0, Unhealthy);
        let volume =
            |phase: &str| judged(&object("v1", "PersistentVolume", json!({}), of(phase))).0;
        assert_eq!(volume("Available"), Healthy);
        assert_eq!(volume("Failed"), Unhealthy);
        assert_eq!(volume("Pending"), Progressing);
    }

    #[test]
    fn the_worst_phase_counts_and_a_capacity_that_all_share() {
        let bound = |size: &str| json!({"phase": "Bound", "capacity": {"storage": size}});
        let template = claim(json!({}));
        let status = aggregated(&template, &[("a", bound("1Gi")), ("b", bound("1Gi"))]);
        assert_eq!(status, bound("1Gi"));
        let status = aggregated(&template, &[("a", bound("1Gi")), ("b", bound("2Gi"))]);
        assert_eq!(status, of("Bound"));
        assert_eq!(
            aggregated(&template, &[("a", bound("1Gi")), ("b", Value::Null)])["phase"],
            "Pending"
        );
        assert_eq!(
            aggregated(&template, &[("a", of("Lost")), ("b", of("Pending"))])["phase"],
            "Lost"
        );
        let volume = object("v1", "PersistentVolume", json!({}), json!({}));
        assert_eq!(
            aggregated(&volume, &[("a", of("Bound")), ("b", of("Released"))])["phase"],
            "Bound"
        );
    }
}
