//! Sets of fields, and their encoding in `managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::PathElement;
use crate::schema::{ListType, Schema, Type};

/// An ordered set of fields of an object. It can contain a field without the fields below it, and the reverse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<PathElement, Entry>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    member: bool,
    below: FieldSet,
}

/// Invalid `fieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "fieldsV1 has {0:?}: keys are `.` or start with `f:`, `k:`, `v:` or `i:`, values are objects"
)]
pub struct FieldSetError(pub String);

impl FieldSet {
    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field. The empty path, the whole object, is never part of a set.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let entry = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.below.insert(rest);
        }
    }

    /// Whether the set contains exactly this field.
    #[must_use]
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.below(first).is_some_and(|below| below.contains(rest)),
        }
    }

    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.0.get(element).is_some_and(|e| e.member)
    }

    /// The fields of the set below `element`, if there are any.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.0.get(element).map(|e| &e.below).filter(|below| !below.is_empty())
    }

    /// The fields that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add(other);
        out
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (element, theirs) in &other.0 {
            let entry = self.0.entry(element.clone()).or_default();
            entry.member |= theirs.member;
            entry.below.add(&theirs.below);
        }
    }

    /// The fields that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.filter(other, |ours, theirs| ours && theirs)
    }

    /// The fields that are only in this set.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.filter(other, |ours, theirs| ours && !theirs)
    }

    /// Removes the fields of another set. The cost is proportional to the other set's size.
    pub(super) fn subtract(&mut self, other: &Self) {
        for (element, theirs) in &other.0 {
            let Some(ours) = self.0.get_mut(element) else { continue };
            ours.member &= !theirs.member;
            ours.below.subtract(&theirs.below);
            if !ours.member && ours.below.is_empty() {
                self.0.remove(element);
            }
        }
    }

    fn filter(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let nothing = Entry::default();
        let kept = self.0.iter().map(|(element, ours)| {
            let theirs = other.0.get(element).unwrap_or(&nothing);
            let member = keep(ours.member, theirs.member);
            (element.clone(), Entry { member, below: ours.below.filter(&theirs.below, keep) })
        });
        Self(kept.filter(|(_, e)| e.member || !e.below.is_empty()).collect())
    }

    /// All fields of the set, parents before children.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, path: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
        for (element, entry) in &self.0 {
            path.push(element.clone());
            if entry.member {
                out.push(path.clone());
            }
            entry.below.collect(path, out);
            path.pop();
        }
    }

    /// The set extended by every declared field above one of its fields. Objects that are declared fields are not owned
    /// themselves, so they are removed and kept together with their content.
    pub(super) fn with_named_parents(&self, schema: &Schema) -> Self {
        let entries = self.0.iter().map(|(element, entry)| {
            let (inner, named) = step(schema, element);
            let member = entry.member || (named && !entry.below.is_empty());
            let below = entry.below.with_named_parents(inner);
            (element.clone(), Entry { member, below })
        });
        Self(entries.collect())
    }

    /// Adapts the set to a changed schema: a field that is now atomic is owned as one value.
    pub(super) fn fit_to(&mut self, schema: &Schema) {
        for (element, entry) in &mut self.0 {
            let (inner, _) = step(schema, element);
            let node = inner.node();
            let one_value = match node.kind {
                Type::Array => node.list == ListType::Atomic,
                _ => node.atomic_map,
            };
            if one_value && !entry.below.is_empty() {
                *entry = Entry { member: true, below: Self::default() };
            } else {
                entry.below.fit_to(inner);
            }
        }
    }

    /// The set as `fieldsV1`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let encode = |(element, entry): (&PathElement, &Entry)| {
            let mut below = match entry.below.to_json() {
                Value::Object(below) => below,
                _ => Map::new(),
            };
            if entry.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.encode(), Value::Object(below))
        };
        Value::Object(self.0.iter().map(encode).collect())
    }

    /// Reads a `fieldsV1`.
    ///
    /// # Errors
    /// [`FieldSetError`] names the first invalid key.
    pub fn from_json(fields: &Value) -> Result<Self, FieldSetError> {
        let Value::Object(fields) = fields else { return Err(FieldSetError(fields.to_string())) };
        let mut set = Self::default();
        for (key, below) in fields.iter().filter(|(key, _)| key.as_str() != ".") {
            let element = PathElement::decode(key).ok_or_else(|| FieldSetError(key.clone()))?;
            let content = below.as_object().ok_or_else(|| FieldSetError(key.clone()))?;
            let member = content.is_empty() || content.contains_key(".");
            set.0.insert(element, Entry { member, below: Self::from_json(below)? });
        }
        Ok(set)
    }
}

/// The schema below one path element, and whether the element is a declared field.
fn step<'a>(schema: &'a Schema, element: &PathElement) -> (&'a Schema, bool) {
    match element {
        PathElement::Field(name) => schema
            .field(name)
            .map_or_else(|| (Schema::untyped(), false), |field| (field.schema, field.named)),
        _ => (schema.items_or_untyped(), false),
    }
}

/// Text form of a path: `.spec.containers[name="a"].image`.
#[must_use]
pub fn display_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_v1_of_a_real_server_reads_and_writes_back() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
            "f:spec": {
                "f:containers": {
                    "k:{\"name\":\"web\"}": {
                        ".": {},
                        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}},
                    },
                },
                "f:list": {"i:0": {}},
            },
        });
        let set = FieldSet::from_json(&fields).unwrap();
        assert_eq!(set.to_json(), fields);
        let paths: Vec<String> = set.paths().iter().map(|p| display_path(p)).collect();
        let expected = [
            ".metadata.finalizers[=\"a/b\"]",
            ".metadata.labels",
            ".metadata.labels.app",
            ".spec.containers[name=\"web\"]",
            ".spec.containers[name=\"web\"].ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.containers[name=\"web\"].ports[containerPort=80,protocol=\"TCP\"].name",
            ".spec.list[0]",
        ];
        assert_eq!(paths, expected);
        for wrong in [json!({"x": {}}), json!({"q:a": {}}), json!({"f:a": 1}), json!({"k:{": {}})] {
            assert!(FieldSet::from_json(&wrong).is_err(), "{wrong}");
        }
    }

    fn element() -> impl Strategy<Value = PathElement> {
        use super::super::path::Atom;
        let scalar = prop_oneof![
            (0..3_i64).prop_map(Value::from),
            "[a-c]".prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
        ];
        prop_oneof![
            "[a-c:.]{1,2}".prop_map(PathElement::Field),
            prop::collection::btree_map("[a-b]", scalar.clone(), 1..3).prop_map(|fields| {
                PathElement::Key(fields.into_iter().map(|(k, v)| (k, Atom(v))).collect())
            }),
            scalar.prop_map(|v| PathElement::Value(Atom(v))),
            (0..3_u64).prop_map(PathElement::Index),
        ]
    }

    fn sets() -> impl Strategy<Value = FieldSet> {
        let path = prop::collection::vec(element(), 1..4);
        prop::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn the_codec_round_trips(set in sets()) {
            prop_assert_eq!(FieldSet::from_json(&set.to_json()).unwrap(), set);
        }

        #[test]
        fn set_algebra_agrees_with_membership(a in sets(), b in sets()) {
            let (union, both, only) = (a.union(&b), a.intersection(&b), a.difference(&b));
            for path in union.paths() {
                let (in_a, in_b) = (a.contains(&path), b.contains(&path));
                prop_assert!(in_a || in_b);
                prop_assert_eq!(both.contains(&path), in_a && in_b);
                prop_assert_eq!(only.contains(&path), in_a && !in_b);
            }
            let mut left = a.clone();
            left.subtract(&b);
            prop_assert_eq!(&left, &only);
            prop_assert_eq!(only.union(&both), a);
        }
    }
}
