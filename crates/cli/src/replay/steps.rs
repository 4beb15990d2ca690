//! One decision, plugin by plugin.

use std::collections::BTreeSet;

use atoll_decision::{ClusterOutcome, Decision, Verdict};
use atoll_history::api::text;
use atoll_scheduler::Profiles;
use atoll_scheduler::framework::plugin::Point;
use atoll_scheduler::replay::Restored;

use crate::print::Printer;

pub(super) fn print(
    decision: &Decision,
    inputs: &Restored,
    profiles: &Profiles,
    out: &Printer,
) -> anyhow::Result<()> {
    let at = |point: Point| -> Vec<&'static str> {
        let profile = profiles.get(&inputs.request.scheduler_name);
        profile.into_iter().flat_map(|profile| profile.core(point).map(|(of, _)| of.name)).collect()
    };
    lines(decision, inputs.snapshot.len(), &at).iter().try_for_each(|line| out.line(line))
}

fn lines(
    decision: &Decision,
    clusters: usize,
    at: &dyn Fn(Point) -> Vec<&'static str>,
) -> Vec<String> {
    let mut lines = vec![format!(
        "Decision of {} on {}, profile {}, {clusters} clusters",
        decision.now, decision.binding, decision.profile
    )];
    lines.push("\n1. Triggers".to_owned());
    for check in &decision.triggers {
        let state = match (check.holds, check.allowed) {
            (true, true) => "holds",
            (true, false) => "holds, but rescheduleOn does not allow it",
            (false, _) => "does not hold",
        };
        let why = if check.why.is_empty() { String::new() } else { format!(": {}", check.why) };
        lines.push(format!("   {} {state}{why}", check.trigger));
    }
    lines.push(format!("   -> {} in mode {}", decision.trigger, decision.mode));
    lines.push("\n2. Filter".to_owned());
    let enabled = at(Point::Filter);
    let always: BTreeSet<&str> = decision
        .verdicts
        .iter()
        .flat_map(|verdict| verdict.rejections.iter().map(|rejection| &*rejection.plugin))
        .filter(|plugin| !enabled.contains(plugin))
        .collect();
    for plugin in enabled.into_iter().chain(always) {
        lines.push(format!("   {plugin}"));
        lines.extend(rejected(decision, plugin));
    }
    lines.push("\n3. Score".to_owned());
    for plugin in at(Point::Score) {
        let scores = scores(decision, plugin);
        let scores = if scores.is_empty() { "skipped".to_owned() } else { scores.join(", ") };
        lines.push(format!("   {plugin}: {scores}"));
    }
    lines.push(format!("\n4. Select ({})", at(Point::Select).join(", ")));
    for (outcome, word) in [
        (ClusterOutcome::Selected, "selected"),
        (ClusterOutcome::Kept, "kept"),
        (ClusterOutcome::NotSelected, "not selected"),
    ] {
        let of = decision.verdicts.iter().filter(|verdict| verdict.outcome == outcome);
        let names: Vec<String> = of.flat_map(names).collect();
        if !names.is_empty() {
            lines.push(format!("   {word}: {}", names.join(", ")));
        }
    }
    lines.push(format!("\n5. Assign: {}", decision.strategy));
    for group in &decision.groups {
        let target = group.target.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
        lines.push(format!("   {}: {} of {target}", group.name, group.assigned));
    }
    for verdict in decision.verdicts.iter().filter(|verdict| !verdict.capacity.is_empty()) {
        for (at, name) in verdict.clusters.iter().enumerate() {
            let room = verdict.capacity.get(at).map_or("unknown".to_owned(), |n| n.to_string());
            lines.push(format!("   room on {name}: {room}"));
        }
    }
    lines.push(format!("   {}", text::change(Some(decision.before()), decision.clusters())));
    for pending in &decision.pending {
        lines.push(format!("   pending: {} ({})", pending.replicas, pending.reason));
    }
    lines.push("\n6. Leave".to_owned());
    for task in decision.evictions() {
        lines.push(format!("   {} replicas leave {}", task.replicas, task.from_cluster));
    }
    if decision.evictions().is_empty() {
        lines.push("   nothing".to_owned());
    }
    lines.extend(decision.notes.iter().map(|note| format!("   note: {note}")));
    let reason =
        if decision.reason.is_empty() { String::new() } else { format!(": {}", decision.reason) };
    lines.push(format!("\nOutcome {}{reason}\n", decision.outcome));
    lines
}

fn names(verdict: &Verdict) -> impl Iterator<Item = String> + '_ {
    verdict.clusters.iter().map(ToString::to_string)
}

fn rejected(decision: &Decision, plugin: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for verdict in &decision.verdicts {
        for rejection in verdict.rejections.iter().filter(|of| of.plugin == plugin) {
            let names: Vec<String> = names(verdict).collect();
            let kept = if verdict.outcome == ClusterOutcome::Kept { " (kept)" } else { "" };
            lines.push(format!("     rejects {}{kept}: {}", names.join(", "), rejection.reason));
        }
    }
    if lines.is_empty() {
        lines.push("     rejects none".to_owned());
    }
    lines
}

fn scores(decision: &Decision, plugin: &str) -> Vec<String> {
    let mut scores = Vec::new();
    for verdict in &decision.verdicts {
        let Some(column) = verdict.scores.get(plugin) else { continue };
        for (at, name) in verdict.clusters.iter().enumerate() {
            if let Some(score) = column.get(at) {
                scores.push(format!("{name} {score}"));
            }
        }
    }
    scores.sort();
    scores
}
