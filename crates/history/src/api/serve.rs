//! Operations that a server of these kinds runs on a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::object::{object, with_status};
use super::{Kind, Query, inputs, members};
use crate::{
    Filter, FilterError, Milestone, Position, Row, Scope, Store, StoreError, StoredRecord,
};

/// Limit of objects per reply if the client sets none or a larger one. It gets a continue token for the rest: millions
/// of decisions fit no reply.
pub(super) const MOST: usize = 10_000;
/// Decisions whose milestones are read at once.
const LIVES: usize = 500;
/// How often a watch polls even if this process has written nothing: another one may have.
const LOOK: Duration = Duration::from_secs(1);
/// Rows that a watch reads at once.
const TAIL: usize = 500;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Invalid parameters: a bad request.
    #[error(transparent)]
    Request(#[from] FilterError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The objects, newest first, without details.
    pub items: Vec<Value>,
    /// Where a watch continues without missing anything.
    pub resource_version: String,
    /// Token of the next page.
    pub continue_token: Option<String>,
}

/// Lists the matching objects. `limit` 0 means all, up to 10,000.
///
/// # Errors
/// When the token is invalid or the database fails.
pub async fn list(
    store: &dyn Store,
    query: &Query,
    limit: usize,
    continue_token: Option<&str>,
) -> Result<List, ApiError> {
    let after = continue_token.map(str::parse::<Position>).transpose()?;
    if query.kind == Kind::MemberEvent {
        return members::list(store, query, limit, after).await;
    }
    if query.kind == Kind::DecisionInput {
        let Some(name) = &query.name else { return Err(inputs::no_list().into()) };
        let items = inputs::get(store, name).await?.into_iter().collect();
        let resource_version = store.last().await?.to_string();
        return Ok(List { items, resource_version, continue_token: None });
    }
    // Read before the rows: a row written in between is seen twice rather than never.
    let resource_version = store.last().await?.to_string();
    let limit = if limit == 0 { MOST } else { limit.min(MOST) };
    if let Some(name) = &query.name {
        let row = store.get(name).await?.filter(|row| in_scope(&query.filter().scope, row));
        let items = with_lives(store, row.as_slice()).await?;
        return Ok(List { items, resource_version, continue_token: None });
    }
    let page = store.page(query.filter(), limit, after).await?;
    Ok(List {
        items: with_lives(store, &page.rows).await?,
        resource_version,
        continue_token: page.next.map(|next| next.to_string()),
    })
}

/// Objects without details, with their progress.
async fn with_lives(store: &dyn Store, rows: &[Row]) -> Result<Vec<Value>, StoreError> {
    let mut objects = Vec::with_capacity(rows.len());
    for rows in rows.chunks(LIVES) {
        let ids: Vec<_> = rows.iter().map(|row| row.entry.id().into()).collect();
        let steps = store.milestones(&ids).await?;
        let mut of: BTreeMap<&str, &[Milestone]> = BTreeMap::new();
        for steps in steps.chunk_by(|a, b| a.decision == b.decision) {
            of.insert(&steps[0].decision, steps);
        }
        let none: &[Milestone] = &[];
        objects.extend(
            rows.iter().map(|row| with_status(row, false, of.get(row.entry.id()).unwrap_or(&none))),
        );
    }
    Ok(objects)
}

/// One object with the full Decision. `None` when there is none of this kind and namespace.
///
/// # Errors
/// When the database fails.
pub async fn get(
    store: &dyn Store,
    kind: Kind,
    namespace: Option<&str>,
    id: &str,
) -> Result<Option<Value>, ApiError> {
    if kind == Kind::MemberEvent {
        return Ok(members::get(store, id).await?);
    }
    if kind == Kind::DecisionInput {
        return Ok(inputs::get(store, id).await?);
    }
    let scope = Query::new(kind, namespace).filter().scope.clone();
    let Some(row) = store.get(id).await?.filter(|row| in_scope(&scope, row)) else {
        return Ok(None);
    };
    let steps = store.milestones(&[id.into()]).await?;
    Ok(Some(with_status(&row, true, &steps)))
}

fn in_scope(scope: &Scope, row: &Row) -> bool {
    let namespace = match &row.entry {
        StoredRecord::Record(record) => record.binding.namespace.as_deref(),
        StoredRecord::Unreadable { namespace, .. } => namespace.as_deref(),
    };
    match scope {
        Scope::Any => true,
        Scope::Namespaced => namespace.is_some(),
        Scope::Namespace(wanted) => namespace == Some(wanted),
        Scope::Cluster => namespace.is_none(),
    }
}

/// Returns objects as they are recorded.
pub struct Follower(Following);

enum Following {
    Decisions(Decisions),
    Members(members::Follower),
}

/// Follows records after a resourceVersion of [`list`], or from now on. Each decision's object is returned once; later
/// progress does not repeat it.
///
/// # Errors
/// When the version is invalid or the database fails.
pub async fn follow(
    store: Arc<dyn Store>,
    query: &Query,
    resource_version: Option<&str>,
) -> Result<Follower, ApiError> {
    if let Some(name) = &query.name {
        let problem = "cannot be watched: recorded events never change";
        return Err(FilterError::new("metadata.name", name, problem).into());
    }
    if query.kind == Kind::DecisionInput {
        return Err(inputs::no_list().into());
    }
    if query.kind == Kind::MemberEvent {
        let follower = members::Follower::begin(store, query, resource_version).await?;
        return Ok(Follower(Following::Members(follower)));
    }
    let news = store.written();
    let after = match resource_version {
        None | Some("" | "0") => store.last().await?,
        Some(version) => version.parse().map_err(|_| {
            FilterError::new(
                "resourceVersion",
                version,
                "is not the resourceVersion of an earlier reply",
            )
        })?,
    };
    let ready = Vec::new().into_iter();
    let filter = query.filter().clone();
    Ok(Follower(Following::Decisions(Decisions { store, filter, after, news, ready })))
}

impl Follower {
    /// Waits for the next object. `None` when the store is gone.
    ///
    /// # Errors
    /// When the database fails. The next call continues at the same place.
    pub async fn next(&mut self) -> Option<Result<Value, StoreError>> {
        match &mut self.0 {
            Following::Decisions(decisions) => decisions.next().await,
            Following::Members(members) => members.next().await,
        }
    }
}

struct Decisions {
    store: Arc<dyn Store>,
    filter: Filter,
    after: i64,
    news: watch::Receiver<u64>,
    ready: std::vec::IntoIter<Row>,
}

impl Decisions {
    async fn next(&mut self) -> Option<Result<Value, StoreError>> {
        loop {
            if let Some(row) = self.ready.next() {
                self.after = row.seq;
                return Some(Ok(object(&row, false)));
            }
            self.news.mark_unchanged();
            match self.store.tail(&self.filter, self.after, TAIL).await {
                Err(error) => return Some(Err(error)),
                Ok(rows) if rows.is_empty() => {
                    if let Ok(news) = tokio::time::timeout(LOOK, self.news.changed()).await {
                        news.ok()?;
                    }
                }
                Ok(rows) => self.ready = rows.into_iter(),
            }
        }
    }
}
