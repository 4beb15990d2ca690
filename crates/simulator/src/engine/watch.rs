//! The watch streams of all kinds, merged.

use std::time::Duration;

use atoll_api::Backoff;
use futures::stream::{BoxStream, SelectAll, StreamExt, select_all};
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};

use crate::index::kind::Kind;

/// Backoff after a watch broke, as long as no event arrives in between. A member that was cut off is back within
/// seconds.
const RETRY: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(10) };

/// An event of a kind's stream.
pub(super) type Watched = (Kind, watcher::Result<Event<DynamicObject>>);
/// All streams.
pub(super) type Streams = SelectAll<BoxStream<'static, Watched>>;

/// Opens a stream for every kind. Nothing is sent before the first poll.
pub(super) fn all(client: &kube::Client) -> Streams {
    select_all(Kind::ALL.map(|kind| {
        let api = Api::<DynamicObject>::all_with(client.clone(), &kind.api_resource());
        kube::runtime::watcher(api, watcher::Config::default())
            .backoff(Doubling::default())
            .map(move |event| (kind, event))
            .boxed()
    }))
}

/// Exponential backoff without jitter: kube's own draws random numbers, and two runs of one seed would differ.
#[derive(Debug, Default)]
struct Doubling {
    failures: u32,
}

impl Iterator for Doubling {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        Some(RETRY.ceiling(self.failures))
    }
}

impl kube::runtime::utils::Backoff for Doubling {
    fn reset(&mut self) {
        self.failures = 0;
    }
}
