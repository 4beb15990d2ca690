//! Rate limit of Events about members.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use atoll_api::ClusterName;
use tokio::time::Instant;

/// Minimum time between equal Events of a member: a refused agent retries every few seconds.
const REPEAT: Duration = Duration::from_secs(600);

/// Times of the latest Events, by member and reason.
#[derive(Debug, Default)]
pub(crate) struct RecentEvents(Mutex<BTreeMap<(ClusterName, &'static str), Instant>>);

impl RecentEvents {
    /// Whether an Event with this reason may be published now. If so, it counts as published.
    pub(crate) fn admit(&self, member: &ClusterName, reason: &'static str, now: Instant) -> bool {
        let mut published = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        published.retain(|_, at| now.saturating_duration_since(*at) < REPEAT);
        if published.contains_key(&(member.clone(), reason)) {
            return false;
        }
        published.insert((member.clone(), reason), now);
        true
    }
}
