//! Pods and pod templates (`pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use atoll_apimachinery::{FieldError, meta, meta::Fields};
use serde_json::{Value, json};

use super::{Check, made, milli, object, objects, quantity, set_default, set_default_text};
use crate::names;

/// `spec.os`-independent paths of a pod spec within its carrier.
const CONTAINER_LISTS: [&str; 2] = ["initContainers", "containers"];

/// A bare pod: the defaults of a template's spec, plus those of the pod admission plugins (ServiceAccount, Priority),
/// which are always on.
pub(crate) fn pod(value: &mut Value) {
    let spec = meta::child(value, "spec");
    set_default_text(spec, "serviceAccountName", "default");
    pod_spec(spec);
    set_default(spec, "enableServiceLinks", true);
    set_default(spec, "preemptionPolicy", "PreemptLowerPriority");
    set_default(spec, "priority", 0);
    // Limits without requests become the requests.
    for list in CONTAINER_LISTS {
        for container in objects(spec, list) {
            let Some(resources) = object(container, "resources") else { continue };
            let limits = object(resources, "limits").cloned();
            for (name, limit) in limits.into_iter().flatten() {
                set_default(made(resources, "requests"), &name, limit);
            }
        }
    }
}

/// A PodTemplate object.
pub(crate) fn pod_template_object(value: &mut Value) {
    template(meta::child(value, "template"));
}

/// `template` of a workload: only the spec has defaults.
pub(super) fn template(template: &mut Fields) {
    pod_spec(made(template, "spec"));
    // Go writes the zero creationTimestamp of an embedded ObjectMeta as null; clients ignore it, so it is left out.
    if let Some(metadata) = object(template, "metadata") {
        metadata.retain(|_, v| !v.is_null());
    }
}

/// `SetDefaults_PodSpec` and its nested types. Runs on pods and on every template.
fn pod_spec(spec: &mut Fields) {
    set_default_text(spec, "dnsPolicy", "ClusterFirst");
    set_default_text(spec, "restartPolicy", "Always");
    set_default_text(spec, "schedulerName", "default-scheduler");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    made(spec, "securityContext");
    // `serviceAccount` is the deprecated name of `serviceAccountName`; both are always the same.
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|f| spec.get(*f).filter(|v| v.as_str().is_some_and(|s| !s.is_empty())).cloned());
    if let Some(account) = account {
        spec.insert("serviceAccountName".to_owned(), account.clone());
        spec.insert("serviceAccount".to_owned(), account);
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for container in objects(spec, list) {
            default_container(container, host_network);
        }
    }
    for volume in objects(spec, "volumes") {
        default_volume(volume);
    }
    for constraint in objects(spec, "topologySpreadConstraints") {
        set_default(constraint, "nodeAffinityPolicy", "Honor");
        set_default(constraint, "nodeTaintsPolicy", "Ignore");
        constraint.retain(|name, v| name == "labelSelector" || v != "");
    }
}

/// `SetDefaults_Container` with ports, environment, probes and hooks.
fn default_container(container: &mut Fields, host_network: bool) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or("");
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    set_default_text(container, "imagePullPolicy", policy);
    set_default_text(container, "terminationMessagePath", "/dev/termination-log");
    set_default_text(container, "terminationMessagePolicy", "File");
    made(container, "resources");
    for port in objects(container, "ports") {
        set_default_text(port, "protocol", "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            set_default(port, "hostPort", number);
        }
    }
    for variable in objects(container, "env") {
        let Some(from) = object(variable, "valueFrom") else { continue };
        if let Some(field) = object(from, "fieldRef") {
            set_default_text(field, "apiVersion", "v1");
        }
        if let Some(resource) = object(from, "resourceFieldRef") {
            set_default(resource, "divisor", "0");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = object(container, probe) else { continue };
        default_handler(probe);
        set_default(probe, "timeoutSeconds", 1);
        set_default(probe, "periodSeconds", 10);
        set_default(probe, "successThreshold", 1);
        set_default(probe, "failureThreshold", 3);
        if let Some(grpc) = object(probe, "grpc") {
            set_default(grpc, "service", "");
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = object(lifecycle, hook) {
                default_handler(hook);
            }
        }
    }
}

/// `SetDefaults_HTTPGetAction`.
fn default_handler(handler: &mut Fields) {
    if let Some(get) = object(handler, "httpGet") {
        set_default_text(get, "path", "/");
        set_default_text(get, "scheme", "HTTP");
    }
}

/// Whether an image has no tag or digest, or the tag `latest`.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    // A colon before the last slash belongs to the registry's port.
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// `SetDefaults_Volume`: a volume without a source is an emptyDir, and file modes are 0644.
fn default_volume(volume: &mut Fields) {
    for (source, mode) in
        [("secret", 0o644), ("configMap", 0o644), ("downwardAPI", 0o644), ("projected", 0o644)]
    {
        if let Some(source) = object(volume, source) {
            set_default(source, "defaultMode", mode);
        }
    }
    if let Some(host) = object(volume, "hostPath") {
        set_default(host, "type", "");
    }
    let downward = object(volume, "downwardAPI").into_iter();
    for source in downward {
        for item in objects(source, "items") {
            if let Some(field) = object(item, "fieldRef") {
                set_default_text(field, "apiVersion", "v1");
            }
        }
    }
    if let Some(projected) = object(volume, "projected") {
        for source in objects(projected, "sources") {
            if let Some(token) = object(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
        }
    }
    let known = ["name"];
    if volume.keys().all(|k| known.contains(&k.as_str())) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}

/// The quality of service class by a pod's requests and limits (`component-helpers/.../qos.go`).
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for list in CONTAINER_LISTS {
        let containers = pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let part = |kind: &str, name: &str| {
                let value = container.pointer(&format!("/resources/{kind}/{name}"));
                value.filter(|v| !matches!(v.as_str(), Some("0")) && **v != json!(0))
            };
            for name in ["cpu", "memory"] {
                let (request, limit) = (part("requests", name), part("limits", name));
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request.is_none_or(|r| Some(r) == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// `ValidatePodCreate` and `ValidatePodUpdate`, in part.
pub(crate) fn check_pod(check: &mut Check<'_>) {
    check_spec(check, "spec");
    let Some(old) = check.old else { return };
    // Few fields may change (validation.go, ValidatePodUpdate).
    let fixed = |value: &Value| {
        let mut spec = value.get("spec").cloned().unwrap_or_default();
        for list in CONTAINER_LISTS {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.remove("image");
            }
        }
        if let Some(fields) = spec.as_object_mut() {
            for free in [
                "activeDeadlineSeconds",
                "tolerations",
                "terminationGracePeriodSeconds",
                "schedulingGates",
            ] {
                fields.remove(free);
            }
            // Set once by /binding.
            if meta::at(old, "spec.nodeName").is_none() {
                fields.remove("nodeName");
            }
        }
        spec
    };
    if fixed(old) != fixed(check.new) {
        check.add(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

/// Checks the pod spec at `path`.
pub(super) fn check_spec(check: &mut Check<'_>, path: &str) {
    check.one_of(&format!("{path}.restartPolicy"), &["Always", "OnFailure", "Never"]);
    check.one_of(
        &format!("{path}.dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    check.not_negative(&format!("{path}.terminationGracePeriodSeconds"));
    check.required(&format!("{path}.containers"));
    let mut seen = BTreeSet::new();
    for list in CONTAINER_LISTS {
        for (at, container) in check.items(&format!("{path}.{list}")) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or("");
            if name.is_empty() {
                check.add(FieldError::required(format!("{at}.name"), ""));
            } else if let Err(why) = names::dns_label(name) {
                check.add(FieldError::invalid(format!("{at}.name"), &name.into(), why));
            } else if !seen.insert(name) {
                check.add(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
            check_container(check, &at, container);
        }
    }
    let volumes: BTreeSet<&str> = check
        .items(&format!("{path}.volumes"))
        .filter_map(|(_, v)| v.get("name")?.as_str())
        .collect();
    for list in CONTAINER_LISTS {
        for (at, container) in check.items(&format!("{path}.{list}")) {
            let mounts = container.get("volumeMounts").and_then(Value::as_array);
            for (n, mount) in mounts.into_iter().flatten().enumerate() {
                let name = mount.get("name").and_then(Value::as_str).unwrap_or("");
                if !volumes.contains(name) {
                    check.add(FieldError::new(
                        format!("{at}.volumeMounts[{n}].name"),
                        atoll_apimachinery::FieldReason::NotFound,
                        format_args!("{name:?}"),
                    ));
                }
            }
        }
    }
}

/// `validateContainerCommon`, in part: the most common mistakes.
fn check_container(check: &mut Check<'_>, at: &str, container: &Value) {
    let text = |field: &str| container.get(field).and_then(Value::as_str).unwrap_or("");
    if text("image").trim().is_empty() {
        check.add(FieldError::required(format!("{at}.image"), ""));
    }
    if let Some(policy) = container.get("imagePullPolicy")
        && !matches!(policy.as_str(), Some("Always" | "IfNotPresent" | "Never"))
    {
        check.add(FieldError::unsupported(
            format!("{at}.imagePullPolicy"),
            policy,
            &["Always", "IfNotPresent", "Never"],
        ));
    }
    for (n, port) in
        container.get("ports").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let path = format!("{at}.ports[{n}].containerPort");
        match port.get("containerPort").and_then(Value::as_i64) {
            None | Some(0) => check.add(FieldError::required(path, "")),
            Some(1..=65_535) => {}
            Some(other) => check.add(FieldError::invalid(
                path,
                &other.into(),
                "must be between 1 and 65535, inclusive",
            )),
        }
    }
    for kind in ["limits", "requests"] {
        let list = container.pointer(&format!("/resources/{kind}")).and_then(Value::as_object);
        for (name, value) in list.into_iter().flatten() {
            let path = format!("{at}.resources.{kind}[{name}]");
            if let Err(why) = quantity(value) {
                check.add(FieldError::invalid(path, value, why));
            } else if value.as_str().is_some_and(|v| v.starts_with('-')) {
                check.add(FieldError::invalid(path, value, "must be greater than or equal to 0"));
            }
        }
    }
    check_requests(check, at, container);
    for (n, env) in container.get("env").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        if env.get("name").and_then(Value::as_str).unwrap_or("").is_empty() {
            check.add(FieldError::required(format!("{at}.env[{n}].name"), ""));
        }
    }
}

/// `ValidateContainerResourceRequirements`: requests must not exceed limits, and must equal them for resources that
/// cannot be overcommitted.
fn check_requests(check: &mut Check<'_>, at: &str, container: &Value) {
    let list =
        |kind: &str| container.pointer(&format!("/resources/{kind}")).and_then(Value::as_object);
    let limits = list("limits");
    for (name, request) in list("requests").into_iter().flatten() {
        let hugepages = name.starts_with("hugepages-");
        let overcommit = !hugepages && (!name.contains('/') || name.contains("kubernetes.io/"));
        let Some(limit) = limits.and_then(|limits| limits.get(name)) else {
            if !overcommit {
                let why = "Limit must be set for non overcommitable resources";
                check.add(FieldError::required(format!("{at}.resources.limits"), why));
            }
            continue;
        };
        let (Some(asked), Some(allowed)) = (milli(request), milli(limit)) else { continue };
        let shown = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
        let why = if asked != allowed && !overcommit {
            format!("must be equal to {name} limit of {shown}")
        } else if asked > allowed {
            format!("must be less than or equal to {name} limit of {shown}")
        } else {
            continue;
        };
        check.add(FieldError::invalid(format!("{at}.resources.requests"), request, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_pull_policy_follows_the_tag() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.25", false),
            ("host:5000/nginx", true),
            ("host:5000/nginx:1", false),
            ("nginx@sha256:00", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn defaulting_a_pod_twice_changes_nothing() {
        let mut once = json!({"spec": {"containers": [{
            "name": "a", "image": "nginx", "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1"}},
        }], "volumes": [{"name": "v"}]}});
        pod(&mut once);
        let mut twice = once.clone();
        pod(&mut twice);
        assert_eq!(once, twice);
        assert_eq!(once["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
        assert_eq!(once["spec"]["containers"][0]["livenessProbe"]["periodSeconds"], 10);
        assert_eq!(once["spec"]["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(qos_class(&once), "Burstable");
    }
}
