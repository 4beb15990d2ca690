//! Writes the number of replicas that members run to their template, where the policy asks for it.

use atoll_api::binding::ObjectReference;
use serde_json::{Value, json};

use super::facts::Sources;
use super::write::{Part, Target};
use crate::env::Env;
use crate::events::{self, Note, Severity};
use crate::index::Index;
use crate::index::key::{BindingKey, version_of};
use crate::placements::replica_sync;

/// Reason of Events about a write.
const SYNCED: &str = "ReplicasFromMembers";
/// Reason of Events about a refused write.
const REFUSED: &str = "ReplicasNotSynced";
/// How to fix it.
const FIX: &str = "grant the controller the right with deploy/controller/replica-sync.yaml, or remove replicaSync from the policy";

/// The write to the template of a binding; `None` if its number of replicas is what the members run, or need not be.
#[must_use]
pub(crate) fn write_of(sources: Sources<'_>, key: &BindingKey) -> Option<(Target, Value)> {
    let index = &sources.hub.index;
    let binding = index.binding(key)?;
    if index.refusal(binding).is_some() {
        return None;
    }
    let template = index.template(&binding.template)?;
    let run = replica_sync::counts(index, sources.placements, binding, template)?;
    let run = replica_sync::sum(&run);
    if template.deleting || template.extract.demand.replicas.unwrap_or(1) == run {
        return None;
    }
    let target = Target {
        resource: sources.hub.resources.get(&template.key.group_kind().to_owned())?.clone(),
        namespace: template.key.namespace().map(str::to_owned),
        name: template.key.name().to_owned(),
        part: Part::Scale,
    };
    // If the template changed meanwhile, the number is computed again after the change was seen.
    let metadata = json!({
        "uid": String::from(&template.uid),
        "resourceVersion": template.resource_version,
    });
    Some((target, json!({"metadata": metadata, "spec": {"replicas": run}})))
}

/// The hub took the number.
pub(crate) fn written(env: &Env, index: &Index, key: &BindingKey, scale: &Value) {
    let Some(about) = about(index, key) else { return };
    let run = scale["spec"]["replicas"].as_i64().unwrap_or_default();
    let version = version_of(scale).unwrap_or_default();
    let message =
        format!("spec.replicas is {run} now: what the members run (replicaSync: FromMembers)");
    post(env, about, (SYNCED, Severity::Normal), version, message);
}

/// The hub refused the number.
pub(crate) fn refused(env: &Env, index: &Index, key: &BindingKey, why: &str) {
    let Some(about) = about(index, key) else { return };
    let message = format!(
        "spec.replicas cannot be set to what the members run (replicaSync: FromMembers): {why}; {FIX}"
    );
    post(env, about, (REFUSED, Severity::Warning), why, message);
}

fn about(index: &Index, key: &BindingKey) -> Option<ObjectReference> {
    Some(index.template(&index.binding(key)?.template)?.reference())
}

fn post(
    env: &Env,
    about: ObjectReference,
    (reason, severity): (&str, Severity),
    id: &str,
    message: String,
) {
    let uid = about.uid.clone().unwrap_or_default();
    env.notes.post(Note {
        about,
        id: events::id(&[&uid, reason, id]),
        reason: reason.to_owned(),
        message,
        severity,
        at: env.clock.now_seconds(),
        cause: None,
        repeat_after: None,
    });
}
