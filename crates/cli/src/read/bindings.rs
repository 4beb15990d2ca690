//! Lists of bindings. A hub has one for each workload, so commands read only what they show, and a page is parsed while the
//! hub sends the next one: half of a binding is metadata that no command shows.

use anyhow::Context;
use atoll_api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::{ClusterResourceBinding, ResourceBinding};
use kube::Resource;
use kube::api::{ListParams, Request};
use kube::core::ListMeta;
use serde::Deserialize;

use crate::hub::Hub;

/// Page size: a page of small bindings has 2 MB.
const PAGE: u32 = 500;

/// What is read of a binding of either scope.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Listed {
    metadata: Named,
    pub(crate) spec: ResourceBindingSpec,
    pub(crate) status: Option<ResourceBindingStatus>,
}

#[derive(Debug, Clone, Deserialize)]
struct Named {
    name: String,
}

impl Listed {
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct Page {
    /// kube-apiserver may write `null` if there are none.
    items: Option<Vec<Listed>>,
}

/// Passes every binding of a namespace to the callback; without a namespace, those of all namespaces and the cluster-scoped
/// ones.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn each(
    hub: &Hub,
    namespace: Option<&str>,
    mut take: impl FnMut(Listed),
) -> anyhow::Result<()> {
    each_of::<ResourceBinding>(hub, namespace, &mut take).await?;
    if namespace.is_none() {
        each_of::<ClusterResourceBinding>(hub, None, &mut take).await?;
    }
    Ok(())
}

/// Passes every binding of a kind to the callback.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn each_of<K: Resource<DynamicType = ()>>(
    hub: &Hub,
    namespace: Option<&str>,
    take: &mut impl FnMut(Listed),
) -> anyhow::Result<()> {
    let kind = K::kind(&());
    let request = Request::new(K::url_path(&(), namespace));
    let page = async |after: Option<String>| {
        let mut params = ListParams::default().limit(PAGE);
        params.continue_token = after;
        let request = request.list(&params)?;
        hub.call(&format!("list {kind}s"), hub.client.request_text(request)).await
    };
    let unreadable = || format!("the hub's list of {kind}s is not valid");
    let mut text = page(None).await?;
    loop {
        let head: Head = serde_json::from_str(&text).with_context(unreadable)?;
        let parsing = tokio::task::spawn_blocking(move || serde_json::from_str::<Page>(&text));
        let after = head.metadata.continue_.filter(|token| !token.is_empty());
        let next = match after {
            Some(token) => Some(page(Some(token)).await?),
            None => None,
        };
        parsing.await?.with_context(unreadable)?.items.into_iter().flatten().for_each(&mut *take);
        match next {
            Some(next) => text = next,
            None => return Ok(()),
        }
    }
}
