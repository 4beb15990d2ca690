//! Core kinds other than pods.

use std::collections::BTreeSet;

use atoll_apimachinery::{FieldError, FieldReason, meta};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Check, made, milli, object, objects, quantity, set_default, set_default_text};
use crate::names;

/// Total bytes of a ConfigMap's or Secret's values.
const DATA_MAX: usize = 1024 * 1024;

/// The label with its name, and the finalizer that the namespace controller removes.
pub(crate) fn namespace(value: &mut Value) {
    let name = meta::name(value).to_owned();
    if !name.is_empty() {
        made(meta::of(value), "labels")
            .insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    // A terminating namespace must be able to lose its finalizer.
    if !meta::is_deleting(value) {
        set_default(meta::child(value, "spec"), "finalizers", json!(["kubernetes"]));
    }
}

/// `SetDefaults_Service`. IP families are those of a single-stack IPv4 cluster.
pub(crate) fn service(value: &mut Value) {
    let spec = meta::child(value, "spec");
    set_default_text(spec, "type", "ClusterIP");
    set_default_text(spec, "sessionAffinity", "None");
    if spec.get("sessionAffinity").is_some_and(|v| v == "ClientIP") {
        let client = made(made(spec, "sessionAffinityConfig"), "clientIP");
        set_default(client, "timeoutSeconds", 10_800);
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    for port in objects(spec, "ports") {
        set_default_text(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        // Zero and empty mean "the same port".
        let unset = port.get("targetPort").is_none_or(|t| t.is_null() || *t == json!(0) || t == "");
        if unset && kind != "ExternalName" {
            port.insert("targetPort".to_owned(), number);
        }
    }
    if kind != "ExternalName" {
        set_default(spec, "ipFamilies", json!(["IPv4"]));
        set_default(spec, "ipFamilyPolicy", "SingleStack");
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set_default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// The default type; moves `stringData` into `data`, replacing existing keys.
pub(crate) fn secret(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    set_default_text(fields, "type", "Opaque");
    if let Some(Value::Object(plain)) = fields.remove("stringData")
        && !plain.is_empty()
    {
        let data = made(fields, "data");
        for (key, text) in plain {
            let encoded = STANDARD.encode(text.as_str().unwrap_or(""));
            data.insert(key, encoded.into());
        }
    }
}

/// `SetDefaults_PersistentVolumeClaimSpec`.
pub(crate) fn persistent_volume_claim(value: &mut Value) {
    set_default_text(meta::child(value, "spec"), "volumeMode", "Filesystem");
}

/// `ValidatePersistentVolumeClaimSpec`, in part.
pub(crate) fn check_persistent_volume_claim(check: &mut Check<'_>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes: Vec<(String, &Value)> = check.items("spec.accessModes").collect();
    if modes.is_empty() {
        let why = "at least 1 access mode is required";
        check.add(FieldError::required("spec.accessModes", why));
    }
    if modes.len() > 1 && modes.iter().any(|(_, mode)| *mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        check.add(FieldError::forbidden("spec.accessModes", why));
    }
    for (at, mode) in modes {
        if mode.as_str().is_none_or(|mode| !MODES.contains(&mode)) {
            check.add(FieldError::unsupported(at, mode, &MODES));
        }
    }
    let path = "spec.resources[storage]";
    match check.at("spec.resources.requests.storage") {
        None | Some(Value::Null) => check.add(FieldError::required(path, "")),
        Some(asked) => match quantity(asked) {
            Err(why) => check.add(FieldError::invalid(path, asked, why)),
            Ok(()) if milli(asked).is_some_and(|milli| milli <= 0) => {
                check.add(FieldError::invalid(path, asked, "must be greater than zero"));
            }
            Ok(()) => {}
        },
    }
}

/// `SetDefaults_PersistentVolume`.
pub(crate) fn persistent_volume(value: &mut Value) {
    let spec = meta::child(value, "spec");
    set_default_text(spec, "volumeMode", "Filesystem");
    set_default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    if let Some(host) = object(spec, "hostPath") {
        set_default(host, "type", "");
    }
}

/// `ValidateService`, in part. Allocation checks everything that depends on other Services.
pub(crate) fn check_service(check: &mut Check<'_>) {
    check.one_of("spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    let (kind, headless) = (check.text("spec.type"), check.text("spec.clusterIP") == "None");
    if kind == "ExternalName" {
        check.required("spec.externalName");
    } else if !headless {
        check.required("spec.ports");
    }
    let ports: Vec<(String, &Value)> = check.items("spec.ports").collect();
    let several = ports.len() > 1;
    let (mut seen, mut named) = (BTreeSet::new(), BTreeSet::new());
    for (at, port) in ports {
        let name = port.get("name").and_then(Value::as_str).unwrap_or("");
        if several && name.is_empty() {
            check.add(FieldError::required(format!("{at}.name"), ""));
        } else if !name.is_empty() && !named.insert(name) {
            check.add(FieldError::duplicate(format!("{at}.name"), &name.into()));
        }
        match port.get("port").and_then(Value::as_i64) {
            Some(number @ 1..=65_535) => {
                let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
                if !seen.insert((number, protocol)) {
                    check.add(FieldError::duplicate(at, port));
                }
            }
            other => {
                let value = other.unwrap_or(0).into();
                check.add(FieldError::invalid(
                    format!("{at}.port"),
                    &value,
                    "must be between 1 and 65535, inclusive",
                ));
            }
        }
    }
    if let Some(ip) = check.at("spec.clusterIP")
        && ip != "None"
        && ip != ""
        && ip.as_str().is_none_or(|ip| ip.parse::<std::net::IpAddr>().is_err())
    {
        check.add(FieldError::invalid("spec.clusterIPs[0]", ip, "must be a valid IP address"));
    }
}

/// Keys, size and immutability of ConfigMaps and Secrets.
fn check_data(check: &mut Check<'_>, fields: &[&str]) {
    let mut seen = BTreeSet::new();
    let mut size = 0;
    for field in fields {
        let data = check.at(field).and_then(Value::as_object);
        for (key, value) in data.into_iter().flatten() {
            let path = format!("{field}[{key}]");
            size += value.as_str().map_or(0, str::len);
            if let Err(why) = names::config_key(key) {
                check.add(FieldError::invalid(path.clone(), &key.as_str().into(), why));
            }
            if !seen.insert(key) {
                check.add(FieldError::invalid(
                    path,
                    &key.as_str().into(),
                    "duplicate of key present in data",
                ));
            }
        }
    }
    if size > DATA_MAX {
        check.add(FieldError::new(
            "",
            FieldReason::TooLong,
            format_args!("may not be more than {DATA_MAX} bytes"),
        ));
    }
    let frozen = check.old.is_some_and(|old| old.get("immutable") == Some(&Value::Bool(true)));
    if frozen {
        for field in fields {
            if check.old.and_then(|old| old.get(*field)) != check.new.get(*field) {
                check.add(FieldError::forbidden(
                    *field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
        if check.new.get("immutable") != Some(&Value::Bool(true)) {
            check.add(FieldError::forbidden(
                "immutable",
                "field is immutable when `immutable` is set",
            ));
        }
    }
}

/// `ValidateConfigMap`: a key is in `data` or in `binaryData`.
pub(crate) fn check_config_map(check: &mut Check<'_>) {
    check_data(check, &["data", "binaryData"]);
}

/// `ValidateSecret`: values are base64, the type stays, and some types need their keys.
pub(crate) fn check_secret(check: &mut Check<'_>) {
    check_data(check, &["data"]);
    let data = check.new.get("data").and_then(Value::as_object);
    for (key, value) in data.into_iter().flatten() {
        if value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()) {
            check.add(FieldError::invalid(
                format!("data[{key}]"),
                &"<not shown>".into(),
                "must be base64",
            ));
        }
    }
    if let Some(old) = check.old
        && old.get("type") != check.new.get("type")
    {
        let value = check.new.get("type").cloned().unwrap_or_default();
        check.add(FieldError::invalid("type", &value, "field is immutable"));
    }
    let needed: &[&str] = match check.text("type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    };
    for key in needed {
        if data.is_none_or(|d| !d.contains_key(*key)) {
            check.add(FieldError::required(format!("data[{key}]"), ""));
        }
    }
}

/// An Event lives in the namespace of its object (`default` for cluster-scoped objects).
pub(crate) fn check_event(check: &mut Check<'_>) {
    let events_group = check.new["apiVersion"] == "events.k8s.io/v1";
    let subject = if events_group { "regarding" } else { "involvedObject" };
    let about = check.text(&format!("{subject}.namespace"));
    let own = meta::namespace(check.new);
    let fits =
        if about.is_empty() { matches!(own, "default" | "kube-system" | "") } else { about == own };
    if !fits {
        let value = about.into();
        check.add(FieldError::invalid(
            format!("{subject}.namespace"),
            &value,
            "does not match event.namespace",
        ));
    }
    if events_group && check.old.is_none() {
        for field in ["eventTime", "reportingController", "reportingInstance", "action", "reason"] {
            check.required(field);
        }
        check.one_of("type", &["Normal", "Warning"]);
    }
}

/// Limits are quantities. Quotas are stored but not enforced.
pub(crate) fn check_resource_quota(check: &mut Check<'_>) {
    let hard = check.at("spec.hard").and_then(Value::as_object);
    for (name, value) in hard.into_iter().flatten() {
        if let Err(why) = quantity(value) {
            check.add(FieldError::invalid(format!("spec.hard[{name}]"), value, why));
        }
    }
}
