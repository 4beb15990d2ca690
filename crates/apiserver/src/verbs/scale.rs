//! `/scale`: an `autoscaling/v1` Scale as a view of an object's replicas.

use atoll_apimachinery::{ApiError, FieldError, meta, response, response::Body};
use http::{Method, Response};
use serde_json::{Map, Value, json};

use super::{
    call::{Call, Written},
    patch::{self, Patch},
    prepare::{Draft, Part},
    write,
};
use crate::{
    body,
    item::Item,
    kinds::{Kind, Scale},
};

pub(crate) async fn answer(
    call: &Call,
    method: &Method,
    bytes: &[u8],
) -> Result<Response<Body>, ApiError> {
    let scale = call.kind.scale.as_ref().ok_or_else(ApiError::no_such_path)?;
    match *method {
        Method::GET => {
            let record = call
                .core
                .read(&call.kind, &call.key())
                .await?
                .ok_or_else(|| call.kind.not_found(&call.name))?;
            Ok(response::respond_json(200, &show(&call.kind, scale, &record.value())))
        }
        Method::PUT => {
            let sent = body::decode(&call.headers, bytes)?;
            write(call, scale, |_| Ok(sent.clone())).await
        }
        Method::PATCH => match patch::decode(call, bytes)? {
            // A Scale has only scalar fields, so applying and merging are the same; the manager owns replicas.
            Patch::Apply(applied) => {
                write(call, scale, |current| Patch::Merge(applied.clone()).onto(call, current))
                    .await
            }
            // Strategic merge of a Scale has no lists to treat specially.
            Patch::Strategic(patch) => {
                write(call, scale, |current| Patch::Merge(patch.clone()).onto(call, current)).await
            }
            other => write(call, scale, |current| other.onto(call, current)).await,
        },
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The selector as text, as in a Scale.
fn selector_text(kind: &Kind, scale: &Scale, object: &Value) -> Option<String> {
    if let Some(path) = &scale.selector {
        return meta::at(object, path).and_then(Value::as_str).map(str::to_owned);
    }
    kind.builtin()?;
    let selector = meta::at(object, "spec.selector")?;
    // ReplicationControllers have a plain map.
    let labels = selector
        .get("matchLabels")
        .or_else(|| selector.get("matchExpressions").is_none().then_some(selector));
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let mut parts: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    for e in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = e.get("key").map(text).unwrap_or_default();
        let values: Vec<String> =
            e.get("values").and_then(Value::as_array).into_iter().flatten().map(text).collect();
        let values = values.join(",");
        parts.push(match e.get("operator").and_then(Value::as_str) {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key,
        });
    }
    Some(parts.join(","))
}

/// The object as a Scale.
fn show(kind: &Kind, scale: &Scale, object: &Value) -> Value {
    let number = |path: &str| meta::at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::get(object, field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut status = json!({"replicas": number(&scale.status_replicas)});
    if let Some(selector) = selector_text(kind, scale, object) {
        status["selector"] = selector.into();
    }
    json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": number(&scale.spec_replicas)},
        "status": status,
    })
}

/// Sets the value at a dotted path, creating parents.
fn set_at(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            if let Some(fields) = object.as_object_mut() {
                fields.insert(path.to_owned(), value);
            }
        }
        Some((first, rest)) => {
            meta::child(object, first);
            if let Some(next) = object.get_mut(first) {
                set_at(next, rest, value);
            }
        }
    }
}

/// Writes a changed Scale back: replicas and its preconditions. The rest of a Scale is read-only.
async fn write(
    call: &Call,
    scale: &Scale,
    work: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Response<Body>, ApiError> {
    let written = write::modify(call, Part::Main, |live| {
        let wanted = work(&show(&call.kind, scale, live))?;
        if let Some(kind) = wanted.get("kind").and_then(Value::as_str)
            && kind != "Scale"
        {
            return Err(ApiError::bad_request(format!(
                "the kind in the data ({kind}) does not match the expected kind (Scale)"
            )));
        }
        let replicas = wanted.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
        if replicas.as_i64().is_none_or(|n| !(0..=i64::from(i32::MAX)).contains(&n)) {
            let why = "must be a whole number greater than or equal to 0";
            let error = FieldError::invalid("spec.replicas", &replicas, why);
            return Err(ApiError::invalid("autoscaling", "Scale", &call.name, &[error]));
        }
        let mut object = live.clone();
        set_at(&mut object, &scale.spec_replicas, replicas);
        for field in ["resourceVersion", "uid"] {
            if let Some(value) = meta::get(&wanted, field) {
                meta::set(&mut object, field, Some(value.clone()));
            }
        }
        Ok(Draft { object, managed: false })
    })
    .await?;
    let Written { item, code, warnings } = written;
    let shown = match &item {
        Item::Stored(record) => show(&call.kind, scale, &record.value()),
        Item::Plain(value) => show(&call.kind, scale, value),
    };
    let mut response = response::respond_json(code, &shown);
    response::warn(&mut response, &warnings);
    Ok(response)
}
