//! Autoscaling, disruption budgets, network policies, RBAC, leases, storage and priority classes.

use atoll_apimachinery::{FieldError, meta};
use serde_json::{Value, json};

use super::{Check, made, requirements, set_default, set_default_text};

/// `SetDefaults_HorizontalPodAutoscaler`: without metrics, 80 % of the requested CPU.
pub(crate) fn horizontal_pod_autoscaler(value: &mut Value) {
    let spec = meta::child(value, "spec");
    set_default(spec, "minReplicas", 1);
    let none = spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if none {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
}

/// `SetDefaults_NetworkPolicy`: type Egress is added if there are egress rules.
pub(crate) fn network_policy(value: &mut Value) {
    let spec = meta::child(value, "spec");
    made(spec, "podSelector");
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let egress = spec.get("egress").is_some_and(|e| !e.is_null());
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

/// `SetDefaults_RoleBinding` and its cluster-wide twin: names without a group are RBAC's.
pub(crate) fn role_binding(value: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    set_default_text(meta::child(value, "roleRef"), "apiGroup", GROUP);
    let Some(subjects) = value.get_mut("subjects").and_then(Value::as_array_mut) else { return };
    for subject in subjects.iter_mut().filter_map(Value::as_object_mut) {
        if subject.get("kind").is_some_and(|k| k == "User" || k == "Group") {
            set_default_text(subject, "apiGroup", GROUP);
        }
    }
}

/// `SetDefaults_StorageClass`.
pub(crate) fn storage_class(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    set_default(fields, "reclaimPolicy", "Delete");
    set_default(fields, "volumeBindingMode", "Immediate");
}

/// `SetDefaults_PriorityClass`.
pub(crate) fn priority_class(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    set_default(fields, "preemptionPolicy", "PreemptLowerPriority");
}

/// The greatest value of a user's PriorityClass (`HighestUserDefinablePriority`).
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
/// Classes that Kubernetes itself defines (`SystemPriorityClasses`), with their values.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// `ValidatePriorityClass` and `ValidatePriorityClassUpdate`. That at most one class is the default is checked by an
/// admission plugin for Pods, which this server does not have.
pub(crate) fn check_priority_class(check: &mut Check<'_>) {
    check.required("value");
    check.one_of("preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    let value = check.at("value").and_then(Value::as_i64);
    let name = meta::name(check.new);
    if name.starts_with("system-") {
        let known = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
        let why = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, of_class)) if value != Some(*of_class) => {
                Some(format!("value of {name} PriorityClass must be {of_class}"))
            }
            Some(_) if check.at("globalDefault") == Some(&Value::Bool(true)) => {
                Some(format!("globalDefault of {name} must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let rule =
                "priority class names with 'system-' prefix are reserved for system use only";
            check.add(FieldError::forbidden("metadata.name", format!("{rule}. error: {why}")));
        }
    } else if value.is_some_and(|value| value > HIGHEST_PRIORITY) {
        check.add(FieldError::forbidden(
            "value",
            format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"),
        ));
    }
    if let Some(old) = check.old
        && meta::at(old, "value") != check.at("value")
    {
        check.add(FieldError::forbidden("value", "may not be changed in an update."));
    }
    check.immutable("preemptionPolicy");
}

/// `validateHorizontalPodAutoscalerSpec`, in part.
pub(crate) fn check_horizontal_pod_autoscaler(check: &mut Check<'_>) {
    check.required("spec.scaleTargetRef.kind");
    check.required("spec.scaleTargetRef.name");
    let number = |path: &str| check.at(path).and_then(Value::as_i64);
    let (min, max) =
        (number("spec.minReplicas").unwrap_or(1), number("spec.maxReplicas").unwrap_or(0));
    if min < 1 {
        check.add(FieldError::invalid(
            "spec.minReplicas",
            &min.into(),
            "must be greater than or equal to 1",
        ));
    }
    if max < 1 {
        check.add(FieldError::invalid("spec.maxReplicas", &max.into(), "must be greater than 0"));
    } else if max < min {
        check.add(FieldError::invalid(
            "spec.maxReplicas",
            &max.into(),
            "must be greater than or equal to `minReplicas`",
        ));
    }
}

/// `ValidatePodDisruptionBudgetSpec`.
pub(crate) fn check_pod_disruption_budget(check: &mut Check<'_>) {
    if check.at("spec.minAvailable").is_some() && check.at("spec.maxUnavailable").is_some() {
        let value = check.at("spec").cloned().unwrap_or_default();
        check.add(FieldError::invalid(
            "spec",
            &value,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    check.not_negative("spec.minAvailable");
    check.not_negative("spec.maxUnavailable");
    if let Some(Err(mut error)) = check.at("spec.selector").map(requirements) {
        error.path = format!("spec.selector.{}", error.path);
        check.add(error);
    }
}

/// `ValidateRole`.
pub(crate) fn check_role(check: &mut Check<'_>) {
    check_policy_rules(check, true);
}

/// `ValidateClusterRole`.
pub(crate) fn check_cluster_role(check: &mut Check<'_>) {
    check_policy_rules(check, false);
    let aggregates = check.at("aggregationRule").is_some_and(|rule| !rule.is_null());
    if aggregates && check.items("aggregationRule.clusterRoleSelectors").next().is_none() {
        check.add(FieldError::required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
}

/// `ValidatePolicyRule` of each rule.
fn check_policy_rules(check: &mut Check<'_>, namespaced: bool) {
    for (at, rule) in check.items("rules") {
        let has = |field: &str| {
            rule.get(field).and_then(Value::as_array).is_some_and(|values| !values.is_empty())
        };
        let mut required = |field: &str, why: &str| {
            if !has(field) {
                check.add(FieldError::required(format!("{at}.{field}"), why));
            }
        };
        required("verbs", "verbs must contain at least one value");
        if !has("nonResourceURLs") {
            required("apiGroups", "resource rules must supply at least one api group");
            required("resources", "resource rules must supply at least one resource");
            continue;
        }
        let urls = rule.get("nonResourceURLs").unwrap_or(&Value::Null);
        let why = if namespaced {
            "namespaced rules cannot apply to non-resource URLs"
        } else if has("apiGroups") || has("resources") || has("resourceNames") {
            "rules cannot apply to both regular resources and non-resource URLs"
        } else {
            continue;
        };
        check.add(FieldError::invalid(format!("{at}.nonResourceURLs"), urls, why));
    }
}

/// `ValidateRoleBinding`: the subjects may change, the role may not.
pub(crate) fn check_role_binding(check: &mut Check<'_>) {
    check.required("roleRef.kind");
    check.required("roleRef.name");
    if let Some(old) = check.old
        && old.get("roleRef") != check.new.get("roleRef")
    {
        let value = check.new.get("roleRef").cloned().unwrap_or_default();
        check.add(FieldError::invalid("roleRef", &value, "cannot change roleRef"));
    }
    for (at, subject) in check.items("subjects") {
        if subject.get("name").and_then(Value::as_str).unwrap_or("").is_empty() {
            check.add(FieldError::required(format!("{at}.name"), ""));
        }
        let kind = subject.get("kind").cloned().unwrap_or_default();
        if !matches!(kind.as_str(), Some("ServiceAccount" | "User" | "Group")) {
            check.add(FieldError::unsupported(
                format!("{at}.kind"),
                &kind,
                &["ServiceAccount", "User", "Group"],
            ));
        }
    }
}

/// `ValidateLeaseSpec`.
pub(crate) fn check_lease(check: &mut Check<'_>) {
    check.not_negative("spec.leaseTransitions");
    if let Some(seconds) = check.at("spec.leaseDurationSeconds")
        && seconds.as_i64().is_some_and(|s| s <= 0)
    {
        check.add(FieldError::invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        ));
    }
}
