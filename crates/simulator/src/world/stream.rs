//! The events of a watch on their way to a client, with faults.

use std::convert::Infallible;
use std::sync::Arc;

use atoll_apiserver::Body;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;

use super::line::{Flow, Line, Weather};

/// The last event of an expired watch.
const EXPIRED: &[u8] = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

struct Flowing {
    frames: BoxStream<'static, Bytes>,
    line: Arc<Line>,
    flow: watch::Receiver<Flow>,
    expired: watch::Receiver<u64>,
    weather: watch::Receiver<Option<Weather>>,
    again: Option<Bytes>,
    ended: bool,
}

/// The body of a watch with the line's faults.
pub(super) fn weathered(body: Body, line: Arc<Line>) -> Body {
    let frames = body.into_data_stream();
    let frames =
        frames.map(|frame| frame.expect("only proxied answers fail, and the World has no proxy"));
    let flowing = Flowing {
        frames: frames.boxed(),
        flow: line.flows(),
        expired: line.expirations(),
        weather: line.weather(),
        line,
        again: None,
        ended: false,
    };
    let frames = stream::unfold(flowing, |mut flowing| async move {
        let frame = flowing.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(frame)), flowing))
    });
    StreamBody::new(frames).map_err(|never| match never {}).boxed_unsync()
}

impl Flowing {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        loop {
            let frame = tokio::select! {
                biased;
                // The line owns the sender, and this holds the line.
                _ = self.flow.wait_for(|flow| *flow == Flow::Refused) => return None,
                _ = self.expired.changed() => {
                    self.ended = true;
                    return Some(Bytes::from_static(EXPIRED));
                }
                frame = self.frames.next() => frame?,
            };
            if !self.line.released().await {
                return None;
            }
            let calm = self.weather.wait_for(|weather| *weather != Some(Weather::Behind));
            let weather = tokio::select! {
                biased;
                _ = self.flow.wait_for(|flow| *flow == Flow::Refused) => return None,
                weather = calm => weather.map_or(None, |weather| *weather),
            };
            match weather {
                // A wait cannot end with what it waits out.
                None | Some(Weather::Behind) => return Some(frame),
                Some(Weather::Lost) => {}
                Some(Weather::Twice) => {
                    self.again = Some(frame.clone());
                    return Some(frame);
                }
                Some(Weather::Late(by)) => {
                    tokio::time::sleep(by).await;
                    return Some(frame);
                }
            }
        }
    }
}
