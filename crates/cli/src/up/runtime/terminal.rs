//! What a command in a container does with the user's end of its session.

use anyhow::{anyhow, bail};
use atoll_simulator::runtime::{OF_A_CONTAINER, Output, Shell, WriteError, is_complete};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use super::exec::Unpack;
use super::wire::{IDLE, Input, STDERR, STDOUT, Wire};

/// Limit of a line of input in bytes.
const LINE: usize = 64 << 10;

/// The user's end of a session.
pub(super) struct Terminal<S> {
    pub(super) wire: Wire<S>,
    pub(super) tty: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Terminal<S> {
    pub(super) async fn output(&mut self, output: &Output) -> anyhow::Result<()> {
        self.write(STDOUT, output.stdout.as_bytes()).await?;
        // A terminal has one output.
        let channel = if self.tty { STDOUT } else { STDERR };
        self.write(channel, output.stderr.as_bytes()).await
    }

    pub(super) async fn write(&mut self, channel: u8, bytes: &[u8]) -> anyhow::Result<()> {
        match self.tty {
            true => {
                let text = String::from_utf8_lossy(bytes).replace('\n', "\r\n");
                self.wire.send(channel, text.as_bytes()).await
            }
            false => self.wire.send(channel, bytes).await,
        }
    }

    /// The next input.
    async fn read(&mut self) -> anyhow::Result<Input> {
        let input = tokio::time::timeout(IDLE, self.wire.receive()).await;
        let input = input.map_err(|_| anyhow!("no input for {} s", IDLE.as_secs()))?;
        input?.ok_or_else(left)
    }

    /// Shows the log until it ends, the user leaves, or types Ctrl-C or Ctrl-D. A simulated container reads no input.
    pub(super) async fn attach(
        &mut self,
        mut log: BoxStream<'static, Bytes>,
    ) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                bytes = log.next() => match bytes {
                    Some(bytes) => self.write(STDOUT, &bytes).await?,
                    None => return Ok(()),
                },
                input = self.wire.receive() => match input?.ok_or_else(left)? {
                    Input::Bytes(bytes) if self.tty && matches!(bytes[..], [3 | 4]) => return Ok(()),
                    _ => {}
                },
            }
        }
    }

    /// `cat`: writes what it reads.
    pub(super) async fn copy(&mut self) -> anyhow::Result<u8> {
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
    pub(super) async fn unpack(&mut self, unpack: &Unpack) -> anyhow::Result<u8> {
        let (mut archive, mut checked) = (BytesMut::new(), 0);
        while !is_complete(&archive, &mut checked) {
            let Input::Bytes(bytes) = self.read().await? else { break };
            archive.extend_from_slice(&bytes);
            // Names and contents fit, and the blocks around them.
            if archive.len() > 2 * OF_A_CONTAINER {
                return self.not_unpacked(&WriteError::Full).await;
            }
        }
        let Unpack { disks, pod, container, folder } = unpack;
        match disks.unpack((pod, container), folder, &archive) {
            Ok(()) => Ok(0),
            Err(error) => self.not_unpacked(&error).await,
        }
    }

    async fn not_unpacked(&mut self, error: &WriteError) -> anyhow::Result<u8> {
        let output = Output { stderr: format!("tar: {error}\n"), ..Output::default() };
        self.output(&output).await?;
        Ok(2)
    }

    /// `sh`: carries out lines.
    pub(super) async fn shell(&mut self, mut shell: Shell) -> anyhow::Result<u8> {
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
    pub(super) async fn end(&mut self, code: u8) -> anyhow::Result<()> {
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
        self.wire.end(&status).await
    }
}

fn left() -> anyhow::Error {
    anyhow!("the user has closed the connection")
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
    use atoll_simulator::runtime::{Disks, Started, exec};
    use futures::{SinkExt, StreamExt};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::super::wire::{CLOSE, STDIN};
    use super::*;

    /// A session and the user's end of it.
    async fn pair(
        tty: bool,
    ) -> (Terminal<tokio::io::DuplexStream>, WebSocketStream<tokio::io::DuplexStream>) {
        let (here, there) = tokio::io::duplex(64 << 10);
        let socket = WebSocketStream::from_raw_socket(here, Role::Server, None).await;
        let user = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        (Terminal { wire: Wire::Web(Box::new(socket)), tty }, user)
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
