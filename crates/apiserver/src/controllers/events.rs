//! Events are kept for an hour after their last write, as kube-apiserver's `--event-ttl` has it by default.

use std::{sync::Arc, time::Duration};

use atoll_apimachinery::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    core::Core,
    store::{ObjectKey, TableId},
    table::age,
    verbs::delete,
};

/// How long an Event is kept.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Interval of the check for old Events; an Event lives at most this much longer.
const EVERY: Duration = Duration::from_secs(600);

pub(super) async fn run(core: &Arc<Core>) {
    let table = TableId::new("", "events");
    loop {
        tokio::time::sleep(EVERY).await;
        let kinds = core.kinds().tables();
        let Some(kind) = kinds.get(&table) else { return };
        let now = core.now();
        for record in core.store.list(&table, None).1 {
            if now.duration_since(last_write(&record.value())) < LIFETIME {
                continue;
            }
            let options = delete::Options::background(meta::uid(&record.value()));
            let key = ObjectKey::of(&record.value());
            match delete::one(core, kind, &key, &options).await {
                Err(error) if !matches!(error.code, 404 | 409) => {
                    tracing::warn!(%error, "an expired event cannot be deleted");
                    break;
                }
                _ => {}
            }
        }
    }
}

/// The latest of an Event's times. An Event without any counts as expired.
fn last_write(event: &Value) -> Timestamp {
    ["metadata.creationTimestamp", "lastTimestamp", "series.lastObservedTime", "eventTime"]
        .iter()
        .filter_map(|path| age::parse(meta::at(event, path)))
        .max()
        .unwrap_or(Timestamp::MIN)
}
