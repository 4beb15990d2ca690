//! `pods/NAME/exec` and `pods/NAME/attach` of a simulated member, over WebSockets or SPDY/3.1.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::request::query;
use atoll_apimachinery::response::Body;
use atoll_apiserver::PodRequest;
use atoll_http::upgrade::Upgrading;
use atoll_simulator::runtime::{Disks, Started, exec};
use bytes::Bytes;
use futures::stream::BoxStream;
use http::Response;

use super::terminal::Terminal;
use super::wire::{self, ERROR, Protocol, STDERR, STDIN, STDOUT, Wire};

/// Subprotocols of WebSockets, the best first.
const WEB: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Protocol of the streams of SPDY.
const SPDY: [&str; 1] = ["v4.channel.k8s.io"];
/// Time from the upgrade of a WebSocket to the first output, about what a container runtime takes to start a process. Older
/// versions of kubectl discard output that arrives before they have set up their channels, and no message says when they have
/// (kubernetes/kubernetes#131189).
const START: Duration = Duration::from_millis(100);

/// What a session does.
pub(super) enum Session {
    Exec(Started),
    /// `tar x`: writes the archive that it reads.
    Unpack(Unpack),
    /// The log as it is written.
    Attach(BoxStream<'static, Bytes>),
}

/// Where an archive goes.
pub(super) struct Unpack {
    pub(super) disks: Arc<Disks>,
    /// uid of the Pod.
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) folder: String,
}

/// `PodExecOptions`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) container: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) tty: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Options {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for (name, value) in query::pairs(text) {
            match name.as_str() {
                "container" => options.container = Some(value),
                "command" => options.command.push(value),
                "stdin" => options.stdin = query::boolean(&name, &value)?,
                "stdout" => options.stdout = query::boolean(&name, &value)?,
                "stderr" => options.stderr = query::boolean(&name, &value)?,
                "tty" => options.tty = query::boolean(&name, &value)?,
                _ => {}
            }
        }
        Ok(options)
    }

    /// The channels that a client of SPDY opens, without that of the window's size.
    fn channels(&self) -> Vec<u8> {
        // A terminal has one output.
        let stderr = self.stderr && !self.tty;
        let all = [(true, ERROR), (self.stdin, STDIN), (self.stdout, STDOUT), (stderr, STDERR)];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, channel)| channel).collect()
    }
}

/// Starts a command and answers with its session.
pub(super) fn answer(request: PodRequest, disks: &Arc<Disks>) -> Result<Response<Body>, ApiError> {
    let options = Options::parse(request.parts.uri.query().unwrap_or_default())?;
    let started = exec(&request.pod, disks, options.container.as_deref(), &options.command)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let session = match started {
        Started::Unpacks { container, folder } => {
            let pod = request.pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            Session::Unpack(Unpack { disks: disks.clone(), pod, container, folder })
        }
        started => Session::Exec(started),
    };
    open(request, session, &options)
}

/// Answers 101 and runs a session on the connection.
pub(super) fn open(
    mut request: PodRequest,
    session: Session,
    options: &Options,
) -> Result<Response<Body>, ApiError> {
    let (protocol, connection, response) = wire::open(&mut request, &WEB, &SPDY)?;
    let (closing, tty, channels) = (request.closing, options.tty, options.channels());
    // Ends with the connection, or with the listener.
    tokio::spawn(async move {
        let run = run(connection, protocol, &channels, session, tty);
        if let Some(Err(error)) = closing.run_until_cancelled(run).await {
            tracing::debug!("a session in a simulated pod ended: {error:#}");
        }
    });
    Ok(response)
}

async fn run(
    connection: Upgrading,
    protocol: Protocol,
    channels: &[u8],
    session: Session,
    tty: bool,
) -> anyhow::Result<()> {
    let io = connection.io().await.context("the connection was not upgraded")?;
    let wire = match protocol {
        Protocol::Web(_) => {
            let socket = wire::web_socket(io).await;
            tokio::time::sleep(START).await;
            Wire::Web(Box::new(socket))
        }
        Protocol::Spdy(_) => Wire::over_spdy(io, channels).await?,
    };
    let mut terminal = Terminal { wire, tty };
    let code = match session {
        Session::Exec(Started::Ended(output)) => {
            terminal.output(&output).await?;
            output.code
        }
        Session::Exec(Started::Sends(archive)) => {
            terminal.write(STDOUT, &archive).await?;
            0
        }
        Session::Exec(Started::Copies) => terminal.copy().await?,
        Session::Exec(Started::Unpacks { .. }) => bail!("an archive has no place"),
        Session::Unpack(unpack) => terminal.unpack(&unpack).await?,
        Session::Exec(Started::Reads(shell)) => terminal.shell(shell).await?,
        Session::Attach(log) => {
            terminal.attach(log).await?;
            0
        }
    };
    terminal.end(code).await
}
