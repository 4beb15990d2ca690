//! The log of a container: its life, and a pattern that repeats while it runs.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{container_names, container_status, spread};
use crate::clock;
use crate::index::fields::{int, list, text, time};
use crate::kubelet::annotations::{LOG, LOG_EVERY, parse_duration};

/// Limit of the lines that a log keeps: like kubelets, which rotate files, it drops the oldest.
pub const MAX_LINES: usize = 10_000;
/// The pattern of Pods without the annotation.
const PATTERN: &str = "request {n} answered by {pod}";
/// Time between two lines of the pattern, unless an annotation says otherwise.
const EVERY: Duration = Duration::from_secs(10);
/// Shortest time between two lines of the pattern: more are of no use to a reader.
const EVERY_LEAST: Duration = Duration::from_millis(10);
/// Limit of a line in bytes.
const LINE: usize = 1024;
/// Limit of the pattern in bytes, before and after names are filled in.
const PATTERN_BYTES: usize = 16 * LINE;

/// Why there is no log. The texts are those of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The Pod has several containers.
    #[error("a container name must be specified for pod {pod}, choose one of: [{containers}]")]
    Choose {
        /// The Pod.
        pod: String,
        /// Its containers.
        containers: String,
    },
    /// There is no such container.
    #[error("container {container} is not valid for pod {pod}")]
    Unknown {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// The container has not started yet.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")]
    Waiting {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
        /// What it waits for.
        reason: String,
    },
    /// The container has not ended before.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
    },
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was written.
    pub at: Timestamp,
    /// The text, without the end of the line.
    pub text: String,
}

/// The part of a log that is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Only lines after this time.
    pub after: Option<Timestamp>,
    /// At most this many, the newest.
    pub tail: Option<usize>,
}

/// The log of one run of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    begin: Timestamp,
    end: Option<Timestamp>,
    /// Lines about the container itself, oldest first.
    life: Vec<Line>,
    pattern: Option<Pattern>,
}

/// Lines that repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    every: Duration,
    /// Time of the first line.
    first: Timestamp,
}

impl Log {
    /// The log of a container of a Pod, or of its run before.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(pod: &Value, container: Option<&str>, previous: bool) -> Result<Self, LogError> {
        let name = text(pod, "/metadata/name").unwrap_or_default();
        let container = chosen(pod, name, container)?;
        let status = container_status(pod, container);
        let (pod_name, container_name) = (name.to_owned(), container.to_owned());
        let run = status.and_then(|status| run(status, previous));
        let Some(run) = run else {
            let (pod, container) = (pod_name, container_name);
            if previous {
                return Err(LogError::NoPrevious { pod, container });
            }
            let reason = status.and_then(|status| text(status, "/state/waiting/reason"));
            let reason = reason.unwrap_or("PodScheduled is not True yet").to_owned();
            return Err(LogError::Waiting { pod, container, reason });
        };
        let begin = time(run, "/startedAt").unwrap_or_default();
        let end = time(run, "/finishedAt");
        let mut life = vec![Line { at: begin, text: started(pod, status, container) }];
        if let Some(ready) = ready_since(pod).filter(|ready| *ready >= begin && end.is_none()) {
            life.push(Line { at: ready, text: "ready".to_owned() });
        }
        if let Some(end) = end {
            let code = int(run, "/exitCode").unwrap_or_default();
            life.push(Line { at: end, text: format!("ends with exit code {code}") });
        }
        let main = list(pod, "/spec/containers");
        let is_main = main.iter().any(|main| text(main, "/name") == Some(container));
        let pattern = is_main.then(|| Pattern::of(pod, container, begin)).flatten();
        Ok(Self { begin, end, life, pattern })
    }

    /// Whether another log is of the same run of the container.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        self.begin == other.begin
    }

    /// Whether the run has ended: there will be no more lines.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The lines until a time, oldest first, at most [`MAX_LINES`].
    #[must_use]
    pub fn lines(&self, until: Timestamp, window: Window) -> Vec<Line> {
        let most = window.tail.unwrap_or(MAX_LINES).min(MAX_LINES);
        let wanted = |at: Timestamp| at <= until && window.after.is_none_or(|after| at > after);
        let mut lines: Vec<Line> =
            self.life.iter().filter(|line| wanted(line.at)).cloned().collect();
        if let Some(pattern) = &self.pattern {
            let last = self.end.map_or(until, |end| end.min(until));
            let to = pattern.count(last);
            let from = window.after.map_or(0, |after| pattern.count(after));
            let from = from.max(to.saturating_sub(most as u64));
            lines.extend((from..to).map(|number| pattern.line(number)));
            // Stable: a line about the container comes before one that it wrote at the same time.
            lines.sort_by_key(|line| line.at);
        }
        let surplus = lines.len().saturating_sub(most);
        lines.drain(..surplus);
        lines
    }

    /// Takes over what is newly known about the same run; returns the lines that are new. Statuses have whole seconds, so
    /// these lines may be older than lines that were returned before.
    pub fn update(&mut self, newer: Self) -> Vec<Line> {
        let known = self.life.len();
        *self = newer;
        self.life.iter().skip(known).cloned().collect()
    }

    /// The lines of the pattern after a time, until another.
    #[must_use]
    pub fn repeated(&self, after: Timestamp, until: Timestamp) -> Vec<Line> {
        let Some(pattern) = &self.pattern else { return Vec::new() };
        let to = pattern.count(self.end.map_or(until, |end| end.min(until)));
        let from = pattern.count(after).max(to.saturating_sub(MAX_LINES as u64));
        (from..to).map(|number| pattern.line(number)).collect()
    }

    /// When the next line of the pattern after a time is due.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let pattern = self.pattern.as_ref().filter(|_| self.end.is_none());
        pattern.map(|pattern| pattern.at(pattern.count(time)))
    }
}

impl Pattern {
    fn of(pod: &Value, container: &str, begin: Timestamp) -> Option<Self> {
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let pattern = annotation(LOG).unwrap_or(PATTERN);
        if pattern.is_empty() {
            return None;
        }
        let every = annotation(LOG_EVERY).and_then(parse_duration).unwrap_or(EVERY);
        let every = every.max(EVERY_LEAST);
        let name = text(pod, "/metadata/name").unwrap_or_default();
        // A line shows LINE bytes of it: what is far behind them costs nothing.
        let pattern = &pattern[..pattern.floor_char_boundary(PATTERN_BYTES)];
        let mut text = pattern.replace("{pod}", name).replace("{container}", container);
        text.truncate(text.floor_char_boundary(PATTERN_BYTES));
        // Pods that start together do not write together.
        let millis = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let offset = spread(&format!("{name}/{container}"), millis);
        let first = clock::after(begin, Duration::from_millis(offset.saturating_add(1)));
        Some(Self { text, every, first })
    }

    /// Lines until a time, inclusive.
    fn count(&self, until: Timestamp) -> u64 {
        let passed = until.as_millisecond() - self.first.as_millisecond();
        let every = i64::try_from(self.every.as_millis()).unwrap_or(i64::MAX);
        u64::try_from(passed.div_euclid(every) + 1).unwrap_or(0)
    }

    fn at(&self, number: u64) -> Timestamp {
        let every = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        clock::after(self.first, Duration::from_millis(every.saturating_mul(number)))
    }

    fn line(&self, number: u64) -> Line {
        let at = self.at(number);
        let text = self.text.replace("{n}", &(number + 1).to_string());
        let mut text = text.replace("{time}", &at.to_string()).replace(['\n', '\r'], " ");
        text.truncate(text.floor_char_boundary(LINE));
        Line { at, text }
    }
}

/// The container that is asked for.
fn chosen<'a>(pod: &'a Value, name: &str, container: Option<&'a str>) -> Result<&'a str, LogError> {
    let Some(container) = container.filter(|container| !container.is_empty()) else {
        let main = list(pod, "/spec/containers");
        let names: Vec<_> = main.iter().filter_map(|main| text(main, "/name")).collect();
        return match names.as_slice() {
            [only] => Ok(only),
            several => {
                let containers = several.join(" ");
                Err(LogError::Choose { pod: name.to_owned(), containers })
            }
        };
    };
    if container_names(pod).any(|known| known == container) {
        return Ok(container);
    }
    Err(LogError::Unknown { pod: name.to_owned(), container: container.to_owned() })
}

/// The state of the run that is asked for. While a container waits for its next start, its last run counts.
fn run(status: &Value, previous: bool) -> Option<&Value> {
    let last = status.pointer("/lastState/terminated");
    if previous {
        return last;
    }
    status.pointer("/state/running").or_else(|| status.pointer("/state/terminated")).or(last)
}

fn started(pod: &Value, status: Option<&Value>, container: &str) -> String {
    let at = |pointer: &str| text(pod, pointer).unwrap_or_default();
    let image = status.and_then(|status| text(status, "/image")).unwrap_or_default();
    format!(
        "container {container} of pod {}/{} starts on node {}, image {image}",
        at("/metadata/namespace"),
        at("/metadata/name"),
        at("/spec/nodeName"),
    )
}

/// Since when the Pod is ready.
fn ready_since(pod: &Value) -> Option<Timestamp> {
    let conditions = list(pod, "/status/conditions").iter();
    let ready = |condition: &&Value| {
        text(condition, "/type") == Some("Ready") && text(condition, "/status") == Some("True")
    };
    conditions.filter(ready).find_map(|condition| time(condition, "/lastTransitionTime"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: &str = "2026-01-01T00:00:00Z";

    fn pod(annotations: Value, status: Value) -> Value {
        json!({
            "metadata": {"name": "web-0", "namespace": "shop", "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "nginx"}]},
            "status": {"containerStatuses": [status]},
        })
    }

    fn running() -> Value {
        json!({"name": "main", "image": "nginx", "state": {"running": {"startedAt": START}}})
    }

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        Timestamp::from_second(start.as_second() + seconds).unwrap()
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_log_is_the_life_of_the_container_and_the_pattern_of_its_pod() {
        let pod = pod(json!({LOG: "GET /{n} from {pod}", LOG_EVERY: "1s"}), running());
        let log = Log::of(&pod, None, false).unwrap();
        let first = "container main of pod shop/web-0 starts on node n1, image nginx";
        let all = log.lines(at(3), Window::default());
        assert_eq!(
            texts(&all),
            [first, "GET /1 from web-0", "GET /2 from web-0", "GET /3 from web-0"]
        );
        assert!(all.is_sorted_by_key(|line| line.at));
        let tail = Window { tail: Some(1), ..Window::default() };
        assert_eq!(texts(&log.lines(at(3), tail)), ["GET /3 from web-0"]);
        assert!(log.lines(at(3), Window { tail: Some(0), ..Window::default() }).is_empty());
        // Following in steps gives each line once.
        let mut followed = log.lines(at(1), Window::default());
        followed.extend(log.repeated(at(1), at(3)));
        assert_eq!(followed, all);
        let next = log.next_after(at(1)).unwrap();
        assert_eq!(log.repeated(at(1), next).len(), 1);
        let after = Window { after: Some(at(1)), tail: None };
        assert_eq!(log.lines(at(3), after), all[2..]);
        // What becomes known later is told once, whatever its time.
        let (mut followed, mut later) = (log.clone(), pod.clone());
        later["status"]["conditions"] =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(2).to_string()}]);
        let later = Log::of(&later, None, false).unwrap();
        assert_eq!(texts(&followed.update(later.clone())), ["ready"]);
        assert!(followed.update(later).is_empty());
        // A year of lines costs no more than the limit.
        assert_eq!(log.lines(at(31_000_000), Window::default()).len(), MAX_LINES);
    }

    #[test]
    fn a_container_that_crashes_has_the_log_of_its_last_run_and_the_one_before() {
        let ended = json!({"terminated": {"exitCode": 3, "startedAt": START, "finishedAt": at(2).to_string()}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let quiet = json!({LOG: ""});
        let crashing =
            json!({"name": "main", "image": "nginx", "state": waiting, "lastState": ended});
        let crashing = pod(quiet.clone(), crashing);
        for previous in [false, true] {
            let log = Log::of(&crashing, None, previous).unwrap();
            assert!(log.has_ended() && log.next_after(at(2)).is_none());
            let lines = log.lines(at(60), Window::default());
            assert_eq!(texts(&lines)[1..], ["ends with exit code 3"]);
        }
        let error = |pod: &Value, container, previous| {
            Log::of(pod, container, previous).unwrap_err().to_string()
        };
        let fresh = json!({"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}});
        let fresh = pod(quiet.clone(), fresh);
        assert!(error(&fresh, None, false).ends_with("is waiting to start: ContainerCreating"));
        assert!(error(&pod(quiet, running()), None, true).contains("previous terminated"));
        assert!(error(&fresh, Some("other"), false).contains("other is not valid for pod web-0"));
        let mut two = fresh;
        two["spec"]["containers"] = json!([{"name": "a"}, {"name": "b"}]);
        assert!(error(&two, None, false).ends_with("choose one of: [a b]"));
    }

    #[test]
    fn patterns_are_bounded_and_stay_on_one_line() {
        let long = format!("{}\n{}", "é".repeat(3000), "{n}");
        let pod = pod(json!({LOG: long, LOG_EVERY: "0s"}), running());
        let log = Log::of(&pod, None, false).unwrap();
        let lines = log.lines(at(1), Window::default());
        assert!(lines.len() > 50 && lines.len() <= 102, "{}", lines.len());
        assert!(lines.iter().all(|line| line.text.len() <= LINE && !line.text.contains('\n')));
        let huge = "{pod}".repeat(50_000);
        let pattern =
            Pattern::of(&self::pod(json!({LOG: huge}), running()), "main", at(0)).unwrap();
        assert!(pattern.text.len() <= PATTERN_BYTES, "{}", pattern.text.len());
    }
}
