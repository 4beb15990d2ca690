//! Objects of kinds that a policy of the change selects, and that the leader does not watch yet.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use serde_json::Value;

use super::types::PlanError;
use crate::index::key::GroupKind;
use crate::index::{Index, Source};

/// Objects of one request.
const PAGE: u32 = 500;
/// Most objects of one kind that a plan takes in.
const MOST: usize = 20_000;
/// Limit of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The objects of a kind.
pub(super) struct List {
    pub(super) source: Source,
    pub(super) objects: Vec<Arc<Value>>,
}

/// The objects of the kinds that are watched with the change, which the index has, and were not without.
///
/// # Errors
/// When the hub does not list them, or there are too many.
pub(super) async fn missing(index: &Index, client: &Client) -> Result<Vec<List>, PlanError> {
    let mut lists = Vec::new();
    for (kind, version) in index.wanted_kinds() {
        if index.is_read(kind.borrowed()) {
            continue;
        }
        let objects = list(client, &kind, &version)
            .await
            .map_err(|why| PlanError::Hub { what: kind.to_string(), why })?;
        lists.push(List { source: Source::Templates(kind), objects });
    }
    Ok(lists)
}

async fn list(client: &Client, kind: &GroupKind, version: &str) -> Result<Vec<Arc<Value>>, String> {
    let gvk = GroupVersionKind::gvk(&kind.group, version, &kind.kind);
    let found = timed(discovery::pinned_kind(client, &gvk)).await?;
    let resource: ApiResource = found.0;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let (mut objects, mut token): (Vec<Arc<Value>>, Option<String>) = (Vec::new(), None);
    loop {
        let mut params = ListParams::default().limit(PAGE);
        params.continue_token = token.take();
        let page = timed(api.list(&params)).await?;
        for object in page.items {
            let mut object = serde_json::to_value(&object).map_err(|error| error.to_string())?;
            object["apiVersion"] = resource.api_version.as_str().into();
            object["kind"] = resource.kind.as_str().into();
            objects.push(Arc::new(object));
        }
        if objects.len() > MOST {
            return Err(format!("there are more than {MOST}; select fewer kinds with the policy"));
        }
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(objects);
        }
    }
}

async fn timed<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer from the hub within {TIMEOUT:?}")),
    }
}
