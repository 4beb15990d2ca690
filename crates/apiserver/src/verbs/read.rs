//! get and list.

use std::sync::Arc;

use atoll_apimachinery::{
    ApiError, FieldError, request::VersionMatch, response::Body, selector::Selectors,
    view::ListMeta,
};
use http::Response;

use super::call::Call;
use crate::{
    item::Item,
    kinds::Kind,
    store::{Continue, ObjectKey, Record},
};

/// One object.
pub(crate) async fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let item = find(call).await?.ok_or_else(|| call.kind.not_found(&call.name))?;
    Ok(call.respond(200, call.view()?.object(&item, call.core.now())))
}

async fn find(call: &Call) -> Result<Option<Item>, ApiError> {
    if let Some(asked) = call.query.resource_version.filter(|v| *v > 0) {
        fresh(call, asked)?;
    }
    Ok(call.core.read(&call.kind, &call.key()).await?.map(Item::Stored))
}

/// Refuses a version in the future: upstream waits a little, then refuses too.
fn fresh(call: &Call, asked: u64) -> Result<(), ApiError> {
    let current = call.core.store.revision();
    if asked > current {
        return Err(ApiError::resource_version_too_large(asked, current));
    }
    Ok(())
}

/// Refuses unknown field selectors.
pub(super) fn selectable(call: &Call) -> Result<(), ApiError> {
    call.query.selectors.check(&call.kind.selectable).map_err(ApiError::bad_request)
}

/// A collection, or a page of it.
pub(crate) async fn list(call: &Call) -> Result<Response<Body>, ApiError> {
    selectable(call)?;
    let (items, meta) = stored(call).await?;
    Ok(call.respond(200, call.view()?.list(&items, &meta, call.core.now())))
}

/// The revision of a list; `None` is current. The rules are those of apimachinery's list options.
fn revision(call: &Call) -> Result<Option<u64>, ApiError> {
    let query = &call.query;
    let refuse = |error| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    if query.send_initial_events.is_some() {
        return refuse(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    match (query.version_match, query.resource_version) {
        (Some(_), _) if query.continue_token.is_some() => refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        )),
        (Some(_), None) => refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (Some(VersionMatch::Exact), Some(0)) => refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        (Some(VersionMatch::Exact), Some(exact)) => Ok(Some(exact)),
        (_, Some(asked)) if query.continue_token.is_none() => {
            fresh(call, asked)?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The single object that a `metadata.name` selector can match, if its key is known: one name in one namespace or of a
/// cluster-scoped kind needs no scan.
pub(super) fn only_object(
    kind: &Kind,
    namespace: &Option<String>,
    selectors: &Selectors,
) -> Option<ObjectKey> {
    let name = selectors.only_name()?;
    match namespace {
        Some(namespace) => Some(ObjectKey::new(namespace.as_str(), name)),
        None => (!kind.namespaced).then(|| ObjectKey::new("", name)),
    }
}

/// Objects that a selector is compared with at once. A list of a few of many objects reads no more of them than it needs.
const EXAMINED: usize = 512;

/// A page from the store: at the revision of the list's first page, read once it is durable.
async fn stored(call: &Call) -> Result<(Vec<Item>, ListMeta), ApiError> {
    let (query, kind) = (&call.query, &call.kind);
    let at = revision(call)?;
    let token = query.continue_token.as_deref().map(Continue::decode).transpose()?;
    let (start, at) = match &token {
        Some(token) => (Some(token.key()), Some(token.revision)),
        None => (None, at),
    };
    let only = only_object(kind, &call.namespace, &query.selectors).filter(|_| at.is_none());
    let most = match query.limit {
        0 => usize::MAX,
        limit if query.selectors.is_empty() => limit,
        limit => limit.max(EXAMINED),
    };
    let (store, namespace) = (&call.core.store, call.namespace.as_deref());
    let mut page = match only {
        Some(key) => store.point(&kind.table, &key),
        None => store.page(&kind.table, namespace, start.as_ref(), at, most)?,
    };
    let revision = page.revision;
    store.durable(revision).await?;

    let mut meta = ListMeta { resource_version: revision.to_string(), ..ListMeta::default() };
    if query.selectors.is_empty() {
        if let Some(last) = page.last.filter(|_| page.remaining > 0) {
            meta.continue_token = Some(Continue::after(revision, &last).encode());
            meta.remaining = Some(page.remaining as u64);
        }
        return Ok((page.records.into_iter().map(Item::Stored).collect(), meta));
    }
    // One more than the limit tells whether there are more. Upstream does not count them with a selector.
    let wanted = if query.limit == 0 { usize::MAX } else { query.limit + 1 };
    let mut selected: Vec<Arc<Record>> = Vec::new();
    loop {
        let matches =
            |record: &Arc<Record>| query.selectors.matches(&record.value(), &kind.selectable);
        let lacking = wanted - selected.len();
        selected.extend(page.records.into_iter().filter(matches).take(lacking));
        match page.last.filter(|_| page.remaining > 0 && selected.len() < wanted) {
            Some(last) => {
                page = store.page(&kind.table, namespace, Some(&last), Some(revision), most)?;
            }
            None => break,
        }
    }
    if selected.len() == wanted {
        selected.truncate(query.limit);
        let last = selected.last().map(|last| ObjectKey::of(&last.value()));
        meta.continue_token = last.map(|last| Continue::after(revision, &last).encode());
    }
    Ok((selected.into_iter().map(Item::Stored).collect(), meta))
}
