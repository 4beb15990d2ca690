//! Turns decisions into spans: the replicas of each member over time.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::TargetCluster;
use atoll_history::api::text;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::read::item::Item;

/// Where a workload ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    pub(crate) workload: String,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// By name.
    pub(crate) members: Vec<Member>,
    /// Oldest first.
    pub(crate) decisions: Vec<Mark>,
    /// Older decisions were left out.
    pub(crate) truncated: bool,
}

/// One member that had a share at some time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    pub(crate) name: String,
    /// In time order; between spans the member had no share.
    pub(crate) spans: Vec<Span>,
}

/// A period with an unchanged share.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// `null`: unknown. 0 for a kind without replicas.
    pub(crate) replicas: Option<i64>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mark {
    pub(crate) at: Timestamp,
    pub(crate) id: String,
    pub(crate) trigger: String,
    pub(crate) outcome: String,
    pub(crate) change: String,
    pub(crate) reason: String,
    pub(crate) unreadable: bool,
    /// What followed the decision, if observed.
    pub(crate) status: Value,
    /// Time until every member was healthy; `-` if unknown.
    #[serde(skip)]
    pub(crate) healthy: String,
}

/// Shares by member; `None` if unknown.
type Shares = Option<BTreeMap<String, i64>>;

fn shares(list: Option<Vec<TargetCluster>>) -> Shares {
    Some(list?.into_iter().map(|share| (share.name, share.replicas)).collect())
}

impl Timeline {
    /// Builds the timeline from decisions, newest first, and the last one before them. Without `since` it starts at the
    /// first.
    pub(crate) fn new(
        workload: String,
        newest_first: &[Value],
        earlier: Option<&Value>,
        since: Option<Timestamp>,
        until: Timestamp,
    ) -> Self {
        let items: Vec<(Timestamp, Item<'_>)> = newest_first
            .iter()
            .rev()
            .filter_map(|value| Some((Item(value).at()?, Item(value))))
            .collect();
        let first = items.first().map(|(at, _)| *at);
        let from = since.or(first).unwrap_or(until);
        // If a decision does not record its result, the next one records what it started from.
        let found = |index: usize| items.get(index).and_then(|(_, item)| shares(item.before()));
        let mut spans = Spans::default();
        let at_start = earlier.and_then(|item| shares(Item(item).after())).or_else(|| found(0));
        spans.set(from, at_start);
        for (index, (at, item)) in items.iter().enumerate() {
            spans.set((*at).max(from), shares(item.after()).or_else(|| found(index + 1)));
        }
        let mark = |(at, item): &(Timestamp, Item<'_>)| Mark {
            at: *at,
            id: item.id().to_owned(),
            trigger: item.text("trigger").to_owned(),
            outcome: item.text("outcome").to_owned(),
            change: item.change(),
            reason: item.reason(),
            unreadable: item.unreadable().is_some(),
            status: item.0["status"].clone(),
            healthy: text::took(item.0, "healthy"),
        };
        Self {
            workload,
            from,
            until,
            members: spans.end(until),
            decisions: items.iter().map(mark).collect(),
            truncated: false,
        }
    }
}

/// Shares over time.
#[derive(Default)]
struct Spans {
    steps: Vec<(Timestamp, Shares)>,
}

impl Spans {
    fn set(&mut self, at: Timestamp, shares: Shares) {
        // Of several at the same moment, the last one counts.
        if self.steps.last().is_some_and(|(last, _)| *last == at) {
            self.steps.pop();
        }
        self.steps.push((at, shares));
    }

    fn end(self, until: Timestamp) -> Vec<Member> {
        let names: BTreeSet<&String> = self
            .steps
            .iter()
            .filter_map(|(_, shares)| shares.as_ref())
            .flat_map(BTreeMap::keys)
            .collect();
        let of = |name: &String| {
            let mut spans: Vec<Span> = Vec::new();
            for (index, (from, shares)) in self.steps.iter().enumerate() {
                let end = self.steps.get(index + 1).map_or(until, |(next, _)| *next);
                let replicas = match shares {
                    Some(shares) => match shares.get(name) {
                        Some(replicas) => Some(*replicas),
                        None => continue,
                    },
                    None => None,
                };
                match spans.last_mut() {
                    Some(last) if last.until == *from && last.replicas == replicas => {
                        last.until = end
                    }
                    _ => spans.push(Span { from: *from, until: end, replicas }),
                }
            }
            spans
        };
        names.into_iter().map(|name| Member { name: name.clone(), spans: of(name) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn item(second: i64, before: Value, after: Value) -> Value {
        json!({"metadata": {"name": format!("id{second}")}, "spec": {
            "at": at(second).to_string(), "trigger": "Scale", "outcome": "Placed", "reason": "r",
            "before": before, "after": after,
        }})
    }

    fn share(name: &str, replicas: i64) -> Value {
        json!({"name": name, "replicas": replicas})
    }

    fn spans(timeline: &Timeline, member: &str) -> Vec<(i64, i64, Option<i64>)> {
        let member = timeline.members.iter().find(|m| m.name == member).unwrap();
        let numbers = |span: &Span| (span.from.as_second(), span.until.as_second(), span.replicas);
        member.spans.iter().map(numbers).collect()
    }

    #[test]
    fn shares_last_until_the_next_decision() {
        let first = item(10, json!([]), json!([share("a", 2), share("b", 1)]));
        let second = item(20, json!([share("a", 2), share("b", 1)]), json!([share("a", 5)]));
        let third = item(30, json!([share("a", 5)]), json!([share("a", 5), share("b", 3)]));
        let newest_first = [third, second, first];
        let all = Timeline::new("w".into(), &newest_first, None, None, at(40));
        assert_eq!((all.from, all.until), (at(10), at(40)));
        assert_eq!(spans(&all, "a"), [(10, 20, Some(2)), (20, 40, Some(5))]);
        assert_eq!(spans(&all, "b"), [(10, 20, Some(1)), (30, 40, Some(3))]);
        let part = Timeline::new(
            "w".into(),
            &newest_first[..1],
            Some(&newest_first[1]),
            Some(at(25)),
            at(40),
        );
        assert_eq!(spans(&part, "a"), [(25, 40, Some(5))]);
        assert_eq!(spans(&part, "b"), [(30, 40, Some(3))]);
    }

    #[test]
    fn what_nobody_can_read_is_unknown_unless_the_next_one_tells() {
        let first = item(10, json!([]), json!([share("a", 2)]));
        let mut lost = json!({"metadata": {"name": "x"}, "spec": {"at": at(20).to_string(), "unreadable": "why"}});
        let told = item(30, json!([share("a", 3)]), json!([share("a", 4)]));
        let timeline =
            Timeline::new("w".into(), &[told, lost.clone(), first.clone()], None, None, at(40));
        assert_eq!(
            spans(&timeline, "a"),
            [(10, 20, Some(2)), (20, 30, Some(3)), (30, 40, Some(4))]
        );
        lost["spec"]["at"] = json!(at(21).to_string());
        let timeline = Timeline::new("w".into(), &[lost, first], None, None, at(40));
        assert_eq!(spans(&timeline, "a"), [(10, 21, Some(2)), (21, 40, None)]);
        assert!(timeline.decisions[1].unreadable);
    }
}
