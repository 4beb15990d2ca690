//! Statuses of third-party kinds over several members.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{path, rules, table::Phase};
use crate::{
    kinds::{self, Member},
    read::{at, text},
};

/// The status of the template; `None` for other kinds. The status of a single member is taken as it is. Over several
/// members counts add up, phases and conditions are merged, and other fields stay if all members agree on them.
pub(crate) fn aggregate(
    template: &Value,
    members: &[Member<'_>],
    old: &Value,
) -> Option<Map<String, Value>> {
    let rules = rules(template)?;
    let mut status = kinds::aggregate_unknown(members, old);
    if members.len() == 1 {
        return Some(status);
    }
    for (field, value) in agreed(members) {
        status.entry(field).or_insert(value);
    }
    let mut sums: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for reported in members.iter().filter_map(|member| member.status) {
        for (names, count) in rules.counts.iter().flat_map(|counts| path::ints(reported, counts)) {
            let sum = sums.entry(names).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    for (names, sum) in sums {
        set(&mut status, &names, json!(sum));
    }
    if let Some(phase) = &rules.phase
        && let Some(word) = worst(phase, members)
    {
        let names: Vec<String> = phase.path.iter().map(|name| (*name).to_owned()).collect();
        set(&mut status, &names, json!(word));
    }
    Some(status)
}

/// Fields with the same value on all members, without those that count or that belong to one cluster.
fn agreed(members: &[Member<'_>]) -> Vec<(String, Value)> {
    let mut statuses = members.iter().map(|member| member.status.and_then(Value::as_object));
    let Some(Some(first)) = statuses.next() else { return Vec::new() };
    let others: Option<Vec<&Map<String, Value>>> = statuses.collect();
    let Some(others) = others else { return Vec::new() };
    let shared = first.iter().filter(|(field, value)| {
        !matches!(field.as_str(), "observedGeneration" | "conditions")
            && !value.is_number()
            && others.iter().all(|other| other.get(*field) == Some(value))
    });
    shared.map(|(field, value)| (field.clone(), value.clone())).collect()
}

fn worst(phase: &Phase, members: &[Member<'_>]) -> Option<&'static str> {
    let words: Vec<&str> = members
        .iter()
        .map(|member| match member.status {
            Some(status) if at(status, phase.path).is_some() => text(status, phase.path),
            _ => phase.waiting,
        })
        .collect();
    phase.order.iter().copied().find(|word| words.contains(word))
}

fn set(status: &mut Map<String, Value>, names: &[String], value: Value) {
    let [first, rest @ ..] = names else { return };
    if rest.is_empty() {
        status.insert(first.clone(), value);
        return;
    }
    let child = status.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    if let Some(child) = child.as_object_mut() {
        set(child, rest, value);
    }
}
