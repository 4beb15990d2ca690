//! Member events as objects of the kind `MemberEvent`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::hex;
use atoll_api::{HISTORY_GROUP, VERSION};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::object::{is_label_value, precise, time};
use super::query::LABEL_CLUSTER;
use super::serve::{ApiError, List, MOST};
use super::{Kind, Query, text};
use crate::{FilterError, MemberEvent, MemberEventKind, MemberFilter, Position, Store, StoreError};

/// How often a watch polls. Members are lost within seconds, and one poll is one index read.
const LOOK: Duration = Duration::from_secs(1);

/// The event as an object. Its name is derived from its unique fields, its resourceVersion is its time.
fn object(event: &MemberEvent) -> Value {
    let name = name(event);
    let mut metadata = json!({
        "name": name,
        "uid": name,
        "resourceVersion": event.at.as_microsecond().to_string(),
        "creationTimestamp": time(event.at),
    });
    if is_label_value(&event.cluster) {
        metadata["labels"] = json!({LABEL_CLUSTER: event.cluster});
    }
    json!({
        "apiVersion": format!("{HISTORY_GROUP}/{VERSION}"),
        "kind": Kind::MemberEvent.name(),
        "metadata": metadata,
        "spec": {
            "cluster": event.cluster,
            "clusterUid": event.uid,
            "at": precise(event.at),
            "event": event.kind.as_str(),
            "reason": event.reason,
            "message": event.message,
        },
    })
}

/// `member1.63f0a1b2c3d4e-5f6a7b8c`: cluster, microseconds, and eight hex digits of a hash of kind and reason.
fn name(event: &MemberEvent) -> String {
    let mut hash = Sha256::new();
    hash.update(event.kind.as_str());
    hash.update([0]);
    hash.update(&event.reason);
    let hash = hex::encode(&hash.finalize()[..4]);
    format!("{}.{:x}-{hash}", event.cluster, event.at.as_microsecond().max(0))
}

/// Parses cluster and time from a name.
fn parse(name: &str) -> Option<(&str, Timestamp)> {
    let (cluster, rest) = name.rsplit_once('.')?;
    let (micros, _) = rest.split_once('-')?;
    let at = Timestamp::from_microsecond(i64::from_str_radix(micros, 16).ok()?).ok()?;
    Some((cluster, at))
}

fn filter(query: &Query) -> MemberFilter {
    let filter = query.filter();
    MemberFilter {
        cluster: filter.cluster.clone(),
        since: filter.since,
        until: filter.until,
        kind: query.event.clone(),
    }
}

pub(super) async fn list(
    store: &dyn Store,
    query: &Query,
    limit: usize,
    after: Option<Position>,
) -> Result<List, ApiError> {
    let newest = store.member_events(&MemberFilter::default(), 1, None).await?;
    let version = newest.events.first().map_or(0, |event| event.at.as_microsecond());
    let resource_version = version.to_string();
    if let Some(name) = &query.name {
        let items = get(store, name).await?.into_iter().collect();
        return Ok(List { items, resource_version, continue_token: None });
    }
    let limit = if limit == 0 { MOST } else { limit.min(MOST) };
    let page = store.member_events(&filter(query), limit, after).await?;
    Ok(List {
        items: page.events.iter().map(object).collect(),
        resource_version,
        continue_token: page.next.map(|next| next.to_string()),
    })
}

pub(super) async fn get(store: &dyn Store, wanted: &str) -> Result<Option<Value>, StoreError> {
    let Some((cluster, at)) = parse(wanted) else { return Ok(None) };
    for kind in [None, Some(MemberEventKind::Used)] {
        let moment = MemberFilter {
            cluster: Some(cluster.into()),
            since: Some(at),
            until: at.checked_add(SignedDuration::from_micros(1)).ok(),
            kind,
        };
        let page = store.member_events(&moment, MOST, None).await?;
        if let Some(event) = page.events.iter().find(|event| name(event) == wanted) {
            return Ok(Some(object(event)));
        }
    }
    Ok(None)
}

/// Returns events as they are recorded, in the order of their times.
pub(super) struct Follower {
    store: Arc<dyn Store>,
    filter: MemberFilter,
    /// Names already returned with the newest time so far.
    seen: BTreeSet<String>,
    ready: Vec<MemberEvent>,
}

impl Follower {
    pub(super) async fn begin(
        store: Arc<dyn Store>,
        query: &Query,
        resource_version: Option<&str>,
    ) -> Result<Self, ApiError> {
        let mut filter = filter(query);
        let mut seen = BTreeSet::new();
        let after = match resource_version {
            None | Some("" | "0") => {
                let newest = store.member_events(&filter, 1, None).await?;
                newest.events.first().map(|event| event.at)
            }
            Some(version) => {
                let at = version.parse().ok().and_then(|at| Timestamp::from_microsecond(at).ok());
                let problem = "is not the resourceVersion of an earlier reply";
                Some(at.ok_or_else(|| FilterError::new("resourceVersion", version, problem))?)
            }
        };
        if let Some(after) = after {
            let since = filter.since.map_or(after, |since| since.max(after));
            filter.since = Some(since);
            let known = MemberFilter {
                since: Some(after),
                until: after.checked_add(SignedDuration::from_micros(1)).ok(),
                ..filter.clone()
            };
            let page = store.member_events(&known, MOST, None).await?;
            seen.extend(page.events.iter().map(name));
        }
        Ok(Self { store, filter, seen, ready: Vec::new() })
    }

    pub(super) async fn next(&mut self) -> Option<Result<Value, StoreError>> {
        loop {
            // Sorted newest first, so pop the last.
            while let Some(event) = self.ready.pop() {
                if self.filter.since.is_none_or(|since| since < event.at) {
                    self.seen.clear();
                    self.filter.since = Some(event.at);
                }
                if self.seen.insert(name(&event)) {
                    return Some(Ok(object(&event)));
                }
            }
            match self.store.member_events(&self.filter, MOST, None).await {
                Err(error) => return Some(Err(error)),
                Ok(page) if page.events.iter().all(|event| self.seen.contains(&name(event))) => {
                    tokio::time::sleep(LOOK).await;
                }
                Ok(page) => self.ready = page.events,
            }
        }
    }
}

/// The table cells of an event.
pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let at = spec["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    vec![
        object["metadata"]["name"].clone(),
        json!(at.map_or_else(|| "<unknown>".to_owned(), |at| text::age(at, now))),
        spec["cluster"].clone(),
        spec["event"].clone(),
        spec["reason"].clone(),
        spec["message"].clone(),
    ]
}
