//! An API server as a user sees it.

use std::fmt::Display;
use std::sync::Arc;

use atoll_api::static_assignment;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use super::kinds::{self, FEDERATED_RESOURCE_QUOTA, Kind, RESOURCE_QUOTA};
use super::ledger::Ledger;
use super::tap::HUB;

/// Field manager of the user of a World.
const USER: &str = "user";

/// The hub or a member, through a user's client. The user's writes are not counted, and reach the store of a member
/// even without power.
///
/// # Panics
/// All methods panic when the API server refuses: in a test that is the report.
#[derive(Clone)]
pub struct Site {
    name: String,
    client: kube::Client,
    ledger: Arc<Ledger>,
}

impl Site {
    pub(super) fn new(name: &str, client: kube::Client, ledger: Arc<Ledger>) -> Self {
        Self { name: name.to_owned(), client, ledger }
    }

    /// The client, for requests without a method here.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Applies a manifest (server-side, forced) and returns the object.
    pub async fn apply(&self, manifest: Value) -> Value {
        self.applied(manifest, PatchParams::apply(USER).force()).await
    }

    /// What applying a manifest would make of the object; nothing is written.
    pub async fn apply_dry(&self, manifest: Value) -> Value {
        self.applied(manifest, PatchParams::apply(USER).force().dry_run()).await
    }

    async fn applied(&self, manifest: Value, params: PatchParams) -> Value {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let Some(kind) = kinds::of(&api_version, &kind) else {
            panic!("a World does not know {api_version} {kind}: add it to world/kinds.rs");
        };
        let name = text(&manifest["metadata"]["name"]);
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or("default");
        let patch = Patch::Apply(&manifest);
        let applied = self.api(&kind, namespace).patch(&name, &params, &patch).await;
        self.must(&format!("apply {} {name}", kind.kind), applied.map(value))
    }

    /// Merges a patch into an object (`ns/name`, or `name` for kinds without namespace).
    pub async fn merge(&self, kind: &Kind, key: &str, patch: Value) -> Value {
        match self.merge_if_there(kind, key, patch).await {
            Some(patched) => patched,
            None => panic!("patch {} {key} on {}: there is none", kind.kind, self.name),
        }
    }

    /// As [`Site::merge`]; `None` if the object does not exist.
    pub async fn merge_if_there(&self, kind: &Kind, key: &str, patch: Value) -> Option<Value> {
        self.merged(kind, key, patch, false).await
    }

    /// What merging a patch would make of an object; nothing is written. `None` if the object does not exist.
    pub async fn merge_dry(&self, kind: &Kind, key: &str, patch: Value) -> Option<Value> {
        self.merged(kind, key, patch, true).await
    }

    async fn merged(&self, kind: &Kind, key: &str, patch: Value, dry_run: bool) -> Option<Value> {
        let (namespace, name) = split(key);
        let field_manager = Some(USER.to_owned());
        let params = PatchParams { field_manager, dry_run, ..PatchParams::default() };
        let patched = self.api(kind, namespace).patch(name, &params, &Patch::Merge(&patch)).await;
        let patched = match patched {
            Err(kube::Error::Api(status)) if status.is_not_found() => return None,
            patched => self.must(&format!("patch {} {key}", kind.kind), patched),
        };
        Some(value(patched))
    }

    /// Deletes an object.
    pub async fn delete(&self, kind: &Kind, key: &str) {
        let (namespace, name) = split(key);
        if self.name == HUB {
            self.ledger.template_deleted(kind.kind, key);
            if *kind == FEDERATED_RESOURCE_QUOTA
                && let Some(assigned) = static_assignment::name_of(name)
            {
                // The controller deletes it because the user deleted the quota.
                self.ledger
                    .template_deleted(RESOURCE_QUOTA.kind, &format!("{namespace}/{assigned}"));
            }
        }
        let deleted = self.api(kind, namespace).delete(name, &DeleteParams::default()).await;
        self.must(&format!("delete {} {key}", kind.kind), deleted.map(drop));
    }

    /// Deletes an object of a member that may be gone already.
    pub async fn delete_if_there(&self, kind: &Kind, key: &str) {
        let (namespace, name) = split(key);
        match self.api(kind, namespace).delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => self.must(&format!("delete {} {key}", kind.kind), deleted.map(drop)),
        }
    }

    /// Reads an object; `Value::Null` if it does not exist.
    pub async fn get(&self, kind: &Kind, key: &str) -> Value {
        let (namespace, name) = split(key);
        let found = self.api(kind, namespace).get_opt(name).await;
        let found = self.must(&format!("get {} {key}", kind.kind), found);
        found.map_or(Value::Null, value)
    }

    fn api(&self, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
        let resource = resource(kind);
        match kind.namespaced {
            true => Api::namespaced_with(self.client.clone(), namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        }
    }

    fn must<T>(&self, what: &str, result: Result<T, impl Display>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => panic!("{what} on {}: {error}", self.name),
        }
    }
}

pub(super) fn resource(kind: &Kind) -> ApiResource {
    let (group, version) = kind.api_version.rsplit_once('/').unwrap_or(("", kind.api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

/// An object as JSON, without managed fields.
pub(super) fn value(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).expect("what was read from JSON can be written as JSON")
}

fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("default", key))
}
