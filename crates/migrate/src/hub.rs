//! What is written to Atoll's hub.

use atoll_api::conditions;
use atoll_api::marks::{ACCEPTS_START, CONFLICT_RESOLUTION, START};
use atoll_api::placement::ReplicaSchedulingType;
use atoll_api::start::Start;
use atoll_convert::{Converter, Line};
use atoll_render::overrides::{ClusterProperties, Policies};
use atoll_render::{Overrides, Share, render_overridden};
use serde_json::{Value, json};

use crate::estate::{Binding, Estate, PolicyName};
use crate::karmada::original;
use crate::meaning::Meaning;
use crate::{BEFORE, FROM, FROM_KARMADA, extras};

/// What Atoll's hub gets before the objects, converted.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Rules for kinds, policies, override policies, taint policies and quotas, as they are while the migration lasts.
    pub objects: Vec<Value>,
    /// What changed.
    pub lines: Vec<Line>,
}

/// The rules for kinds that move, the policies that claim what moves, all override policies, and what limits them.
#[must_use]
pub fn prepared(converter: &Converter, estate: &Estate) -> Prepared {
    let mut all = Prepared::default();
    for object in extras::rules(estate) {
        all.take(converter, object);
    }
    for policy in estate.claiming() {
        let converted = converter.convert(original(policy));
        all.lines.extend(converted.lines);
        let Some(mut policy) = converted.object else { continue };
        // A template that is deleted while the migration lasts leaves its objects where they are.
        let before =
            json!({"preserveResourcesOnDeletion": policy["spec"]["preserveResourcesOnDeletion"]});
        policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
        mark(&mut policy, &[(BEFORE, &before.to_string()), (ACCEPTS_START, "true")]);
        all.objects.push(policy);
    }
    for object in estate.overrides.iter().chain(extras::limits(estate)) {
        all.take(converter, object);
    }
    all
}

impl Prepared {
    /// An object that stays as it is.
    fn take(&mut self, converter: &Converter, object: &Value) {
        let converted = converter.convert(object.clone());
        self.lines.extend(converted.lines);
        if let Some(mut object) = converted.object {
            mark(&mut object, &[]);
            self.objects.push(object);
        }
    }
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

/// Conditions by which Atoll's controller says that it uses a prepared object: each kind has one of them.
const IN_FORCE: [&str; 3] = [conditions::ACCEPTED, conditions::COMPILED, conditions::VALID];

/// The condition of a prepared object, if the controller has seen this version of it.
fn answer(object: &Value) -> Option<&Value> {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let answer =
        conditions.into_iter().find(|one| IN_FORCE.iter().any(|type_| one["type"] == *type_))?;
    (status["observedGeneration"] == object["metadata"]["generation"]).then_some(answer)
}

/// Whether Atoll's controller uses an object of the hub.
#[must_use]
pub fn is_in_force(object: &Value) -> bool {
    answer(object).is_some_and(|answer| answer["status"] == "True")
}

/// Why Atoll's controller does not use an object of the hub, if it has said so.
#[must_use]
pub fn refused(object: &Value) -> Option<String> {
    let answer = answer(object).filter(|answer| answer["status"] == "False")?;
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("reason"), text("message")))
}

/// Whether an object of the hub has everything that was asked for; the hub adds defaults.
#[must_use]
pub fn is_as_asked(there: &Value, asked: &Value) -> bool {
    // Webhook configurations have no spec.
    ["spec", "webhooks"].iter().all(|field| has_all(&there[field], &asked[field]))
}

fn has_all(there: &Value, asked: &Value) -> bool {
    match (there, asked) {
        (Value::Object(there), Value::Object(asked)) => asked.iter().all(|(name, value)| {
            there.get(name).map_or_else(|| is_nothing(value), |there| has_all(there, value))
        }),
        (Value::Array(there), Value::Array(asked)) => {
            there.len() == asked.len()
                && there.iter().zip(asked).all(|(there, asked)| has_all(there, asked))
        }
        _ => there == asked,
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == json!({}) || *value == json!([]) || *value == false
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
    meaning: &dyn Meaning,
) -> Result<Value, String> {
    let divided = is_divided(estate, binding);
    let desired = meaning.replicas(template)?;
    let own = binding.clusters.iter().find(|target| target.name == cluster.name);
    let earlier = binding.clusters.iter().filter(|target| target.name < cluster.name);
    let replicas = desired.map(|desired| own.map_or(desired, |target| target.replicas));
    let revised = replicas.map(|replicas| meaning.revised(template, replicas));
    let revised = revised.transpose()?.flatten();
    let share = Share {
        cluster: cluster.name.clone(),
        replicas,
        before: if divided { earlier.map(|target| target.replicas).sum() } else { 0 },
        revised: revised.is_some(),
        ..Share::default()
    };
    let overrides = Overrides { cluster, policies: overrides, divided };
    let rendered = render_overridden(revised.as_ref().unwrap_or(template), &share, &overrides);
    rendered.map(|(rendered, _)| rendered.manifest).map_err(|error| error.to_string())
}
