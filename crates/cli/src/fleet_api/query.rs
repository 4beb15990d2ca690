//! What a request asks for: parameters of the fleet, and those that every member gets.

use std::time::Duration;

use atoll_access::path::MemberPath;
use atoll_apimachinery::ApiError;
use atoll_apimachinery::request::query::{boolean, number, pairs};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

use super::versions::{Continue, Versions};
use crate::reach::with_query;

/// Longest watch. A client continues with a new one, as with any API server.
const WATCH: Duration = Duration::from_secs(30 * 60);
/// Most objects of one page; also the page of members when the client names none.
pub(super) const PAGE: usize = 500;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FleetQuery {
    /// The path on members.
    path: String,
    /// The parameters that members get, decoded.
    passed: Vec<(String, String)>,
    /// Labels of the members.
    pub(super) clusters: Option<String>,
    /// Objects of a page; `None` = everything in one answer.
    pub(super) limit: Option<usize>,
    /// Where the page begins.
    pub(super) from: Option<Continue>,
    pub(super) watch: bool,
    /// Where a watch begins on each member.
    pub(super) versions: Versions,
    pub(super) lasts: Duration,
}

impl FleetQuery {
    /// Reads path and query.
    ///
    /// # Errors
    /// When a parameter is invalid, or the fleet cannot serve it.
    pub(super) fn parse(rest: &str) -> Result<Self, ApiError> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parsed = Self {
            path: path.to_owned(),
            passed: Vec::new(),
            clusters: None,
            limit: None,
            from: None,
            watch: false,
            versions: Versions::default(),
            lasts: WATCH,
        };
        let mut version = String::new();
        for (name, value) in pairs(query) {
            match name.as_str() {
                "clusterSelector" => parsed.clusters = Some(value),
                "limit" => {
                    let limit: usize = number("limit", &value)?;
                    parsed.limit = (limit > 0).then(|| limit.min(PAGE));
                }
                "continue" if value.is_empty() => {}
                "continue" => parsed.from = Some(Continue::read(&value)?),
                "watch" => parsed.watch = boolean("watch", &value)?,
                "resourceVersion" => version = value,
                // A list is always the newest state, so it is at least as new as any version.
                "resourceVersionMatch" if value == "Exact" => {
                    return Err(ApiError::bad_request(
                        "resourceVersionMatch=Exact is not possible for several members",
                    ));
                }
                "sendInitialEvents" if boolean("sendInitialEvents", &value)? => {
                    return Err(ApiError::unprocessable(
                        "sendInitialEvents is forbidden for watches of several members: list first",
                    ));
                }
                "timeoutSeconds" => {
                    let seconds = number("timeoutSeconds", &value)?;
                    // 0 is the default, as with any API server.
                    if seconds > 0 {
                        parsed.lasts = WATCH.min(Duration::from_secs(seconds));
                    }
                }
                "resourceVersionMatch"
                | "sendInitialEvents"
                | "allowWatchBookmarks"
                | "timeout"
                | "pretty" => {}
                _ => parsed.passed.push((name, value)),
            }
        }
        if parsed.watch {
            parsed.versions = Versions::read(&version)?;
        }
        parsed.check()?;
        Ok(parsed)
    }

    /// Whether members accept the path, so that a mistake in it is no failure of each member.
    fn check(&self) -> Result<(), ApiError> {
        let longest = MemberPath::parse(&self.page(PAGE, None));
        longest.map(drop).map_err(|error| ApiError::bad_request(error.to_string()))
    }

    /// The request for a page of a member.
    pub(super) fn page(&self, limit: usize, token: Option<&str>) -> String {
        let limit = limit.to_string();
        self.with(&[("limit", Some(limit)), ("continue", token.map(str::to_owned))])
    }

    /// The request for changes of a member.
    pub(super) fn changes(&self, version: Option<&str>) -> String {
        let (yes, version) = (Some("true".to_owned()), version.map(str::to_owned));
        // Bookmarks keep the version of a quiet member new.
        self.with(&[
            ("watch", yes.clone()),
            ("allowWatchBookmarks", yes),
            ("resourceVersion", version),
        ])
    }

    /// The same path for a single answer.
    pub(super) fn plain(&self) -> String {
        self.with(&[])
    }

    fn with(&self, more: &[(&str, Option<String>)]) -> String {
        let passed = self.passed.iter().map(|(name, value)| (name.as_str(), Some(value.clone())));
        let all: Vec<_> = passed.chain(more.iter().cloned()).collect();
        with_query(&self.path, &all)
    }

    /// Whether the path leads to documents about the API instead of objects. Clients read them first.
    pub(super) fn is_discovery(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.first().copied() {
            Some("api") => parts.len() <= 2,
            Some("apis") => parts.len() <= 3,
            Some("version") => parts.len() == 1,
            Some("openapi") => true,
            _ => false,
        }
    }
}

/// The representation that members are asked for: JSON, in the form that the client prefers.
pub(super) fn accepted(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = given.flat_map(|value| value.split(',')).map(str::trim);
    let form = ranges.find_map(|range| {
        let forms = ["Table", "PartialObjectMetadataList", "PartialObjectMetadata"];
        let mut parameters = range.split(';').map(str::trim);
        let json = parameters.next() == Some("application/json");
        let asked = parameters.find_map(|parameter| parameter.strip_prefix("as="));
        asked.filter(|_| json).and_then(|asked| forms.into_iter().find(|form| *form == asked))
    });
    let text = match form {
        Some("Table") => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        Some("PartialObjectMetadataList") => {
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
        }
        Some(_) => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
        None => "application/json",
    };
    HeaderValue::from_static(text)
}
