//! Server-side apply. The cases and their names are from structured-merge-diff's `merge` tests and the API server's
//! field manager tests.

mod appliers;
mod field_manager;
mod lists;
mod properties;
mod values;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    managed::{ApplyError, Endpoint, FieldSet, Writer, apply, display_path, update},
    schema::Schema,
};

/// One object on a server.
struct Server {
    schema: Schema,
    live: Option<Value>,
    clock: u32,
}

enum Step {
    Apply(&'static str, Value),
    Force(&'static str, Value),
    Update(&'static str, Value),
    /// An apply that is rejected, with `manager: field` of every conflict.
    Conflict(&'static str, Value, &'static [&'static str]),
    /// The kind gets another schema.
    Schema(Schema),
}

use Step::{Apply, Conflict, Force, Update};

impl Server {
    fn new(schema: Schema) -> Self {
        Self { schema, live: None, clock: 0 }
    }

    fn now(&mut self) -> String {
        self.clock += 1;
        format!("2024-01-01T00:00:{:02}Z", self.clock)
    }

    fn apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), ApplyError> {
        let now = self.now();
        let writer = Writer { manager, api_version: "a/v1", subresource: None, now: &now };
        self.live = Some(apply(self.live.as_ref(), config, &writer, force, &self.schema)?);
        Ok(())
    }

    fn update(&mut self, manager: &str, new: &Value) {
        let now = self.now();
        let writer = Writer { manager, api_version: "a/v1", subresource: None, now: &now };
        self.live = Some(update(self.live.as_ref(), new.clone(), &writer, &self.schema));
    }

    fn step(&mut self, step: Step) {
        match step {
            Apply(manager, config) => self.apply(manager, &config, false).unwrap(),
            Force(manager, config) => self.apply(manager, &config, true).unwrap(),
            Update(manager, new) => self.update(manager, &new),
            Conflict(manager, config, expected) => {
                let error = self.apply(manager, &config, false).unwrap_err();
                let ApplyError::Conflicts(conflicts) = &error else { panic!("{error}") };
                let found: Vec<String> = conflicts
                    .0
                    .iter()
                    .map(|c| format!("{}: {}", c.owner.manager, c.field))
                    .collect();
                assert_eq!(found, expected);
            }
            Step::Schema(schema) => self.schema = schema,
        }
    }

    fn entries(&self) -> Vec<Value> {
        let live = self.live.as_ref().unwrap();
        live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
    }

    /// The object without metadata, and the owned fields per manager.
    fn state(&self) -> (Value, BTreeMap<String, Vec<String>>) {
        let mut object = self.live.clone().unwrap();
        object.as_object_mut().unwrap().remove("metadata");
        let owned = self.entries().into_iter().map(|entry| {
            let fields = FieldSet::from_json(&entry["fieldsV1"]).unwrap();
            let fields = fields.paths().iter().map(|p| display_path(p)).collect();
            (entry["manager"].as_str().unwrap().to_owned(), fields)
        });
        (object, owned.collect())
    }
}

#[track_caller]
fn check(schema: &Schema, steps: Vec<Step>, object: Value, owned: &[(&str, &[&str])]) {
    let mut server = Server::new(schema.clone());
    steps.into_iter().for_each(|step| server.step(step));
    let (found, found_owned) = server.state();
    assert_eq!(found, object);
    let owned: BTreeMap<String, Vec<String>> = owned
        .iter()
        .map(|(m, fields)| ((*m).to_owned(), fields.iter().map(|f| (*f).to_owned()).collect()))
        .collect();
    assert_eq!(found_owned, owned);
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn crd(properties: Value) -> Schema {
    Schema::from_openapi(&object(properties)).unwrap()
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn set(items: Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "set", "items": items})
}

fn keyed(keys: &[&str], properties: Value) -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": object(properties),
    })
}

fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn leaves() -> Schema {
    let boolean = json!({"type": "boolean"});
    crd(json!({"numeric": number(), "string": text(), "bool": boolean}))
}

fn associative_list() -> Schema {
    crd(json!({"list": keyed(&["name"], json!({"name": text(), "value": number()}))}))
}

fn nested() -> Schema {
    // Deep enough for all cases; the upstream type is recursive.
    let recursive = (0..7).fold(json!({"type": "object", "nullable": true}), |inner, _| map(inner));
    crd(json!({
        "listOfLists": keyed(&["name"], json!({"name": text(), "value": set(text())})),
        "listOfMaps": keyed(&["name"], json!({"name": text(), "value": map(text())})),
        "mapOfLists": map(set(text())),
        "mapOfMaps": map(map(text())),
        "mapOfMapsRecursive": recursive,
        "struct": object(json!({"name": text(), "value": number()})),
    }))
}
