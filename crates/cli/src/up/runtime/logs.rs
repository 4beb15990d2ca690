//! `pods/NAME/log` of a simulated member.

use std::time::Duration;

use atoll_api::Clock;
use atoll_apimachinery::request::query;
use atoll_apimachinery::response::{Body, respond, respond_frames};
use atoll_apimachinery::{ApiError, FieldError};
use atoll_apiserver::PodRequest;
use atoll_simulator::runtime::{Line, Log, Window};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::exec::{self, Session};

const TEXT: &str = "text/plain";

/// `PodLogOptions`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    container: Option<String>,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail: Option<usize>,
    limit_bytes: Option<usize>,
}

impl Options {
    fn parse(pod: &str, text: &str) -> Result<Self, ApiError> {
        let mut options = Self::default();
        let invalid = |field: &str, value: &str, why: &str| {
            let error = FieldError::invalid(field, &value.into(), why);
            ApiError::invalid("", "PodLogOptions", pod, &[error])
        };
        for (name, value) in query::pairs(text) {
            let flag = || query::boolean(&name, &value);
            let number = |least: i64| {
                let number = query::number::<i64>(&name, &value)?;
                let why = format!("must be greater than or equal to {least}");
                if number < least { Err(invalid(&name, &value, &why)) } else { Ok(number) }
            };
            let count = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
            match name.as_str() {
                "container" => options.container = Some(value),
                "follow" => options.follow = flag()?,
                "previous" => options.previous = flag()?,
                "timestamps" => options.timestamps = flag()?,
                "sinceSeconds" => options.since_seconds = Some(number(1)?),
                "sinceTime" => {
                    let time = value.parse();
                    let time = time.map_err(|_| invalid(&name, &value, "must be RFC 3339"))?;
                    options.since_time = Some(time);
                }
                "tailLines" => options.tail = Some(count(number(0)?)),
                "limitBytes" => options.limit_bytes = Some(count(number(1)?)),
                _ => {}
            }
        }
        if options.since_seconds.is_some() && options.since_time.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err(invalid("sinceSeconds", "", why));
        }
        Ok(options)
    }

    fn window(&self, now: Timestamp) -> Window {
        let seconds = self.since_seconds.map(SignedDuration::from_secs);
        let after = seconds.and_then(|ago| now.checked_sub(ago).ok()).or(self.since_time);
        Window { after, tail: self.tail }
    }

    fn write(&self, lines: &[Line]) -> Bytes {
        let mut text = String::new();
        for line in lines {
            if self.timestamps {
                text.push_str(&format!("{:.9} ", line.at));
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        text.into()
    }
}

/// Answers a request for a log.
pub(super) fn answer(
    client: &Client,
    clock: &Clock,
    request: PodRequest,
) -> Result<Response<Body>, ApiError> {
    let PodRequest { pod, parts, closing, .. } = request;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let options = Options::parse(name, parts.uri.query().unwrap_or_default())?;
    let log = Log::of(&pod, options.container.as_deref(), options.previous)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let now = clock.now();
    let first = options.write(&log.lines(now, options.window(now)));
    if !options.follow || options.previous || log.has_ended() {
        let end = options.limit_bytes.map_or(first.len(), |limit| limit.min(first.len()));
        return Ok(respond(200, TEXT, first.slice(..end)));
    }
    let left = options.limit_bytes.unwrap_or(usize::MAX);
    let follower = Follower {
        changes: changes(client, &pod),
        clock: clock.clone(),
        closing,
        first: Some(first),
        log,
        options,
        until: now,
        left,
        ended: false,
    };
    let mut response = respond_frames(follower.chunks());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    Ok(response)
}

/// Answers a request to attach: the user sees what the container writes from now on.
pub(super) fn attach(
    client: &Client,
    clock: &Clock,
    request: PodRequest,
) -> Result<Response<Body>, ApiError> {
    let asked = exec::Options::parse(request.parts.uri.query().unwrap_or_default())?;
    let log = Log::of(&request.pod, asked.container.as_deref(), false)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    if log.has_ended() {
        return Err(ApiError::bad_request("the container does not run"));
    }
    let follower = Follower {
        changes: changes(client, &request.pod),
        clock: clock.clone(),
        closing: request.closing.clone(),
        first: None,
        log,
        options: Options { container: asked.container.clone(), ..Options::default() },
        until: clock.now(),
        left: usize::MAX,
        ended: false,
    };
    exec::open(request, Session::Attach(follower.chunks()), &asked)
}

/// The states of a pod; `None` when it is deleted.
pub(super) fn changes(client: &Client, pod: &Value) -> BoxStream<'static, Option<Value>> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &text("namespace"), &resource);
    let uid = text("uid");
    let states = kube::runtime::watcher::watch_object(pods, &text("name")).default_backoff();
    // Failures are tried again.
    let states = states.filter_map(|state| std::future::ready(state.ok()));
    let states = states.map(move |state| {
        let same = state.filter(|pod| pod.uid().as_deref() == Some(uid.as_str()))?;
        serde_json::to_value(same).ok()
    });
    states.boxed()
}

/// A log that is followed.
struct Follower {
    changes: BoxStream<'static, Option<Value>>,
    clock: Clock,
    closing: CancellationToken,
    /// What is there already.
    first: Option<Bytes>,
    log: Log,
    options: Options,
    /// All lines of the pattern until this time were returned.
    until: Timestamp,
    /// Bytes that may still be returned.
    left: usize,
    ended: bool,
}

impl Follower {
    fn chunks(self) -> BoxStream<'static, Bytes> {
        let chunks = stream::unfold(self, |mut follower| async move {
            let chunk = follower.next().await?;
            Some((chunk, follower))
        });
        chunks.boxed()
    }

    /// The next lines; `None` when the container has ended, or as many bytes as asked for were returned.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take()
            && !first.is_empty()
        {
            return self.limited(first);
        }
        loop {
            if self.ended || self.left == 0 {
                return None;
            }
            let due = self.log.next_after(self.until).map(|due| {
                let wait = due.duration_since(self.clock.now());
                Duration::try_from(wait).unwrap_or_default()
            });
            let due = match due {
                Some(wait) => tokio::time::sleep(wait).left_future(),
                None => std::future::pending().right_future(),
            };
            let lines = tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                change = self.changes.next() => self.changed(change.flatten().as_ref()),
                () = due => self.repeated(),
            };
            if !lines.is_empty() {
                return self.limited(self.options.write(&lines));
            }
        }
    }

    /// Lines of the pattern until now.
    fn repeated(&mut self) -> Vec<Line> {
        let now = self.clock.now();
        let lines = self.log.repeated(self.until, now);
        self.until = now;
        lines
    }

    /// Lines about a change of the pod.
    fn changed(&mut self, pod: Option<&Value>) -> Vec<Line> {
        let newer = pod.map(|pod| Log::of(pod, self.options.container.as_deref(), false));
        match newer {
            Some(Ok(newer)) if newer.is_same_run(&self.log) => {
                let mut lines = self.repeated();
                lines.extend(self.log.update(newer));
                self.ended = self.log.has_ended();
                lines
            }
            // The pod is gone, or the container runs again.
            _ => {
                self.ended = true;
                Vec::new()
            }
        }
    }

    fn limited(&mut self, bytes: Bytes) -> Option<Bytes> {
        let bytes = bytes.slice(..bytes.len().min(self.left));
        self.left -= bytes.len();
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_kubectl_and_what_is_wrong_is_named() {
        let parsed = Options::parse(
            "p",
            "container=a&follow=true&tailLines=5&sinceSeconds=60&timestamps=true&limitBytes=7",
        )
        .unwrap();
        assert_eq!((parsed.container.as_deref(), parsed.tail), (Some("a"), Some(5)));
        assert!(parsed.follow && parsed.timestamps && !parsed.previous);
        let line = Line { at: "2026-01-01T00:00:00.5Z".parse().unwrap(), text: "x".to_owned() };
        let written = parsed.write(&[line]);
        assert_eq!(written, "2026-01-01T00:00:00.500000000Z x\n");
        for (query, field) in [
            ("tailLines=-1", "tailLines"),
            ("tailLines=x", "tailLines"),
            ("sinceSeconds=0", "sinceSeconds"),
            ("sinceTime=now", "sinceTime"),
            ("limitBytes=0", "limitBytes"),
            ("follow=maybe", "follow"),
            ("sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z", "at most one"),
        ] {
            let error = Options::parse("p", query).unwrap_err().to_string();
            assert!(error.contains(field), "{query}: {error}");
        }
    }
}
