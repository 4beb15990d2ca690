//! Paths of fields: `spec.placement.spreadConstraints[0].minGroups`.

use std::fmt;

use serde_json::Value;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// The path of a field in an object. The empty path is the whole object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// Parses fields separated by dots, for example `spec.placement`. Keys with dots need [`Path::field`].
    pub(crate) fn of(text: &str) -> Self {
        Self(text.split('.').filter(|name| !name.is_empty()).map(field).collect())
    }

    /// The field below this one.
    pub(crate) fn field(&self, name: &str) -> Self {
        self.with(field(name))
    }

    /// The item of this list.
    pub(crate) fn item(&self, at: usize) -> Self {
        self.with(Step::Item(at))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The path without indices, as rules name it: `spec.placement.spreadConstraints[].minGroups`.
    pub(crate) fn general(&self) -> String {
        self.written(|_| String::new())
    }

    fn written(&self, index: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => text.extend([".", name]),
                Step::Item(at) => text.extend(["[", &index(*at), "]"]),
            }
        }
        text
    }

    /// The value at this path.
    pub(crate) fn get<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Item(at) => value.get(at),
        })
    }

    /// As [`Path::get`], to change the value.
    pub(crate) fn get_mut<'v>(&self, root: &'v mut Value) -> Option<&'v mut Value> {
        self.0.iter().try_fold(root, |value, step| match step {
            Step::Field(name) => value.get_mut(name),
            Step::Item(at) => value.get_mut(at),
        })
    }

    /// The path without its last step, and the name of that step if it is a field.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        let (last, rest) = self.0.split_last()?;
        match last {
            Step::Field(name) => Some((Self(rest.to_vec()), name)),
            Step::Item(_) => None,
        }
    }
}

fn field(name: &str) -> Step {
    Step::Field(name.to_owned())
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(|at| at.to_string()))
    }
}
