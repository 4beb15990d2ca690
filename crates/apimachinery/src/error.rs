//! All errors of the server: an HTTP code with upstream's `metav1.Status` body. The wording follows k8s.io/apimachinery
//! `api/errors` and `util/validation/field`, since users and tools match on it.

use std::fmt;

use serde_json::{Value, json};

/// Why one field is refused; the names of upstream's `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldReason {
    /// A required field is absent.
    Required,
    /// The value has the right type but is not acceptable.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is none of the allowed ones.
    NotSupported,
    /// The value may not be set here or may not change.
    Forbidden,
    /// The value appears twice.
    Duplicate,
    /// Too many characters.
    TooLong,
    /// Too many items.
    TooMany,
    /// The value names something that does not exist.
    NotFound,
}

impl FieldReason {
    /// The `reason` of a Status cause.
    pub fn cause(self) -> &'static str {
        match self {
            FieldReason::Required => "FieldValueRequired",
            FieldReason::Invalid => "FieldValueInvalid",
            FieldReason::TypeInvalid => "FieldValueTypeInvalid",
            FieldReason::NotSupported => "FieldValueNotSupported",
            FieldReason::Forbidden => "FieldValueForbidden",
            FieldReason::Duplicate => "FieldValueDuplicate",
            FieldReason::TooLong => "FieldValueTooLong",
            FieldReason::TooMany => "FieldValueTooMany",
            FieldReason::NotFound => "FieldValueNotFound",
        }
    }

    fn text(self) -> &'static str {
        match self {
            FieldReason::Required => "Required value",
            FieldReason::Invalid | FieldReason::TypeInvalid => "Invalid value",
            FieldReason::NotSupported => "Unsupported value",
            FieldReason::Forbidden => "Forbidden",
            FieldReason::Duplicate => "Duplicate value",
            FieldReason::TooLong => "Too long",
            FieldReason::TooMany => "Too many",
            FieldReason::NotFound => "Not found",
        }
    }
}

/// One refused field. `message` is the whole text after the path, for example `Invalid value: -1: must be
/// greater than or equal to 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path from the object's root, for example `spec.template.spec.containers[0].name`.
    pub path: String,
    /// The kind of refusal.
    pub reason: FieldReason,
    /// The text after the path.
    pub message: String,
}

impl FieldError {
    /// An error whose text is the reason's own words, then `detail`.
    pub fn new(path: impl Into<String>, reason: FieldReason, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        let message = if detail.is_empty() {
            reason.text().to_owned()
        } else {
            format!("{}: {detail}", reason.text())
        };
        FieldError { path: path.into(), reason, message }
    }

    /// `Required value`.
    pub fn required(path: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(path, FieldReason::Required, detail)
    }

    /// `Forbidden`.
    pub fn forbidden(path: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(path, FieldReason::Forbidden, detail)
    }

    /// `Invalid value: <value>: <detail>`; the value is shown as upstream does, strings quoted.
    pub fn invalid(path: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        Self::new(path, FieldReason::Invalid, format_args!("{value}: {detail}"))
    }

    /// `Unsupported value: <value>: supported values: "a", "b"`.
    pub fn unsupported(path: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
        Self::new(
            path,
            FieldReason::NotSupported,
            format_args!("{value}: supported values: {list}"),
        )
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::new(path, FieldReason::Duplicate, value)
    }
}

/// An answer other than success.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `metav1.StatusReason`; empty for upstream's unknown reason.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
    /// `metav1.StatusDetails`.
    pub details: Option<Value>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code, self.reason)
    }
}

impl std::error::Error for ApiError {}

/// `deployments.apps` or `pods`.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": kind});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        self.details = Some(details);
        self
    }

    /// 400 BadRequest.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for an object, with upstream's sentence around `why`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let what = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// 404 for a path without a kind.
    pub fn no_such_path() -> Self {
        let mut error =
            Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(json!({}));
        error
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 406: the server supports no format that the client accepts.
    pub fn not_acceptable(supported: &str) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {supported}"),
        )
    }

    /// 415: the format of the body is not supported.
    pub fn unsupported_media_type(supported: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {supported}"
            ),
        )
    }

    /// 413: the body exceeds the server's limit.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413: the patch is too expensive.
    pub fn patch_too_large(why: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", why)
    }

    /// 409 AlreadyExists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", qualified(group, resource)),
        )
        .about(group, resource, name)
    }

    /// 409 Conflict with a custom reason.
    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                qualified(group, resource)
            ),
        )
        .about(group, resource, name)
    }

    /// 409 Conflict of optimistic locking.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply: others own fields that this manager sets. Each cause is (field, message).
    pub fn apply_conflict(message: String, causes: Vec<(String, String)>) -> Self {
        let mut error = Self::new(409, "Conflict", message);
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|(field, message)| {
                json!({"reason": "FieldManagerConflict", "message": message, "field": field})
            })
            .collect();
        error.details = Some(json!({"causes": causes}));
        error
    }

    /// 410: the resourceVersion or continue token is older than the log.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 410 of a watch that starts before the log.
    pub fn too_old(asked: u64, floor: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({floor})"))
    }

    /// 422 with one cause for each field.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let lines: Vec<String> =
            errors.iter().map(|e| format!("{}: {}", e.path, e.message)).collect();
        let text = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{} \"{name}\" is invalid: {text}", qualified(group, kind)),
        )
        .about(group, kind, name);
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason.cause(), "message": e.message, "field": e.path}))
            .collect();
        if let Some(details) = &mut error.details {
            details["causes"] = Value::Array(causes);
        }
        error
    }

    /// 422 without an object: a patch that does not fit, options that contradict each other.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// 429: a bounded queue is full, or a disruption budget forbids it. `retry_after` in seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error.details = Some(json!({"retryAfterSeconds": retry_after}));
        error
    }

    /// 500.
    pub fn internal(message: impl fmt::Display) -> Self {
        let mut error =
            Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.details = Some(json!({"causes": [{"message": message.to_string()}]}));
        error
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 503 that a client repeats after this many seconds.
    pub fn unavailable_for(message: impl Into<String>, retry_after: u32) -> Self {
        let mut error = Self::unavailable(message);
        error.details = Some(json!({"retryAfterSeconds": retry_after}));
        error
    }

    /// 502: another server's answer cannot be used.
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::new(502, "InternalError", message)
    }

    /// 504: another server did not answer in time.
    pub fn gateway_timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    /// 504 of a list or watch at a resourceVersion in the future.
    pub fn resource_version_too_large(asked: u64, current: u64) -> Self {
        let mut error = Self::new(
            504,
            "Timeout",
            format!("Too large resource version: {asked}, current: {current}"),
        );
        error.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        error
    }

    /// Seconds for the `Retry-After` header, if the answer has one.
    pub fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// The `metav1.Status` body.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
