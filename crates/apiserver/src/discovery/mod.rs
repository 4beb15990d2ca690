//! Discovery: the served groups, versions and kinds, in the legacy documents and in the aggregated one that kubectl
//! requests, and the OpenAPI index.

mod merge_keys;
mod openapi;
mod paths;
mod swagger;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Value, json};

use crate::{
    core::Core,
    error::ApiError,
    http::{
        self as web, Body,
        accept::{self, DiscoveryShape},
    },
    kinds::{Kind, api_version, catalog::Snapshot},
    verbs::subresource,
};

/// OpenAPI documents by path, built at the first request and dropped when the catalogue changes.
#[derive(Default)]
pub(crate) struct Documents {
    cache: Mutex<(u64, BTreeMap<String, Bytes>)>,
}

impl Documents {
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
}

/// A kind's subresources: (name, group, version, kind, verbs).
fn subresources(
    kind: &Kind,
) -> Vec<(&'static str, String, String, String, &'static [&'static str])> {
    const READ_WRITE: &[&str] = &["get", "patch", "update"];
    const CREATE: &[&str] = &["create"];
    const UPDATE: &[&str] = &["update"];
    let mut all = Vec::new();
    let text = |s: &str| s.to_owned();
    if kind.status {
        let own = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        all.push(("status", own.0, own.1, own.2, READ_WRITE));
    }
    if kind.scale.is_some() {
        all.push(("scale", text("autoscaling"), text("v1"), text("Scale"), READ_WRITE));
    }
    for (name, group, version, response) in subresource::of(kind) {
        let verbs = if *name == "finalize" { UPDATE } else { CREATE };
        all.push((*name, text(group), text(version), text(response), verbs));
    }
    all.sort();
    all
}

/// `/api`.
pub(crate) fn core_versions(core: &Core, headers: &HeaderMap) -> Response<Body> {
    match accept::discovery(headers) {
        DiscoveryShape::Aggregated(version) => aggregated(core, version, |group| group.is_empty()),
        DiscoveryShape::Legacy => web::respond_json(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
    }
}

/// `/apis`.
pub(crate) fn groups(core: &Core, headers: &HeaderMap) -> Response<Body> {
    if let DiscoveryShape::Aggregated(version) = accept::discovery(headers) {
        return aggregated(core, version, |group| !group.is_empty());
    }
    let kinds = core.kinds();
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| api_group(group, versions))
        .collect();
    web::respond_json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

fn api_group(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|v| json!({"groupVersion": api_version(group, v), "version": v}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// `/apis/<group>`.
pub(crate) fn group(core: &Core, group: &str) -> Result<Response<Body>, ApiError> {
    let kinds = core.kinds();
    let groups = kinds.groups();
    let versions =
        groups.get(group).filter(|_| !group.is_empty()).ok_or_else(ApiError::no_such_path)?;
    let mut body = api_group(group, versions);
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Ok(web::respond_json(200, &body))
}

/// `/api/v1` and `/apis/<group>/<version>`, with subresources as resources of their own.
pub(crate) fn resources(
    core: &Core,
    group: &str,
    version: &str,
) -> Result<Response<Body>, ApiError> {
    let kinds = core.kinds();
    let mut resources = Vec::new();
    for kind in kinds.of_version(group, version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs(),
        });
        for (field, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
            if !list.is_empty() {
                resource[field] = json!(list);
            }
        }
        resources.push(resource);
        for (name, group, version, response, verbs) in subresources(kind) {
            resources.push(json!({
                "name": format!("{}/{name}", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "group": group,
                "version": version,
                "kind": response,
                "verbs": verbs,
            }));
        }
    }
    if resources.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(web::respond_json(
        200,
        &json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version(group, version),
            "resources": resources,
        }),
    ))
}

/// A kind in the aggregated document.
fn discovered(kind: &Kind) -> Value {
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, group, version, response, verbs)| {
            json!({
                "subresource": name,
                "responseKind": {"group": group, "version": version, "kind": response},
                "verbs": verbs,
            })
        })
        .collect();
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs(),
    });
    for (field, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
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
fn aggregated(core: &Core, version: &'static str, wanted: impl Fn(&str) -> bool) -> Response<Body> {
    let kinds = core.kinds();
    let items: Vec<Value> = kinds
        .groups()
        .into_iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|v| {
                    let resources: Vec<Value> =
                        kinds.of_version(group, v).map(|k| discovered(k)).collect();
                    json!({"version": v, "freshness": "Current", "resources": resources})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let mut response = web::respond_json(200, &body);
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

fn find_document<'a>(kinds: &'a Snapshot, path: &str) -> Option<(&'a str, &'a str)> {
    kinds.groups().into_iter().find_map(|(group, versions)| {
        let version = versions.into_iter().find(|v| document_path(group, v) == path)?;
        Some((group, version))
    })
}

/// `/openapi/v3`. Clients use the hash in the addresses for caching.
pub(crate) fn openapi_index(core: &Core) -> Response<Body> {
    let kinds = core.kinds();
    let mut paths = serde_json::Map::new();
    for (group, versions) in kinds.groups() {
        for version in versions {
            let path = document_path(group, version);
            let hash = openapi::fingerprint(&kinds, group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    web::respond_json(200, &json!({"paths": paths}))
}

/// `/openapi/v2`, as JSON or in the protobuf form that kubectl asks for.
pub(crate) fn swagger(core: &Core, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    use crate::protobuf::openapi as gnostic;
    let kinds = core.kinds();
    let document = || swagger::document(&kinds, &core.version);
    if accept::names_one_of(headers, &gnostic::MEDIA_TYPES) {
        let make = || Some(gnostic::encode(&document()).into());
        let bytes = core.documents.get(kinds.generation, "v2.pb", make);
        return Ok(web::respond(200, gnostic::ANSWER, bytes.unwrap_or_default()));
    }
    accept::shape(headers)?;
    let make = || Some(crate::store::encode(&document()));
    let bytes = core.documents.get(kinds.generation, "v2", make);
    Ok(web::respond(200, web::JSON, bytes.unwrap_or_default()))
}

/// One group version's document.
pub(crate) fn openapi(
    core: &Core,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    // Only JSON is written; a client that does not accept it gets an error.
    accept::shape(headers)?;
    let kinds = core.kinds();
    let document = core.documents.get(kinds.generation, path, || {
        let (group, version) = find_document(&kinds, path)?;
        Some(crate::store::encode(&openapi::document(&kinds, group, version, &core.version)))
    });
    let document = document.ok_or_else(ApiError::no_such_path)?;
    Ok(web::respond(200, web::JSON, document))
}
