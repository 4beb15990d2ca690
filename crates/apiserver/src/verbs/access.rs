//! Reviews of identity and access.

use atoll_apimachinery::{ApiError, identity::Identity, response, response::Body};
use http::Response;
use serde_json::{Value, json};

use super::{call::Call, prepare, rbac};
use crate::options::Authorization;

/// Why access is allowed, in reviews.
const REASON: &str = "every authenticated user may do everything on this server";
/// The same, on servers that enforce RBAC.
const BY_ROLE: &str = "a role of the user allows it";

/// Answers a review; nothing is stored.
pub(crate) fn review(call: &Call, mut body: Value) -> Result<Response<Body>, ApiError> {
    prepare::type_meta(&call.kind, &mut body)?;
    let status = match call.kind.kind.as_str() {
        "SelfSubjectAccessReview" => access(call, &call.identity, &body)?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => subject_access(call, &body)?,
        "SelfSubjectRulesReview" if !rbac::is_unlimited(&call.core, &call.identity) => {
            let namespace = body.pointer("/spec/namespace").and_then(Value::as_str);
            let rules = rbac::rules(&call.core, &call.identity, namespace);
            let (paths, resources): (Vec<_>, Vec<_>) =
                rules.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
            json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
        }
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "SelfSubjectReview" => json!({"userInfo": call.identity.user_info()}),
        "TokenReview" => token(call, &body)?,
        other => return Err(ApiError::internal(format_args!("{other} is not a review"))),
    };
    body["status"] = status;
    Ok(response::respond_json(201, &body))
}

/// The answer for this user, if the review is valid.
fn access(call: &Call, identity: &Identity, body: &Value) -> Result<Value, ApiError> {
    let field = "spec.resourceAttributes or spec.nonResourceAttributes";
    let given = |path: &str| body.pointer(path).is_some_and(Value::is_object);
    if given("/spec/resourceAttributes") == given("/spec/nonResourceAttributes") {
        return Err(ApiError::bad_request(format!("exactly one of {field} must be given")));
    }
    Ok(match (call.core.authorization, rbac::may(&call.core, identity, &body["spec"])) {
        (Authorization::Authenticated, _) => json!({"allowed": true, "reason": REASON}),
        (Authorization::Rbac, true) => json!({"allowed": true, "reason": BY_ROLE}),
        (Authorization::Rbac, false) => json!({"allowed": false}),
    })
}

fn subject_access(call: &Call, body: &Value) -> Result<Value, ApiError> {
    let user = body.pointer("/spec/user").and_then(Value::as_str).unwrap_or("");
    let groups = body.pointer("/spec/groups").and_then(Value::as_array);
    let names = groups.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut status = access(call, &Identity::user(user, names), body)?;
    if user.is_empty() && groups.is_none_or(Vec::is_empty) {
        return Err(ApiError::bad_request(
            "at least one of spec.user and spec.groups must be given",
        ));
    }
    if user == "system:anonymous" {
        status = json!({"allowed": false, "reason": "anonymous users may read /version and health paths only"});
    }
    Ok(status)
}

/// The identity of a token, if this server issued it.
fn token(call: &Call, body: &Value) -> Result<Value, ApiError> {
    let token = body.pointer("/spec/token").and_then(Value::as_str).unwrap_or("");
    if token.is_empty() {
        return Err(ApiError::bad_request("spec.token must be given"));
    }
    Ok(match call.core.tokens.check(&call.core.store, call.core.now(), token)? {
        Some(identity) => json!({"authenticated": true, "user": identity.user_info()}),
        None => json!({"authenticated": false, "error": "the token is not valid on this server"}),
    })
}
