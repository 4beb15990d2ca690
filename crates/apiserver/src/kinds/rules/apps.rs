//! Deployments, ReplicaSets, StatefulSets, DaemonSets (`pkg/apis/apps`).

use atoll_apimachinery::{FieldError, meta, meta::Fields};
use serde_json::{Value, json};

use super::{
    Check, made, object, objects, pod, requirements, selects, set_default, set_default_text,
};

/// The spec of a workload, with its template defaulted.
fn spec(value: &mut Value) -> &mut Fields {
    let spec = meta::child(value, "spec");
    pod::template(made(spec, "template"));
    spec
}

/// `SetDefaults_Deployment`.
pub(crate) fn deployment(value: &mut Value) {
    let spec = spec(value);
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    let strategy = made(spec, "strategy");
    set_default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
        let rolling = made(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
}

/// `SetDefaults_ReplicaSet`.
pub(crate) fn replica_set(value: &mut Value) {
    set_default(spec(value), "replicas", 1);
}

/// `SetDefaults_ReplicationController`: the selector defaults to the template's labels.
pub(crate) fn replication_controller(value: &mut Value) {
    let spec = spec(value);
    set_default(spec, "replicas", 1);
    let labels = spec["template"].pointer("/metadata/labels").cloned();
    if let Some(labels) = labels {
        set_default(spec, "selector", labels);
    }
}

/// `SetDefaults_StatefulSet`. Claim templates get the defaults of a claim, and the status that Go writes for them.
pub(crate) fn stateful_set(value: &mut Value) {
    let spec = spec(value);
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default_text(spec, "podManagementPolicy", "OrderedReady");
    let strategy = made(spec, "updateStrategy");
    set_default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
        set_default(made(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = made(spec, "persistentVolumeClaimRetentionPolicy");
    set_default_text(retention, "whenDeleted", "Retain");
    set_default_text(retention, "whenScaled", "Retain");
    for claim in objects(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
        if let Some(spec) = object(claim, "spec") {
            set_default_text(spec, "volumeMode", "Filesystem");
        }
        set_default(made(claim, "status"), "phase", "Pending");
    }
}

/// `SetDefaults_DaemonSet`.
pub(crate) fn daemon_set(value: &mut Value) {
    let spec = spec(value);
    set_default(spec, "revisionHistoryLimit", 10);
    let strategy = made(spec, "updateStrategy");
    set_default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
        let rolling = made(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
}

/// Selector, template and their agreement, for every kind that has `spec.selector` and `spec.template`.
pub(super) fn check_selector(check: &mut Check<'_>) {
    let Some(selector) = check.at("spec.selector") else {
        check.add(FieldError::required("spec.selector", ""));
        return;
    };
    match requirements(selector) {
        Err(mut error) => {
            error.path = format!("spec.selector.{}", error.path);
            check.add(error);
        }
        Ok(all) if all.requirements().is_empty() => check.add(FieldError::invalid(
            "spec.selector",
            selector,
            "empty selector is invalid for deployment",
        )),
        Ok(_) => {
            let template = check.at("spec.template").cloned().unwrap_or_default();
            if !selects(Some(selector), &template) {
                let labels =
                    template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
                check.add(FieldError::invalid(
                    "spec.template.metadata.labels",
                    &labels,
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    check.immutable("spec.selector");
}

/// Numbers and the template's pod spec.
pub(crate) fn check_replicas(check: &mut Check<'_>) {
    check.not_negative("spec.replicas");
    check.not_negative("spec.minReadySeconds");
    pod::check_spec(check, "spec.template.spec");
}

/// Shared by ReplicaSets, DaemonSets and the other workloads.
pub(crate) fn check_workload(check: &mut Check<'_>) {
    check_selector(check);
    check_replicas(check);
    check.not_negative("spec.revisionHistoryLimit");
    let policy = check.text("spec.template.spec.restartPolicy");
    if policy != "Always" {
        let value = policy.into();
        check.add(FieldError::unsupported("spec.template.spec.restartPolicy", &value, &["Always"]));
    }
}

/// `ValidateDeploymentSpec`: an update strategy must be able to make progress.
pub(crate) fn check_deployment(check: &mut Check<'_>) {
    check_workload(check);
    check.not_negative("spec.progressDeadlineSeconds");
    check.one_of("spec.strategy.type", &["Recreate", "RollingUpdate"]);
    let rolling = check.at("spec.strategy.rollingUpdate");
    if check.text("spec.strategy.type") == "Recreate" && rolling.is_some() {
        check.add(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ));
    }
    let zero = |field: &str| {
        rolling.and_then(|r| r.get(field)).is_some_and(|v| *v == json!(0) || v == "0%" || v == "0")
    };
    if zero("maxUnavailable") && zero("maxSurge") {
        let value = json!(0);
        check.add(FieldError::invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            &value,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
}

/// `ValidateStatefulSetUpdate`: pods and claims may change only through the template.
pub(crate) fn check_stateful_set(check: &mut Check<'_>) {
    check_workload(check);
    check.one_of("spec.podManagementPolicy", &["OrderedReady", "Parallel"]);
    check.one_of("spec.updateStrategy.type", &["RollingUpdate", "OnDelete"]);
    let Some(old) = check.old else { return };
    let fixed = |value: &Value| {
        let mut spec = value.get("spec").cloned().unwrap_or_default();
        if let Some(fields) = spec.as_object_mut() {
            for free in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
                "revisionHistoryLimit",
                "selector",
            ] {
                fields.remove(free);
            }
        }
        spec
    };
    if fixed(old) != fixed(check.new) {
        check.add(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}
