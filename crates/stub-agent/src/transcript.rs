//! Transcripts: sessions of released versions as data, which every later version plays.
//!
//! A file has a JSON object in each line: a message as it was on the wire, or a step of the scenario between messages.
//! `crates/protocol/transcripts` has one file for each version; the controller's tests record them and play the agent,
//! the agent's tests play the controller.

use std::path::PathBuf;

use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::controller_message::Message as Told;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Value, json};

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A message of the agent.
    Agent(v1::AgentMessage),
    /// A message of the controller.
    Controller(v1::ControllerMessage),
    /// What happens next.
    Step(Step),
}

/// A step of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The hub wants a ConfigMap of this name with this value.
    Want(&'static str, &'static str),
    /// It is withdrawn.
    Unwant(&'static str),
    /// A template uses a node label.
    WatchLabels,
    /// Someone deletes the ConfigMap on the member.
    DeleteOnMember(&'static str),
}

/// The scenario of all transcripts.
pub const STEPS: [Step; 7] = [
    Step::Want("a", "1"),
    Step::Want("b", "1"),
    Step::WatchLabels,
    Step::Want("a", "2"),
    Step::Unwant("b"),
    Step::DeleteOnMember("a"),
    Step::Want("c", "1"),
];

/// What the member holds in the end: name and value.
pub const RESULT: [(&str, &str); 2] = [("a", "2"), ("c", "1")];

/// The folder of all transcripts.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol/transcripts")
}

/// All transcripts, with their names.
///
/// # Panics
/// When one cannot be read, or there are none.
#[must_use]
pub fn all() -> Vec<(String, Vec<Line>)> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    paths.sort();
    assert!(!paths.is_empty(), "no transcripts in {}", folder().display());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.display().to_string(), text.lines().map(parse).collect())
    };
    paths.into_iter().map(read).collect()
}

/// The text of a transcript.
#[must_use]
pub fn text(lines: &[Line]) -> String {
    let mut step = 0;
    let mut line = |line: &Line| match line {
        Line::Agent(message) => json!({"agent": STANDARD.encode(message.encode_to_vec())}),
        Line::Controller(message) => {
            json!({"controller": STANDARD.encode(message.encode_to_vec())})
        }
        Line::Step(_) => {
            step += 1;
            json!({"step": step - 1})
        }
    };
    lines.iter().map(|one| format!("{}\n", line(one))).collect()
}

fn parse(line: &str) -> Line {
    let line: Value = serde_json::from_str(line).unwrap();
    let bytes = |name: &str| STANDARD.decode(line[name].as_str()?).ok();
    if let Some(bytes) = bytes("agent") {
        return Line::Agent(v1::AgentMessage::decode(&*bytes).unwrap());
    }
    if let Some(bytes) = bytes("controller") {
        return Line::Controller(v1::ControllerMessage::decode(&*bytes).unwrap());
    }
    let step = line["step"].as_u64().and_then(|step| usize::try_from(step).ok());
    Line::Step(STEPS[step.unwrap()])
}

/// What a message of the controller is and which object it is about: a player waits for the same.
#[must_use]
pub fn told(message: &Told) -> String {
    let of = |kind: &str, key: &Option<v1::ObjectKey>| {
        let name = key.as_ref().map(|key| format!("{} {}", key.kind, key.name));
        format!("{kind} {}", name.unwrap_or_default())
    };
    match message {
        Told::Welcome(_) => "welcome".to_owned(),
        Told::Upsert(upsert) => of("upsert", &upsert.key),
        Told::Remove(remove) => of("remove", &remove.key),
        Told::Release(release) => of("release", &release.key),
        Told::Synced(_) => "synced".to_owned(),
        Told::WatchLabels(_) => "labels".to_owned(),
        Told::InventoryRequest(_) => "inventory request".to_owned(),
        Told::RuleText(_) => "rule text".to_owned(),
        Told::Customizations(_) => "customizations".to_owned(),
        Told::RenewCertificate(_) => "renew".to_owned(),
    }
}

/// The same for a message of the agent. `None`: it comes by the clock or by chance, and nobody waits for it.
#[must_use]
pub fn said(message: &Said) -> Option<String> {
    match message {
        Said::Applied(applied) => {
            let name = applied.key.as_ref().map(|key| format!("{} {}", key.kind, key.name));
            Some(format!("{:?} {}", applied.result(), name.unwrap_or_default()))
        }
        Said::Inventory(page) => Some(format!("inventory of {}", page.entries.len())),
        Said::Hello(_)
        | Said::Status(_)
        | Said::Facts(_)
        | Said::Heartbeat(_)
        | Said::RuleFailure(_) => None,
    }
}
