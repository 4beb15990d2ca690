//! Discovery: the served groups, versions and kinds, in the legacy documents and in the aggregated one that kubectl
//! requests, and the OpenAPI index.

mod gnostic;
mod openapi;
mod paths;
mod swagger;
mod version;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Value, json};

pub use self::openapi::reference;
pub use self::version::{Definitions, Version};
use crate::ApiError;
use crate::kind::{KindNames, ServedKind, ServedKinds, Subresource, api_version};
use crate::raw::RawNames;
use crate::request::Target;
use crate::request::accept::{self, DiscoveryShape};
use crate::response::{self, Body, encode, respond, respond_json};

/// Answers the paths that are not objects. OpenAPI documents are built at the first request and dropped when the kinds
/// change.
#[derive(Default)]
pub struct Documents {
    version: Version,
    definitions: Definitions,
    raw: RwLock<Vec<RawNames>>,
    cache: Mutex<(u64, BTreeMap<String, Bytes>)>,
}

impl Documents {
    /// The documents of a server.
    #[must_use]
    pub fn new(version: Version, definitions: Definitions) -> Self {
        Self { version, definitions, raw: RwLock::default(), cache: Mutex::default() }
    }

    /// Lists an API whose requests are passed on.
    pub fn list_raw(&self, names: RawNames) {
        self.raw.write().unwrap_or_else(PoisonError::into_inner).push(names);
    }

    fn raw(&self) -> Vec<RawNames> {
        self.raw.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a GET.
    ///
    /// # Errors
    /// 404 if there is no such document, 406 if the client accepts no format of it.
    pub fn answer<K: ServedKind>(
        &self,
        kinds: &ServedKinds<K>,
        target: &Target,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, ApiError> {
        match target {
            Target::Version => Ok(respond_json(200, &self.version.document())),
            Target::Health => {
                Ok(respond(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok")))
            }
            Target::CoreVersions => Ok(core_versions(kinds, headers)),
            Target::Groups => Ok(groups(kinds, &self.raw(), headers)),
            Target::Group(name) => group(kinds, &self.raw(), name),
            Target::Resources { group, version } => {
                let raw = self.raw();
                let raw = raw.iter().find(|raw| raw.group == group && raw.version == version);
                match raw {
                    Some(raw) => Ok(respond_json(200, &raw.resource_list())),
                    None => resources(kinds, group, version),
                }
            }
            Target::Swagger => self.swagger(kinds, headers),
            Target::OpenApiIndex => Ok(openapi_index(kinds)),
            Target::OpenApi(path) => self.openapi(kinds, path, headers),
            Target::Object(_) | Target::Unknown => Err(ApiError::no_such_path()),
        }
    }

    fn get(
        &self,
        generation: u64,
        path: &str,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.0 != generation {
                *cache = (generation, BTreeMap::new());
            }
            if let Some(found) = cache.1.get(path) {
                return Some(found.clone());
            }
        }
        let bytes = make()?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.0 == generation {
            cache.1.insert(path.to_owned(), bytes.clone());
        }
        Some(bytes)
    }

    /// `/openapi/v2`, as JSON or in the protobuf form that kubectl asks for.
    fn swagger<K: ServedKind>(
        &self,
        kinds: &ServedKinds<K>,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, ApiError> {
        let document = || swagger::document(kinds, &self.version, self.definitions);
        if accept::names_one_of(headers, &gnostic::MEDIA_TYPES) {
            let make = || Some(gnostic::encode(&document()).into());
            let bytes = self.get(kinds.generation, "v2.pb", make);
            return Ok(respond(200, gnostic::ANSWER, bytes.unwrap_or_default()));
        }
        accept::shape(headers)?;
        let bytes = self.get(kinds.generation, "v2", || Some(encode(&document())));
        Ok(respond(200, response::JSON, bytes.unwrap_or_default()))
    }

    /// One group version's document.
    fn openapi<K: ServedKind>(
        &self,
        kinds: &ServedKinds<K>,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, ApiError> {
        // Only JSON is written; a client that does not accept it gets an error.
        accept::shape(headers)?;
        let document = self.get(kinds.generation, path, || {
            let (group, version) = find_document(kinds, path)?;
            Some(encode(&openapi::document(kinds, group, version, &self.version)))
        });
        let document = document.ok_or_else(ApiError::no_such_path)?;
        Ok(respond(200, response::JSON, document))
    }
}

/// A kind's subresources, sorted.
fn subresources(kind: &impl ServedKind) -> Vec<Subresource> {
    let mut all = kind.subresources();
    all.sort();
    all
}

/// `/api`.
fn core_versions<K: ServedKind>(kinds: &ServedKinds<K>, headers: &HeaderMap) -> Response<Body> {
    match accept::discovery(headers) {
        DiscoveryShape::Aggregated(version) => {
            aggregated(kinds, &[], version, |group| group.is_empty())
        }
        DiscoveryShape::Legacy => respond_json(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
    }
}

/// `/apis`.
fn groups<K: ServedKind>(
    kinds: &ServedKinds<K>,
    raw: &[RawNames],
    headers: &HeaderMap,
) -> Response<Body> {
    if let DiscoveryShape::Aggregated(version) = accept::discovery(headers) {
        return aggregated(kinds, raw, version, |group| !group.is_empty());
    }
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| api_group(group, versions))
        .chain(raw.iter().map(RawNames::group))
        .collect();
    respond_json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

fn api_group(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|v| json!({"groupVersion": api_version(group, v), "version": v}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// `/apis/<group>`.
fn group<K: ServedKind>(
    kinds: &ServedKinds<K>,
    raw: &[RawNames],
    group: &str,
) -> Result<Response<Body>, ApiError> {
    let groups = kinds.groups();
    let raw = raw.iter().find(|raw| raw.group == group).map(RawNames::group);
    let stored = || groups.get(group).filter(|_| !group.is_empty());
    let mut body = raw
        .or_else(|| stored().map(|versions| api_group(group, versions)))
        .ok_or_else(ApiError::no_such_path)?;
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Ok(respond_json(200, &body))
}

/// `/api/v1` and `/apis/<group>/<version>`, with subresources as resources of their own.
fn resources<K: ServedKind>(
    kinds: &ServedKinds<K>,
    group: &str,
    version: &str,
) -> Result<Response<Body>, ApiError> {
    let mut resources = Vec::new();
    for kind in kinds.of_version(group, version) {
        let names = kind.names();
        let mut resource = json!({
            "name": names.plural,
            "singularName": names.singular,
            "namespaced": names.namespaced,
            "kind": names.kind,
            "verbs": kind.verbs(),
        });
        for (field, list) in lists(names) {
            if !list.is_empty() {
                resource[field] = json!(list);
            }
        }
        resources.push(resource);
        for sub in subresources(&**kind) {
            resources.push(json!({
                "name": format!("{}/{}", names.plural, sub.name),
                "singularName": "",
                "namespaced": names.namespaced,
                "group": sub.group,
                "version": sub.version,
                "kind": sub.kind,
                "verbs": sub.verbs,
            }));
        }
    }
    if resources.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(respond_json(
        200,
        &json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version(group, version),
            "resources": resources,
        }),
    ))
}

/// The lists of a kind in discovery.
fn lists(names: &KindNames) -> [(&'static str, &Vec<String>); 2] {
    [("shortNames", &names.short_names), ("categories", &names.categories)]
}

/// A kind in the aggregated document.
fn discovered(kind: &impl ServedKind) -> Value {
    let names = kind.names();
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    let mut resource = json!({
        "resource": names.plural,
        "responseKind": {"group": names.group, "version": names.version, "kind": names.kind},
        "scope": if names.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": names.singular,
        "verbs": kind.verbs(),
    });
    for (field, list) in lists(names) {
        if !list.is_empty() {
            resource[field] = json!(list);
        }
    }
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}

/// Everything in one document, which saves kubectl a request per group version.
fn aggregated<K: ServedKind>(
    kinds: &ServedKinds<K>,
    raw: &[RawNames],
    version: &'static str,
    wanted: impl Fn(&str) -> bool,
) -> Response<Body> {
    let items: Vec<Value> = kinds
        .groups()
        .into_iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|v| {
                    let resources: Vec<Value> =
                        kinds.of_version(group, v).map(|kind| discovered(&**kind)).collect();
                    json!({"version": v, "freshness": "Current", "resources": resources})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .chain(raw.iter().map(RawNames::discovered))
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let mut response = respond_json(200, &body);
    let content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Path of a group version below `/openapi/v3`, which is its own path.
fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn find_document<'a, K: ServedKind>(
    kinds: &'a ServedKinds<K>,
    path: &str,
) -> Option<(&'a str, &'a str)> {
    kinds.groups().into_iter().find_map(|(group, versions)| {
        let version = versions.into_iter().find(|v| document_path(group, v) == path)?;
        Some((group, version))
    })
}

/// `/openapi/v3`. Clients use the hash in the addresses for caching.
fn openapi_index<K: ServedKind>(kinds: &ServedKinds<K>) -> Response<Body> {
    let mut paths = serde_json::Map::new();
    for (group, versions) in kinds.groups() {
        for version in versions {
            let path = document_path(group, version);
            let hash = openapi::fingerprint(kinds, group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    respond_json(200, &json!({"paths": paths}))
}
