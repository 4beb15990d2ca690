//! A Decision object, as the reading verbs look at it.

use atoll_api::binding::TargetCluster;
use atoll_history::api::text;
use jiff::Timestamp;
use serde_json::Value;

use crate::print::{Text, Tone};

/// Characters of an id that tables show; every flag that takes an id takes them.
pub(super) const SHORT_ID: usize = 8;
/// Fewest characters of an id: shorter ones match by chance.
const MIN_ID: usize = 4;
/// Characters of an id.
const ID: usize = 32;

/// One decision as the hub serves it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a>(pub(super) &'a Value);

impl<'a> Item<'a> {
    /// id of the decision.
    pub(super) fn id(self) -> &'a str {
        self.0["metadata"]["name"].as_str().unwrap_or("?")
    }

    /// The beginning of it.
    pub(super) fn short_id(self) -> String {
        self.id().chars().take(SHORT_ID).collect()
    }

    /// A text of the spec, `?` where there is none.
    pub(super) fn text(self, field: &str) -> &'a str {
        self.0["spec"][field].as_str().unwrap_or("?")
    }

    /// When it was made.
    pub(super) fn at(self) -> Option<Timestamp> {
        self.text("at").parse().ok()
    }

    /// Why the row cannot be read, if it cannot.
    pub(super) fn unreadable(self) -> Option<&'a str> {
        self.0["spec"]["unreadable"].as_str()
    }

    /// Why it was made, or why nobody can say.
    pub(super) fn reason(self) -> String {
        match self.unreadable() {
            Some(error) => format!("this row cannot be read: {error}"),
            None => self.text("reason").to_owned(),
        }
    }

    /// Shares before it, where they are known.
    pub(super) fn before(self) -> Option<Vec<TargetCluster>> {
        self.shares("before")
    }

    /// Shares that it set, where they are known.
    pub(super) fn after(self) -> Option<Vec<TargetCluster>> {
        self.shares("after")
    }

    fn shares(self, side: &str) -> Option<Vec<TargetCluster>> {
        serde_json::from_value(self.0["spec"].get(side)?.clone()).ok()
    }

    /// Before and after in a line.
    pub(super) fn change(self) -> String {
        let after = text::shares(self.after().as_deref());
        format!("{} -> {after}", text::shares(self.before().as_deref()))
    }

    /// Its template: `deployment/web`.
    pub(super) fn workload(self) -> String {
        let workload = &self.0["spec"]["workload"];
        let text = |field: &str| workload[field].as_str();
        match (text("kind"), text("name")) {
            (Some(kind), Some(name)) => format!("{}/{name}", kind.to_lowercase()),
            _ => "?".to_owned(),
        }
    }

    /// The template's namespace.
    pub(super) fn namespace(self) -> &'a str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// Replicas without a place.
    pub(super) fn pending(self) -> i64 {
        let groups = self.0["spec"]["pending"].as_array().into_iter().flatten();
        groups.filter_map(|group| group["replicas"].as_i64()).sum()
    }

    /// How it ended, coloured.
    pub(super) fn outcome(self) -> Text {
        let outcome = self.text("outcome");
        Text::toned(outcome, tone(outcome))
    }
}

/// How an outcome is meant.
pub(super) fn tone(outcome: &str) -> Tone {
    match outcome {
        "Placed" => Tone::Good,
        "Unchanged" => Tone::Plain,
        "Partial" => Tone::Warn,
        _ => Tone::Bad,
    }
}

/// Reads the beginning of an id, as `atoll history` shows it.
///
/// # Errors
/// When it is none; the text says what is.
pub(super) fn id(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match hex && (MIN_ID..=ID).contains(&text.len()) {
        true => Ok(text.to_lowercase()),
        false => Err(format!("an id has {ID} hex digits; give at least its first {MIN_ID}")),
    }
}

/// Whether these are all characters of an id.
pub(super) fn is_whole(id: &str) -> bool {
    id.len() == ID
}
