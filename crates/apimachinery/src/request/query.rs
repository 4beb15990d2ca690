//! Query parameters, typed once for all verbs.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::{
    error::{ApiError, FieldError},
    selector::{FieldRequirement, Selectors},
};

/// Default duration of a watch in seconds. Upstream draws between 30 and 60 minutes.
const DEFAULT_TIMEOUT: u64 = 1800;
/// Maximum duration of a watch in seconds: a day. Clients start a new one when theirs ends.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

/// How a server treats unknown and duplicate fields of a body (`fieldValidation`). Upstream's default is `Warn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them.
    Ignore,
    /// Drops them with a warning.
    #[default]
    Warn,
    /// Refuses the request.
    Strict,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state at that version.
    Exact,
    /// Any state from that version on.
    NotOlderThan,
}

/// All query parameters that this server reads.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `labelSelector` and `fieldSelector`.
    pub selectors: Selectors,
    /// `watch`.
    pub watch: bool,
    /// `None` when absent or empty.
    pub resource_version: Option<u64>,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// 0 when absent: everything.
    pub limit: usize,
    /// `continue`.
    pub continue_token: Option<String>,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `dryRun`.
    pub dry_run: bool,
    /// `fieldManager`.
    pub field_manager: Option<String>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `force`, of server-side apply.
    pub force: bool,
    /// Delete options may come in the query.
    pub propagation_policy: Option<String>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `orphanDependents`.
    pub orphan_dependents: Option<bool>,
    /// Of tables: `None`, `Metadata` or `Object`.
    pub include_object: Option<String>,
}

/// Percent decoding; an invalid escape is kept unchanged.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) if plus_is_space => out.push(b' '),
            (other, ..) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn decode_path(part: &str) -> String {
    decode(part, false)
}

/// The parameters of a query in their order, decoded.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name, true), decode(value, true))
    })
}

/// Splits a query into its parameters; the first value of a name counts.
fn parameters(query: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, value) in pairs(query) {
        found.entry(name).or_insert(value);
    }
    found
}

/// A parameter that is a number.
///
/// # Errors
/// When it is none.
pub fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "invalid value {text:?} for query parameter {name}: a number is needed"
        ))
    })
}

/// A parameter that is true or false. Upstream reads an absent value, `1`, `true` and friends as true.
///
/// # Errors
/// When it is neither.
pub fn boolean(name: &str, text: &str) -> Result<bool, ApiError> {
    match text {
        "" | "1" | "true" | "True" | "TRUE" | "t" | "T" => Ok(true),
        "0" | "false" | "False" | "FALSE" | "f" | "F" => Ok(false),
        _ => Err(ApiError::bad_request(format!(
            "invalid value {text:?} for query parameter {name}: true or false is needed"
        ))),
    }
}

/// Reads a resourceVersion, which is a number here and opaque to clients.
fn resource_version(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

impl Query {
    /// The selectors, and the name of an object if the request is for one.
    #[must_use]
    pub fn selectors_of(&self, name: &str) -> Selectors {
        let mut selectors = self.selectors.clone();
        if !name.is_empty() {
            selectors.fields.push(FieldRequirement {
                field: "metadata.name".to_owned(),
                value: name.to_owned(),
                equal: true,
            });
        }
        selectors
    }

    /// When a watch that begins now ends.
    #[must_use]
    pub fn watch_deadline(&self) -> Instant {
        let timeout = self.timeout_seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_TIMEOUT);
        Instant::now() + Duration::from_secs(timeout.min(MAX_TIMEOUT))
    }

    /// apimachinery's rules for list options of a watch.
    ///
    /// # Errors
    /// When options contradict each other.
    pub fn check_watch(&self) -> Result<(), ApiError> {
        let refuse = |why| {
            let error = FieldError::forbidden("resourceVersionMatch", why);
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
        };
        match (self.send_initial_events, self.version_match) {
            (None, Some(_)) => refuse(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (Some(_), None | Some(VersionMatch::Exact)) => {
                refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
            }
            (None, None) | (Some(_), Some(VersionMatch::NotOlderThan)) => Ok(()),
        }
    }

    /// Parses the part of an address after `?`.
    ///
    /// # Errors
    /// When a parameter is invalid; the error names it.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let p = parameters(query);
        let get = |name: &str| p.get(name).map(String::as_str);
        let flag = |name: &str| get(name).map(|v| boolean(name, v)).transpose();
        let text = |name: &str| get(name).filter(|v| !v.is_empty()).map(str::to_owned);
        let selectors = Selectors::parse(
            get("labelSelector").unwrap_or(""),
            get("fieldSelector").unwrap_or(""),
        )
        .map_err(ApiError::bad_request)?;
        let version_match = match get("resourceVersionMatch") {
            None | Some("") => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                return Err(invalid_options(FieldError::unsupported(
                    "resourceVersionMatch",
                    &other.into(),
                    &["", "Exact", "NotOlderThan"],
                )));
            }
        };
        let dry_run = match get("dryRun") {
            None | Some("") => false,
            Some("All") => true,
            Some(other) => {
                return Err(invalid_options(FieldError::unsupported(
                    "dryRun",
                    &other.into(),
                    &["All"],
                )));
            }
        };
        let field_validation = match get("fieldValidation") {
            None | Some("") | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                return Err(invalid_options(FieldError::unsupported(
                    "fieldValidation",
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                )));
            }
        };
        let field_manager = text("fieldManager");
        if let Some(manager) = &field_manager
            && (manager.len() > 128 || manager.chars().any(char::is_control))
        {
            return Err(invalid_options(FieldError::invalid(
                "fieldManager",
                &manager.as_str().into(),
                "must be at most 128 printable characters",
            )));
        }
        let limit: i64 =
            get("limit").filter(|v| !v.is_empty()).map_or(Ok(0), |v| number("limit", v))?;
        Ok(Query {
            selectors,
            watch: flag("watch")?.unwrap_or(false),
            resource_version: resource_version(get("resourceVersion").unwrap_or(""))?,
            version_match,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: text("continue"),
            timeout_seconds: text("timeoutSeconds")
                .map(|v| number("timeoutSeconds", &v))
                .transpose()?,
            bookmarks: flag("allowWatchBookmarks")?.unwrap_or(false),
            send_initial_events: flag("sendInitialEvents")?,
            dry_run,
            field_manager,
            field_validation,
            force: flag("force")?.unwrap_or(false),
            propagation_policy: text("propagationPolicy"),
            grace_period_seconds: text("gracePeriodSeconds")
                .map(|v| number("gracePeriodSeconds", &v))
                .transpose()?,
            orphan_dependents: flag("orphanDependents")?,
            include_object: text("includeObject"),
        })
    }
}

fn invalid_options(error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", "Options", "", &[error])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_typed() {
        let q = Query::parse(
            "watch=1&labelSelector=a%3Db%2Cc+in+%28d%29&limit=5&dryRun=All&resourceVersion=",
        )
        .unwrap();
        assert!(q.watch && q.dry_run);
        assert_eq!(q.selectors.labels.requirements().len(), 2);
        assert_eq!((q.limit, q.resource_version), (5, None));
        for bad in
            ["limit=x", "watch=maybe", "dryRun=Some", "resourceVersion=a", "fieldValidation=No"]
        {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
    }
}
