//! What is written to Atoll's hub.

use atoll_api::marks::{ACCEPTS_START, CONFLICT_RESOLUTION, START};
use atoll_api::placement::ReplicaSchedulingType;
use atoll_api::start::Start;
use atoll_convert::{Converter, Line};
use atoll_render::overrides::{ClusterProperties, Policies};
use atoll_render::{Overrides, Share, render_overridden};
use serde_json::{Value, json};

use crate::estate::{Binding, Estate, PolicyName};
use crate::karmada::original;
use crate::{BEFORE, FROM, FROM_KARMADA};

/// What a namespace gets on Atoll's hub, converted.
#[derive(Debug, Default)]
pub struct Converted {
    /// Policies and override policies, as they are while the migration lasts.
    pub policies: Vec<Value>,
    /// What changed.
    pub lines: Vec<Line>,
}

/// The policies that claim what moves, and all override policies.
#[must_use]
pub fn policies(converter: &Converter, estate: &Estate) -> Converted {
    let mut all = Converted::default();
    for policy in estate.claiming() {
        let converted = converter.convert(original(policy));
        all.lines.extend(converted.lines);
        let Some(mut policy) = converted.object else { continue };
        // A template that is deleted while the migration lasts leaves its objects where they are.
        let before =
            json!({"preserveResourcesOnDeletion": policy["spec"]["preserveResourcesOnDeletion"]});
        policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
        mark(&mut policy, &[(BEFORE, &before.to_string()), (ACCEPTS_START, "true")]);
        all.policies.push(policy);
    }
    for policy in &estate.overrides {
        let converted = converter.convert(policy.clone());
        all.lines.extend(converted.lines);
        let Some(mut policy) = converted.object else { continue };
        mark(&mut policy, &[]);
        all.policies.push(policy);
    }
    all
}

/// The user's object as it is created on the hub: agents may take it over, and it starts where it is. `None` if Atoll does
/// not need it.
#[must_use]
pub fn template(
    converter: &Converter,
    binding: &Binding,
    template: &Value,
) -> (Option<Value>, Vec<Line>) {
    let converted = converter.convert(template.clone());
    let Some(mut object) = converted.object else { return (None, converted.lines) };
    let before = &object["metadata"]["annotations"][CONFLICT_RESOLUTION];
    let before = json!({CONFLICT_RESOLUTION: before}).to_string();
    let mut marks = vec![(BEFORE, before), (CONFLICT_RESOLUTION, "overwrite".to_owned())];
    if !binding.clusters.is_empty() && binding.policy.is_some() {
        marks.push((START, start(binding).to_string()));
    }
    let marks: Vec<(&str, &str)> = marks.iter().map(|(key, value)| (*key, &**value)).collect();
    mark(&mut object, &marks);
    (Some(object), converted.lines)
}

/// The placement of a binding, for the annotation.
#[must_use]
pub fn start(binding: &Binding) -> Value {
    let start = Start {
        clusters: binding.clusters.clone(),
        affinity_name: binding.term().map(str::to_owned),
    };
    // A plain structure always converts to JSON.
    serde_json::to_value(start).unwrap_or_default()
}

fn mark(object: &mut Value, annotations: &[(&str, &str)]) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    for (key, value) in annotations.iter().chain([&(FROM, FROM_KARMADA)]) {
        object["metadata"]["annotations"][*key] = (*value).into();
    }
}

/// Whether the migration made an object of the hub.
#[must_use]
pub fn is_made(object: &Value) -> bool {
    object["metadata"]["annotations"][FROM] == FROM_KARMADA
}

/// The merge patch that ends the migration of an object of the hub: what it had before, without marks. `None` if the
/// migration did not make it, or has ended.
#[must_use]
pub fn end(object: &Value) -> Option<Value> {
    if !is_made(object) {
        return None;
    }
    let mut patch = json!({"metadata": {
        "resourceVersion": object["metadata"]["resourceVersion"],
        "annotations": {BEFORE: null, FROM: null, START: null, ACCEPTS_START: null},
    }});
    let before = object["metadata"]["annotations"][BEFORE].as_str();
    let before: Value = before.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if let Some(preserve) = before.get("preserveResourcesOnDeletion") {
        patch["spec"]["preserveResourcesOnDeletion"] = preserve.clone();
    }
    if let Some(resolution) = before.get(CONFLICT_RESOLUTION) {
        patch["metadata"]["annotations"][CONFLICT_RESOLUTION] = resolution.clone();
    }
    Some(patch)
}

/// Whether the replicas of a binding are divided among its clusters.
#[must_use]
pub fn is_divided(estate: &Estate, binding: &Binding) -> bool {
    let Some(name) = &binding.policy else { return false };
    let policy = estate.policies.iter().find(|policy| PolicyName::of(policy) == *name);
    let scheduling = policy.map(|policy| &policy["spec"]["placement"]["replicaScheduling"]);
    scheduling.is_some_and(|scheduling| {
        // A strategy without a type divides, by Karmada's default; no strategy duplicates.
        let type_ = scheduling["replicaSchedulingType"].as_str();
        scheduling.is_object() && type_.is_none_or(|type_| type_ == divided())
    })
}

fn divided() -> String {
    let name = serde_json::to_value(ReplicaSchedulingType::Divided).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// What Atoll applies of an object on a member.
///
/// # Errors
/// Why nothing could be applied there.
pub fn rendered(
    estate: &Estate,
    binding: &Binding,
    template: &Value,
    cluster: &ClusterProperties,
    overrides: &Policies,
) -> Result<Value, String> {
    let divided = is_divided(estate, binding);
    let desired = atoll_interpreter::replicas(template);
    let own = binding.clusters.iter().find(|target| target.name == cluster.name);
    let earlier = binding.clusters.iter().filter(|target| target.name < cluster.name);
    let share = Share {
        cluster: cluster.name.clone(),
        replicas: desired.map(|desired| own.map_or(desired, |target| target.replicas)),
        before: if divided { earlier.map(|target| target.replicas).sum() } else { 0 },
        ..Share::default()
    };
    let overrides = Overrides { cluster, policies: overrides, divided };
    let rendered = render_overridden(template, &share, &overrides);
    rendered.map(|(rendered, _)| rendered.manifest).map_err(|error| error.to_string())
}
