//! The report: what happened with each field of each object.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// What happened with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Class {
    /// Atoll has no such field, kind or value. The output lacks it, or has it without effect.
    NoEquivalent,
    /// The output has the field with another meaning or in another place, or does not need it.
    Changed,
    /// The field means the same in Atoll.
    TakenOver,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoEquivalent => "no equivalent",
            Self::Changed => "changed",
            Self::TakenOver => "taken over",
        })
    }
}

/// An object of the input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// For example `policy.karmada.io/v1alpha1`.
    pub api_version: String,
    /// For example `PropagationPolicy`.
    pub kind: String,
    /// Absent for cluster-scoped objects and for objects that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name; empty if the object has none.
    pub name: String,
}

impl Source {
    /// The identity of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let namespace = text("/metadata/namespace");
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: (!namespace.is_empty()).then_some(namespace),
            name: text("/metadata/name"),
        }
    }

    /// The API group; empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// What happened with one field of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The object.
    pub source: Source,
    /// The field in the input, for example `spec.placement.spreadConstraints[0].minGroups`; empty for the whole object.
    pub field: String,
    /// What happened with it.
    pub class: Class,
    /// The difference and what to do; empty if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// A mistake in the input, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// A mistake in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Fault {
    /// Neither the source's kind nor Atoll's has the field: probably a typing error.
    UnknownField,
    /// The value is of the wrong type, or outside the limits of Atoll's field.
    BadValue,
}

/// Lines that say the same about the same objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<'a> {
    /// What happened.
    pub class: Class,
    /// The fields, with `[]` in place of indices; none for whole objects.
    pub fields: Vec<String>,
    /// The difference and what to do.
    pub note: &'a str,
    /// The objects, in input order.
    pub sources: Vec<&'a Source>,
}

/// The report on all objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// The lines, in input order.
    pub lines: Vec<Line>,
}

impl Report {
    /// Number of lines of a class.
    #[must_use]
    pub fn count(&self, class: Class) -> usize {
        self.lines.iter().filter(|line| line.class == class).count()
    }

    /// The lines that a user must read, grouped: those without an equivalent first, then the changed ones, each in input
    /// order.
    #[must_use]
    pub fn groups(&self) -> Vec<Group<'_>> {
        // First the objects that share field and note, then the fields that share objects and note.
        let mut by_field: BTreeMap<(Class, &str, String), Vec<&Source>> = BTreeMap::new();
        let mut order: Vec<(Class, &str, String)> = Vec::new();
        for line in self.lines.iter().filter(|line| line.class != Class::TakenOver) {
            let key = (line.class, line.note.as_str(), without_indices(&line.field));
            let sources = by_field.entry(key.clone()).or_default();
            if sources.is_empty() {
                order.push(key);
            }
            if sources.last() != Some(&&line.source) {
                sources.push(&line.source);
            }
        }
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut at: BTreeMap<(Class, &str, Vec<&Source>), usize> = BTreeMap::new();
        for key in order {
            let Some(sources) = by_field.remove(&key) else { continue };
            let (class, note, field) = key;
            let group = *at.entry((class, note, sources.clone())).or_insert_with(|| {
                groups.push(Group { class, fields: Vec::new(), note, sources });
                groups.len() - 1
            });
            if !field.is_empty() {
                groups[group].fields.push(field);
            }
        }
        groups.sort_by_key(|group| group.class);
        groups
    }
}

/// `a[3].b` as `a[].b`.
#[must_use]
pub fn without_indices(path: &str) -> String {
    let mut general = String::with_capacity(path.len());
    for part in path.split_inclusive(['[', ']']) {
        match part.strip_suffix(']') {
            Some(index) if index.bytes().all(|b| b.is_ascii_digit()) => general.push(']'),
            _ => general.push_str(part),
        }
    }
    general
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_indices_and_keep_their_keys() {
        assert_eq!(without_indices("spec.a[12].b[0]"), "spec.a[].b[]");
        assert_eq!(without_indices("metadata.labels[a1]"), "metadata.labels[a1]");
    }

    #[test]
    fn lines_that_say_the_same_are_one_group() {
        let line = |name: &str, field: &str, class, note: &str| Line {
            source: Source {
                api_version: "v1".to_owned(),
                kind: "Thing".to_owned(),
                namespace: None,
                name: name.to_owned(),
            },
            field: field.to_owned(),
            class,
            note: note.to_owned(),
            fault: None,
        };
        let lines = vec![
            line("a", "spec.x[0]", Class::Changed, "moved"),
            line("a", "spec.x[1]", Class::Changed, "moved"),
            line("a", "spec.y", Class::Changed, "moved"),
            line("a", "spec.z", Class::TakenOver, ""),
            line("b", "spec.x[7]", Class::Changed, "moved"),
            line("b", "spec.y", Class::Changed, "moved"),
            line("b", "", Class::NoEquivalent, "none"),
        ];
        let report = Report { lines };
        let groups = report.groups();
        assert_eq!(groups.len(), 2, "{groups:#?}");
        assert_eq!((groups[0].class, groups[0].fields.len()), (Class::NoEquivalent, 0));
        assert_eq!(groups[1].fields, ["spec.x[]", "spec.y"]);
        assert_eq!(
            groups[1].sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(report.count(Class::Changed), 5);
    }
}
