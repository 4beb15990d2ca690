//! The control socket in the data folder, from `atoll sim` to `atoll up`. Each connection carries one JSON line each
//! way.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest request line, in bytes: a verb and a name.
const MAX_LINE: u64 = 4096;
/// Timeout of one exchange. Stopping a member first ends its connections.
const EXCHANGE: Duration = Duration::from_secs(30);

/// A request of `atoll sim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "verb", content = "member")]
pub(crate) enum Request {
    /// List the members.
    List,
    /// One more member.
    Add,
    /// The member goes down: nothing runs, its API does not answer.
    Stop(String),
    /// The member comes back, or its agent's network does.
    Start(String),
    /// The member's agent loses the network; its workloads go on.
    Cut(String),
}

/// State of a simulated member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Power {
    /// It runs and is reachable.
    Running,
    /// It is down.
    Stopped,
    /// It runs; its agent cannot reach the controller.
    Cut,
}

impl std::fmt::Display for Power {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Running => "Running",
            Self::Stopped => "Stopped",
            Self::Cut => "Cut",
        })
    }
}

/// A member, as `atoll sim list` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberState {
    /// Name of the Cluster.
    pub(crate) name: String,
    /// Its state.
    pub(crate) power: Power,
    /// Address of its API server.
    pub(crate) server: String,
}

/// The answer to every request: all members, or what went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Response {
    /// The members after the request.
    Members(Vec<MemberState>),
    /// Why it was not done.
    Refused(String),
}

/// Sends a request to the `atoll up` that holds this data folder.
///
/// # Errors
/// When none holds it, when it does not answer within half a minute, and when it refuses.
pub(crate) async fn ask(folder: &Path, request: &Request) -> anyhow::Result<Vec<MemberState>> {
    let socket = super::folder::control_socket(folder);
    let exchange = async {
        let stream = UnixStream::connect(&socket).await.with_context(|| {
            format!(
                "no `atoll up` is running on {}: start one, or give its folder with --data-dir",
                folder.display()
            )
        })?;
        let mut stream = BufReader::new(stream);
        let mut line = serde_json::to_vec(request).context("encode the request")?;
        line.push(b'\n');
        stream.write_all(&line).await.context("send the request")?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await.context("read the answer")?;
        serde_json::from_str::<Response>(&answer).context("decode the answer")
    };
    let response = tokio::time::timeout(EXCHANGE, exchange)
        .await
        .context("wait for `atoll up` to answer")??;
    match response {
        Response::Members(members) => Ok(members),
        Response::Refused(why) => bail!("{why}"),
    }
}

/// Answers requests until the token is cancelled.
pub(crate) async fn serve<H, F>(listener: UnixListener, handle: H, token: CancellationToken)
where
    H: Fn(Request) -> F + Clone + Send + 'static,
    F: Future<Output = Response> + Send,
{
    let tasks = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = token.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept on the control socket");
                    continue;
                }
            },
        };
        let (handle, token) = (handle.clone(), token.clone());
        tasks.spawn(async move {
            let exchange = tokio::time::timeout(EXCHANGE, answer(stream, handle));
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                done = exchange => match done {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!("control socket: {error:#}"),
                    Err(_) => tracing::warn!("control socket: a request took too long"),
                },
            }
        });
    }
    tasks.close();
    tasks.wait().await;
}

async fn answer<H, F>(stream: UnixStream, handle: H) -> anyhow::Result<()>
where
    H: Fn(Request) -> F,
    F: Future<Output = Response>,
{
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(MAX_LINE)).read_line(&mut line).await.context("read a request")?;
    let response = match serde_json::from_str(&line) {
        Ok(request) => handle(request).await,
        Err(error) => Response::Refused(format!("not a request: {error}")),
    };
    let mut line = serde_json::to_vec(&response).context("encode the answer")?;
    line.push(b'\n');
    write.write_all(&line).await.context("send the answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_answered_and_a_bad_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = super::super::folder::control_socket(folder.path());
        let token = CancellationToken::new();
        let handle = |request: Request| async move {
            match request {
                Request::Stop(name) => Response::Members(vec![MemberState {
                    name,
                    power: Power::Stopped,
                    server: "https://127.0.0.1:1".into(),
                }]),
                _ => Response::Refused("no".into()),
            }
        };
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(serve(listener, handle, token.clone()));
        let members = ask(folder.path(), &Request::Stop("member1".into())).await.unwrap();
        assert_eq!((members[0].name.as_str(), members[0].power), ("member1", Power::Stopped));
        assert_eq!(ask(folder.path(), &Request::List).await.unwrap_err().to_string(), "no");

        let mut raw = UnixStream::connect(&socket).await.unwrap();
        raw.write_all(b"hello\n").await.unwrap();
        let mut text = String::new();
        raw.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("not a request"), "{text}");
        token.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn without_a_running_federation_the_message_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", ask(folder.path(), &Request::List).await.unwrap_err());
        assert!(error.contains("no `atoll up` is running"), "{error}");
    }
}
