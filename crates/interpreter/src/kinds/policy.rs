//! HorizontalPodAutoscalers and PodDisruptionBudgets.

use serde_json::{Map, Value};

use super::{Member, reported, sums};
use crate::{
    Health, conditions,
    read::{int, map, pick},
};

const AUTOSCALER_COUNTS: [&str; 2] = ["currentReplicas", "desiredReplicas"];
const BUDGET_COUNTS: [&str; 4] =
    ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];

/// An autoscaler that cannot read metrics or cannot scale is unhealthy. One with scaling disabled is healthy.
pub(super) fn autoscaler_health(obj: &Value) -> Health {
    let status = &obj["status"];
    for kind in ["AbleToScale", "ScalingActive"] {
        let reason = conditions::reason(status, kind);
        if conditions::state(status, kind) == "False" && reason != "ScalingDisabled" {
            return Health::unhealthy(reason, conditions::message(status, kind));
        }
    }
    if conditions::find(status, "AbleToScale").is_none() {
        return Health::progressing("NotObserved", "no conditions yet");
    }
    Health::healthy("Active")
}

pub(super) fn budget_health(obj: &Value) -> Health {
    let count = |name: &str| int(obj, &["status", name]).unwrap_or(0);
    let (current, desired) = (count("currentHealthy"), count("desiredHealthy"));
    if current < desired {
        let message = format!("{current} of {desired} pods are healthy");
        return Health::unhealthy("InsufficientPods", message);
    }
    Health::healthy("SufficientPods")
}

pub(super) fn reflect_autoscaler(status: &Value) -> Value {
    Value::Object(pick(status, &AUTOSCALER_COUNTS))
}

pub(super) fn reflect_budget(status: &Value) -> Value {
    let mut out = pick(status, &BUDGET_COUNTS);
    out.extend(pick(status, &["disruptedPods"]));
    Value::Object(out)
}

pub(super) fn aggregate_autoscaler(members: &[Member<'_>]) -> Map<String, Value> {
    sums(members, &AUTOSCALER_COUNTS)
}

/// Sums of the counts. Names of disrupted pods are prefixed with their cluster.
pub(super) fn aggregate_budget(members: &[Member<'_>]) -> Map<String, Value> {
    let mut out = sums(members, &BUDGET_COUNTS);
    let disrupted: Map<String, Value> = reported(members)
        .into_iter()
        .flat_map(|(name, status)| {
            map(status, &["disruptedPods"])
                .map(move |(pod, time)| (format!("{name}/{pod}"), time.clone()))
        })
        .collect();
    if !disrupted.is_empty() {
        out.insert("disruptedPods".to_owned(), Value::Object(disrupted));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy},
        kinds::testing::{aggregated, judged, object},
    };

    #[test]
    fn an_autoscaler_is_healthy_when_it_can_scale_or_is_switched_off() {
        let hpa = |conditions: Value| {
            let status = json!({ "conditions": conditions });
            judged(&object("autoscaling/v2", "HorizontalPodAutoscaler", json!({}), status))
        };
        let able = json!({"type": "AbleToScale", "status": "True"});
        let active =
            |reason: &str| json!({"type": "ScalingActive", "status": "False", "reason": reason});
        assert_eq!(hpa(json!([])), (Progressing, "NotObserved".to_owned()));
        assert_eq!(hpa(json!([able])), (Healthy, "Active".to_owned()));
        assert_eq!(hpa(json!([able, active("ScalingDisabled")])).0, Healthy);
        let broken = hpa(json!([able, active("FailedGetResourceMetric")]));
        assert_eq!(broken, (Unhealthy, "FailedGetResourceMetric".to_owned()));
    }

    #[test]
    fn a_budget_is_healthy_when_enough_pods_are() {
        let budget = |current: i64| {
            let status = json!({
                "currentHealthy": current, "desiredHealthy": 2, "observedGeneration": 1,
            });
            judged(&object("policy/v1", "PodDisruptionBudget", json!({}), status)).0
        };
        assert_eq!(budget(2), Healthy, "the counts are current at any observed generation");
        assert_eq!(budget(1), Unhealthy);
    }

    #[test]
    fn both_add_up_over_members() {
        let hpa = object("autoscaling/v2", "HorizontalPodAutoscaler", json!({}), json!({}));
        let counts = |current: i64, desired: i64| json!({"currentReplicas": current, "desiredReplicas": desired});
        let status =
            aggregated(&hpa, &[("a", counts(1, 2)), ("b", counts(3, 4)), ("c", Value::Null)]);
        assert_eq!(status, counts(4, 6));
        let budget = object("policy/v1", "PodDisruptionBudget", json!({}), json!({}));
        let status = aggregated(
            &budget,
            &[
                ("a", json!({"currentHealthy": 1, "disruptedPods": {"p": "t"}})),
                ("b", json!({"currentHealthy": 2, "expectedPods": 3, "disruptedPods": {"p": "u"}})),
            ],
        );
        let expected = json!({
            "currentHealthy": 3, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 3,
            "disruptedPods": {"a/p": "t", "b/p": "u"},
        });
        assert_eq!(status, expected);
    }
}
