//! Rows of history about users' sessions in pods of members: who, where, when, with which result, and how long. Commands and
//! what is sent either way are never recorded.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use atoll_access::path::{PodSession, SessionKind};
use atoll_api::{Clock, ClusterName};
use atoll_history::{Event, MemberEvent, MemberEventKind, Recorder};
use futures::StreamExt;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::message::{MemberAnswer, MemberRequest, ProxyError};

/// Characters of a user's name, and of a pod's place, that a row has.
const SHOWN: usize = 253;
/// Reasons of the rows.
const OPENED: &str = "Opened";
const REFUSED: &str = "Refused";
const FAILED: &str = "Failed";
const ENDED: &str = "Ended";

/// The way of rows into history.
#[derive(Debug, Default)]
pub(crate) struct SessionRows {
    /// Set when the controller has started its recorder.
    recorder: OnceLock<Recorder>,
    last: Mutex<Option<Timestamp>>,
}

impl SessionRows {
    /// Records in this history from now on.
    pub(crate) fn record_in(&self, recorder: Recorder) {
        // A process has one recorder: the first stays.
        let _ = self.recorder.set(recorder);
    }

    /// The session that a request asks for; `None` for other requests.
    pub(crate) fn begin(
        self: &Arc<Self>,
        clock: &Clock,
        member: &str,
        request: &MemberRequest,
    ) -> Option<Session> {
        let PodSession { namespace, pod, kind } = request.path.pod_session()?;
        let kind = match kind {
            SessionKind::Exec => MemberEventKind::Exec,
            SessionKind::Attach => MemberEventKind::Attach,
            SessionKind::PortForward => MemberEventKind::PortForward,
        };
        let place = format!("{namespace}/{pod}");
        Some(Session {
            rows: self.clone(),
            clock: clock.clone(),
            cluster: member.into(),
            kind,
            who: format!("{}: pod {}", cut(&request.user.name), cut(&place)),
            answered: false,
        })
    }

    /// A time that no other row of this process has: history stores rows with equal times and reasons once.
    fn stamp(&self, now: Timestamp) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = last.and_then(|last| last.checked_add(SignedDuration::from_micros(1)).ok());
        let at = next.map_or(now, |next| now.max(next));
        *last = Some(at);
        at
    }
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

/// A session that a user asked for.
#[derive(Debug)]
pub(crate) struct Session {
    rows: Arc<SessionRows>,
    clock: Clock,
    cluster: ClusterName,
    kind: MemberEventKind,
    who: String,
    answered: bool,
}

impl Session {
    fn note(&self, reason: &str, result: &str) {
        let (member, kind) = (self.cluster.as_str(), self.kind.to_string());
        tracing::info!(member, kind, reason, who = self.who, result, "session of a user in a pod");
        let Some(recorder) = self.rows.recorder.get() else { return };
        recorder.note(Event::Member(MemberEvent {
            cluster: self.cluster.clone(),
            // Rows with a uid tell the life of the Cluster.
            uid: None,
            at: self.rows.stamp(self.clock.now()),
            kind: self.kind.clone(),
            reason: reason.to_owned(),
            message: format!("{}: {result}", self.who),
        }));
    }

    /// Notes the result, and later the end of a session that was opened.
    pub(crate) fn answered(
        mut self,
        answer: Result<MemberAnswer, ProxyError>,
    ) -> Result<MemberAnswer, ProxyError> {
        self.answered = true;
        match answer {
            Ok(answer) if is_open(answer.status) => {
                self.note(OPENED, &format!("HTTP {}", answer.status.as_u16()));
                let open = OpenSession { session: self, began: Instant::now() };
                // The session ends when the body is read to its end, or dropped.
                let body = answer.body.map(move |chunk| {
                    let _held = &open;
                    chunk
                });
                Ok(MemberAnswer { body: Box::pin(body), ..answer })
            }
            Ok(answer) => {
                self.note(REFUSED, &format!("HTTP {}", answer.status.as_u16()));
                Ok(answer)
            }
            Err(error) => {
                self.note(FAILED, &error.to_string());
                Err(error)
            }
        }
    }
}

/// The member may run what was asked, although the user did not wait for its answer.
impl Drop for Session {
    fn drop(&mut self) {
        if !self.answered {
            self.note(FAILED, "the user left before the member answered");
        }
    }
}

fn is_open(status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || status.is_success()
}

/// A session that a member opened.
struct OpenSession {
    session: Session,
    began: Instant,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let seconds = self.began.elapsed().as_secs();
        self.session.note(ENDED, &format!("after {seconds} s"));
    }
}

#[cfg(test)]
mod tests {
    use atoll_access::identity::User;
    use atoll_access::path::MemberPath;
    use atoll_history::{MemberFilter, MemoryStore, RecorderOptions, Store};
    use bytes::Bytes;
    use futures::stream;
    use http::{HeaderMap, Method};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn request(path: &str, user: &str) -> MemberRequest {
        MemberRequest {
            user: User { name: user.to_owned(), ..User::default() },
            method: Method::POST,
            path: MemberPath::parse(path).unwrap(),
            headers: HeaderMap::new(),
            upgrade: None,
            body: stream::empty().boxed(),
            base: String::new(),
        }
    }

    fn answer(status: u16) -> MemberAnswer {
        MemberAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: stream::iter([Ok(Bytes::from_static(b"password"))]).boxed(),
        }
    }

    #[tokio::test]
    async fn sessions_leave_rows_with_who_where_result_and_how_long_but_no_contents() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
        let token = CancellationToken::new();
        let writing = tokio::spawn(writer.run(token.clone()));
        let rows = Arc::new(SessionRows::default());
        rows.record_in(recorder);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::from_fn(move || now);
        let begin = |path: &str| rows.begin(&clock, "m1", &request(path, "jane"));
        let pod = "/api/v1/namespaces/shop/pods/web-0";
        assert!(begin(&format!("{pod}/log")).is_none());
        drop(begin(&format!("{pod}/exec?command=rm")).unwrap());
        let exec = begin(&format!("{pod}/exec?command=cat&command=secret")).unwrap();
        let opened = exec.answered(Ok(answer(101))).unwrap();
        let chunks: Vec<_> = opened.body.collect().await;
        assert_eq!(chunks.len(), 1, "the contents pass");
        let attach = begin(&format!("{pod}/attach")).unwrap();
        assert_eq!(attach.answered(Ok(answer(403))).unwrap().status, 403);
        let forward = begin(&format!("{pod}/portforward")).unwrap();
        assert!(forward.answered(Err(ProxyError::NotConnected("m1".to_owned()))).is_err());
        let long = rows.begin(&clock, "m1", &request(&format!("{pod}/exec"), &"ü".repeat(9_000)));
        drop(long.unwrap().answered(Ok(answer(101))));
        token.cancel();
        writing.await.unwrap();
        let page = store.member_events(&MemberFilter::default(), 10, None).await.unwrap();
        let mut events = page.events;
        events.sort_by_key(|event| event.at);
        assert!(events.iter().all(|event| event.uid.is_none() && event.message.len() < 3 * SHOWN));
        let shown: Vec<_> = events
            .iter()
            .take(5)
            .map(|event| format!("{} {} {}", event.kind, event.reason, event.message))
            .collect();
        assert_eq!(
            shown,
            [
                "Exec Failed jane: pod shop/web-0: the user left before the member answered",
                "Exec Opened jane: pod shop/web-0: HTTP 101",
                "Exec Ended jane: pod shop/web-0: after 0 s",
                "Attach Refused jane: pod shop/web-0: HTTP 403",
                "PortForward Failed jane: pod shop/web-0: member m1 is not connected",
            ]
        );
        assert_eq!(events.len(), 7, "no two rows are taken for one");
    }
}
