//! Annotations with which tests and users control the simulation.
//!
//! On a Pod (or in a workload's pod template):
//!
//! | annotation | value | effect |
//! | --- | --- | --- |
//! | `simulator.atoll.dev/ready-after` | duration | containers need this long to start, in place of the member's setting |
//! | `simulator.atoll.dev/run-for` | duration | containers exit by themselves after this long |
//! | `simulator.atoll.dev/exit-code` | 0 to 255 | code of that exit; default 0 |
//! | `simulator.atoll.dev/stop-after` | duration | containers need this long to stop when the Pod is deleted; never longer than its grace period |
//! | `simulator.atoll.dev/fail` | `pull`, `crash`, `unready`, `exit` | the image cannot be pulled; the containers crash repeatedly; they run but never become ready; they fail once, permanently |
//! | `simulator.atoll.dev/log` | text | a line that running containers write again and again; `{n}`, `{pod}`, `{container}` and `{time}` are replaced; empty: none |
//! | `simulator.atoll.dev/log-every` | duration | time between two such lines; default `10s`, at least `10ms` |
//! | `simulator.atoll.dev/fail-on` | member names, comma separated | limits `fail` to these members |
//!
//! On a Node: `simulator.atoll.dev/down: "true"` switches it off.
//!
//! Durations are whole numbers with a unit: `500ms`, `10s`, `5m`, `1h`. A value that cannot be parsed has no effect and
//! is
//! reported in the Pod's `status.message`. Removing `fail` lets the Pod recover.

use std::time::Duration;

use crate::index::object::Object;

/// How long the containers take to start.
pub const READY_AFTER: &str = "simulator.atoll.dev/ready-after";
/// Run time after which the containers exit.
pub const RUN_FOR: &str = "simulator.atoll.dev/run-for";
/// Exit code of that exit.
pub const EXIT_CODE: &str = "simulator.atoll.dev/exit-code";
/// How long the containers take to stop.
pub const STOP_AFTER: &str = "simulator.atoll.dev/stop-after";
/// The failure to simulate.
pub const FAIL: &str = "simulator.atoll.dev/fail";
/// The members on which it fails.
pub const FAIL_ON: &str = "simulator.atoll.dev/fail-on";
/// The line that running containers write again and again.
pub const LOG: &str = "simulator.atoll.dev/log";
/// Time between two such lines.
pub const LOG_EVERY: &str = "simulator.atoll.dev/log-every";
/// Switches a Node off.
pub const DOWN: &str = "simulator.atoll.dev/down";

/// A simulated failure of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Pull,
    Crash,
    Unready,
    Exit,
}

/// The parsed annotations of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) ready_after: Option<Duration>,
    pub(crate) run_for: Option<Duration>,
    pub(crate) exit_code: u8,
    pub(crate) stop_after: Option<Duration>,
    pub(crate) fault: Option<Fault>,
    /// The values that could not be parsed, as a message for the user.
    pub(crate) complaint: Option<String>,
}

impl Script {
    /// Parses a Pod's annotations for one member.
    pub(crate) fn read(pod: &Object, member: &str) -> Self {
        let mut script = Self::default();
        let mut complaints = Vec::new();
        let mut duration = |key: &str| {
            let text = pod.annotation(key)?;
            let duration = parse_duration(text);
            if duration.is_none() {
                complaints.push(format!(
                    "annotation {key}: {text:?} is no duration such as 500ms, 10s or 5m"
                ));
            }
            duration
        };
        script.ready_after = duration(READY_AFTER);
        script.run_for = duration(RUN_FOR);
        script.stop_after = duration(STOP_AFTER);
        // Read where logs are made; here only its mistakes are reported.
        let _ = duration(LOG_EVERY);
        if let Some(text) = pod.annotation(EXIT_CODE) {
            match text.parse() {
                Ok(code) => script.exit_code = code,
                Err(_) => complaints
                    .push(format!("annotation {EXIT_CODE}: {text:?} is not between 0 and 255")),
            }
        }
        if let Some(text) = pod.annotation(FAIL) {
            match text {
                "pull" => script.fault = Some(Fault::Pull),
                "crash" => script.fault = Some(Fault::Crash),
                "unready" => script.fault = Some(Fault::Unready),
                "exit" => script.fault = Some(Fault::Exit),
                _ => complaints.push(format!(
                    "annotation {FAIL}: {text:?} is none of pull, crash, unready, exit"
                )),
            }
        }
        let here = pod
            .annotation(FAIL_ON)
            .is_none_or(|members| members.split(',').any(|name| name.trim() == member));
        script.fault = script.fault.filter(|_| here);
        script.complaint = (!complaints.is_empty()).then(|| complaints.join("; "));
        script
    }
}

/// Whether a Node is switched off.
pub(crate) fn is_down(node: &Object) -> bool {
    node.annotation(DOWN) == Some("true")
}

pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::kind::Kind;

    fn script(annotations: serde_json::Value) -> Script {
        let pod = json!({"metadata": {"name": "p", "annotations": annotations}});
        Script::read(&Object::new(Kind::Pod, serde_json::from_value(pod).unwrap()), "member1")
    }

    #[test]
    fn annotations_steer_one_member_or_all() {
        assert_eq!(script(json!({FAIL: "crash"})).fault, Some(Fault::Crash));
        assert_eq!(script(json!({FAIL: "crash", FAIL_ON: "member2"})).fault, None);
        let both = script(json!({FAIL: "pull", FAIL_ON: "member2, member1"}));
        assert_eq!(both.fault, Some(Fault::Pull));
        assert_eq!(script(json!({RUN_FOR: "5m"})).run_for, Some(Duration::from_secs(300)));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named() {
        let script = script(json!({READY_AFTER: "soon", FAIL: "sometimes", EXIT_CODE: "256"}));
        let complaint = script.complaint.unwrap();
        for word in ["\"soon\"", "\"sometimes\"", "\"256\""] {
            assert!(complaint.contains(word), "{complaint}");
        }
        assert_eq!((script.ready_after, script.fault, script.exit_code), (None, None, 0));
    }
}
