//! Where the containers of an object are.

use serde_json::{Map, Value};

/// Deepest level at which pod templates are searched for.
const MAX_DEPTH: usize = 32;
/// The lists of containers in a pod.
const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Kinds with a pod template at spec.template, whose containers are overridden. As in Karmada, the group does not
/// matter.
const WITH_TEMPLATE: [&str; 5] = ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job"];

/// Called for every container.
type Visit<'a> = &'a mut dyn FnMut(&mut Map<String, Value>) -> Result<(), String>;

/// Whether image, command and args overriders know the containers of a kind.
fn is_listed(kind: &str) -> bool {
    kind == "Pod" || WITH_TEMPLATE.contains(&kind)
}

/// The containers of the kinds that Karmada lists, without init and ephemeral containers.
pub(super) fn listed(manifest: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let pointer = match manifest.get("kind").and_then(Value::as_str) {
        Some("Pod") => Some("/spec/containers"),
        Some(kind) if WITH_TEMPLATE.contains(&kind) => Some("/spec/template/spec/containers"),
        _ => None,
    };
    let list = pointer.and_then(|pointer| manifest.pointer_mut(pointer));
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Calls `visit` on every container, init container and ephemeral container of a Pod and of all pod templates.
pub(super) fn each_of_every_template(manifest: &mut Value, visit: Visit<'_>) -> Result<(), String> {
    let is_pod = manifest.get("kind").and_then(Value::as_str) == Some("Pod");
    let Some(fields) = manifest.as_object_mut() else { return Ok(()) };
    for (name, value) in fields {
        match name.as_str() {
            "spec" if is_pod => each_of_pod(value, visit)?,
            "apiVersion" | "kind" | "metadata" | "status" => {}
            // `template` of a PodTemplate.
            "template" => search(value, true, 0, visit)?,
            _ => search(value, false, 0, visit)?,
        }
    }
    Ok(())
}

/// The images of an object that [`listed`] leaves out, if there are any.
pub(super) fn outside_scope(object: &Value) -> Option<&'static str> {
    let mut copy = object.clone();
    let (mut all, listed) = (0, listed(&mut copy.clone()).count());
    // The visitor does not fail.
    let _ = each_of_every_template(&mut copy, &mut |_| {
        all += 1;
        Ok(())
    });
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    match is_listed(kind) {
        _ if all <= listed => None,
        true => Some("init or ephemeral containers"),
        false => Some("the pod templates of this kind"),
    }
}

/// Searches for pod templates: maps whose `spec` has containers.
fn search(
    value: &mut Value,
    may_be_template: bool,
    depth: usize,
    visit: Visit<'_>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    match value {
        Value::Object(fields) => {
            let pod = fields.get_mut("spec").filter(|spec| may_be_template && has_containers(spec));
            if let Some(spec) = pod {
                return each_of_pod(spec, visit);
            }
            fields.values_mut().try_for_each(|value| search(value, true, depth + 1, visit))
        }
        Value::Array(items) => {
            items.iter_mut().try_for_each(|item| search(item, true, depth + 1, visit))
        }
        _ => Ok(()),
    }
}

fn has_containers(spec: &Value) -> bool {
    spec.get("containers").is_some_and(Value::is_array)
}

fn each_of_pod(spec: &mut Value, visit: Visit<'_>) -> Result<(), String> {
    for list in LISTS {
        let items = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            visit(container)?;
        }
    }
    Ok(())
}
