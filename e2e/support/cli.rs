//! Runs `atoll` and `kubectl` as a user would.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Path of the binary under test.
pub(crate) fn own() -> PathBuf {
    env!("CARGO_BIN_EXE_atoll").into()
}

/// The binary under test.
pub(crate) fn atoll() -> Command {
    Command::new(own())
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// An example's path.
pub(crate) fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

/// Runs a verb that prints an agent's command as JSON (`atoll join`, `atoll rejoin`); returns the command's arguments.
pub(crate) fn printed_words(verb: &mut Command) -> Vec<String> {
    let printed: Value = serde_json::from_str(&run(verb)).unwrap();
    let command = printed["command"].as_str().expect("it prints a command");
    let token = printed["token"].as_str().expect("it prints the token");
    // The scenarios restart agents without a user at the terminal.
    let command = command.replace("--token-file -", &format!("--token {token}"));
    command.split_whitespace().map(str::to_owned).collect()
}

/// Such a command, on the member of this kubeconfig.
pub(crate) fn on_member(words: &[String], kubeconfig: &Path) -> Command {
    on_member_of(&own(), words, kubeconfig)
}

/// The same with this program.
pub(crate) fn on_member_of(program: &Path, words: &[String], kubeconfig: &Path) -> Command {
    assert_eq!(words[..2], ["atoll", "agent"], "{words:?}");
    let mut command = Command::new(program);
    for word in &words[1..] {
        match word.as_str() {
            "MEMBER_KUBECONFIG" => command.arg(kubeconfig),
            word => command.arg(word),
        };
    }
    command
}

/// Runs a command that must succeed; its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let (ok, out, err) = outcome(command);
    assert!(ok, "{command:?} failed\nstdout: {out}\nstderr: {err}");
    out
}

/// Runs a command that must fail; its standard error.
pub(crate) fn fail(command: &mut Command) -> String {
    let (ok, out, err) = outcome(command);
    assert!(!ok, "{command:?} succeeded\nstdout: {out}\nstderr: {err}");
    err
}

fn outcome(command: &mut Command) -> (bool, String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Whether kubectl is installed. Without it the tests print a note and use only the client library.
pub(crate) fn has_kubectl() -> bool {
    let found = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    if !found {
        println!("kubectl is not installed: its part of the walk is left out");
    }
    found
}
