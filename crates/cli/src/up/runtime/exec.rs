//! `pods/NAME/exec` and `pods/NAME/attach` of a simulated member, over WebSockets (`v5.channel.k8s.io`,
//! `v4.channel.k8s.io`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::request::query;
use atoll_apimachinery::response::{Body, JSON, respond};
use atoll_apiserver::PodRequest;
use atoll_http::upgrade::{self, Upgrading};
use atoll_simulator::runtime::{Disks, OF_A_CONTAINER, Output, Shell, Started, exec, is_complete};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, handshake::derive_accept_key};

/// Subprotocols, the best first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Channels of a session: the first byte of each message.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// Of version 5: the channel that follows was closed.
const CLOSE: u8 = 255;
/// Limit of a message in bytes.
const MESSAGE: usize = 1 << 20;
/// Bytes of output in one message.
const CHUNK: usize = 32 << 10;
/// Limit of a line of input in bytes.
const LINE: usize = 64 << 10;
/// How long the user's end may take to close.
const CLOSING: Duration = Duration::from_secs(2);
/// A session without input ends after this time.
const IDLE: Duration = Duration::from_secs(60 * 60);

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
    disks: Arc<Disks>,
    /// uid of the Pod.
    pod: String,
    container: String,
    folder: String,
}

/// `PodExecOptions`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) container: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) tty: bool,
}

impl Options {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for (name, value) in query::pairs(text) {
            match name.as_str() {
                "container" => options.container = Some(value),
                "command" => options.command.push(value),
                "tty" => options.tty = query::boolean(&name, &value)?,
                _ => {}
            }
        }
        Ok(options)
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
    open(request, session, options.tty)
}

/// Answers 101 and runs a session on the connection.
pub(super) fn open(
    mut request: PodRequest,
    session: Session,
    tty: bool,
) -> Result<Response<Body>, ApiError> {
    let (protocol, accept) = handshake(&request.parts.headers)?;
    let connection = upgrade::take(&mut request.parts.extensions)
        .ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded: use HTTP/1.1"))?;
    let closing = request.closing;
    // Ends with the connection, or with the listener.
    tokio::spawn(async move {
        let run = run(connection, session, tty);
        if let Some(Err(error)) = closing.run_until_cancelled(run).await {
            tracing::debug!("a session in a simulated pod ended: {error:#}");
        }
    });
    let mut response = respond(StatusCode::SWITCHING_PROTOCOLS.as_u16(), JSON, Bytes::new());
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// The subprotocol, and the answer to the client's key.
fn handshake(headers: &HeaderMap) -> Result<(&'static str, HeaderValue), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !text(UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err(ApiError::bad_request(
            "sessions in simulated pods need WebSockets, which kubectl uses from version 1.31 on",
        ));
    }
    if text(SEC_WEBSOCKET_VERSION) != "13" || text(SEC_WEBSOCKET_KEY).is_empty() {
        return Err(ApiError::bad_request("the WebSocket handshake is not complete"));
    }
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered: Vec<&str> = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    let protocol = PROTOCOLS.into_iter().find(|known| offered.contains(known));
    let protocol = protocol.ok_or_else(|| {
        ApiError::bad_request(format!("offer one of the subprotocols {}", PROTOCOLS.join(", ")))
    })?;
    let key = derive_accept_key(text(SEC_WEBSOCKET_KEY).as_bytes());
    let key =
        HeaderValue::from_str(&key).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok((protocol, key))
}

async fn run(connection: Upgrading, session: Session, tty: bool) -> anyhow::Result<()> {
    let io = connection.io().await.context("the connection was not upgraded")?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE))
        .max_write_buffer_size(4 * MESSAGE);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let mut terminal = Terminal { socket, tty };
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

/// The user's end of a session.
struct Terminal<S> {
    socket: WebSocketStream<S>,
    tty: bool,
}

/// What the user has sent.
enum Input {
    Bytes(Bytes),
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Terminal<S> {
    async fn output(&mut self, output: &Output) -> anyhow::Result<()> {
        self.write(STDOUT, output.stdout.as_bytes()).await?;
        // A terminal has one output.
        let channel = if self.tty { STDOUT } else { STDERR };
        self.write(channel, output.stderr.as_bytes()).await
    }

    async fn write(&mut self, channel: u8, bytes: &[u8]) -> anyhow::Result<()> {
        let bytes = match self.tty {
            true => Bytes::from(String::from_utf8_lossy(bytes).replace('\n', "\r\n")),
            false => Bytes::copy_from_slice(bytes),
        };
        for chunk in bytes.chunks(CHUNK) {
            let mut message = BytesMut::with_capacity(chunk.len() + 1);
            message.put_u8(channel);
            message.extend_from_slice(chunk);
            self.socket.send(Message::Binary(message.freeze())).await?;
        }
        Ok(())
    }

    /// The next input. The size of the window does not matter here.
    async fn read(&mut self) -> anyhow::Result<Input> {
        loop {
            let message = tokio::time::timeout(IDLE, self.socket.next()).await;
            let message = message.map_err(|_| anyhow!("no input for {} s", IDLE.as_secs()))?;
            let bytes = match message {
                None => bail!("the user has closed the connection"),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(error.into()),
            };
            match bytes.first() {
                Some(&STDIN) if bytes.len() > 1 => return Ok(Input::Bytes(bytes.slice(1..))),
                Some(&CLOSE) if bytes.get(1) == Some(&STDIN) => return Ok(Input::End),
                _ => {}
            }
        }
    }

    /// Shows the log until it ends, the user leaves, or types Ctrl-C or Ctrl-D. A simulated container reads no input.
    async fn attach(&mut self, mut log: BoxStream<'static, Bytes>) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                bytes = log.next() => match bytes {
                    Some(bytes) => self.write(STDOUT, &bytes).await?,
                    None => return Ok(()),
                },
                message = self.socket.next() => match message {
                    None | Some(Ok(Message::Close(_))) => bail!("the user has closed the connection"),
                    Some(Err(error)) => return Err(error.into()),
                    Some(Ok(Message::Binary(bytes))) if self.tty && matches!(bytes[..], [STDIN, 3 | 4]) => {
                        return Ok(());
                    }
                    Some(Ok(_)) => {}
                },
            }
        }
    }

    /// `cat`: writes what it reads.
    async fn copy(&mut self) -> anyhow::Result<u8> {
        let mut line = Line::default();
        loop {
            let bytes = match self.read().await? {
                Input::End => return Ok(0),
                Input::Bytes(bytes) => bytes,
            };
            if !self.tty {
                self.write(STDOUT, &bytes).await?;
                continue;
            }
            for byte in bytes {
                match line.typed(byte)? {
                    Typed::Shown(echo) => self.write(STDOUT, echo.as_bytes()).await?,
                    Typed::Line(text) => {
                        self.write(STDOUT, format!("\n{text}\n").as_bytes()).await?
                    }
                    Typed::Interrupt | Typed::End => return Ok(0),
                }
            }
        }
    }

    /// `tar x`: reads an archive to its end.
    async fn unpack(&mut self, unpack: &Unpack) -> anyhow::Result<u8> {
        let mut archive = BytesMut::new();
        while !is_complete(&archive) {
            let Input::Bytes(bytes) = self.read().await? else { break };
            archive.extend_from_slice(&bytes);
            // Names and contents fit, and the blocks around them.
            if archive.len() > 2 * OF_A_CONTAINER {
                break;
            }
        }
        let Unpack { disks, pod, container, folder } = unpack;
        match disks.unpack((pod, container), folder, &archive) {
            Ok(()) => Ok(0),
            Err(error) => {
                let output = Output { stderr: format!("tar: {error}\n"), ..Output::default() };
                self.output(&output).await?;
                Ok(2)
            }
        }
    }

    /// `sh`: carries out lines.
    async fn shell(&mut self, mut shell: Shell) -> anyhow::Result<u8> {
        let prompt: &[u8] = if self.tty { b"$ " } else { b"" };
        let mut line = Line::default();
        self.write(STDOUT, prompt).await?;
        loop {
            let Input::Bytes(bytes) = self.read().await? else {
                // The last line of a pipe may have no line feed.
                let text = line.take();
                if !text.is_empty() {
                    self.output(&shell.line(&text)).await?;
                }
                return Ok(shell.last_code());
            };
            for byte in bytes {
                let typed = if self.tty { line.typed(byte)? } else { line.read(byte)? };
                match typed {
                    Typed::Shown(echo) => self.write(STDOUT, echo.as_bytes()).await?,
                    Typed::Interrupt => self.write(STDOUT, &[b"^C\n", prompt].concat()).await?,
                    Typed::End => return Ok(shell.last_code()),
                    Typed::Line(text) => {
                        if self.tty {
                            self.write(STDOUT, b"\n").await?;
                        }
                        let output = shell.line(&text);
                        self.output(&output).await?;
                        if shell.has_ended() {
                            return Ok(shell.last_code());
                        }
                        self.write(STDOUT, prompt).await?;
                    }
                }
            }
        }
    }

    /// Reports the exit code and closes the connection.
    async fn end(&mut self, code: u8) -> anyhow::Result<()> {
        let status = match code {
            0 => json!({"metadata": {}, "status": "Success"}),
            code => json!({
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        };
        let mut message = BytesMut::from(&[ERROR][..]);
        message.extend_from_slice(status.to_string().as_bytes());
        self.socket.send(Message::Binary(message.freeze())).await?;
        // kubectl takes any other code for a failure.
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        self.socket.close(Some(frame)).await?;
        let closed = async { while let Some(Ok(_)) = self.socket.next().await {} };
        // The user's end may be gone already.
        let _ = tokio::time::timeout(CLOSING, closed).await;
        Ok(())
    }
}

/// A line of input that is not complete.
#[derive(Default)]
struct Line(Vec<u8>);

/// The effect of a byte of input.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    /// To be shown.
    Shown(String),
    /// The line is complete.
    Line(String),
    Interrupt,
    End,
}

impl Line {
    /// A byte from a pipe.
    fn read(&mut self, byte: u8) -> anyhow::Result<Typed> {
        if byte == b'\n' {
            return Ok(Typed::Line(self.take()));
        }
        self.push(byte)?;
        Ok(Typed::Shown(String::new()))
    }

    /// A byte from a terminal in raw mode.
    fn typed(&mut self, byte: u8) -> anyhow::Result<Typed> {
        Ok(match byte {
            b'\r' | b'\n' => Typed::Line(self.take()),
            // Ctrl-C and Ctrl-D.
            3 => {
                self.0.clear();
                Typed::Interrupt
            }
            4 if self.0.is_empty() => Typed::End,
            8 | 127 => Typed::Shown(match self.0.pop() {
                Some(_) => "\u{8} \u{8}".to_owned(),
                None => String::new(),
            }),
            0..32 => Typed::Shown(String::new()),
            byte => {
                self.push(byte)?;
                // Only ASCII is echoed: other characters arrive in parts.
                Typed::Shown(if byte.is_ascii() {
                    char::from(byte).to_string()
                } else {
                    String::new()
                })
            }
        })
    }

    fn push(&mut self, byte: u8) -> anyhow::Result<()> {
        if self.0.len() >= LINE {
            bail!("a line has more than {LINE} bytes");
        }
        self.0.push(byte);
        Ok(())
    }

    fn take(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_subprotocol_is_chosen_and_spdy_is_refused_with_the_reason() {
        let mut headers = HeaderMap::new();
        let refused = |headers: &HeaderMap| handshake(headers).unwrap_err().to_string();
        headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        assert!(refused(&headers).contains("need WebSockets"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        assert!(refused(&headers).contains("not complete"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        // The example of RFC 6455.
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.insert(SEC_WEBSOCKET_KEY, key);
        assert!(refused(&headers).contains("v5.channel.k8s.io"));
        let offered = "v4.channel.k8s.io, v5.channel.k8s.io";
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        let (protocol, accept) = handshake(&headers).unwrap();
        assert_eq!(
            (protocol, accept.to_str().unwrap()),
            (PROTOCOLS[0], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
    }

    /// A session and the user's end of it.
    async fn pair(
        tty: bool,
    ) -> (Terminal<tokio::io::DuplexStream>, WebSocketStream<tokio::io::DuplexStream>) {
        let (here, there) = tokio::io::duplex(64 << 10);
        let socket = WebSocketStream::from_raw_socket(here, Role::Server, None).await;
        let user = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        (Terminal { socket, tty }, user)
    }

    fn message(channel: u8, bytes: &[u8]) -> Message {
        Message::Binary([&[channel], bytes].concat().into())
    }

    #[tokio::test]
    async fn a_piped_shell_carries_out_a_last_line_without_a_line_feed() {
        let pod = json!({"metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "main"}]},
            "status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}});
        let Ok(Started::Reads(shell)) = exec(&pod, &Disks::default(), None, &["sh".to_owned()])
        else {
            panic!("a shell")
        };
        let (mut terminal, mut user) = pair(false).await;
        user.send(message(STDIN, b"echo a\nexit 3")).await.unwrap();
        user.send(message(CLOSE, &[STDIN])).await.unwrap();
        assert_eq!(terminal.shell(shell).await.unwrap(), 3);
        let Message::Binary(shown) = user.next().await.unwrap().unwrap() else { panic!("output") };
        assert_eq!(shown, &b"\x01a\n"[..]);
    }

    #[tokio::test]
    async fn attaching_to_a_quiet_container_ends_when_the_user_leaves() {
        let quiet = || futures::stream::pending().boxed();
        let (mut terminal, user) = pair(false).await;
        drop(user);
        assert!(terminal.attach(quiet()).await.is_err());
        let (mut terminal, mut user) = pair(true).await;
        user.send(message(STDIN, &[3])).await.unwrap();
        terminal.attach(quiet()).await.unwrap();
    }

    #[test]
    fn a_terminal_edits_lines() {
        let mut line = Line::default();
        let mut all = Vec::new();
        for byte in b"lx\x7fs\r" {
            all.push(line.typed(*byte).unwrap());
        }
        assert_eq!(all.last(), Some(&Typed::Line("ls".to_owned())));
        assert_eq!(line.typed(4).unwrap(), Typed::End);
        line.typed(b'a').unwrap();
        assert_eq!(line.typed(3).unwrap(), Typed::Interrupt);
        assert!(line.0.is_empty());
        line.0 = vec![b'a'; LINE];
        assert!(line.read(b'b').is_err());
        assert!(matches!(line.read(b'\n').unwrap(), Typed::Line(_)));
    }
}
