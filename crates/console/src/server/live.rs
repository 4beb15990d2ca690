//! Server-sent events: each says that the page may have changed, and has no content. The script then reads the page
//! again, through the same checks as any other request.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Console;
use super::pages::filter;
use crate::query::Fields;
use crate::source::{Changes, Topic};

/// Shortest time between two events: a page is read again once a second at most.
const PACE: Duration = Duration::from_secs(1);
/// A line in between, which finds out whether the browser is still there.
const BEAT: Duration = Duration::from_secs(15);
/// A stream ends after this time, and the browser opens another: rights and sessions are checked again.
const LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Sent first: milliseconds after which the browser connects again; and an event, because something may have changed
/// between the page and this stream.
const FIRST: &str = "retry: 3000\n\nevent: changed\ndata:\n\n";
const CHANGED: &str = "event: changed\ndata:\n\n";
const STILL_THERE: &str = ": still there\n\n";

struct Stream {
    changes: Changes,
    /// When the last event was sent.
    sent: Option<Instant>,
    ends: Instant,
    token: CancellationToken,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn events(
    State(console): State<Arc<Console>>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(place) = console.streams.clone().try_acquire_owned() else {
        let why = "too many pages are open; this one is not updated";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "30")], why).into_response();
    };
    let fields = Fields::read(query.unwrap_or_default().as_bytes());
    let topic = match fields.text("topic") {
        "fleet" => Topic::Fleet,
        "decisions" => Topic::Decisions(Box::new(filter(&fields))),
        _ => return (StatusCode::NOT_FOUND, "no such topic").into_response(),
    };
    let stream = Stream {
        changes: console.source.changes(topic),
        sent: None,
        ends: Instant::now() + LIFETIME,
        token: console.token.clone(),
        _place: place,
    };
    let lines = stream::unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from_static(line.as_bytes())), stream))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(lines)).into_response()
}

impl Stream {
    async fn next(&mut self) -> Option<&'static str> {
        let Some(sent) = self.sent else {
            self.sent = Some(Instant::now());
            return Some(FIRST);
        };
        tokio::select! {
            biased;
            () = self.token.cancelled() => None,
            () = tokio::time::sleep_until(self.ends) => None,
            change = self.changes.next() => {
                change?;
                tokio::time::sleep_until(sent + PACE).await;
                // Those that arrived meanwhile are in this event.
                while let Poll::Ready(Some(())) = futures::poll!(self.changes.next()) {}
                self.sent = Some(Instant::now());
                Some(CHANGED)
            }
            () = tokio::time::sleep(BEAT) => Some(STILL_THERE),
        }
    }
}
