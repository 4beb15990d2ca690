//! What `metadata.managedFields` tells: whether what Atoll applied is unmodified, what it was, and who else owns
//! fields.
//!
//! Kubernetes takes a field out of our entry as soon as another manager changes or removes it (server-side apply's
//! ownership rules). So a hash of our entry proves that nothing we applied was modified, whatever defaulting and
//! normalising the server did to the values; and our entry together with the object yields what we applied.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use atoll_api::ManifestHash;
use atoll_api::marks::{HASH, MANAGER, MEMBER_MARKS};

/// Managers of client-side `kubectl apply`, and of fields from before the first server-side apply.
const CLIENT_SIDE: [&str; 2] = ["kubectl-client-side-apply", "before-first-apply"];
/// Managers of Karmada's programs, which write members' objects with `Update`.
const PEERS: [&str; 2] = ["karmada-controller-manager", "karmada-agent"];
/// Domain of the labels and annotations by which Karmada knows its objects.
const PEER_DOMAIN: &str = "karmada.io";

/// Limit of managers that a message names.
const MOST_NAMED: usize = 4;
/// Limit of a manager's name in a message, in characters. API servers allow 128.
const LONGEST_NAME: usize = 64;

/// Hash of the fields we own, with and without `spec.replicas`: an autoscaler taking over that field is not drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    all: [u8; 16],
    without_replicas: [u8; 16],
}

impl Fingerprint {
    /// The fingerprint of an object; `None` when Atoll owns none of its fields.
    #[must_use]
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let fields = &own_entry(object)?["fieldsV1"];
        let mut rest = fields.clone();
        if let Some(spec) = rest.get_mut("f:spec").and_then(Value::as_object_mut) {
            spec.remove("f:replicas");
        }
        Some(Self { all: short(fields), without_replicas: short(&rest) })
    }

    /// Whether the fields are the same but for `spec.replicas`, which is no longer ours.
    #[must_use]
    pub(crate) fn lost_only_replicas(&self, now: &Self) -> bool {
        self.all != now.all
            && self.without_replicas == now.without_replicas
            && now.all == now.without_replicas
    }
}

fn short(fields: &Value) -> [u8; 16] {
    // serde_json's maps are sorted, so equal sets have equal texts.
    let hash = digest(&SHA256, fields.to_string().as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash.as_ref()[..16]);
    short
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten()
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == MANAGER && entry["operation"] == "Apply" && subresource(entry).is_empty()
}

fn subresource(entry: &Value) -> &str {
    entry["subresource"].as_str().unwrap_or_default()
}

fn own_entry(object: &Value) -> Option<&Value> {
    entries(object).find(|entry| is_ours(entry))
}

/// Who owns one place of an object: the sets of `managedFields` that contain it, each from this place on.
#[derive(Debug, Default)]
pub(crate) struct FieldOwners<'a> {
    ours: Option<&'a Value>,
    others: Vec<&'a Value>,
}

impl<'a> FieldOwners<'a> {
    /// Owners of the whole object.
    #[must_use]
    pub(crate) fn of(object: &'a Value) -> Self {
        let others = entries(object).filter(|entry| !is_ours(entry));
        Self {
            ours: own_entry(object).map(|entry| &entry["fieldsV1"]),
            others: others.map(|entry| &entry["fieldsV1"]).collect(),
        }
    }

    /// Whether Atoll is its only owner.
    #[must_use]
    pub(crate) fn is_only_ours(&self) -> bool {
        self.ours.is_some() && self.others.is_empty()
    }

    /// Whether it is owned as a whole, so that an apply of a part of it would drop the rest.
    #[must_use]
    pub(crate) fn is_whole(&self) -> bool {
        self.sets().any(|set| set.as_object().is_some_and(Map::is_empty))
    }

    /// The fields that identify the items of the list at this place; `None` if items have no identity.
    #[must_use]
    pub(crate) fn keys(&self) -> Option<Vec<String>> {
        let mut items = self.sets().filter_map(Value::as_object).flat_map(Map::keys);
        let keys = items.find_map(|path| path.strip_prefix("k:"))?;
        let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
        Some(keys.into_iter().map(|(name, _)| name).collect())
    }

    /// Owners of a field of the map at this place.
    #[must_use]
    pub(crate) fn of_field(&self, name: &str) -> Self {
        let path = format!("f:{name}");
        self.below(|set| set.get(&path))
    }

    /// Owners of an item of the list at this place, as the object has it.
    #[must_use]
    pub(crate) fn of_item(&self, item: &Value) -> Self {
        let is_item = |path: &str| {
            let keys = path.strip_prefix("k:")?;
            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
            Some(keys.iter().all(|(name, value)| item.get(name) == Some(value)))
        };
        self.below(|set| {
            let mut items = set.as_object()?.iter();
            items.find(|(path, _)| is_item(path) == Some(true)).map(|(_, below)| below)
        })
    }

    fn sets(&self) -> impl Iterator<Item = &'a Value> {
        self.ours.into_iter().chain(self.others.iter().copied())
    }

    fn below(&self, of: impl Fn(&'a Value) -> Option<&'a Value>) -> Self {
        let others = self.others.iter().filter_map(|set| of(set));
        Self { ours: self.ours.and_then(&of), others: others.collect() }
    }
}

/// Whether Atoll applied the object, as an object of this group. Controllers copy labels and annotations to objects
/// they create (Kubernetes from a Service to its EndpointSlices), and some kinds are served in two groups. On a server
/// without managed fields, the marks alone decide.
#[must_use]
pub(crate) fn is_applied(object: &Value, group: &str) -> bool {
    let group_of =
        |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
    match own_entry(object) {
        Some(entry) => group_of(entry["apiVersion"].as_str().unwrap_or_default()) == group,
        None => entries(object).next().is_none(),
    }
}

/// Whether another manager wrote to the object itself (not to a subresource) after Atoll's last apply. Times have whole
/// seconds; a write in the same second as our own counts as earlier.
#[must_use]
pub(crate) fn touched_since_apply(object: &Value) -> bool {
    let time = |entry: &Value| -> Option<jiff::Timestamp> { entry["time"].as_str()?.parse().ok() };
    let Some(ours) = own_entry(object) else { return true };
    entries(object)
        .filter(|entry| !is_ours(entry) && subresource(entry).is_empty())
        .any(|entry| time(entry) > time(ours))
}

/// The manager that owns `spec.replicas` through the scale subresource, if Atoll does not own it.
#[must_use]
pub(crate) fn scaled_by(object: &Value) -> Option<&str> {
    let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object();
    if own_entry(object).as_ref().is_some_and(owns) {
        return None;
    }
    entries(object)
        .filter(owns)
        .find(|entry| subresource(entry) == "scale")
        .and_then(|entry| entry["manager"].as_str())
}

/// The other managers of the object's fields, for people. Who only writes a subresource, such as the status, does not own
/// the object.
#[must_use]
pub(crate) fn managers(object: &Value) -> String {
    let others = entries(object).filter(|entry| !is_ours(entry) && subresource(entry).is_empty());
    let names: BTreeSet<&str> = others.filter_map(|entry| entry["manager"].as_str()).collect();
    let named: Vec<String> = names
        .iter()
        .take(MOST_NAMED)
        .map(|name| name.chars().take(LONGEST_NAME).collect())
        .collect();
    match names.len() {
        0 => "it has no field managers".to_owned(),
        1 => format!("field manager: {}", named[0]),
        count if count > MOST_NAMED => {
            format!("field managers: {} and {} more", named.join(", "), count - MOST_NAMED)
        }
        _ => format!("field managers: {}", named.join(", ")),
    }
}

/// What Atoll applied, reconstructed from the current object: the fields of our entry with their values. `None` where
/// we own nothing, or where the object was read in another version than it was applied in.
#[must_use]
pub(crate) fn extract(object: &Value) -> Option<Value> {
    let entry = own_entry(object)?;
    if entry["apiVersion"] != object["apiVersion"] {
        return None;
    }
    let mut applied = pick(object, entry["fieldsV1"].as_object()?);
    let metadata = applied.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
    for field in ["name", "namespace"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    applied["apiVersion"] = object["apiVersion"].clone();
    applied["kind"] = object["kind"].clone();
    Some(applied)
}

/// Whether what [`extract`] found is the whole manifest, unmodified: it has the hash that the manifest had. A manifest
/// that the server changed (a quantity that it normalised, an empty text that it dropped) never has.
#[must_use]
pub(crate) fn is_whole(applied: &Value) -> bool {
    let mut manifest = applied.clone();
    for (field, names) in MEMBER_MARKS {
        let Some(metadata) = manifest["metadata"].as_object_mut() else { return false };
        let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
        for name in names {
            map.remove(*name);
        }
        if map.is_empty() {
            metadata.remove(field);
        }
    }
    applied["metadata"]["annotations"][HASH] == ManifestHash::of(&manifest).as_ref()
}

/// The members of a value that a field set (`fieldsV1`) names.
fn pick(value: &Value, fields: &Map<String, Value>) -> Value {
    // An empty set names the whole value.
    if fields.is_empty() {
        return value.clone();
    }
    match value {
        Value::Object(object) => {
            let picked = fields.iter().filter_map(|(path, below)| {
                let name = path.strip_prefix("f:")?;
                Some((name.to_owned(), pick(object.get(name)?, below.as_object()?)))
            });
            Value::Object(picked.collect())
        }
        Value::Array(items) => {
            let picked = items.iter().enumerate().filter_map(|(at, item)| {
                fields.iter().find_map(|(path, below)| {
                    let (form, rest) = path.split_once(':')?;
                    match form {
                        "v" => (serde_json::from_str::<Value>(rest).ok()? == *item)
                            .then(|| item.clone()),
                        "i" if rest.parse() == Ok(at) => Some(pick(item, below.as_object()?)),
                        "k" => pick_keyed(item, rest, below.as_object()?),
                        _ => None,
                    }
                })
            });
            Value::Array(picked.collect())
        }
        scalar => scalar.clone(),
    }
}

/// An item of a list that is a map, if it has these keys. The result has the keys that we applied, because the server
/// adds the others again, or all of them if we own none.
fn pick_keyed(item: &Value, keys: &str, below: &Map<String, Value>) -> Option<Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    if !keys.iter().all(|(name, value)| item.get(name) == Some(value)) {
        return None;
    }
    let mut picked = pick(item, below);
    let object = picked.as_object_mut()?;
    if !keys.keys().any(|name| object.contains_key(name)) {
        object.extend(keys);
    }
    Some(picked)
}

/// `managedFields` with the fields of client-side appliers and of Karmada moved to us, so that the next apply drops those
/// of them that the manifest does not have (what client-go's `csaupgrade` does). Karmada's own marks stay with Karmada:
/// it takes the object back by them. `None` where there is nothing to move.
#[must_use]
pub(crate) fn with_others_moved(object: &Value) -> Option<Value> {
    let (mut moved, mut rest) = (Vec::new(), Vec::new());
    let mut api_version = None;
    for entry in entries(object).filter(|entry| !is_ours(entry)) {
        let (ours, theirs) = match moves(entry) {
            true => split(&entry["fieldsV1"]),
            false => (None, Some(entry["fieldsV1"].clone())),
        };
        if let Some(fields) = ours {
            api_version.get_or_insert_with(|| entry["apiVersion"].clone());
            moved.push(fields);
        }
        if let Some(fields) = theirs {
            let mut entry = entry.clone();
            entry["fieldsV1"] = fields;
            rest.push(entry);
        }
    }
    let mut ours = own_entry(object).cloned().unwrap_or_else(|| {
        json!({
            "manager": MANAGER,
            "operation": "Apply",
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        })
    });
    api_version.as_ref()?;
    for fields in &moved {
        unite(&mut ours["fieldsV1"], fields);
    }
    Some([ours].into_iter().chain(rest).collect())
}

/// Whether the fields of an entry become ours when Atoll takes an object over.
fn moves(entry: &Value) -> bool {
    entry["operation"] == "Update"
        && subresource(entry).is_empty()
        && entry["manager"]
            .as_str()
            .is_some_and(|manager| CLIENT_SIDE.contains(&manager) || PEERS.contains(&manager))
}

/// A field set without and with only Karmada's marks; `None` where nothing is left.
fn split(fields: &Value) -> (Option<Value>, Option<Value>) {
    let (mut rest, mut marks) = (fields.clone(), json!({}));
    for map in ["f:labels", "f:annotations"] {
        let found = rest.get_mut("f:metadata").and_then(|metadata| metadata.get_mut(map));
        let Some(keys) = found.and_then(Value::as_object_mut) else { continue };
        let is_mark = |key: &str| {
            let domain = key.strip_prefix("f:").and_then(|key| key.split_once('/'));
            domain.is_some_and(|(domain, _)| {
                let sub = domain.strip_suffix(PEER_DOMAIN);
                sub.is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
            })
        };
        let of_peer: Vec<String> = keys.keys().filter(|key| is_mark(key)).cloned().collect();
        for key in of_peer {
            let below = keys.remove(&key).unwrap_or_default();
            marks["f:metadata"][map][key] = below;
        }
    }
    drop_empty(&mut rest);
    let some = |fields: Value| fields.as_object().is_some_and(|f| !f.is_empty()).then_some(fields);
    (some(rest), some(marks))
}

/// Drops `metadata` and its maps if no field of them is left: an empty set would stand for all of their fields.
fn drop_empty(fields: &mut Value) {
    let Some(metadata) = fields.get_mut("f:metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.retain(|name, below| {
        !["f:labels", "f:annotations"].contains(&name.as_str())
            || below.as_object().is_none_or(|below| below.keys().any(|key| key != "."))
    });
    if metadata.is_empty()
        && let Some(fields) = fields.as_object_mut()
    {
        fields.remove("f:metadata");
    }
}

fn unite(into: &mut Value, other: &Value) {
    let (Some(into), Some(other)) = (into.as_object_mut(), other.as_object()) else { return };
    for (path, below) in other {
        unite(into.entry(path.clone()).or_insert_with(|| json!({})), below);
    }
}

/// `managedFields` without Atoll. The API server ignores an empty list; one empty entry is how to say "none".
#[must_use]
pub(crate) fn without_ours(object: &Value) -> Value {
    let rest: Vec<_> =
        entries(object).filter(|entry| entry["manager"] != MANAGER).cloned().collect();
    if rest.is_empty() { json!([{}]) } else { Value::Array(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(entries: &[Value]) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u",
                "labels": {"a": "1", "other": "x"},
                "finalizers": ["ours", "theirs"],
                "managedFields": entries,
            },
            "spec": {
                "replicas": 3,
                "empty": {},
                "template": {"spec": {"containers": [
                    {"name": "sidecar", "image": "s"},
                    {"name": "main", "image": "m", "terminationMessagePath": "/dev/log",
                     "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                ]}},
                "atomic": [{"x": 1}, {"x": 2}],
            },
            "status": {"replicas": 3},
        })
    }

    fn ours(time: &str) -> Value {
        json!({
            "manager": "atoll", "operation": "Apply", "apiVersion": "apps/v1", "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"ours\"": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:empty": {},
                    "f:atomic": {},
                    "f:template": {"f:spec": {"f:containers": {
                        "k:{\"name\":\"main\"}": {
                            ".": {}, "f:name": {}, "f:image": {},
                            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                                ".": {}, "f:containerPort": {}}},
                        },
                    }}},
                },
            },
        })
    }

    fn foreign(manager: &str, sub: &str, time: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "apps/v1", "time": time,
            "subresource": sub, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    }

    #[test]
    fn the_managers_of_another_owners_object_are_named_in_a_bounded_text() {
        let entry = |manager: &str, subresource: &str| json!({"manager": manager, "operation": "Update", "subresource": subresource});
        let of = |names: &[&str]| {
            let entries: Vec<_> = names.iter().map(|name| entry(name, "")).collect();
            managers(&object(&entries))
        };
        let status = [entry("kube-controller-manager", "status"), entry("helm", "")];
        assert_eq!(managers(&object(&status)), "field manager: helm");
        assert_eq!(of(&["kubectl-edit", "helm", "helm"]), "field managers: helm, kubectl-edit");
        assert_eq!(of(&[]), "it has no field managers");
        let long = ["a".repeat(128), "b".repeat(128), "c".into(), "d".into(), "e".into()];
        let text = of(&long.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.len() < 200 && text.ends_with("c, d and 1 more"), "{text}");
    }

    #[test]
    fn what_was_applied_is_found_in_the_object() {
        let applied = extract(&object(&[ours("2026-01-01T00:00:00Z")])).unwrap();
        assert_eq!(
            applied,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": "web", "namespace": "shop", "labels": {"a": "1"}, "finalizers": ["ours"],
                },
                "spec": {
                    "replicas": 3, "empty": {}, "atomic": [{"x": 1}, {"x": 2}],
                    "template": {"spec": {"containers": [
                        {"name": "main", "image": "m", "ports": [{"containerPort": 80}]},
                    ]}},
                },
            })
        );
        let mut other_version = object(&[ours("2026-01-01T00:00:00Z")]);
        other_version["apiVersion"] = json!("apps/v2");
        assert_eq!(extract(&other_version), None);
    }

    #[test]
    fn an_autoscaler_taking_the_replicas_is_told_from_drift() {
        let before = Fingerprint::of(&object(&[ours("2026-01-01T00:00:00Z")])).unwrap();
        let mut scaled = ours("2026-01-01T00:00:00Z");
        scaled["fieldsV1"]["f:spec"].as_object_mut().unwrap().remove("f:replicas");
        let autoscaler =
            foreign("kcm", "scale", "2026-01-02T00:00:00Z", json!({"f:spec": {"f:replicas": {}}}));
        let now = object(&[scaled.clone(), autoscaler]);
        let after = Fingerprint::of(&now).unwrap();
        assert!(before.lost_only_replicas(&after));
        assert!(!before.lost_only_replicas(&before));
        assert_eq!(scaled_by(&now), Some("kcm"));
        assert!(!touched_since_apply(&now), "a subresource is not the object");

        scaled["fieldsV1"]["f:metadata"]["f:labels"].as_object_mut().unwrap().remove("f:a");
        let drifted = Fingerprint::of(&object(&[scaled])).unwrap();
        assert!(before != drifted && !before.lost_only_replicas(&drifted));
    }

    #[test]
    fn later_writers_make_an_object_suspect_and_earlier_ones_do_not() {
        let at = "2026-01-01T00:00:10Z";
        for (time, suspect) in
            [("2026-01-01T00:00:09Z", false), (at, false), ("2026-01-01T00:00:11Z", true)]
        {
            let object = object(&[foreign("kubectl-edit", "", time, json!({})), ours(at)]);
            assert_eq!(touched_since_apply(&object), suspect, "{time}");
        }
        assert!(touched_since_apply(&object(&[])), "not ours at all");
    }

    #[test]
    fn fields_of_client_side_appliers_move_to_us() {
        let client = foreign(
            "kubectl-client-side-apply",
            "",
            "2026-01-01T00:00:00Z",
            json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}),
        );
        let status = foreign("kcm", "status", "2026-01-01T00:00:00Z", json!({"f:status": {}}));
        let moved = with_others_moved(&object(&[client, status.clone()])).unwrap();
        assert_eq!(moved[0]["manager"], "atoll");
        assert_eq!(moved[0]["operation"], "Apply");
        assert_eq!(moved[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
        assert_eq!(moved[1], status);
        assert_eq!(moved.as_array().unwrap().len(), 2);
        assert_eq!(with_others_moved(&object(std::slice::from_ref(&status))), None);
        assert_eq!(without_ours(&object(&[ours("2026-01-01T00:00:00Z")])), json!([{}]));
        assert_eq!(
            without_ours(&object(&[ours("2026-01-01T00:00:00Z"), status.clone()])),
            json!([status])
        );
    }

    #[test]
    fn fields_of_karmada_move_to_us_and_its_marks_stay_its_own() {
        let time = "2026-01-01T00:00:00Z";
        let peer = foreign(
            "karmada-controller-manager",
            "",
            time,
            json!({
                "f:metadata": {
                    "f:labels": {".": {}, "f:app": {}, "f:karmada.io/managed": {}},
                    "f:annotations": {".": {}, "f:work.karmada.io/name": {}},
                },
                "f:spec": {"f:replicas": {}, "f:paused": {}},
            }),
        );
        let edit = foreign("kubectl-edit", "", time, json!({"f:spec": {"f:minReadySeconds": {}}}));
        let before = object(&[peer, edit.clone()]);
        let after = with_others_moved(&before).unwrap();
        assert_eq!(
            after[0]["fieldsV1"],
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {"f:replicas": {}, "f:paused": {}},
            })
        );
        let marks = json!({"f:metadata": {
            "f:labels": {"f:karmada.io/managed": {}},
            "f:annotations": {"f:work.karmada.io/name": {}},
        }});
        assert_eq!(after[1]["manager"], "karmada-controller-manager");
        assert_eq!(after[1]["fieldsV1"], marks);
        assert_eq!(after[2], edit, "other managers keep what they have");
        // A crash between the move and the apply: the second attempt moves nothing.
        assert_eq!(with_others_moved(&object(after.as_array().unwrap())), None);
    }
}
