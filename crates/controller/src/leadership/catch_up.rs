//! Before a leadership begins, the tables get every binding as the hub has it. A watch that lags may still show decisions that
//! the leader before has replaced; the copies that they do not name would be removed from members. So the names and versions of
//! all bindings are listed, and those that the tables have in another version are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{ClusterResourceBinding, ResourceBinding};
use futures::{StreamExt, stream};
use kube::api::{ListParams, Request};
use kube::core::ListMeta;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::commit::{self, TIMEOUT};
use crate::index::Index;
use crate::index::binding_object::BindingObject;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;

/// Names and versions of one page; a page that is read is at most this many bindings.
const PAGE: u32 = 500;
/// Bindings that are read at the same time.
const READS: usize = 16;
/// Delay before the hub is asked again after a failure. The leader decides nothing until then.
const AGAIN: Duration = Duration::from_secs(1);

type Versions = BTreeMap<BindingKey, String>;

/// Names and versions of bindings. The rest of their metadata, of which there is more, is skipped.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    /// kube-apiserver writes `null` if there are none.
    items: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    namespace: Option<String>,
    name: String,
    resource_version: String,
}

/// Bindings that the tables had in another version, or not at all.
pub(crate) type Newer = Vec<(BindingKey, BindingObject)>;

/// A leadership whose tables are not complete yet.
pub(crate) struct CatchUp {
    pub(crate) term: LeaderTerm,
    /// The term was raised while this process led.
    pub(crate) raised: bool,
    newer: mpsc::Receiver<Newer>,
    task: JoinSet<()>,
}

impl CatchUp {
    pub(crate) fn begin(client: &Client, index: &Index, term: LeaderTerm, raised: bool) -> Self {
        let version = |row: &Arc<Binding>| (row.key.clone(), row.resource_version().to_owned());
        let known: Versions = index.bindings().map(version).collect();
        let (sender, newer) = mpsc::channel(1);
        let mut task = JoinSet::new();
        task.spawn(read_newer(client.clone(), known, sender));
        Self { term, raised, newer, task }
    }

    /// The next bindings to take in; `None` when the tables are complete.
    pub(crate) async fn next(&mut self) -> Option<Newer> {
        if let Some(newer) = self.newer.recv().await {
            return Some(newer);
        }
        if let Some(Err(error)) = self.task.join_next().await
            && error.is_panic()
        {
            // A panic is a bug that must not pass as complete tables.
            std::panic::resume_unwind(error.into_panic());
        }
        None
    }
}

async fn read_newer(client: Client, known: Versions, sender: mpsc::Sender<Newer>) {
    for url in [ResourceBinding::url_path(&(), None), ClusterResourceBinding::url_path(&(), None)] {
        let request = Request::new(url);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = list(&client, &request, &mut params).await;
            let differs = page.items.into_iter().flatten().filter_map(|Listed { metadata }| {
                let key = BindingKey::of(metadata.namespace.as_deref(), &metadata.name);
                (known.get(&key) != Some(&metadata.resource_version)).then_some(key)
            });
            let differs: Vec<BindingKey> = differs.collect();
            let reads =
                stream::iter(differs).map(|key| current(&client, key)).buffer_unordered(READS);
            let newer: Newer = reads.filter_map(std::future::ready).collect().await;
            if !newer.is_empty() && sender.send(newer).await.is_err() {
                return; // the leadership has ended
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
    }
}

/// One page, as soon as the hub gives it. A list whose continuation has expired begins again.
async fn list(client: &Client, request: &Request, params: &mut ListParams) -> Page {
    loop {
        let asked = async {
            client.request(request.list_metadata(params).map_err(Error::BuildRequest)?).await
        };
        let why = match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(Ok(page)) => return page,
            Ok(Err(Error::Api(status))) if status.code == 410 => {
                params.continue_token = None;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {TIMEOUT:?}"),
        };
        tracing::warn!(
            why,
            "a new leader cannot list the bindings, and decides nothing until it can"
        );
        tokio::time::sleep(AGAIN).await;
    }
}

/// A binding as the hub has it; `None` if it is gone.
async fn current(client: &Client, key: BindingKey) -> Option<(BindingKey, BindingObject)> {
    loop {
        match commit::get(client, &key).await {
            Ok(found) => return found.map(|object| (key, object)),
            Err(why) => {
                tracing::warn!(%key, why, "a new leader cannot read a binding, and decides nothing until it can");
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
