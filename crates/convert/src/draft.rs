//! An object during its conversion. Every way to take a field out of it writes a line to the report.

use atoll_merge::schema::{self, Schema};
use serde_json::{Map, Value};

use crate::Converted;
use crate::path::Path;
use crate::report::{Class, Fault, Line, Source};
use crate::rules::{Rule, Rules, is_empty};

/// Note for a field that neither the source nor Atoll has.
const UNKNOWN: &str = "unknown field: correct its name or remove it";

/// The object and the lines so far.
#[derive(Debug)]
pub(crate) struct Draft {
    source: Source,
    object: Value,
    lines: Vec<Line>,
}

impl Draft {
    pub(crate) fn new(source: Source, object: Value) -> Self {
        Self { source, object, lines: Vec::new() }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Reports on a field.
    pub(crate) fn line(&mut self, field: &Path, class: Class, note: impl Into<String>) {
        let (source, field, note) = (self.source.clone(), field.to_string(), note.into());
        self.lines.push(Line { source, field, class, note, fault: None });
    }

    /// Adds a line that another draft wrote.
    pub(crate) fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    fn fault(&mut self, field: &Path, fault: Fault, note: impl Into<String>) {
        self.line(field, Class::NoEquivalent, note);
        if let Some(line) = self.lines.last_mut() {
            line.fault = Some(fault);
        }
    }

    fn unknown(&mut self, field: &Path) {
        self.fault(field, Fault::UnknownField, UNKNOWN);
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&Value> {
        path.get(&self.object).filter(|value| !value.is_null())
    }

    /// The text at a path given by field names.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(&Path::of(path)).and_then(Value::as_str)
    }

    /// Number of items of a list; 0 if there is none.
    pub(crate) fn len(&self, list: &Path) -> usize {
        self.get(list).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Takes a field out and reports it.
    pub(crate) fn take(
        &mut self,
        path: &Path,
        class: Class,
        note: impl Into<String>,
    ) -> Option<Value> {
        let (parent, name) = path.split()?;
        let fields = parent.get_mut(&mut self.object).and_then(Value::as_object_mut)?;
        let value = fields.remove(name)?;
        if value.is_null() {
            return None;
        }
        self.line(path, class, note);
        Some(value)
    }

    /// Sets a field; its parents are made where they are missing. What a field held before must have been taken out.
    pub(crate) fn set(&mut self, path: &Path, value: Value) {
        let Some((parent, name)) = path.split() else { return };
        if self.get(&parent).is_none() && parent != Path::default() {
            self.set(&parent, Value::Object(Map::new()));
        }
        if let Some(fields) = parent.get_mut(&mut self.object).and_then(Value::as_object_mut) {
            fields.insert(name.to_owned(), value);
        }
    }

    /// Sets a field that the source lacks, and reports why.
    pub(crate) fn fill(&mut self, path: &Path, value: Value, class: Class, note: &str) {
        self.line(path, class, note);
        self.set(path, value);
    }

    /// Replaces apiVersion, which identifies the object and needs no line.
    pub(crate) fn set_api_version(&mut self, api_version: &str) {
        self.set(&Path::of("apiVersion"), api_version.into());
    }

    /// Sends every field through the rules and the schema of Atoll's kind.
    pub(crate) fn walk(&mut self, schema: &Schema, rules: Rules<'_>) {
        let object = self.object.take();
        let root = Path::default();
        let mut kept = Map::new();
        for (name, value) in into_fields(object) {
            let child = schema.property(&name);
            let path = root.field(&name);
            let identity = matches!(name.as_str(), "apiVersion" | "kind");
            let value = if identity { Some(value) } else { self.field(value, child, &path, rules) };
            if let Some(value) = value {
                kept.insert(name, value);
            }
        }
        self.object = Value::Object(kept);
        self.check(schema);
    }

    /// Converts a value below `path` and returns what the output has.
    pub(crate) fn field(
        &mut self,
        value: Value,
        schema: Option<&Schema>,
        path: &Path,
        rules: Rules<'_>,
    ) -> Option<Value> {
        if value.is_null() {
            // Every decoder treats null as an absent field.
            return None;
        }
        match rules.find(&path.general(), schema.is_some()) {
            Some(rule) => self.apply(rule, value, schema, path, rules),
            None => self.descend(value, schema, path, rules),
        }
    }

    fn apply(
        &mut self,
        rule: Rule,
        mut value: Value,
        schema: Option<&Schema>,
        path: &Path,
        rules: Rules<'_>,
    ) -> Option<Value> {
        match rule {
            Rule::Leave(class, note) => {
                self.line(path, class, note);
                None
            }
            Rule::OnlyEmpty(_) if is_empty(&value) => {
                self.line(path, Class::TakenOver, "Atoll does the same without the field");
                None
            }
            Rule::OnlyEmpty(note) => {
                self.line(path, Class::NoEquivalent, note);
                None
            }
            Rule::Note(note) => {
                self.line(path, Class::Changed, note);
                self.descend(value, schema, path, rules)
            }
            Rule::Words(words, note) => {
                let ours = words.iter().find(|(theirs, _)| value == *theirs);
                match ours {
                    Some((_, ours)) => {
                        self.line(path, Class::Changed, note);
                        Some((*ours).into())
                    }
                    None => self.descend(value, schema, path, rules),
                }
            }
            Rule::Report(note) => {
                let Some(schema) = schema else {
                    self.line(path, Class::Changed, note);
                    return None;
                };
                self.line(path, Class::TakenOver, "");
                for dropped in schema::prune(&mut value, schema) {
                    let field = Path::default().field(&format!("{path}.{dropped}"));
                    self.line(&field, Class::Changed, note);
                }
                Some(value)
            }
            Rule::LeaveIf(judge) => match judge(&value) {
                Some((class, note)) => {
                    self.line(path, class, note);
                    None
                }
                None => self.descend(value, schema, path, rules),
            },
            Rule::Map(map) => map(self, path, value),
        }
    }

    /// Converts a value without a rule by its schema.
    pub(crate) fn descend(
        &mut self,
        value: Value,
        schema: Option<&Schema>,
        path: &Path,
        rules: Rules<'_>,
    ) -> Option<Value> {
        let Some(schema) = schema else {
            self.unknown(path);
            return None;
        };
        match value {
            Value::Object(fields) if has_fields(schema) && !fields.is_empty() => {
                let mut kept = Map::new();
                for (name, value) in fields {
                    let child = schema.property(&name);
                    if let Some(value) = self.field(value, child, &path.field(&name), rules) {
                        kept.insert(name, value);
                    }
                }
                Some(Value::Object(kept))
            }
            Value::Array(items) if schema.items().is_some_and(has_fields) && !items.is_empty() => {
                let item = |(at, value)| self.field(value, schema.items(), &path.item(at), rules);
                Some(Value::Array(items.into_iter().enumerate().filter_map(item).collect()))
            }
            value => {
                self.line(path, Class::TakenOver, "");
                Some(value)
            }
        }
    }

    /// Reports values that a hub would refuse. A hub drops the status of a new object, and readers of files take from it
    /// what they can use.
    fn check(&mut self, schema: &Schema) {
        let errors = schema::validate(&self.object, schema);
        for error in errors.into_iter().filter(|error| !error.path.starts_with("status")) {
            let note = format!("Atoll does not accept the value: {}", error.message);
            let field = Path::default().field(&error.path);
            self.fault(&field, Fault::BadValue, note);
        }
    }

    /// The result; `written`: whether the output has the object.
    pub(crate) fn finish(self, written: bool) -> Converted {
        Converted { object: written.then_some(self.object), lines: self.lines }
    }
}

fn into_fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Whether values have fields of their own, as opposed to scalars, maps of scalars and free-form values.
fn has_fields(schema: &Schema) -> bool {
    schema.properties().next().is_some() || schema.additional().is_some_and(has_fields)
}
