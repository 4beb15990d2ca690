//! What an object of a file becomes when it is applied: the hub answers a dry run with its defaults, and checks the
//! caller's rights and the object as it would in earnest.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use atoll_merge::schema::Schema;
use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::Scope;
use serde_json::{Map, Value, json};

use super::hub::{AT_ONCE, Kinds};
use crate::hub::Hub;
use crate::input::title;
use crate::print;

/// The annotation in which `kubectl apply` keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Field manager of `kubectl apply --server-side`.
const KUBECTL: &str = "kubectl";
/// Group of the kinds that only the controller writes.
const WORK: &str = "work.atoll.dev";

/// The objects as they would be after `kubectl apply`, in the order of the files. Objects in one of `new_namespaces` are
/// returned as given: the hub checks nothing in a namespace that does not exist.
pub(super) async fn dry_runs(
    hub: &Hub,
    objects: &[Value],
    new_namespaces: &BTreeSet<String>,
    kinds: &mut Kinds,
) -> Vec<anyhow::Result<Value>> {
    let mut found = Vec::new();
    for object in objects {
        found.push(find(hub, object, kinds).await);
    }
    let runs = found.into_iter().zip(objects.iter().cloned()).map(async |(found, object)| {
        let (resource, scope) = found?;
        dry_run(hub, object, (&resource, scope), new_namespaces).await
    });
    futures::stream::iter(runs).buffered(AT_ONCE).collect().await
}

/// How the hub serves the kind of an object that may be applied.
async fn find(
    hub: &Hub,
    object: &Value,
    kinds: &mut Kinds,
) -> anyhow::Result<(ApiResource, Scope)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if group == WORK {
        bail!("Atoll writes bindings; give the workload and its policy");
    }
    if kind.is_empty() || version.is_empty() || name.is_empty() {
        bail!("apiVersion, kind and metadata.name are needed");
    }
    match kinds.find(hub, api_version, kind).await? {
        Some(found) => Ok(found),
        None => bail!(
            "the hub serves no {kind} of {api_version}; apply its CustomResourceDefinition first"
        ),
    }
}

/// One object as the hub would store it.
async fn dry_run(
    hub: &Hub,
    mut object: Value,
    (resource, scope): (&ApiResource, Scope),
    new_namespaces: &BTreeSet<String>,
) -> anyhow::Result<Value> {
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(hub.client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&hub.namespace);
            let namespace = namespace.to_owned();
            object["metadata"]["namespace"] = namespace.as_str().into();
            if new_namespaces.contains(&namespace) {
                return Ok(object);
            }
            Api::namespaced_with(hub.client.clone(), &namespace, resource)
        }
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let doing = format!("dry run of {}", title(&object));
    let held = hub.call(&doing, api.get_opt(&name)).await?;
    let applied = match held {
        None => {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let new = serde_json::from_value(object.clone()).context("read the object")?;
            hub.call(&doing, api.create(&params, &new)).await?
        }
        Some(held) if is_applied_by_server(&held) => {
            let params = PatchParams { dry_run: true, ..PatchParams::apply(KUBECTL) };
            let patch = Patch::Apply(&object);
            match hub.call(&doing, api.patch(&name, &params, &patch)).await {
                Err(error) if is_conflict(&error) => {
                    print::note(format!(
                        "warning: {error:#}; planned as with `kubectl apply --server-side --force-conflicts`"
                    ));
                    let params = PatchParams { force: true, ..params };
                    hub.call(&doing, api.patch(&name, &params, &patch)).await?
                }
                applied => applied?,
            }
        }
        Some(held) => {
            let last = last_applied(&held).unwrap_or_default();
            let params = PatchParams { dry_run: true, ..PatchParams::default() };
            let patch = match Schema::builtin(&resource.group, &resource.version, &resource.kind) {
                Some(schema) => Patch::Strategic(three_way(&last, &object, Some(&schema))),
                None => Patch::Merge(three_way(&last, &object, None)),
            };
            hub.call(&doing, api.patch(&name, &params, &patch)).await?
        }
    };
    let mut answer = serde_json::to_value(&applied).context("read the answer to a dry run")?;
    answer["apiVersion"] = object["apiVersion"].take();
    answer["kind"] = object["kind"].take();
    Ok(answer)
}

/// Whether others own fields that the file sets.
fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409)
}

/// Whether `kubectl apply --server-side` wrote it last, and not `kubectl apply`.
fn is_applied_by_server(object: &DynamicObject) -> bool {
    let managers = object.metadata.managed_fields.iter().flatten();
    let mut own = managers.filter(|entry| entry.manager.as_deref() == Some(KUBECTL));
    last_applied(object).is_none() && own.any(|entry| entry.operation.as_deref() == Some("Apply"))
}

fn last_applied(object: &DynamicObject) -> Option<Value> {
    let text = object.metadata.annotations.as_ref()?.get(LAST_APPLIED)?;
    serde_json::from_str(text).ok()
}

/// The patch of `kubectl apply`: everything that the file says, and a deletion of what it said last time and does not say
/// any more. With a schema it is a strategic merge patch: lists with a merge key are merged item by item.
fn three_way(last: &Value, file: &Value, schema: Option<&Schema>) -> Value {
    match (last, file) {
        (Value::Object(last), Value::Object(file)) => {
            Value::Object(merged_fields(last, file, schema))
        }
        _ => file.clone(),
    }
}

fn merged_fields(
    last: &Map<String, Value>,
    file: &Map<String, Value>,
    schema: Option<&Schema>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (field, value) in file {
        let schema =
            schema.and_then(|schema| schema.property(field).or_else(|| schema.additional()));
        let before = last.get(field).unwrap_or(&Value::Null);
        let is_merged = schema.and_then(Schema::patch_strategy) == Some("merge");
        match (value, schema.filter(|_| is_merged).map(Schema::patch_merge_key)) {
            (Value::Array(items), Some(Some(key))) => {
                patch.insert(field.clone(), merged_items(before, items, key, schema));
            }
            (Value::Array(items), Some(None)) => {
                let gone = gone(before, |item| items.contains(item));
                if !gone.is_empty() {
                    patch.insert(format!("$deleteFromPrimitiveList/{field}"), gone.into());
                }
                patch.insert(field.clone(), value.clone());
            }
            _ => {
                patch.insert(field.clone(), three_way(before, value, schema));
            }
        }
    }
    for field in last.keys().filter(|field| !file.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    patch
}

/// The items of a list that is merged by this key.
fn merged_items(before: &Value, items: &[Value], key: &str, schema: Option<&Schema>) -> Value {
    let of_item = schema.and_then(Schema::items);
    let same = |item: &Value| {
        let held = before.as_array().into_iter().flatten();
        held.clone().find(|other| other[key] == item[key]).cloned().unwrap_or_default()
    };
    let mut patch: Vec<Value> =
        items.iter().map(|item| three_way(&same(item), item, of_item)).collect();
    let gone = gone(before, |item| items.iter().any(|other| other[key] == item[key]));
    patch.extend(gone.into_iter().map(|item| json!({"$patch": "delete", key: item[key]})));
    patch.into()
}

/// The items of a list that are not kept.
fn gone(list: &Value, kept: impl Fn(&Value) -> bool) -> Vec<Value> {
    list.as_array().into_iter().flatten().filter(|item| !kept(item)).cloned().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_the_file_does_not_have_any_more_is_removed_and_others_stay() {
        let last = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"replicas": 3, "list": [1, 2]}});
        let file = json!({"metadata": {"labels": {"a": "3"}}, "spec": {"list": [1]}});
        assert_eq!(
            three_way(&last, &file, None),
            json!({"metadata": {"labels": {"a": "3", "b": null}}, "spec": {"replicas": null, "list": [1]}})
        );
        assert_eq!(three_way(&json!({}), &file, None), file);
    }

    #[test]
    fn what_others_added_to_a_list_of_a_built_in_kind_stays() {
        let pod =
            |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let last =
            pod(json!([{"name": "a", "image": "a:1", "tty": true}, {"name": "b", "image": "b:1"}]));
        let file = pod(json!([{"name": "a", "image": "a:2"}]));
        // Another tool added a container and a variable.
        let held = pod(json!([
            {"name": "a", "image": "a:1", "tty": true, "env": [{"name": "A", "value": "1"}]},
            {"name": "b", "image": "b:1"},
            {"name": "c", "image": "c:1"},
        ]));
        let schema = Schema::builtin("apps", "v1", "Deployment").unwrap();
        let patch = three_way(&last, &file, Some(&schema));
        assert_eq!(
            atoll_merge::strategic::merge(&held, &patch, &schema).unwrap(),
            pod(json!([
                {"name": "a", "image": "a:2", "env": [{"name": "A", "value": "1"}]},
                {"name": "c", "image": "c:1"},
            ]))
        );
    }
}
