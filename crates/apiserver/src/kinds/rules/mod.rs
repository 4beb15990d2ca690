//! Defaults and validation of built-in kinds.
//!
//! Defaults are those that users see when they compare what they applied with what they get, as kube-apiserver
//! sets them (`pkg/apis/*/v1/defaults.go`):
//! * pod templates: restartPolicy, dnsPolicy, schedulerName, terminationGracePeriodSeconds, securityContext; of
//!   containers: imagePullPolicy, terminationMessagePath and -Policy, resources, port protocols, probe numbers,
//!   fieldRef versions; volume modes
//! * Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob: replicas, strategy, limits, policies
//! * Service: type, ports' protocol and targetPort, session affinity, IP families; addresses are allocated
//! * Namespace, Secret, PersistentVolume(Claim), HorizontalPodAutoscaler, NetworkPolicy, RBAC references,
//!   StorageClass, PriorityClass, CustomResourceDefinition
//!
//! Validation covers the errors that clients rely on: selectors that match nothing, negative numbers, fields
//! that may not change, malformed quantities and keys. It is not all of upstream's.

pub(crate) mod apps;
pub(crate) mod batch;
pub(crate) mod core;
pub(crate) mod network;
pub(crate) mod pod;
pub(crate) mod policy;
mod status;

pub(crate) use self::status::initial_status;

use atoll_api::selector::{Requirement, Selector};
use atoll_apimachinery::{
    FieldError,
    meta::{self, Fields},
};
use serde_json::{Map, Value, json};

use crate::names;

/// No defaults.
pub(crate) fn nothing(_: &mut Value) {}

/// No validation beyond the types.
pub(crate) fn anything(_: &mut Check<'_>) {}

/// An object under validation.
pub(crate) struct Check<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: Option<&'a Value>,
    pub(crate) errors: Vec<FieldError>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(new: &'a Value, old: Option<&'a Value>) -> Self {
        Check { new, old, errors: Vec::new() }
    }

    /// The value at a dotted path of the new object.
    pub(crate) fn at(&self, path: &str) -> Option<&'a Value> {
        meta::at(self.new, path)
    }

    /// The string there, empty when absent.
    pub(crate) fn text(&self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
    }

    /// A list's items with their paths.
    pub(crate) fn items(&self, path: &str) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
        let list = self.at(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let path = path.to_owned();
        list.iter().enumerate().map(move |(n, item)| (format!("{path}[{n}]"), item))
    }

    pub(crate) fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Refuses absent and empty values.
    pub(crate) fn required(&mut self, path: &str) {
        let empty = match self.at(path) {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
        };
        if empty {
            self.add(FieldError::required(path, ""));
        }
    }

    /// Refuses negative integers; an absent one is fine.
    pub(crate) fn not_negative(&mut self, path: &str) {
        if let Some(value) = self.at(path)
            && value.as_i64().is_some_and(|n| n < 0)
        {
            self.add(FieldError::invalid(path, value, "must be greater than or equal to 0"));
        }
    }

    /// Refuses any value but these; an absent one is fine.
    pub(crate) fn one_of(&mut self, path: &str, allowed: &[&str]) {
        if let Some(value) = self.at(path)
            && value.as_str().is_none_or(|v| !allowed.contains(&v))
        {
            self.add(FieldError::unsupported(path, value, allowed));
        }
    }

    /// Refuses a change by an update.
    pub(crate) fn immutable(&mut self, path: &str) {
        if let Some(old) = self.old
            && meta::at(old, path) != self.at(path)
        {
            let value = self.at(path).cloned().unwrap_or_default();
            self.add(FieldError::invalid(path, &value, "field is immutable"));
        }
    }
}

/// Sets a field that is absent or null.
pub(super) fn set_default(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// As [`set_default`], and also replaces an empty string, which Go cannot tell from an absent one.
pub(super) fn set_default_text(fields: &mut Fields, name: &str, value: &str) {
    if fields.get(name).is_none_or(|v| v.is_null() || v == "") {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The object at `name`, if present.
pub(super) fn object<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

/// The objects of the list at `name`.
pub(super) fn objects<'a>(
    fields: &'a mut Fields,
    name: &str,
) -> impl Iterator<Item = &'a mut Fields> {
    let list = fields.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object at `name`, created if absent.
pub(super) fn made<'a>(fields: &'a mut Fields, name: &str) -> &'a mut Fields {
    let slot = fields.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made an object above")
}

/// Sets a condition in a status' `conditions`, replacing the one of its type.
pub(crate) fn set_condition(status: &mut Fields, condition: Value) {
    let slot = status.entry("conditions").or_insert_with(|| json!([]));
    if !slot.is_array() {
        *slot = json!([]);
    }
    let Some(list) = slot.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}

/// The requirements of a `metav1.LabelSelector`; an error names the field within the selector.
pub(crate) fn requirements(selector: &Value) -> Result<Selector, FieldError> {
    let mut all = Vec::new();
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten()
    {
        if let Err(why) = names::qualified_name(key) {
            return Err(FieldError::invalid("matchLabels", &key.as_str().into(), why));
        }
        if let Err(why) = names::label_value(value.as_str().unwrap_or("")) {
            return Err(FieldError::invalid(format!("matchLabels[{key}]"), value, why));
        }
        all.push(Requirement::In(key.clone(), vec![text(value)]));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (n, e) in expressions.into_iter().flatten().enumerate() {
        let path = format!("matchExpressions[{n}]");
        let key = e.get("key").map(text).unwrap_or_default();
        let values: Vec<String> =
            e.get("values").and_then(Value::as_array).into_iter().flatten().map(text).collect();
        let operator = e.get("operator").cloned().unwrap_or_default();
        let listed = matches!(operator.as_str(), Some("In" | "NotIn"));
        if listed && values.is_empty() {
            return Err(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
        if !listed && !values.is_empty() {
            return Err(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ));
        }
        let parsed = Requirement::parse(&key, operator.as_str().unwrap_or_default(), &values);
        all.push(parsed.map_err(|_| {
            let path = format!("{path}.operator");
            FieldError::invalid(path, &operator, "not a valid selector operator")
        })?);
    }
    Ok(all.into())
}

/// Whether a `metav1.LabelSelector` selects an object. Absent selectors and malformed ones select nothing,
/// empty ones everything.
pub(crate) fn selects(selector: Option<&Value>, object: &Value) -> bool {
    let Some(labels) = selector.and_then(|s| requirements(s).ok()) else { return false };
    atoll_apimachinery::selector::Selectors { labels, fields: Vec::new() }.matches(object, &[])
}

/// A quantity in thousandths; `None` if it is invalid.
pub(crate) fn milli(value: &Value) -> Option<i128> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    atoll_api::quantity::Quantity::new(text).milli().ok()
}

/// Checks that the string is a quantity: digits with an optional sign, fraction, suffix or exponent.
pub(crate) fn quantity(value: &Value) -> Result<(), String> {
    let bad = || {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()
    };
    let text = match value {
        Value::Number(_) => return Ok(()),
        Value::String(text) => text.as_str(),
        _ => return Err(bad()),
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.chars().filter(char::is_ascii_digit).count();
    if digits == 0 || number.len() - digits > 1 {
        return Err(bad());
    }
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    });
    let known = matches!(
        suffix,
        "" | "n"
            | "u"
            | "m"
            | "k"
            | "M"
            | "G"
            | "T"
            | "P"
            | "E"
            | "Ki"
            | "Mi"
            | "Gi"
            | "Ti"
            | "Pi"
            | "Ei"
    );
    (known || exponent).then_some(()).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_resource_must_parse() {
        for good in ["0", "1", "100m", "1.5Gi", ".5", "1e3", "2E", "1E-2", "+1k", "-1"] {
            assert!(quantity(&good.into()).is_ok(), "{good}");
        }
        for bad in ["", "m", "1.2.3", "1 Gi", "1gi", "1KiB", "e3", "1e", "abc"] {
            assert!(quantity(&bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_selectors_select_and_name_what_is_wrong() {
        let pod = json!({"metadata": {"labels": {"app": "web"}}});
        assert!(selects(Some(&json!({"matchLabels": {"app": "web"}})), &pod));
        assert!(selects(Some(&json!({})), &pod));
        assert!(!selects(None, &pod));
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
        assert_eq!(requirements(&bad).unwrap_err().path, "matchExpressions[0].values");
    }
}
