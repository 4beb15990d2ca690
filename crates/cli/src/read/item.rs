//! Accessors of a Decision object for the reading verbs.

use atoll_api::binding::TargetCluster;
use atoll_history::api::text;
use jiff::Timestamp;
use serde_json::Value;

use crate::print::{Text, Tone};

/// Characters of an id in tables; every flag that takes an id accepts this prefix.
pub(crate) const SHORT_ID: usize = 8;
/// Minimum length of an id prefix: shorter ones match by chance.
const MIN_ID: usize = 4;
/// Length of an id.
const ID: usize = 32;

/// One decision as served by the hub.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a>(pub(crate) &'a Value);

impl<'a> Item<'a> {
    /// The id of the decision.
    pub(crate) fn id(self) -> &'a str {
        self.0["metadata"]["name"].as_str().unwrap_or("?")
    }

    /// The short id; `-` for events of members, which have none.
    pub(crate) fn short_id(self) -> String {
        if self.event().is_some() {
            return "-".to_owned();
        }
        self.id().chars().take(SHORT_ID).collect()
    }

    /// A text field of the spec; `?` if absent.
    pub(crate) fn text(self, field: &str) -> &'a str {
        self.0["spec"][field].as_str().unwrap_or("?")
    }

    /// The kind of member event, if the object is one.
    fn event(self) -> Option<&'a str> {
        self.0["spec"]["event"].as_str()
    }

    /// The trigger; for member events, the event.
    pub(crate) fn trigger(self) -> &'a str {
        self.event().unwrap_or_else(|| self.text("trigger"))
    }

    /// Whether it is a decision without verdicts: it records what happened, and weighed no clusters.
    pub(crate) fn weighed_no_clusters(self) -> bool {
        matches!(self.text("trigger"), "EvictionDone" | "Withdrawn")
    }

    /// When it was made.
    pub(crate) fn at(self) -> Option<Timestamp> {
        self.text("at").parse().ok()
    }

    /// When it was made, to the second: events of members have milliseconds.
    pub(crate) fn time(self) -> String {
        let second = self.at().and_then(|at| Timestamp::from_second(at.as_second()).ok());
        second.map_or_else(|| "?".to_owned(), |second| second.to_string())
    }

    /// Why the row cannot be read; `None` if it can.
    pub(crate) fn unreadable(self) -> Option<&'a str> {
        self.0["spec"]["unreadable"].as_str()
    }

    /// The reason of the decision, or why it is not known.
    pub(crate) fn reason(self) -> String {
        if let Some(error) = self.unreadable() {
            return format!("this row cannot be read: {error}");
        }
        match (self.event(), self.text("message")) {
            (Some(_), "" | "?") | (None, _) => self.text("reason").to_owned(),
            // For a taint, the reason is its key, with which the message also begins.
            (Some(_), message) if message.starts_with(self.text("reason")) => message.to_owned(),
            (Some(_), message) => format!("{}: {message}", self.text("reason")),
        }
    }

    /// Shares before the decision, if known.
    pub(crate) fn before(self) -> Option<Vec<TargetCluster>> {
        self.shares("before")
    }

    /// Shares after the decision, if known.
    pub(crate) fn after(self) -> Option<Vec<TargetCluster>> {
        self.shares("after")
    }

    fn shares(self, side: &str) -> Option<Vec<TargetCluster>> {
        serde_json::from_value(self.0["spec"].get(side)?.clone()).ok()
    }

    /// Shares before and after on one line.
    pub(crate) fn change(self) -> String {
        if self.event().is_some() {
            return "-".to_owned();
        }
        let (before, after) = (self.before(), self.after());
        let now = text::shares(after.as_deref());
        match before.is_some() && before == after {
            true => format!("{now}, as before"),
            false => format!("{} -> {now}", text::shares(before.as_deref())),
        }
    }

    /// Its template: `deployment/web`.
    pub(crate) fn workload(self) -> String {
        if let Some(cluster) = self.event().and(self.0["spec"]["cluster"].as_str()) {
            return format!("member/{cluster}");
        }
        let workload = &self.0["spec"]["workload"];
        let text = |field: &str| workload[field].as_str();
        match (text("kind"), text("name")) {
            (Some(kind), Some(name)) => format!("{}/{name}", kind.to_lowercase()),
            _ => "?".to_owned(),
        }
    }

    /// The template's namespace.
    pub(crate) fn namespace(self) -> &'a str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// Replicas without a place.
    pub(crate) fn pending(self) -> i64 {
        let groups = self.0["spec"]["pending"].as_array().into_iter().flatten();
        groups.filter_map(|group| group["replicas"].as_i64()).sum()
    }

    /// The outcome, coloured.
    pub(crate) fn outcome(self) -> Text {
        if self.event().is_some() {
            return Text::from("-");
        }
        let outcome = self.text("outcome");
        Text::toned(outcome, tone(outcome))
    }
}

/// The tone of an outcome.
pub(crate) fn tone(outcome: &str) -> Tone {
    match outcome {
        "Placed" => Tone::Good,
        "Unchanged" => Tone::Plain,
        "Partial" => Tone::Warn,
        _ => Tone::Bad,
    }
}

/// Parses an id or id prefix, as `atoll history` prints it.
///
/// # Errors
/// When it is invalid; the text says what is valid.
pub(crate) fn id(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match hex && (MIN_ID..=ID).contains(&text.len()) {
        true => Ok(text.to_lowercase()),
        false => Err(format!("an id has {ID} hex digits; give at least its first {MIN_ID}")),
    }
}

/// Whether this is a complete id.
pub(crate) fn is_whole(id: &str) -> bool {
    id.len() == ID
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_is_shown_as_that() {
        let object = json!({"metadata": {"name": "x"}, "spec": {
            "at": "2026-01-01T00:00:00Z", "unreadable": "column mode: unknown variant `Wild`"}});
        let item = Item(&object);
        assert_eq!(item.reason(), "this row cannot be read: column mode: unknown variant `Wild`");
        assert_eq!((item.change().as_str(), item.workload().as_str()), ("? -> ?", "?"));
        assert_eq!((item.trigger(), item.text("outcome")), ("?", "?"));
    }

    #[test]
    fn ids_may_be_shortened_but_not_to_nothing() {
        assert_eq!(id("ABCD").unwrap(), "abcd");
        for bad in ["abc", "xyz!", "", &"a".repeat(33), "'; DROP TABLE"] {
            assert!(id(bad).unwrap_err().contains("32 hex digits"), "{bad}");
        }
    }
}
