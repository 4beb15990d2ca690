//! Client of the member's API server: raw JSON objects, a limit on every call, writes only while the Lease is held.
//!
//! kube's own retries must be off in the client that is given to [`Member::new`] (see [`client`]): they sleep without a
//! bound when the server asks for it. The queue that starts a call also retries it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy, WatchParams,
};
use kube::core::{ApiResource, DynamicObject, Request, Resource, WatchEvent};
use serde_json::Value;

use super::error::MemberError;
use super::rights::explained;
use crate::key::Key;

/// Limit of a read. A healthy API server answers in milliseconds; its own limit is 60 s.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(10);
/// Limit of a write: admission webhooks may take up to 30 s each by Kubernetes' rules.
const WRITE_LIMIT: Duration = Duration::from_secs(35);
/// Objects per page of a list: client-go's page size.
const PAGE: u32 = 500;

/// A client for the member without kube's retries, from a kubeconfig or the Pod's service account.
///
/// # Errors
/// When the configuration makes no client, for example for an unreadable certificate.
pub fn client(mut config: kube::Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    Client::try_from(config)
}

/// Endpoint of the objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Group, version, kind, plural.
    pub resource: ApiResource,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
}

/// Whether the agent may write: false while its Lease is overdue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fence(Arc<AtomicBool>);

impl Fence {
    /// Allows or blocks writes.
    pub(crate) fn set(&self, open: bool) {
        self.0.store(open, Ordering::Release);
    }

    /// Whether writes are allowed.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), MemberError> {
        if self.is_open() { Ok(()) } else { Err(MemberError::LeaseOverdue) }
    }
}

/// The member's API server. Clones share the connection pool and the fence.
#[derive(Clone)]
pub(crate) struct Member {
    pub(super) client: Client,
    fence: Fence,
}

/// What to follow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follow {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
    /// Lists return whole objects, watch events only metadata.
    pub metadata_only: bool,
}

/// One page of a list.
pub(crate) struct Page {
    /// The objects, with `apiVersion` and `kind` filled in.
    pub objects: Vec<Value>,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
    /// Version from which a watch continues.
    pub resource_version: String,
}

impl Member {
    /// Wraps a client; writes fail until the fence is opened.
    #[must_use]
    pub(crate) fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence }
    }

    /// The same server without the fence, for the Lease itself and for calls before it is held.
    #[must_use]
    pub(crate) fn unfenced(client: Client) -> Self {
        let fence = Fence::default();
        fence.set(true);
        Self { client, fence }
    }

    /// The object, or `None` where it does not exist.
    ///
    /// # Errors
    /// Any failed call except a 404.
    pub(crate) async fn get(
        &self,
        target: &Target,
        key: &Key,
    ) -> Result<Option<Value>, MemberError> {
        let request = requests(target, key)?.get(&key.name, &GetParams::default());
        let call = self.client.request::<Value>(request.map_err(MemberError::Request)?);
        match limited("get", READ_LIMIT, call).await {
            Ok(object) => Ok(Some(typed(target, object))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(explained(error, &target.resource, key, None)),
        }
    }

    /// Server-side apply as manager `atoll`; returns the resulting object.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn apply(
        &self,
        target: &Target,
        key: &Key,
        manifest: &Value,
        force: bool,
    ) -> Result<Value, MemberError> {
        let mut params = PatchParams::apply(atoll_api::marks::MANAGER);
        params.force = force;
        let applied = self.patch(target, key, &params, &Patch::Apply(manifest)).await;
        applied.map_err(|error| explained(error, &target.resource, key, Some(manifest)))
    }

    /// JSON patch as manager `atoll`.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn json_patch(
        &self,
        target: &Target,
        key: &Key,
        operations: &Value,
    ) -> Result<Value, MemberError> {
        let params = PatchParams {
            field_manager: Some(atoll_api::marks::MANAGER.into()),
            ..PatchParams::default()
        };
        self.fence.check()?;
        let operations = serde_json::from_value(operations.clone()).map_err(|error| {
            MemberError::Request(kube::core::request::Error::SerializeBody(error))
        })?;
        let patched = self.patch(target, key, &params, &Patch::<Value>::Json(operations)).await;
        patched.map_err(|error| explained(error, &target.resource, key, None))
    }

    async fn patch(
        &self,
        target: &Target,
        key: &Key,
        params: &PatchParams,
        patch: &Patch<impl serde::Serialize>,
    ) -> Result<Value, MemberError> {
        self.fence.check()?;
        let request = requests(target, key)?.patch(&key.name, params, patch);
        let call = self.client.request::<Value>(request.map_err(MemberError::Request)?);
        Ok(typed(target, limited("patch", WRITE_LIMIT, call).await?))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn create(
        &self,
        target: &Target,
        key: &Key,
        object: &Value,
    ) -> Result<Value, MemberError> {
        self.fence.check()?;
        let params = PostParams {
            field_manager: Some(atoll_api::marks::MANAGER.into()),
            ..PostParams::default()
        };
        let request = requests(target, key)?.create(&params, object.to_string().into_bytes());
        let call = self.client.request::<Value>(request.map_err(MemberError::Request)?);
        let created = limited("create", WRITE_LIMIT, call).await;
        created.map_err(|error| explained(error, &target.resource, key, Some(object)))
    }

    /// Replaces an object, guarded by the resourceVersion in it.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn replace(
        &self,
        target: &Target,
        key: &Key,
        object: &Value,
        limit: Duration,
    ) -> Result<Value, MemberError> {
        self.fence.check()?;
        let params = PostParams {
            field_manager: Some(atoll_api::marks::MANAGER.into()),
            ..PostParams::default()
        };
        let bytes = object.to_string().into_bytes();
        let request = requests(target, key)?.replace(&key.name, &params, bytes);
        let call = self.client.request::<Value>(request.map_err(MemberError::Request)?);
        limited("replace", limit, call).await
    }

    /// Deletes the object if it still has this uid; its dependents are deleted in the background.
    ///
    /// # Errors
    /// Any failed call; 404 where it is already gone, 409 where the uid differs.
    pub(crate) async fn delete(
        &self,
        target: &Target,
        key: &Key,
        uid: &str,
    ) -> Result<(), MemberError> {
        self.fence.check()?;
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = requests(target, key)?.delete(&key.name, &params);
        let call = self.client.request::<Value>(request.map_err(MemberError::Request)?);
        let deleted = limited("delete", WRITE_LIMIT, call).await.map(drop);
        deleted.map_err(|error| explained(error, &target.resource, key, None))
    }

    /// One page of all objects of a kind, in one namespace or in all.
    ///
    /// # Errors
    /// Any failed call.
    pub(crate) async fn list(
        &self,
        target: &Target,
        namespace: Option<&str>,
        labels: Option<&str>,
        next: Option<String>,
    ) -> Result<Page, MemberError> {
        let params = ListParams {
            label_selector: labels.map(str::to_owned),
            limit: Some(PAGE),
            continue_token: next,
            ..ListParams::default()
        };
        let url = DynamicObject::url_path(&target.resource, namespace);
        let request = Request::new(url).list(&params).map_err(MemberError::Request)?;
        let mut list = limited("list", READ_LIMIT, self.client.request::<Value>(request)).await?;
        let objects = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => {
                items.into_iter().map(|item| typed(target, item)).collect()
            }
            _ => Vec::new(),
        };
        let text = |name: &str| list["metadata"][name].as_str().unwrap_or_default().to_owned();
        Ok(Page {
            objects,
            next: Some(text("continue")).filter(|next| !next.is_empty()),
            resource_version: text("resourceVersion"),
        })
    }

    /// Watches a kind from a resourceVersion on, whole objects or only their metadata.
    pub(super) async fn watch(
        &self,
        target: &Target,
        follow: &Follow,
        resource_version: &str,
        seconds: u32,
    ) -> Result<impl futures::TryStream<Item = kube::Result<WatchEvent<Value>>> + use<>, MemberError>
    {
        let params = WatchParams {
            label_selector: follow.labels.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let url = DynamicObject::url_path(&target.resource, follow.namespace.as_deref());
        let request = if follow.metadata_only {
            Request::new(url).watch_metadata(&params, resource_version)
        } else {
            Request::new(url).watch(&params, resource_version)
        };
        let request = request.map_err(MemberError::Request)?;
        let stream = limited("watch", READ_LIMIT, self.client.request_events::<Value>(request));
        stream.await
    }

    /// `/readyz`: whether the API server serves.
    ///
    /// # Errors
    /// When it is not ready, or the call fails.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), MemberError> {
        let request = http::Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|error| {
            MemberError::Request(kube::core::request::Error::BuildRequest(error))
        })?;
        limited("readyz", limit, self.client.request_text(request)).await.map(drop)
    }
}

/// Adds a time limit to a call.
pub(super) async fn limited<T>(
    call: &'static str,
    after: Duration,
    future: impl Future<Output = kube::Result<T>>,
) -> Result<T, MemberError> {
    match tokio::time::timeout(after, future).await {
        Ok(result) => result.map_err(MemberError::from),
        Err(_) => Err(MemberError::Timeout { call, after }),
    }
}

/// Request builder for the object's path; rejects keys that do not fit the kind's scope, and those whose path would be
/// another object's: names enter the path as they are.
fn requests(target: &Target, key: &Key) -> Result<Request, MemberError> {
    let namespace = (!key.namespace.is_empty()).then_some(key.namespace.as_str());
    for name in namespace.into_iter().chain([key.name.as_str()]) {
        if !is_path_segment(name) {
            let problem = "must be printable and have none of / % ? #";
            return Err(MemberError::Scope(format!("{key}: the name {name:?} {problem}")));
        }
    }
    match (target.namespaced, namespace) {
        (true, None) => Err(MemberError::Scope(format!("{key} needs a namespace"))),
        (false, Some(_)) => {
            Err(MemberError::Scope(format!("{key} has a namespace, the kind is cluster-scoped")))
        }
        (_, namespace) => Ok(Request::new(DynamicObject::url_path(&target.resource, namespace))),
    }
}

/// Whether a name is one segment of a path: Kubernetes' own rule for names, and no characters that end a path.
fn is_path_segment(name: &str) -> bool {
    let is_bad = |c: char| "/%?#".contains(c) || c.is_control() || c.is_whitespace();
    !matches!(name, "" | "." | "..") && !name.contains(is_bad)
}

/// Lists of built-in kinds omit `apiVersion` and `kind` in their items.
pub(super) fn typed(target: &Target, mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields
            .entry("apiVersion")
            .or_insert_with(|| Value::String(target.resource.api_version.clone()));
        fields.entry("kind").or_insert_with(|| Value::String(target.resource.kind.clone()));
    }
    object
}

impl Target {
    /// A kind that every API server has.
    #[must_use]
    pub(crate) fn builtin(
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
    ) -> Self {
        Self {
            resource: ApiResource {
                group: group.into(),
                version: version.into(),
                api_version: api_version(group, version),
                kind: kind.into(),
                plural: plural.into(),
            },
            namespaced,
        }
    }
}

/// `group/version`, or the version alone for the core group.
pub(super) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::GroupKind;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![2 => "[a-z0-9.:-]{1,20}", 2 => "[a-z/.%?# ]{0,20}", 1 => "\\PC{0,20}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A key of the controller addresses the object that it names, or nothing. Otherwise it could get around the
        /// reserved namespaces.
        #[test]
        fn a_key_reaches_no_other_object(namespace in name(), name in name()) {
            let target = Target::builtin("", "v1", "ConfigMap", "configmaps", true);
            let kind = GroupKind::new("", "ConfigMap");
            let key = Key { kind, namespace: namespace.clone(), name: name.clone() };
            let Ok(request) = requests(&target, &key) else {
                let plain = |text: &str| {
                    text.starts_with(|c: char| c.is_ascii_alphanumeric())
                        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".:-".contains(c))
                };
                prop_assert!(!plain(&namespace) || !plain(&name));
                return Ok(());
            };
            // Otherwise the name has characters that no URL has.
            let Ok(request) = request.get(&name, &GetParams::default()) else { return Ok(()) };
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            prop_assert_eq!(request.uri().path(), path.as_str());
            prop_assert_eq!(request.uri().path().split('/').count(), 7);
            prop_assert_eq!(request.uri().query().unwrap_or_default(), "");
        }
    }
}
