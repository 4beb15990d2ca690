//! Subresources of single kinds: a pod's binding and eviction, a namespace's finalize, a ServiceAccount's token.

use atoll_apimachinery::{ApiError, FieldError, meta, response, response::Body};
use http::{Method, Response};
use serde_json::{Value, json};

use super::{
    call::Call,
    delete,
    prepare::{Draft, Part},
    write,
};
use crate::{
    body,
    kinds::{rules, served},
    store::TableId,
};

pub(crate) async fn answer(
    call: &Call,
    name: &str,
    method: &Method,
    bytes: &[u8],
) -> Result<Response<Body>, ApiError> {
    let kind = &call.kind;
    if served::subresources(kind).iter().all(|(known, ..)| *known != name) {
        return Err(ApiError::no_such_path());
    }
    match (name, method) {
        ("binding", &Method::POST) => bind(call, &body::decode(&call.headers, bytes)?).await,
        ("eviction", &Method::POST) => evict(call, &body::decode(&call.headers, bytes)?).await,
        ("finalize", &Method::PUT) => finalize(call, body::decode(&call.headers, bytes)?).await,
        ("token", &Method::POST) => token(call, body::decode(&call.headers, bytes)?).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The answer of binding and eviction.
fn success() -> Response<Body> {
    response::respond_json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}

/// Assigns a pod to a node, once.
async fn bind(call: &Call, binding: &Value) -> Result<Response<Body>, ApiError> {
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or("");
    if node.is_empty() {
        let error = atoll_apimachinery::FieldError::required("target.name", "");
        return Err(ApiError::invalid("", "Binding", &call.name, &[error]));
    }
    let now = meta::seconds(call.core.now());
    write::modify(call, Part::Internal, |live| {
        let refuse = |why: String| Err(ApiError::conflict("", "pods/binding", &call.name, why));
        if meta::is_deleting(live) {
            return refuse(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                call.name
            ));
        }
        if let Some(other) = meta::at(live, "spec.nodeName").and_then(Value::as_str)
            && !other.is_empty()
        {
            return refuse(format!("pod {} is already assigned to node \"{other}\"", call.name));
        }
        let mut object = live.clone();
        meta::child(&mut object, "spec").insert("nodeName".to_owned(), node.into());
        let condition = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        });
        rules::set_condition(meta::child(&mut object, "status"), condition);
        Ok(Draft { object, managed: false })
    })
    .await?;
    Ok(success())
}

/// Deletes a pod unless a disruption budget forbids it. Its controller owns a budget's status; an allowed eviction
/// decrements `disruptionsAllowed`, as upstream does.
async fn evict(call: &Call, eviction: &Value) -> Result<Response<Body>, ApiError> {
    let pod = call
        .core
        .read(&call.kind, &call.key())
        .await?
        .ok_or_else(|| call.kind.not_found(&call.name))?;
    let pod = pod.value();
    let phase = meta::at(&pod, "status.phase").and_then(Value::as_str).unwrap_or("");
    let counts = !meta::is_deleting(&pod) && matches!(phase, "Running" | "Pending");
    if counts {
        take_from_budget(call, &pod).await?;
    }
    let options = match eviction.get("deleteOptions") {
        Some(options) if !options.is_null() => serde_json::from_value(options.clone())
            .map_err(|e| ApiError::bad_request(format!("deleteOptions: {e}")))?,
        _ => delete::Options::default(),
    };
    delete::one(&call.core, &call.kind, &call.key(), &options).await?;
    Ok(success())
}

/// Takes one disruption from the pod's budget, atomically with the check that one is left.
async fn take_from_budget(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let table = TableId::new("policy", "poddisruptionbudgets");
    let (core, namespace) = (&call.core, meta::namespace(pod));
    let record = core.store.step(|step| {
        let budgets: Vec<_> = step
            .list(&table, Some(namespace))
            .map(|record| record.value())
            .filter(|budget| rules::selects(budget.pointer("/spec/selector"), pod))
            .collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(None),
            [one] => one,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let allowed = meta::at(budget, "status.disruptionsAllowed")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if allowed <= 0 {
            let mut error = ApiError::too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                10,
            );
            if let Some(details) = &mut error.details {
                details["causes"] = json!([{
                    "reason": "DisruptionBudget",
                    "message": format!("The disruption budget {} does not allow this now", meta::name(budget)),
                }]);
            }
            return Err(error);
        }
        let mut value = Value::clone(budget);
        let status = meta::child(&mut value, "status");
        status.insert("disruptionsAllowed".to_owned(), (allowed - 1).into());
        let mut disrupted = json!(status.get("disruptedPods").cloned().unwrap_or_else(|| json!({})));
        disrupted[meta::name(pod)] = meta::seconds(core.now()).into();
        status.insert("disruptedPods".to_owned(), disrupted);
        let key = crate::store::ObjectKey::of(&value);
        Ok(Some(step.put(&table, &key, value)))
    })?;
    match record {
        Some(record) => core.store.durable(record.revision).await,
        None => Ok(()),
    }
}

/// Replaces a namespace's `spec.finalizers`; without any left, a deleted namespace is removed.
async fn finalize(call: &Call, sent: Value) -> Result<Response<Body>, ApiError> {
    let written = write::modify(call, Part::Internal, |live| {
        let mut object = live.clone();
        let finalizers = sent.pointer("/spec/finalizers").cloned().unwrap_or_else(|| json!([]));
        let spec = meta::child(&mut object, "spec");
        if finalizers.as_array().is_some_and(|list| !list.is_empty()) {
            spec.insert("finalizers".to_owned(), finalizers);
        } else {
            spec.remove("finalizers");
        }
        for field in ["resourceVersion", "uid"] {
            if let Some(value) = meta::get(&sent, field) {
                meta::set(&mut object, field, Some(value.clone()));
            }
        }
        Ok(Draft { object, managed: false })
    })
    .await?;
    call.respond_written(&written)
}

/// Shortest life of a token in seconds.
const SHORTEST_TOKEN: i64 = 600;

/// A token for the account, signed by this server and valid on it.
async fn token(call: &Call, mut request: Value) -> Result<Response<Body>, ApiError> {
    let account = call
        .core
        .read(&call.kind, &call.key())
        .await?
        .ok_or_else(|| call.kind.not_found(&call.name))?;
    let audiences: Vec<String> = request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < SHORTEST_TOKEN) {
        let error = FieldError::invalid(
            "spec.expirationSeconds",
            &seconds.into(),
            "may not specify a duration less than 10 minutes",
        );
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
    }
    let (token, end) = call.core.tokens.issue(
        &call.core.store,
        call.core.now(),
        &account.value(),
        &audiences,
        seconds,
    )?;
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["kind"] = "TokenRequest".into();
    request["status"] = json!({"token": token, "expirationTimestamp": meta::seconds(end)});
    Ok(response::respond_json(201, &request))
}
