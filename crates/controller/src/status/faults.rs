//! Events about faults on members, on the template, where users look first.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::binding::AggregatedStatusItem;
use atoll_api::conditions;
use atoll_api::text::counted;

use super::binding::fault;
use crate::env::Env;
use crate::events::{self, Cause, Note, Severity};
use crate::index::Index;
use crate::index::rows::Binding;
use crate::placements::Placements;
use crate::placements::observed::Certainty;

/// Minimum time between Events about the same fault of a workload: kubectl shows Events of the last hour, and a
/// crashing container recovers briefly in between.
const REPEAT: Duration = Duration::from_secs(600);
/// Limit of members named in a message.
const MOST_NAMED: usize = 5;
/// Reasons of failed applies that persist until a person acts.
const NEEDS_A_PERSON: [&str; 6] =
    ["Conflict", "AnotherBinding", "NotOurs", "Invalid", "Forbidden", "KindNotServed"];

/// One reason, and the members that report it.
struct Trouble<'a> {
    clusters: Vec<&'a str>,
    message: &'a str,
}

/// The status of a binding was written; `before` was the previous one. Publishes its faults as Events on the
/// template, one per reason for all members.
pub(crate) fn publish(env: &Env, index: &Index, placements: &Placements, before: &Binding) {
    let Some(row) = index.binding(&before.key) else { return };
    let mut troubles: BTreeMap<&str, Trouble<'_>> = BTreeMap::new();
    let mut add = |reason, cluster, message| {
        let trouble =
            troubles.entry(reason).or_insert_with(|| Trouble { clusters: Vec::new(), message });
        trouble.clusters.push(cluster);
    };
    let status = row.status.read();
    for item in &status.aggregated_status {
        if let Some((reason, message)) = fault(item) {
            add(reason, item.cluster_name.as_str(), message);
        }
    }
    for (cluster, observed) in placements.all_observed(&row.key) {
        let trouble = observed.trouble.as_ref().filter(|_| observed.certainty == Certainty::Fresh);
        if let Some(trouble) =
            trouble.filter(|trouble| NEEDS_A_PERSON.contains(&trouble.reason.as_str()))
        {
            add(trouble.reason.as_str(), cluster.as_str(), trouble.message.as_str());
        }
    }
    for (reason, trouble) in &troubles {
        let first = trouble.clusters.first().copied().unwrap_or_default();
        let message = match (*reason, trouble.clusters.len() - 1) {
            // Its message is about one member's object: another member's has other owners.
            ("Conflict", others) if others > 0 => {
                let others = counted(others, "other member");
                format!("on {first}: {}; also on {others}", trouble.message)
            }
            _ => format!("on {}: {}", named(&trouble.clusters), trouble.message),
        };
        let cause = Cause { key: format!("{reason} {first}"), words: "with the same trouble" };
        notify(env, row, reason, message, Severity::Warning, Some(cause));
    }
    let was_at_fault = before
        .status
        .read()
        .aggregated_status
        .iter()
        .any(|item: &AggregatedStatusItem| fault(item).is_some());
    if was_at_fault && conditions::is_true(&status.conditions, conditions::HEALTHY) {
        let message = "healthy on every member again".to_owned();
        notify(env, row, "Healthy", message, Severity::Normal, None);
    }
}

fn notify(
    env: &Env,
    row: &Binding,
    reason: &str,
    message: String,
    severity: Severity,
    cause: Option<Cause>,
) {
    let at = env.clock.now_seconds();
    env.notes.post(Note {
        about: row.spec.resource.clone(),
        id: events::id(&[&row.uid, reason, &at.to_string()]),
        reason: reason.to_owned(),
        message,
        severity,
        at,
        cause,
        repeat_after: Some(REPEAT),
    });
}

/// The first few of these members, and the number of others.
fn named(clusters: &[&str]) -> String {
    let mut text = clusters.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    if clusters.len() > MOST_NAMED {
        text.push_str(&format!(" and {} more", clusters.len() - MOST_NAMED));
    }
    text
}
