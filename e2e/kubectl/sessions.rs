//! Sessions in pods, with each protocol that kubectl speaks.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

/// Variables with which kubectl uses SPDY instead of WebSockets.
const WITHOUT_WEBSOCKETS: [&str; 2] =
    ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

fn sessions() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("sessions.txt")).unwrap();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    cases(&lines.join("\n"))
}

/// Runs a case; what it printed, and its exit code.
fn outcome(server: &Server<'_>, spdy: bool, command: &str) -> Case {
    let mut words = words(command);
    let first = words[0].clone();
    let mut take = |prefix: &str| {
        let rest = first.strip_prefix(prefix).map(str::to_owned);
        if rest.is_some() {
            words.remove(0);
        }
        rest
    };
    let (stdin, first_line, forward) = (take("stdin:"), take("first-line"), take("forward:"));
    let forward = forward.as_deref().map(|forward| forward.split_once(':').unwrap());
    if let Some((port, _)) = forward {
        words.insert(0, "port-forward".to_owned());
        words.push(format!(":{port}"));
    }
    let mut kubectl = server.kubectl(&words);
    if spdy {
        kubectl.envs(WITHOUT_WEBSOCKETS.map(|name| (name, "false")));
    }
    if let Some((_, path)) = forward {
        return forwarded(server, kubectl, command, path);
    }
    if first_line.is_some() {
        let mut child = spawn(kubectl);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        end(child);
        return Case {
            command: command.to_owned(),
            code: 0,
            out: vec![line.trim_end().to_owned()],
            err: Vec::new(),
        };
    }
    let input = stdin.unwrap_or_default();
    let mut child = spawn(kubectl);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    server.ended(command, &child.wait_with_output().unwrap())
}

fn spawn(mut kubectl: Command) -> Child {
    kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// `timeout` passes the signal on to kubectl.
fn end(mut child: Child) -> String {
    run(Command::new("kill").arg(child.id().to_string()));
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    child.wait().unwrap();
    err
}

/// Asks a port of the pod for a path, over two connections at the same time.
fn forwarded(server: &Server<'_>, kubectl: Command, command: &str, path: &str) -> Case {
    let mut child = spawn(kubectl);
    let mut line = String::new();
    // Open until the end: kubectl writes a line for each connection.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let from = line.strip_prefix("Forwarding from ").and_then(|line| line.split(' ').next());
    let Some(address) = from.map(str::to_owned) else {
        panic!("{command}: no address in {line:?}: {}", end(child))
    };
    // kubectl closes all connections after the first that is refused.
    let ask = || {
        let mut connection = TcpStream::connect(&address).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
        Some(connection)
    };
    let read = |connection: Option<TcpStream>| {
        let mut text = String::new();
        if let Some(mut connection) = connection {
            let _ = connection.read_to_string(&mut text);
        }
        text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
    };
    let (first, second) = (ask(), ask());
    let (first, second) = (read(first), read(second));
    assert_eq!(first, second, "{command}");
    let err = end(child);
    let lines = |text: &str| text.lines().map(|line| normalised(line, &server.work)).collect();
    Case { command: command.to_owned(), code: 0, out: lines(&first), err: lines(&err) }
}

/// Whether a command printed what is expected: each expected line is in its place. Lines between them (addresses, use of
/// resources) differ.
fn is_expected(expected: &Case, found: &Case) -> bool {
    let within = |expected: &[String], found: &[String]| {
        let mut found = found.iter();
        expected.iter().all(|line| found.any(|one| one.contains(line.as_str())))
    };
    expected.code == found.code
        && within(&expected.out, &found.out)
        && within(&expected.err, &found.err)
        && (expected.err.is_empty() == found.err.is_empty() || expected.command.contains("forward"))
}

#[test]
fn sessions_in_pods_work_with_websockets_and_spdy_directly_and_through_the_hub() {
    let data = tempfile::tempdir().unwrap();
    let Some((federation, members)) = federation(data.path()) else { return };
    let mut report = String::new();
    // Two members, so that both ways run at the same time.
    let runs =
        [("directly", federation.kubeconfig(), "member1"), ("through the hub", members, "member2")];
    std::thread::scope(|scope| {
        let running = runs.map(|(way, kubeconfig, context)| {
            let work = data.path().join(context);
            scope.spawn(move || {
                let server = Server { kubeconfig, context, work };
                std::fs::create_dir_all(&server.work).unwrap();
                run(server
                    .kubectl(&["create".into(), "namespace".into(), "cases".into()])
                    .arg("-oname"));
                let mut report = String::new();
                for (protocol, spdy) in [("WebSockets", false), ("SPDY", true)] {
                    for expected in sessions() {
                        let found = outcome(&server, spdy, &expected.command);
                        if !is_expected(&expected, &found) {
                            let (expected, found) = (expected.write(), found.write());
                            writeln!(
                                report,
                                "{way}, {protocol}\n--- expected\n{expected}+++ found\n{found}"
                            )
                            .unwrap();
                        }
                    }
                    let gone = ["wait", "--for=delete", "pod/shell", "--timeout=60s"];
                    run(&mut server.kubectl(&gone.map(str::to_owned)));
                }
                report
            })
        });
        for running in running {
            report.push_str(&running.join().unwrap());
        }
    });
    assert!(report.is_empty(), "{report}");
}
