//! Objects without the parts that a write does not read.
//!
//! A schema says nothing about the content of an open part, such as `spec.placement` of a binding. So a write that leaves
//! the part alone does not parse it: it stays text, and an empty object is in its place while the write is checked. A
//! parsed part takes up to thirty times the memory of its text. A write that resets the managed fields does not parse
//! the old ones.

use std::fmt;
use std::sync::LazyLock;

use atoll_merge::managed::is_reset;
use serde::{
    Deserialize, Serialize, Serializer,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::{Map, Value, value::RawValue};

/// The path of an open part, or what is left of it below a field.
type Path<'a> = &'a [String];

static MANAGED_FIELDS: LazyLock<[String; 2]> =
    LazyLock::new(|| ["metadata", "managedFields"].map(str::to_owned));

/// The parts of an object that a write does not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread<'a> {
    /// Open parts that it leaves alone.
    open: Vec<Path<'a>>,
    /// It resets the managed fields.
    managed_fields: bool,
}

impl<'a> Unread<'a> {
    /// Those of `open` that a merge patch of the whole object does not reach, and the managed fields if it resets them.
    pub(crate) fn by(patch: &Value, open: &'a [Vec<String>]) -> Self {
        let managed = patch.pointer("/metadata/managedFields").and_then(Value::as_array);
        let managed_fields = managed.is_some_and(|entries| is_reset(entries));
        Self { managed_fields, ..Self::open(patch, open) }
    }

    /// Those of `open` that a merge patch does not reach.
    pub(crate) fn open(patch: &Value, open: &'a [Vec<String>]) -> Self {
        let open = open.iter().map(Vec::as_slice).filter(|path| !reaches(patch, path));
        Self { open: open.collect(), managed_fields: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && !self.managed_fields
    }
}

/// Whether a merge patch changes the field at `path`, or something above it.
fn reaches(patch: &Value, path: Path<'_>) -> bool {
    let Some((field, below)) = path.split_first() else { return true };
    match patch {
        Value::Object(fields) => fields.get(field).is_some_and(|patch| reaches(patch, below)),
        _ => true,
    }
}

/// The texts of parts that are left out of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts<'a>(Vec<(Path<'a>, &'a RawValue)>);

impl<'a> Parts<'a> {
    /// An object without its unread parts, and the open ones of them. `None` if something above a part is no object, which
    /// the schema of the kind may have allowed earlier.
    pub(super) fn split(json: &'a [u8], unread: &Unread<'a>) -> Option<(Value, Self)> {
        let managed_fields = unread.managed_fields.then(|| (None, MANAGED_FIELDS.as_slice()));
        let open = unread.open.iter().map(|path| (Some(*path), *path));
        let paths: Vec<_> = open.chain(managed_fields).collect();
        let mut parts = Vec::new();
        let mut text = serde_json::Deserializer::from_slice(json);
        let outline = Split { paths: &paths, parts: &mut parts }.deserialize(&mut text).ok()?;
        Some((outline, Parts(parts)))
    }

    /// Whether their places in `outline` are as [`Parts::split`] left them.
    pub(crate) fn fit(&self, outline: &Value) -> bool {
        let empty = |path: Path<'_>| {
            let found = path.iter().try_fold(outline, |value, field| value.get(field));
            found.and_then(Value::as_object).is_some_and(Map::is_empty)
        };
        self.0.iter().all(|(path, _)| empty(path))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a value without the parts at some paths.
struct Split<'s, 'a> {
    /// The path of each part from the root, `None` if the part is dropped; and what is left of its path below this value.
    paths: &'s [(Option<Path<'a>>, Path<'a>)],
    parts: &'s mut Vec<(Path<'a>, &'a RawValue)>,
}

impl<'a> DeserializeSeed<'a> for Split<'_, 'a> {
    type Value = Value;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.paths {
            [] => Value::deserialize(deserializer),
            [(None, [])] => {
                IgnoredAny::deserialize(deserializer)?;
                // A write compares the object before and after it, and only has to see that there was something.
                Ok(Value::Array(Vec::new()))
            }
            [(Some(whole), [])] => {
                let text = <&RawValue>::deserialize(deserializer)?;
                if !text.get().starts_with('{') {
                    return serde_json::from_str(text.get()).map_err(serde::de::Error::custom);
                }
                self.parts.push((whole, text));
                Ok(Value::Object(Map::new()))
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'a> Visitor<'a> for Split<'_, 'a> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let below: Vec<_> = (self.paths.iter())
                .filter_map(|(whole, here)| {
                    let (field, below) = here.split_first()?;
                    (*field == name).then_some((*whole, below))
                })
                .collect();
            let value = access.next_value_seed(Split { paths: &below, parts: self.parts })?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

/// An object for the store. Parts that a write did not read are beside their outline.
#[derive(Clone, Debug)]
pub(crate) struct Content<'a> {
    pub(super) outline: Value,
    parts: Parts<'a>,
}

impl<'a> Content<'a> {
    pub(crate) fn new(outline: Value, parts: Parts<'a>) -> Self {
        Content { outline, parts }
    }

    /// Whether nothing was left out.
    pub(super) fn is_whole(&self) -> bool {
        self.parts.is_empty()
    }
}

impl From<Value> for Content<'_> {
    fn from(whole: Value) -> Self {
        Content { outline: whole, parts: Parts::default() }
    }
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Joined { value: &self.outline, parts: &self.parts.0 }.serialize(serializer)
    }
}

/// A value with the parts below it at their places.
struct Joined<'j, 'a> {
    value: &'j Value,
    parts: &'j [(Path<'a>, &'a RawValue)],
}

impl Serialize for Joined<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = match (self.parts, self.value) {
            ([([], text)], _) => return text.serialize(serializer),
            ([_, ..], Value::Object(fields)) => fields,
            (_, value) => return value.serialize(serializer),
        };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (name, value) in fields {
            let below: Vec<_> = (self.parts.iter())
                .filter_map(|(path, text)| {
                    let (field, below) = path.split_first()?;
                    (field == name).then_some((below, *text))
                })
                .collect();
            map.serialize_entry(name, &Joined { value, parts: &below })?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open() -> Vec<Vec<String>> {
        ["spec.placement", "spec.other", "status"]
            .map(|path| path.split('.').map(str::to_owned).collect())
            .to_vec()
    }

    #[test]
    fn split_and_joined_objects_are_the_same() {
        let open = open();
        let unread = Unread::by(&json!({}), &open);
        for object in [
            json!({"spec": {"placement": {"a": [{"b": 1}]}, "n": 1, "other": {}}, "status": {"s": "}"}}),
            json!({"spec": {"placement": null, "other": "text"}, "status": []}),
            json!({"x": {"placement": {"a": 1}}}),
        ] {
            let json = serde_json::to_vec(&object).unwrap();
            let (outline, parts) = Parts::split(&json, &unread).unwrap();
            assert!(parts.fit(&outline));
            let joined = serde_json::to_vec(&Content::new(outline, parts)).unwrap();
            assert_eq!(String::from_utf8(joined), String::from_utf8(json));
        }
        assert!(Parts::split(br#"{"spec":[]}"#, &unread).is_none());
    }

    #[test]
    fn an_outline_has_empty_objects_instead_of_parts() {
        let open = open();
        let unread = Unread::by(&json!({"status": {"s": 1}}), &open);
        let json = br#"{"spec":{"n":1,"placement":{"a":1}},"status":{"s":0}}"#;
        let (mut outline, parts) = Parts::split(json, &unread).unwrap();
        assert_eq!(outline, json!({"spec": {"n": 1, "placement": {}}, "status": {"s": 0}}));
        outline["spec"] = json!({"n": 1});
        assert!(!parts.fit(&outline), "the part has no place");
    }

    #[test]
    fn managed_fields_that_are_reset_are_not_parsed() {
        let json = br#"{"metadata":{"managedFields":[{"manager":"a","fieldsV1":{}}],"name":"n"}}"#;
        let outline = |managed: Value| {
            let patch = json!({"metadata": {"managedFields": managed}});
            let (outline, parts) = Parts::split(json, &Unread::by(&patch, &[])).unwrap();
            assert!(parts.is_empty());
            outline
        };
        let before: Value = serde_json::from_slice(json).unwrap();
        for reset in [json!([]), json!([{}])] {
            assert_eq!(outline(reset), json!({"metadata": {"managedFields": [], "name": "n"}}));
        }
        for other in [Value::Null, json!([{"manager": "b"}])] {
            assert_eq!(outline(other), before);
        }
    }

    #[test]
    fn a_patch_reaches_parts_that_it_changes_replaces_or_removes() {
        let reached = |patch: Value| {
            let open = open();
            let unread = Unread::by(&patch, &open);
            open.len() - unread.open.len()
        };
        assert_eq!(reached(json!({"metadata": {"labels": null}, "spec": {"n": 2}})), 0);
        assert_eq!(reached(json!({"spec": {"placement": {}}})), 1);
        assert_eq!(reached(json!({"spec": {"placement": null, "other": {"a": null}}})), 2);
        assert_eq!(reached(json!({"spec": null})), 2);
        assert_eq!(reached(json!([])), 3);
    }
}
