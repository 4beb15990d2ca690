//! Carries parts of a workload's status from the cluster where it failed to the new targets: `statePreservation`, as in
//! Karmada.

use std::collections::BTreeMap;

use atoll_api::binding::{PreservedState, TargetCluster, Trigger};
use atoll_api::names;
use atoll_api::policy::{StatePreservation, StatePreservationRule};
use serde_json::Value;

use crate::plugins::application_health;
use crate::request::Request;
use atoll_decision::Shares;

/// The preserved state of a decision. A failover of the application or of its cluster creates it, if the policy has
/// rules for that. Otherwise the previous state stays, as long as one of the clusters that have it is a target. Also returns a note for every rule that found no value.
#[must_use]
pub fn carry(
    request: &Request,
    trigger: Trigger,
    before: &[TargetCluster],
    after: &Shares,
) -> (Option<PreservedState>, Vec<String>) {
    let left = match trigger {
        Trigger::ApplicationFailure => left_by_application(request, before, after),
        Trigger::Failover | Trigger::OutsideClusterSet => left_by_cluster(request, before, after),
        _ => None,
    };
    if let Some((from, rules)) = left {
        let (state, notes) = anew(request, from, rules, before, after);
        return (Some(state), notes);
    }
    let held = request.previous.as_ref().and_then(|previous| previous.preserved.clone());
    let held = held.filter(|held| after.iter().any(|target| held.clusters.contains(&target.name)));
    (held, Vec::new())
}

fn has(list: &[TargetCluster], name: &str) -> bool {
    list.iter().any(|target| target.name == name)
}

/// The target that an unhealthy application left, and the rules for that.
fn left_by_application<'a>(
    request: &'a Request,
    before: &'a [TargetCluster],
    after: &Shares,
) -> Option<(&'a TargetCluster, &'a StatePreservation)> {
    let rules = application_health::rules(request)?;
    let from = before.iter().find(|target| {
        let end = application_health::tolerated_until(request, rules, &target.name);
        end.is_some_and(|end| end <= request.now) && !has(after, &target.name)
    })?;
    Some((from, rules.state_preservation.as_ref()?))
}

/// The target that the workload left because of its cluster, and the rules for that. Nothing is carried to no cluster.
fn left_by_cluster<'a>(
    request: &'a Request,
    before: &'a [TargetCluster],
    after: &Shares,
) -> Option<(&'a TargetCluster, &'a StatePreservation)> {
    let rules = request.failover.as_ref()?.cluster.as_ref()?.state_preservation.as_ref()?;
    let from = before.iter().find(|target| !has(after, &target.name))?;
    after.iter().any(|target| !has(before, &target.name)).then_some((from, rules))
}

fn anew(
    request: &Request,
    from: &TargetCluster,
    rules: &StatePreservation,
    before: &[TargetCluster],
    after: &Shares,
) -> (PreservedState, Vec<String>) {
    let status = request.reports.get(from.name.as_str()).and_then(|report| report.status.as_ref());
    let (mut labels, mut notes) = (BTreeMap::new(), Vec::new());
    for rule in &rules.rules {
        match value(rule, status) {
            Ok(value) => {
                labels.insert(rule.alias_label_name.clone(), value);
            }
            Err(problem) => notes.push(format!(
                "statePreservation: {} of {}: {problem}",
                rule.alias_label_name, from.name
            )),
        }
    }
    let clusters = after.iter().filter(|target| !has(before, &target.name));
    let clusters: Vec<String> = clusters.map(|target| target.name.clone()).collect();
    (PreservedState { from_cluster: from.name.clone(), clusters, labels }, notes)
}

fn value(rule: &StatePreservationRule, status: Option<&Value>) -> Result<String, String> {
    if let Some(problem) = names::label_key_problem(&rule.alias_label_name) {
        return Err(format!("is not a label key: {problem}"));
    }
    let status = status.ok_or("the member has reported no status")?;
    let path = parse(&rule.json_path).map_err(|error| format!("jsonPath {error}"))?;
    let mut value = status;
    for step in &path {
        let next = match step {
            Step::Field(name) => value.get(name),
            Step::Index(at) => value.get(at),
        };
        value = next.ok_or_else(|| format!("its status has no {}", rule.json_path))?;
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(format!("{} is not a text, number or boolean", rule.json_path));
        }
    };
    let fits = names::is_label_value(&text);
    fits.then_some(text)
        .ok_or_else(|| format!("the value of {} is not a label value", rule.json_path))
}

/// One step of a path.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// A field of an object.
    Field(String),
    /// An index into a list.
    Index(usize),
}

/// Why a path is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path:?} cannot be read at character {at} ({rest:?}): it must be fields and indices, for example {{.jobs[0].id}}"
)]
pub struct PathError {
    path: String,
    /// Position of the error; the first character is 1.
    at: usize,
    rest: String,
}

/// Parses `{.a.b[0].c}`: fields and indices. Other kubectl syntax does not select a single value.
///
/// # Errors
/// The position of the first character that does not fit.
pub fn parse(text: &str) -> Result<Vec<Step>, PathError> {
    let inner = text.trim();
    let body = inner.strip_prefix('{').map_or(Some(inner), |rest| rest.strip_suffix('}'));
    // Offset of the remaining text: every step removes text only from the front.
    let begin = text.len() - text.trim_start().len() + usize::from(inner.starts_with('{'));
    let whole = body.unwrap_or(inner);
    let bad = |rest: &str| {
        let read = begin + whole.len().saturating_sub(rest.len());
        let read = text.get(..read).unwrap_or(text);
        PathError {
            path: text.to_owned(),
            at: read.chars().count() + 1,
            rest: rest.trim_end().to_owned(),
        }
    };
    if body.is_none() {
        return Err(PathError { at: text.chars().count() + 1, ..bad("") });
    }
    let end = whole.trim_end();
    let tail = whole.len() - end.len();
    let bad = |rest: &str| bad(&whole[whole.len() - tail - rest.len()..]);
    let mut rest = end.trim_start();
    rest = rest.strip_prefix('$').unwrap_or(rest);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let (inside, tail) = tail.split_once(']').ok_or_else(|| bad(rest))?;
            let quoted = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
            steps.push(match quoted {
                Some(name) if !name.is_empty() => Step::Field(name.to_owned()),
                Some(_) => return Err(bad(rest)),
                None => Step::Index(inside.parse().map_err(|_| bad(rest))?),
            });
            rest = tail;
        } else {
            let tail = rest.strip_prefix('.').ok_or_else(|| bad(rest))?;
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let name = &tail[..end];
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '/');
            if name.is_empty() {
                return Err(bad(rest));
            }
            if let Some(odd) = name.find(|c| !plain(c)) {
                return Err(bad(&tail[odd..]));
            }
            steps.push(Step::Field(name.to_owned()));
            rest = &tail[end..];
        }
    }
    if steps.is_empty() { Err(bad(rest)) } else { Ok(steps) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(path: &str, status: &Value) -> Result<String, String> {
        let rule =
            StatePreservationRule { alias_label_name: "state".into(), json_path: path.into() };
        value(&rule, Some(status))
    }

    #[test]
    fn a_path_of_fields_and_indices_finds_a_label_value() {
        let status = json!({"jobStatus": {"jobID": "a1-b2"}, "n": 3, "ok": true, "list": [{"x": "y"}], "long": "a b"});
        assert_eq!(of("{.jobStatus.jobID}", &status), Ok("a1-b2".into()));
        assert_eq!(of(".n", &status), Ok("3".into()));
        assert_eq!(of("{ $.ok }", &status), Ok("true".into()));
        assert_eq!(of("{.list[0]['x']}", &status), Ok("y".into()));
        assert!(of("{.missing}", &status).unwrap_err().contains("has no"));
        assert!(of("{.list}", &status).unwrap_err().contains("not a text"));
        assert!(of("{.long}", &status).unwrap_err().contains("not a label value"));
        for wrong in ["", "{}", "{.a", "{..a}", "{.a[*]}", "{.a[?(@.b)]}", "a b", "{.a}{.b}"] {
            assert!(of(wrong, &status).unwrap_err().contains("jsonPath"), "{wrong}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_read_is_refused_at_its_place() {
        for (path, at, rest) in [
            ("", 1, ""),
            ("{}", 2, ""),
            ("{.a", 4, ""),
            ("{..a}", 2, "..a"),
            (" { .a[*].b }", 6, "[*].b"),
            ("{.jobs[?(@.ok)]}", 7, "[?(@.ok)]"),
            ("{.größe x}", 8, " x"),
            ("{.a}{.b}", 4, "}{.b"),
            ("a.b", 1, "a.b"),
        ] {
            let error = parse(path).unwrap_err();
            assert_eq!((error.at, error.rest.as_str()), (at, rest), "{path}: {error}");
        }
    }

    #[test]
    fn a_label_that_cannot_be_set_is_left_out_with_a_note() {
        let rule = StatePreservationRule {
            alias_label_name: "job id".into(),
            json_path: "{.jobID}".into(),
        };
        let problem = value(&rule, Some(&json!({"jobID": "j-17"}))).unwrap_err();
        assert!(problem.contains("not a label key"), "{problem}");
    }
}
