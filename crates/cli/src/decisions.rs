//! The Decision API: the kinds of `history.atoll.dev`, for the embedded hub and for the aggregated API.

use std::sync::Arc;

use atoll_api::selector::Requirement;
use atoll_api::{HISTORY_GROUP, VERSION};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::read_only::{
    Column, VirtualEvent, VirtualKind, VirtualList, VirtualQuery, VirtualResource, VirtualStream,
};
use atoll_apimachinery::selector::{SelectableField, Selectors};
use atoll_history::api::{self, Kind, Query};
use atoll_history::{FilterError, Store};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;

/// One of the kinds, over a store.
pub(crate) struct Decisions {
    kind: Kind,
    store: Arc<dyn Store>,
}

impl Decisions {
    /// One resource per kind.
    pub(crate) fn all(store: &Arc<dyn Store>) -> [Arc<dyn VirtualResource>; 4] {
        Kind::ALL.map(|kind| {
            Arc::new(Self { kind, store: Arc::clone(store) }) as Arc<dyn VirtualResource>
        })
    }

    fn query(&self, namespace: Option<&str>, selectors: &Selectors) -> Result<Query, FilterError> {
        let mut query = Query::new(self.kind, namespace);
        for requirement in selectors.labels.requirements() {
            match requirement {
                Requirement::In(key, values) if values.len() == 1 => {
                    query.label(key, &values[0])?;
                }
                other => return Err(Query::unsupported(other.key())),
            }
        }
        for requirement in &selectors.fields {
            if !requirement.equal {
                return Err(Query::unsupported(&requirement.field));
            }
            query.field(&requirement.field, &requirement.value)?;
        }
        Ok(query)
    }
}

fn refused(error: api::ApiError) -> ApiError {
    match error {
        api::ApiError::Request(error) => ApiError::bad_request(error.to_string()),
        // Database errors name hosts, ports and files: they belong in the log, not in answers to API users.
        api::ApiError::Store(error) => {
            let transient = error.is_transient();
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::warn!(error, "cannot read history");
            match transient {
                true => ApiError::unavailable(
                    "the history database cannot be read now: try again later; the cause is in the log of the process \
                     that serves this API",
                ),
                false => ApiError::internal(
                    "the history database cannot be read: the cause is in the log of the process that serves this API",
                ),
            }
        }
    }
}

impl VirtualResource for Decisions {
    fn kind(&self) -> VirtualKind {
        let column = |column: &api::Column| Column {
            name: column.name.to_owned(),
            kind: column.kind.to_owned(),
            format: column.format.to_owned(),
            description: column.description.to_owned(),
            priority: i64::from(column.wide),
        };
        VirtualKind {
            group: HISTORY_GROUP.to_owned(),
            version: VERSION.to_owned(),
            kind: self.kind.name().to_owned(),
            plural: self.kind.plural().to_owned(),
            singular: self.kind.singular().to_owned(),
            short_names: vec![self.kind.short_name().to_owned()],
            // Not in category `atoll`: `kubectl get atoll` shows the current state, not history.
            categories: Vec::new(),
            namespaced: self.kind.namespaced(),
            selectable: self
                .kind
                .selectable_fields()
                .iter()
                .map(|f| SelectableField::path(f))
                .collect(),
            columns: self.kind.columns().iter().map(column).collect(),
            schema: Some(api::schema(self.kind)),
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        api::cells(object, now)
    }

    fn get<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        async move { api::get(&*self.store, self.kind, namespace, name).await.map_err(refused) }
            .boxed()
    }

    fn list(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualList, ApiError>> {
        async move {
            let selected = self
                .query(query.namespace.as_deref(), &query.selectors)
                .map_err(|error| refused(error.into()))?;
            let token = query.continue_token.as_deref();
            let list =
                api::list(&*self.store, &selected, query.limit, token).await.map_err(refused)?;
            Ok(VirtualList {
                items: list.items,
                resource_version: list.resource_version,
                continue_token: list.continue_token,
                remaining: None,
            })
        }
        .boxed()
    }

    fn watch(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualStream, ApiError>> {
        async move {
            let selected = self
                .query(query.namespace.as_deref(), &query.selectors)
                .map_err(|error| refused(error.into()))?;
            let version = query.resource_version.as_deref();
            let follower =
                api::follow(Arc::clone(&self.store), &selected, version).await.map_err(refused)?;
            let events = stream::unfold(follower, |mut follower| async move {
                let next = follower.next().await?;
                let event = next.map(VirtualEvent::Added).map_err(|error| refused(error.into()));
                Some((event, follower))
            });
            Ok(events.boxed())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use atoll_history::StoreError;

    use super::*;

    #[test]
    fn errors_for_users_do_not_name_the_databases_address() {
        let source = || "connect to db7.internal.example.com:5432 as atoll".into();
        let unavailable = StoreError::Unavailable { doing: "read", source: source() };
        let path = "/var/lib/atoll/history.db".to_owned();
        for (error, code) in [
            (unavailable, 503),
            (StoreError::Refused { doing: "read", source: source() }, 500),
            (StoreError::Open { path, source: source() }, 500),
        ] {
            let answer = refused(error.into());
            assert_eq!(answer.code, code);
            let answer = answer.status().to_string();
            for secret in ["db7", "5432", "/var/lib"] {
                assert!(!answer.contains(secret), "{answer}");
            }
            assert!(answer.contains("history database cannot be read"), "{answer}");
        }
    }
}
