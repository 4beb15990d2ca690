//! APIs whose requests a server passes on, whatever their method, path and body: proxies.

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use http::Response;
use http::request::Parts;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tower::BoxError;

use crate::ApiError;
use crate::gate::Attributes;
use crate::identity::Identity;
use crate::kind::api_version;
use crate::response::Body;

/// The body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// A body of any type as the body of a request.
pub fn request_body<B>(body: B) -> RequestBody
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
    body.map_frame(move |frame| frame.map_data(whole)).map_err(Into::into).boxed_unsync()
}

/// What such an API serves: a resource, or a subresource for every name.
#[derive(Clone, Copy, Debug)]
pub struct RawResource {
    /// Plural of the resource. If only subresources are listed, the resource itself is not served: clients must not
    /// confuse it with one of this name in another group.
    pub resource: &'static str,
    /// The subresource; empty for the resource itself.
    pub subresource: &'static str,
    /// Kind in discovery.
    pub kind: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// The names of such an API.
#[derive(Clone, Copy, Debug)]
pub struct RawNames {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// What it serves.
    pub resources: &'static [RawResource],
}

/// An API whose requests are passed on. The server authenticates and authorises them first.
pub trait RawApi: Send + Sync + 'static {
    /// Its names.
    fn names(&self) -> RawNames;

    /// What a request does, for authorisation.
    ///
    /// # Errors
    /// When the path or the method is not served.
    fn attributes(&self, parts: &Parts) -> Result<Attributes, ApiError>;

    /// Answers a request that the server has authorised.
    fn answer(
        &self,
        caller: Identity,
        parts: Parts,
        body: RequestBody,
    ) -> BoxFuture<'_, Response<Body>>;
}

impl RawNames {
    /// Whether a path leads to objects of this API. Its discovery documents do not.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        let below = path.strip_prefix("/apis/").and_then(|path| path.strip_prefix(self.group));
        let below = below.and_then(|path| path.strip_prefix('/')?.strip_prefix(self.version));
        below.is_some_and(|path| path.len() > 1 && path.starts_with('/'))
    }

    pub(crate) fn group(&self) -> Value {
        let version =
            json!({"groupVersion": api_version(self.group, self.version), "version": self.version});
        json!({"name": self.group, "versions": [version], "preferredVersion": version})
    }

    pub(crate) fn resource_list(&self) -> Value {
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|resource| {
                let RawResource { resource: plural, subresource, .. } = resource;
                json!({
                    "name": match subresource.is_empty() {
                        true => (*plural).to_owned(),
                        false => format!("{plural}/{subresource}"),
                    },
                    "singularName": resource.singular(),
                    "namespaced": false,
                    "kind": resource.kind,
                    "verbs": resource.verbs,
                })
            })
            .collect();
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version(self.group, self.version),
            "resources": resources,
        })
    }

    /// The group in the aggregated document. Resources without a `responseKind` are not served themselves.
    pub(crate) fn discovered(&self) -> Value {
        let mut resources: Vec<Value> = Vec::new();
        for served in self.resources {
            let kind = json!({"group": self.group, "version": self.version, "kind": served.kind});
            let known = resources.iter().position(|one| one["resource"] == served.resource);
            let at = known.unwrap_or_else(|| {
                resources.push(json!({
                    "resource": served.resource,
                    "scope": "Cluster",
                    "singularResource": "",
                    "verbs": [],
                    "subresources": [],
                }));
                resources.len() - 1
            });
            let entry = &mut resources[at];
            if served.subresource.is_empty() {
                entry["responseKind"] = kind;
                entry["singularResource"] = served.singular().into();
                entry["verbs"] = json!(served.verbs);
            } else if let Some(subresources) = entry["subresources"].as_array_mut() {
                subresources.push(json!({
                    "subresource": served.subresource,
                    "responseKind": kind,
                    "verbs": served.verbs,
                }));
            }
        }
        let version =
            json!({"version": self.version, "freshness": "Current", "resources": resources});
        json!({"metadata": {"name": self.group, "creationTimestamp": null}, "versions": [version]})
    }
}

impl RawResource {
    /// The singular of a resource; subresources have none.
    fn singular(&self) -> String {
        if self.subresource.is_empty() { self.kind.to_lowercase() } else { String::new() }
    }
}
