//! The kubectl cases of tests/kubectl: what kubectl prints on a real kube-apiserver, it prints on the hub of `atoll up`, and
//! on a member through the hub.

mod sessions;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::cli::{has_kubectl, root, run};
use crate::support::federation::{Federation, free_ports};
use crate::support::servers::ApiServer;

/// Ports of `up` with three members.
const PORTS: u16 = 8;
/// Environment variable with which the answers of the real server are recorded.
const RECORD: &str = "ATOLL_RECORD_KUBECTL";
/// Limit of one command in seconds.
const LIMIT: &str = "60";

fn folder() -> PathBuf {
    root().join("tests/kubectl")
}

/// One command, and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Case {
    command: String,
    code: i32,
    out: Vec<String>,
    err: Vec<String>,
}

impl Case {
    /// As in recorded.txt.
    fn write(&self) -> String {
        let mut text = format!("$ {}\n", self.command);
        for line in &self.out {
            writeln!(text, "| {line}").unwrap();
        }
        for line in &self.err {
            writeln!(text, "! {line}").unwrap();
        }
        if self.code != 0 {
            writeln!(text, "? {}", self.code).unwrap();
        }
        text
    }
}

fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("cases.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn recorded() -> Vec<Case> {
    cases(&std::fs::read_to_string(folder().join("recorded.txt")).unwrap())
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let (mark, rest) = line.split_at(1);
        let rest = rest.strip_prefix(' ').unwrap_or(rest).to_owned();
        if mark == "$" {
            cases.push(Case { command: rest, code: 0, out: Vec::new(), err: Vec::new() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match mark {
            "|" => case.out.push(rest),
            "!" => case.err.push(rest),
            "?" => case.code = rest.parse().unwrap(),
            other => panic!("{other:?} begins no line of cases"),
        }
    }
    cases
}

/// A server as kubectl sees it.
struct Server<'a> {
    kubeconfig: PathBuf,
    context: &'a str,
    /// For files and kubectl's cache.
    work: PathBuf,
}

impl Server<'_> {
    fn all(&self, commands: &[String]) -> Vec<Case> {
        std::fs::create_dir_all(&self.work).unwrap();
        commands.iter().map(|command| self.case(command)).collect()
    }

    fn case(&self, command: &str) -> Case {
        let mut kubectl = self.kubectl(&words(command));
        self.ended(command, &kubectl.stdin(Stdio::null()).output().unwrap())
    }

    fn kubectl(&self, words: &[String]) -> Command {
        // A watch without an end, or a server that does not answer, must not hold up the test.
        let mut kubectl = Command::new("timeout");
        kubectl.args([LIMIT, "kubectl", "--kubeconfig"]).arg(&self.kubeconfig);
        kubectl.args(["--context", self.context, "--namespace", "cases", "--cache-dir"]);
        kubectl.arg(self.work.join("cache")).current_dir(&self.work);
        for word in words {
            match (word.strip_prefix('@'), word.strip_prefix("edit:")) {
                (Some(file), _) => kubectl.arg(folder().join("manifests").join(file)),
                (_, Some(script)) => {
                    let editor = format!("sed -i -e '{script}'");
                    kubectl.env("KUBE_EDITOR", editor).arg("edit")
                }
                _ => kubectl.arg(word),
            };
        }
        kubectl
    }

    fn ended(&self, command: &str, output: &Output) -> Case {
        let lines = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.lines().map(|line| normalised(line, &self.work)).collect()
        };
        let (out, err) = (lines(&output.stdout), lines(&output.stderr));
        Case { command: command.to_owned(), code: output.status.code().unwrap(), out, err }
    }
}

fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut escaped) = (Vec::new(), String::new(), false);
    for c in command.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            ' ' if !escaped => words.push(std::mem::take(&mut word)),
            c => {
                if escaped && c != ' ' {
                    word.push('\\');
                }
                word.push(c);
                escaped = false;
            }
        }
    }
    words.push(word);
    words
}

/// A line without what differs from run to run.
fn normalised(line: &str, work: &Path) -> String {
    let line = line.replace(&folder().display().to_string(), "FOLDER");
    let line = line.replace(&work.display().to_string(), "WORK");
    let indent = line.len() - line.trim_start().len();
    // Columns are as wide as their widest cell, which may be an age.
    let mut text = line[..indent].to_owned();
    for (at, part) in
        line[indent..].split("  ").map(str::trim).filter(|part| !part.is_empty()).enumerate()
    {
        if at > 0 {
            text.push_str("  ");
        }
        text.push_str(&part.split(' ').map(word).collect::<Vec<_>>().join(" "));
    }
    text
}

/// A word without what differs.
fn word(word: &str) -> String {
    let bare = word.trim_matches(['"', ',', '\'', '(', ')', ':', ';', '.', '[', ']']);
    if bare.is_empty() {
        return word.to_owned();
    }
    // Files of `diff`.
    if let Some(name) =
        ["LIVE", "MERGED"].into_iter().find(|name| word.contains(&format!("/{name}-")))
    {
        return name.to_owned();
    }
    let is_age = bare.len() < 8
        && bare.ends_with(['s', 'm', 'h', 'd'])
        && bare.starts_with(|c: char| c.is_ascii_digit())
        && bare.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c));
    let is_time = bare.len() >= 19 && bare.get(4..5) == Some("-") && bare.get(10..11) == Some("T");
    let is_clock = bare.len() >= 15 && bare.get(2..3) == Some(":") && bare.get(5..6) == Some(":");
    let is_uid = bare.len() == 36 && bare.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let by = if is_age {
        "AGE"
    } else if is_time || is_clock {
        "TIME"
    } else if is_uid {
        "UID"
    } else if bare.len() > 100 && bare.starts_with("eyJ") {
        "TOKEN"
    } else {
        return word.to_owned();
    };
    word.replace(bare, by)
}

/// Lines whose values differ on every server.
fn comparable(case: &Case) -> Case {
    let lines = |lines: &[String]| {
        let kept = lines.iter().map(|line| {
            let start = line.trim_start();
            match start.split_once([':']) {
                Some((key @ ("resourceVersion" | "\"resourceVersion\""), _)) => {
                    format!("{}{key}: VERSION", &line[..line.len() - start.len()])
                }
                _ => line.clone(),
            }
        });
        kept.collect()
    };
    Case { out: lines(&case.out), err: lines(&case.err), ..case.clone() }
}

/// The listed differences of a server: command and reason.
fn differences(server: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder().join("differences.txt")).unwrap();
    let (mut listed, mut command) = (Vec::new(), None);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("$ ") {
            Some(text) => command = Some(text.to_owned()),
            None => {
                let (where_, reason) = line.split_once(": ").unwrap();
                assert!(["both", "hub", "member"].contains(&where_), "{line}");
                if where_ == "both" || where_ == server {
                    listed.push((command.clone().unwrap(), reason.to_owned()));
                }
            }
        }
    }
    listed
}

/// What differs from the recording, without the listed differences.
fn compare(server: &str, expected: &[Case], found: &[Case]) -> String {
    let listed = differences(server);
    let mut report = String::new();
    let mut differs = BTreeSet::new();
    for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected.command, found.command, "recorded.txt has other cases than cases.txt");
        if comparable(expected) == comparable(found) {
            continue;
        }
        differs.insert(expected.command.clone());
        if !listed.iter().any(|(command, _)| *command == expected.command) {
            let (expected, found) = (expected.write(), found.write());
            writeln!(report, "case {at} on {server}\n--- expected\n{expected}+++ found\n{found}")
                .unwrap();
        }
    }
    for (command, _) in listed.iter().filter(|(command, _)| !differs.contains(command)) {
        writeln!(report, "{server}: differences.txt lists a case that does not differ: {command}")
            .unwrap();
    }
    report
}

/// A federation in a folder, and a kubeconfig with a context for each member through the hub; `None` without kubectl.
fn federation(data: &Path) -> Option<(Federation, PathBuf)> {
    if !has_kubectl() {
        println!("skipped: kubectl is not installed");
        return None;
    }
    let federation = Federation::start(&data.join("atoll"), free_ports(PORTS));
    let members = data.join("members");
    run(&mut federation.atoll(&["kubeconfig", "--merge", members.to_str().unwrap()]));
    Some((federation, members))
}

#[test]
fn kubectl_prints_the_same_on_the_hub_and_on_a_member_through_the_hub() {
    let data = tempfile::tempdir().unwrap();
    let Some((federation, members)) = federation(data.path()) else { return };
    let (commands, expected) = (commands(), recorded());
    assert!(commands.len() >= 120 && commands.len() == expected.len(), "record the cases again");
    let hub = Server {
        kubeconfig: federation.kubeconfig(),
        context: "hub",
        work: data.path().join("hub-work"),
    };
    let member =
        Server { kubeconfig: members, context: "member1", work: data.path().join("member-work") };
    let (on_hub, on_member) = std::thread::scope(|scope| {
        let on_hub = scope.spawn(|| hub.all(&commands));
        let on_member = member.all(&commands);
        (on_hub.join().unwrap(), on_member)
    });
    let report = compare("hub", &expected, &on_hub) + &compare("member", &expected, &on_member);
    assert!(report.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorded_answers_are_those_of_a_real_api_server() {
    if atoll_envtest::assets().is_none() || !has_kubectl() {
        return println!(
            "skipped: KUBEBUILDER_ASSETS names no kube-apiserver, or there is no kubectl"
        );
    }
    let data = tempfile::tempdir().unwrap();
    let server = ApiServer::hub(data.path()).await;
    let kubeconfig = server.kubeconfig.clone();
    let work = data.path().join("work");
    let found = tokio::task::spawn_blocking(move || {
        let server = Server { kubeconfig, context: "hub", work };
        server.all(&commands())
    });
    let found = found.await.unwrap();
    if std::env::var_os(RECORD).is_some() {
        let text: String = found.iter().map(Case::write).collect();
        return std::fs::write(folder().join("recorded.txt"), text).unwrap();
    }
    let expected = recorded();
    assert_eq!(expected.len(), found.len(), "record the cases again");
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(comparable(expected), comparable(found));
    }
}
