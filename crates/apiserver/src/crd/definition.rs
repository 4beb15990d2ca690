//! A CRD as an object: its defaults, its validation, and the conditions that make it served
//! (`apiextensions-apiserver/pkg/apis/apiextensions`).

use std::collections::BTreeSet;

use atoll_apimachinery::{FieldError, FieldReason, meta};
use atoll_merge::schema::Schema;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    cel, columns,
    fields::{self, objects_table, text, texts},
};
use crate::{
    kinds::rules::{Check, set_condition},
    names,
    store::Store,
};

/// Keeps a deleted CRD until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// `SetDefaults_CustomResourceDefinitionSpec`.
pub(crate) fn default(value: &mut Value) {
    let spec = meta::child(value, "spec");
    let mut conversion = json!({"strategy": "None"});
    if let Some(given) = spec.get("conversion").filter(|c| !c.is_null()) {
        conversion = given.clone();
    }
    spec.insert("conversion".to_owned(), conversion);
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
    for (field, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(field).and_then(Value::as_str).unwrap_or("").is_empty() {
            names.insert(field.to_owned(), value.into());
        }
    }
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = meta::at(definition, "status.conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind)
}

/// Whether the CRD is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    condition(definition, "Established").is_some_and(|c| c["status"] == "True")
}

/// Sets a condition, keeping the time if it is unchanged.
fn put_condition(
    definition: &mut Value,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &str,
) {
    let status = if status { "True" } else { "False" };
    let same = condition(definition, kind)
        .is_some_and(|c| c["status"] == status && c["reason"] == reason && c["message"] == message);
    if same {
        return;
    }
    let new = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    });
    set_condition(meta::child(definition, "status"), new);
}

/// The reason and message if another CRD of the group has taken the names.
fn conflict(definition: &Value, store: &Store) -> Option<(&'static str, String)> {
    let names = |d: &Value| -> BTreeSet<String> {
        let mut all: BTreeSet<String> = texts(d, "spec.names.shortNames").into_iter().collect();
        all.insert(text(d, "spec.names.plural").to_owned());
        all.insert(text(d, "spec.names.singular").to_owned());
        all
    };
    let kinds = |d: &Value| {
        [text(d, "spec.names.kind").to_owned(), text(d, "spec.names.listKind").to_owned()]
    };
    let (own_names, own_kinds) = (names(definition), kinds(definition));
    for other in store.list(&fields::table(), None).1 {
        let other = &*other.value();
        let same_group = text(other, "spec.group") == text(definition, "spec.group");
        if !same_group || meta::name(other) == meta::name(definition) || !is_established(other) {
            continue;
        }
        if let Some(name) = names(other).intersection(&own_names).next() {
            return Some(("PluralConflict", format!("{name:?} is already in use")));
        }
        if let Some(kind) = kinds(other).iter().find(|k| own_kinds.contains(k)) {
            return Some(("KindConflict", format!("{kind:?} is already in use")));
        }
    }
    None
}

/// Does in one step what upstream's controllers do after a write: accepts the names, marks the CRD established, records
/// stored versions, and adds the finalizer. The server owns the status, so this runs on every write of the main object.
pub(crate) fn establish(
    definition: &mut Value,
    live: Option<&Value>,
    store: &Store,
    now: Timestamp,
) {
    let now = meta::seconds(now);
    let conflict = conflict(definition, store);
    let was = live.is_some_and(is_established);
    match &conflict {
        Some((reason, message)) if !was => {
            put_condition(definition, "NamesAccepted", false, reason, message, &now);
            let why = "not all names are accepted";
            put_condition(definition, "Established", false, "NotAccepted", why, &now);
        }
        _ => {
            let no_conflicts = "no conflicts found";
            put_condition(definition, "NamesAccepted", true, "NoConflicts", no_conflicts, &now);
            let why = "the initial names have been accepted";
            put_condition(definition, "Established", true, "InitialNamesAccepted", why, &now);
        }
    }
    let names = meta::at(definition, "spec.names").cloned().unwrap_or_default();
    let storage = fields::versions(definition)
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map(|v| text(v, "name").to_owned());
    let mut stored = texts(definition, "status.storedVersions");
    stored.extend(storage.filter(|s| !stored.contains(s)));
    let status = meta::child(definition, "status");
    status.insert("acceptedNames".to_owned(), names);
    status.insert("storedVersions".to_owned(), stored.into());
    let deleting = meta::is_deleting(definition);
    let mut finalizers: Vec<String> =
        meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !deleting && finalizers.iter().all(|f| f != CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
        meta::set_finalizers(definition, finalizers);
    }
}

/// Marks a CRD whose deletion has begun.
pub(crate) fn terminate(definition: &mut Value, now: Timestamp) {
    let why = "CustomResource deletion is in progress";
    let now = meta::seconds(now);
    put_condition(definition, "Terminating", true, "InstanceDeletionInProgress", why, &now);
}

/// `ValidateCustomResourceDefinition`, in part: names, scope, versions, schemas, rules, columns, scale.
pub(crate) fn check(check: &mut Check<'_>) {
    let (group, plural) = (check.text("spec.group"), check.text("spec.names.plural"));
    let expected = format!("{plural}.{group}");
    if meta::name(check.new) != expected {
        let value = meta::name(check.new).into();
        check.add(FieldError::invalid(
            "metadata.name",
            &value,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    check.required("spec.group");
    if !group.contains('.') || names::dns_subdomain(group).is_err() {
        check.add(FieldError::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
    check.required("spec.scope");
    check.one_of("spec.scope", &["Cluster", "Namespaced"]);
    check.required("spec.names.kind");
    for name in ["plural", "singular"] {
        let path = format!("spec.names.{name}");
        if let Err(why) = names::dns_1035_label(check.text(&path)) {
            let value = check.text(&path).into();
            check.add(FieldError::invalid(path, &value, why));
        }
    }
    check_conversion(check);
    check_versions(check);
    if check.old.is_some_and(is_established) {
        check.immutable("spec.group");
        check.immutable("spec.scope");
        check.immutable("spec.names.plural");
        check.immutable("spec.names.kind");
    }
}

/// Conversion webhooks are not supported, so a CRD that needs one is refused rather than served wrongly.
fn check_conversion(check: &mut Check<'_>) {
    check.one_of("spec.conversion.strategy", &["None", "Webhook"]);
    let served = check
        .items("spec.versions")
        .filter(|(_, v)| v.get("served") == Some(&Value::Bool(true)))
        .count();
    // With one version there is nothing to convert.
    if check.text("spec.conversion.strategy") == "Webhook" && served > 1 {
        check.add(FieldError::forbidden(
            "spec.conversion.strategy",
            "this server has no conversion webhooks: use None, or serve one version",
        ));
    }
}

/// Exactly one version is stored; each has a structural schema.
fn check_versions(check: &mut Check<'_>) {
    check.required("spec.versions");
    let versions: Vec<(String, &Value)> = check.items("spec.versions").collect();
    let (mut seen, mut storage) = (BTreeSet::new(), 0);
    for (at, version) in versions {
        let name = text(version, "name");
        if let Err(why) = names::dns_1035_label(name) {
            check.add(FieldError::invalid(format!("{at}.name"), &name.into(), why));
        } else if !seen.insert(name) {
            check.add(FieldError::invalid(
                format!("{at}.name"),
                &name.into(),
                "must contain unique version names",
            ));
        }
        storage += usize::from(version.get("storage") == Some(&Value::Bool(true)));
        check_schema(check, &at, version);
        let list = version.get("additionalPrinterColumns").and_then(Value::as_array);
        for (n, column) in list.into_iter().flatten().enumerate() {
            if let Some((field, message)) = columns::problem(column) {
                let path = format!("{at}.additionalPrinterColumns[{n}].{field}");
                check.add(FieldError { path, reason: FieldReason::Invalid, message });
            }
        }
        check_scale(check, &at, version);
    }
    if storage != 1 {
        let value = check.at("spec.versions").cloned().unwrap_or_default();
        let names: Value =
            value.as_array().into_iter().flatten().map(|v| v["name"].clone()).collect();
        check.add(FieldError::invalid(
            "spec.versions",
            &names,
            "must have exactly one version marked as storage version",
        ));
    }
}

/// The schema must be structural and its CEL rules must compile.
fn check_schema(check: &mut Check<'_>, at: &str, version: &Value) {
    let at = format!("{at}.schema.openAPIV3Schema");
    let Some(openapi) = version.pointer("/schema/openAPIV3Schema").filter(|s| s.is_object()) else {
        check.add(FieldError::required(at, "schemas are required"));
        return;
    };
    match Schema::from_openapi(openapi) {
        Err(error) => {
            for (path, message) in error.problems {
                let path = if path.is_empty() { at.clone() } else { format!("{at}.{path}") };
                check.add(FieldError::new(path, FieldReason::Invalid, message));
            }
        }
        Ok(schema) => {
            let programs = cel::Programs::of(&schema);
            let mut uncorrelated = Vec::new();
            programs.uncorrelated(&schema, &mut uncorrelated);
            let failed =
                programs.problems().map(|(rule, why)| (rule, format!("compilation failed: {why}")));
            let uncorrelated = uncorrelated.into_iter().map(|rule| {
                (
                    rule,
                    "oldSelf cannot be used on the uncorrelatable portion of the schema".to_owned(),
                )
            });
            for (rule, why) in failed.chain(uncorrelated) {
                let at = format!("{at}.x-kubernetes-validations");
                check.add(FieldError::invalid(at, &rule.into(), why));
            }
        }
    }
}

/// Replica counts are single fields below spec and status.
fn check_scale(check: &mut Check<'_>, at: &str, version: &Value) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    for (field, prefix, required) in [
        ("specReplicasPath", ".spec.", true),
        ("statusReplicasPath", ".status.", true),
        ("labelSelectorPath", "", false),
    ] {
        let path = format!("{at}.subresources.scale.{field}");
        let value = text(scale, field);
        if value.is_empty() && required {
            check.add(FieldError::required(path, ""));
        } else if !value.starts_with(prefix) || value.contains('[') {
            let value = value.into();
            check.add(FieldError::invalid(
                path,
                &value,
                format_args!("should be a simple json path under {prefix}"),
            ));
        }
    }
}

/// Whether any object of a CRD is left in the store.
pub(crate) fn has_objects(definition: &Value, store: &Store) -> bool {
    !store.list(&objects_table(definition), None).1.is_empty()
}
