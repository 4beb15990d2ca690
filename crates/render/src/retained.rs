//! Fields that servers and controllers fill in on each cluster by itself: what the hub filled in is no wish of the user.

use serde_json::{Map, Value};

use crate::Key;

/// Removes them from the manifest.
pub(crate) fn remove(manifest: &mut Map<String, Value>, key: &Key) {
    let paths: &[&[&str]] = match (key.group.as_str(), key.kind.as_str()) {
        ("", "Service") => &[
            &["spec", "clusterIP"],
            &["spec", "clusterIPs"],
            &["spec", "healthCheckNodePort"],
            &["spec", "ports", "nodePort"],
        ],
        ("", "ServiceAccount") => &[&["secrets"]],
        ("", "PersistentVolumeClaim") => &[&["spec", "volumeName"]],
        _ => &[],
    };
    // `clusterIP: None` is the user's word for a headless Service.
    let headless =
        manifest.get("spec").and_then(|spec| spec.get("clusterIP")).is_some_and(|ip| ip == "None");
    for path in paths {
        if !(headless && path[1..].first().is_some_and(|field| field.starts_with("clusterIP"))) {
            remove_path(manifest, path);
        }
    }
}

/// Removes one path; through a list it goes into every item.
fn remove_path(map: &mut Map<String, Value>, path: &[&str]) {
    let [field, rest @ ..] = path else { return };
    if rest.is_empty() {
        map.remove(*field);
        return;
    }
    match map.get_mut(*field) {
        Some(Value::Object(child)) => remove_path(child, rest),
        Some(Value::Array(items)) => {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| {
                remove_path(item, rest);
            });
        }
        _ => {}
    }
}
