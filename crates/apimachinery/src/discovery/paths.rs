//! The operations of a group version's OpenAPI document. kubectl reads two things from them: that a PATCH exists with
//! the kind's `x-kubernetes-group-version-kind` and a `fieldValidation` parameter (otherwise it requests the old
//! protobuf document), and the kind of a path (`kubectl explain`).

use serde_json::{Map, Value, json};

use crate::kind::{KindNames, KindSchema, ServedKind};

fn parameter(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn operation(kind: &KindNames, action: &str, schema: &str, parameters: &[(&str, &str)]) -> Value {
    let parameters: Vec<Value> = parameters.iter().map(|(n, k)| parameter(n, k)).collect();
    let content = json!({"application/json": {"schema": {"$ref": schema}}});
    json!({
        "tags": [kind.plural],
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "kind": kind.kind,
            "version": kind.version,
        },
    })
}

const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

/// Adds the paths of one kind. `schema` is the reference to its component.
pub(super) fn add(paths: &mut Map<String, Value>, served: &impl ServedKind, schema: &str) {
    let kind = served.names();
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let verbs = served.verbs();
    let has = |verb: &str| verbs.contains(&verb);
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}{scope}/{}", kind.plural);

    let mut many = Map::new();
    if has("list") {
        many.insert("get".to_owned(), operation(kind, "list", schema, LIST));
    }
    if has("create") {
        let mut post = operation(kind, "post", schema, WRITE);
        post["requestBody"] = json!({"content": {"*/*": {"schema": {"$ref": schema}}}});
        many.insert("post".to_owned(), post);
    }
    if has("deletecollection") {
        many.insert("delete".to_owned(), operation(kind, "deletecollection", schema, DELETE));
    }
    let mut one = Map::new();
    if has("get") {
        one.insert("get".to_owned(), operation(kind, "get", schema, &[]));
    }
    if has("update") {
        let mut put = operation(kind, "put", schema, WRITE);
        put["requestBody"] = json!({"content": {"*/*": {"schema": {"$ref": schema}}}});
        one.insert("put".to_owned(), put);
    }
    if has("patch") {
        let mut patch = operation(kind, "patch", schema, PATCH);
        patch["requestBody"] = json!({"content": {
            "application/apply-patch+yaml": {"schema": {"type": "object"}},
            "application/json-patch+json": {"schema": {"type": "object"}},
            "application/merge-patch+json": {"schema": {"type": "object"}},
        }});
        // kubectl then computes patches with the merge keys of this document's schemas.
        if matches!(served.openapi(), KindSchema::Typed(_)) {
            patch["requestBody"]["content"]["application/strategic-merge-patch+json"] =
                json!({"schema": {"type": "object"}});
        }
        one.insert("patch".to_owned(), patch);
    }
    if has("delete") {
        one.insert("delete".to_owned(), operation(kind, "delete", schema, DELETE));
    }
    let mut place = Vec::new();
    if kind.namespaced {
        place.push(path_parameter("namespace"));
    }
    if !many.is_empty() {
        if !place.is_empty() {
            many.insert("parameters".to_owned(), place.clone().into());
        }
        paths.insert(collection.clone(), many.into());
    }
    if !one.is_empty() {
        place.push(path_parameter("name"));
        one.insert("parameters".to_owned(), place.into());
        paths.insert(format!("{collection}/{{name}}"), one.into());
    }
}
