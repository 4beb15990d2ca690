//! What is written to Karmada: its objects stay as they are, but nothing is sent, scheduled or deleted any more. Each
//! patch holds the fields as they were before, in the annotation [`BEFORE`], so that they can be put back.

use atoll_api::binding::TargetCluster;
use serde_json::{Map, Value, json};

use crate::{BEFORE, FINISHED};

/// Label of a namespace whose Works Karmada makes no more.
const SKIP: &str = "namespace.karmada.io/skip-auto-propagation";

/// What a suspended object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A policy.
    Policy,
    /// A binding: its scheduling stops, too.
    Binding,
    /// A Namespace.
    Namespace,
    /// The Work of a namespace, which follows no policy.
    Work,
}

/// The merge patch that suspends an object; `None` if it is suspended. It is refused if the object has changed meanwhile.
#[must_use]
pub fn suspend(object: &Value, part: Part) -> Option<Value> {
    let fields = changed(part);
    let done = fields.iter().all(|(pointer, value)| {
        let now = object.pointer(pointer).cloned().unwrap_or_default();
        now == *value
    });
    if done {
        return None;
    }
    let mut patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}});
    // The state before the first suspension counts: Karmada may have undone a part of it since.
    if object["metadata"]["annotations"][BEFORE].is_null() {
        let before: Map<String, Value> = fields
            .iter()
            .map(|(pointer, _)| {
                ((*pointer).to_owned(), object.pointer(pointer).cloned().unwrap_or_default())
            })
            .collect();
        patch["metadata"]["annotations"][BEFORE] = Value::Object(before).to_string().into();
    }
    for (pointer, value) in fields {
        set(&mut patch, pointer, value);
    }
    Some(patch)
}

/// Whether a suspended object shows its suspension.
#[must_use]
pub fn is_suspended(object: &Value, part: Part) -> bool {
    suspend(object, part).is_none()
}

/// Whether the migration has suspended an object.
#[must_use]
pub fn is_marked(object: &Value) -> bool {
    !object["metadata"]["annotations"][BEFORE].is_null()
}

/// An object as it was before it was suspended.
#[must_use]
pub fn original(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(before) = before(&object) else { return object };
    for (pointer, value) in before {
        set(&mut object, &pointer, value);
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(BEFORE);
    }
    object
}

/// The merge patch that puts back what a suspension changed; `None` if the object is not suspended by the migration.
#[must_use]
pub fn restore(object: &Value) -> Option<Value> {
    let mut patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}});
    for (pointer, value) in before(object)? {
        set(&mut patch, &pointer, value);
    }
    patch["metadata"]["annotations"][BEFORE] = Value::Null;
    Some(patch)
}

/// The merge patch that gives a binding the clusters that Atoll has; `None` if it has them.
#[must_use]
pub fn hand_back(binding: &Value, clusters: &[TargetCluster]) -> Option<Value> {
    let sorted = |clusters: &[TargetCluster]| {
        let mut each: Vec<_> = clusters.iter().map(|to| (to.name.clone(), to.replicas)).collect();
        each.sort_unstable();
        each
    };
    let held: Vec<TargetCluster> =
        serde_json::from_value(binding["spec"]["clusters"].clone()).unwrap_or_default();
    if sorted(&held) == sorted(clusters) {
        return None;
    }
    let version = &binding["metadata"]["resourceVersion"];
    Some(json!({"metadata": {"resourceVersion": version}, "spec": {"clusters": clusters}}))
}

/// Whether the object of a binding is Atoll's for good.
#[must_use]
pub fn is_finished(binding: &Value) -> bool {
    binding["metadata"]["annotations"][FINISHED] == "true"
}

/// The merge patch that says so; `None` if the binding says it.
#[must_use]
pub fn finish(binding: &Value) -> Option<Value> {
    let version = &binding["metadata"]["resourceVersion"];
    (!is_finished(binding)).then(
        || json!({"metadata": {"resourceVersion": version, "annotations": {FINISHED: "true"}}}),
    )
}

/// The merge patch that removes Karmada's labels and annotations from an object of a member; `None` if it has none. It does
/// not apply to an object that was created anew meanwhile.
#[must_use]
pub fn without_marks(object: &Value) -> Option<Value> {
    let mut patch = json!({"metadata": {"uid": object["metadata"]["uid"]}});
    let mut any = false;
    for map in ["labels", "annotations"] {
        let entries = object["metadata"][map].as_object().into_iter().flatten();
        for (key, _) in entries.filter(|(key, _)| crate::is_karmadas(key)) {
            patch["metadata"][map][key.as_str()] = Value::Null;
            any = true;
        }
    }
    any.then_some(patch)
}

/// The finalizer of Works. On a deletion Karmada would write the Work's manifest to the member once more, and refuses to since
/// the object is not its own any more: the Work would stay for ever.
const OF_WORKS: &str = "karmada.io/execution-controller";

/// The merge patch that removes Karmada's finalizer from a Work; `None` if it has none.
#[must_use]
pub fn without_finalizer(work: &Value) -> Option<Value> {
    let metadata = &work["metadata"];
    let finalizers = metadata["finalizers"].as_array()?;
    let kept: Vec<&Value> = finalizers.iter().filter(|one| **one != OF_WORKS).collect();
    (kept.len() < finalizers.len()).then(|| {
        json!({"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}})
    })
}

fn before(object: &Value) -> Option<Map<String, Value>> {
    serde_json::from_str(object["metadata"]["annotations"][BEFORE].as_str()?).ok()
}

fn changed(part: Part) -> Vec<(&'static str, Value)> {
    let preserve = ("/spec/preserveResourcesOnDeletion", json!(true));
    let dispatching = ("/spec/suspension/dispatching", json!(true));
    // Karmada refuses both at once.
    let of_clusters = ("/spec/suspension/dispatchingOnClusters", Value::Null);
    match part {
        Part::Policy => vec![preserve, dispatching, of_clusters],
        Part::Binding => {
            vec![preserve, dispatching, of_clusters, ("/spec/suspension/scheduling", json!(true))]
        }
        Part::Work => vec![preserve, ("/spec/suspendDispatching", json!(true))],
        Part::Namespace => {
            vec![("/metadata/labels/namespace.karmada.io~1skip-auto-propagation", json!("true"))]
        }
    }
}

/// Sets a field, with the maps above it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        let name = if name.ends_with("skip-auto-propagation") { SKIP } else { name };
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(object: &Value, patch: &Value) -> Value {
        let (Some(old), Some(new)) = (object.as_object(), patch.as_object()) else {
            return patch.clone();
        };
        let mut merged = old.clone();
        for (name, value) in new {
            if value.is_null() {
                merged.remove(name);
            } else {
                let below = merged.get(name).cloned().unwrap_or_default();
                merged.insert(name.clone(), merged_or_new(&below, value));
            }
        }
        Value::Object(merged)
    }

    fn merged_or_new(old: &Value, new: &Value) -> Value {
        if new.is_object() {
            merged(&if old.is_object() { old.clone() } else { json!({}) }, new)
        } else {
            new.clone()
        }
    }

    #[test]
    fn a_suspended_object_knows_what_it_was() {
        for (part, object) in [
            (
                Part::Policy,
                json!({"metadata": {"name": "p", "resourceVersion": "7"},
                "spec": {"suspension": {"dispatchingOnClusters": {"clusterNames": ["m1"]}}}}),
            ),
            (
                Part::Binding,
                json!({"metadata": {"name": "b", "resourceVersion": "7"}, "spec": {"replicas": 2}}),
            ),
            (
                Part::Work,
                json!({"metadata": {"name": "w", "resourceVersion": "7"}, "spec": {"workload": {}}}),
            ),
            (
                Part::Namespace,
                json!({"metadata": {"name": "shop", "resourceVersion": "7", "labels": {"a": "b"}}}),
            ),
        ] {
            let patch = suspend(&object, part).unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            let after = merged(&object, &patch);
            assert!(is_suspended(&after, part) && is_marked(&after), "{after}");
            assert_eq!(suspend(&after, part), None, "a second time changes nothing");
            let restored = merged(&after, &restore(&after).unwrap());
            assert!(!is_marked(&restored) && !is_suspended(&restored, part), "{restored}");
            let back = original(&after);
            assert!(!is_suspended(&back, part), "{back}");
            for pointer in
                ["/spec/suspension/dispatchingOnClusters/clusterNames/0", "/metadata/labels/a"]
            {
                assert_eq!(back.pointer(pointer), object.pointer(pointer));
            }
            // Karmada took the suspension back: what it was at first still counts.
            let mut undone = after.clone();
            if let Some(spec) = undone["spec"].as_object_mut() {
                spec.remove("preserveResourcesOnDeletion");
                let again = suspend(&undone, part).unwrap();
                assert!(again["metadata"]["annotations"].is_null(), "{again}");
            }
        }
    }

    #[test]
    fn a_placement_goes_back_only_if_it_changed_and_marks_go_only_if_there_are_any() {
        let binding = json!({"metadata": {"resourceVersion": "7"},
            "spec": {"clusters": [{"name": "b", "replicas": 1}, {"name": "a", "replicas": 2}]}});
        let to = |name: &str, replicas| TargetCluster { name: name.to_owned(), replicas };
        assert_eq!(hand_back(&binding, &[to("a", 2), to("b", 1)]), None);
        let patch = hand_back(&binding, &[to("a", 3)]).unwrap();
        assert_eq!(patch["spec"]["clusters"], json!([{"name": "a", "replicas": 3}]));

        let object = json!({"metadata": {"uid": "u", "labels": {"app": "web", "karmada.io/managed": "true"},
            "annotations": {"work.karmada.io/name": "w"}}});
        let patch = without_marks(&object).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u", "labels": {"karmada.io/managed": null},
            "annotations": {"work.karmada.io/name": null}}})
        );
        assert_eq!(without_marks(&merged(&object, &patch)), None);
        let work = json!({"metadata": {"resourceVersion": "7", "finalizers": ["a/b", "karmada.io/execution-controller"]}});
        let free = merged(&work, &without_finalizer(&work).unwrap());
        assert_eq!(free["metadata"]["finalizers"], json!(["a/b"]));
        assert_eq!(without_finalizer(&free), None);
        let finished = merged(&binding, &finish(&binding).unwrap());
        assert!(is_finished(&finished) && finish(&finished).is_none());
    }
}
