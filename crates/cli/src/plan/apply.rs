//! What an object of a file becomes when it is applied: the hub answers a dry run with its defaults, and checks the
//! caller's rights and the object as it would in earnest.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use serde_json::{Map, Value};

use super::hub::is_absent;
use crate::hub::Hub;
use crate::input::title;

/// The annotation in which `kubectl apply` keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Field manager of `kubectl apply --server-side`.
const KUBECTL: &str = "kubectl";
/// Group of the kinds that only the controller writes.
const WORK: &str = "work.atoll.dev";

/// The object as it would be after `kubectl apply`. Objects in one of `new_namespaces` are returned as given: the hub
/// checks nothing in a namespace that does not exist.
///
/// # Errors
/// When the hub refuses the object, or does not serve its kind.
pub(super) async fn dry_run(
    hub: &Hub,
    object: &Value,
    new_namespaces: &BTreeSet<String>,
) -> anyhow::Result<Value> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if group == WORK {
        bail!("{}: Atoll writes bindings; give the workload and its policy", title(object));
    }
    if kind.is_empty() || version.is_empty() || name.is_empty() {
        bail!("{}: apiVersion, kind and metadata.name are needed", title(object));
    }
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let doing = format!("find {kind} of {api_version}");
    let found = hub.call(&doing, discovery::pinned_kind(&hub.client, &gvk)).await;
    let (resource, capabilities) = match found {
        Err(error) if is_absent(&error) => bail!(
            "{}: the hub serves no {kind} of {api_version}; apply its CustomResourceDefinition first",
            title(object)
        ),
        found => found?,
    };
    let mut object = object.clone();
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(hub.client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&hub.namespace);
            let namespace = namespace.to_owned();
            object["metadata"]["namespace"] = namespace.as_str().into();
            if new_namespaces.contains(&namespace) {
                return Ok(object);
            }
            Api::namespaced_with(hub.client.clone(), &namespace, &resource)
        }
    };
    let doing = format!("dry run of {}", title(&object));
    let held = hub.call(&doing, api.get_opt(name)).await?;
    let last = held.as_ref().and_then(last_applied);
    let applied = match (held, last) {
        (Some(_), Some(last)) => {
            let patch = three_way(&last, &object);
            let params = PatchParams { dry_run: true, ..PatchParams::default() };
            hub.call(&doing, api.patch(name, &params, &Patch::Merge(&patch))).await?
        }
        _ => {
            let params = PatchParams { dry_run: true, force: true, ..PatchParams::apply(KUBECTL) };
            hub.call(&doing, api.patch(name, &params, &Patch::Apply(&object))).await?
        }
    };
    let mut answer = serde_json::to_value(&applied).context("read the answer to a dry run")?;
    answer["apiVersion"] = object["apiVersion"].take();
    answer["kind"] = object["kind"].take();
    Ok(answer)
}

fn last_applied(object: &DynamicObject) -> Option<Value> {
    let text = object.metadata.annotations.as_ref()?.get(LAST_APPLIED)?;
    serde_json::from_str(text).ok()
}

/// The merge patch of `kubectl apply`: everything that the file says, and null for what it said last time and does not
/// say any more.
fn three_way(last: &Value, file: &Value) -> Value {
    let mut patch = file.clone();
    remove(last, &mut patch);
    patch
}

fn remove(last: &Value, patch: &mut Value) {
    let (Some(last), Some(patch)) = (last.as_object(), patch.as_object_mut()) else { return };
    remove_fields(last, patch);
}

fn remove_fields(last: &Map<String, Value>, patch: &mut Map<String, Value>) {
    for (field, value) in last {
        match patch.get_mut(field) {
            Some(held) => remove(value, held),
            None => {
                patch.insert(field.clone(), Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_the_file_does_not_have_any_more_is_removed_and_others_stay() {
        let last = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"replicas": 3, "list": [1, 2]}});
        let file = json!({"metadata": {"labels": {"a": "3"}}, "spec": {"list": [1]}});
        assert_eq!(
            three_way(&last, &file),
            json!({"metadata": {"labels": {"a": "3", "b": null}}, "spec": {"replicas": null, "list": [1]}})
        );
        assert_eq!(three_way(&json!({}), &file), file);
    }
}
