//! Checks a placement against the existing clusters.

use std::collections::BTreeSet;

use atoll_api::placement::{ClusterAffinity, Placement, SpreadField, WhenUnsatisfiable};

use atoll_api::text::counted;

use super::Page;
use crate::state::affinity;
use crate::state::row::Row;

const FIELD: &str = "spec.placement";

/// The clusters that an affinity selects.
pub(super) fn matching<'a>(affinity: &ClusterAffinity, rows: &'a [Row]) -> Vec<&'a Row> {
    rows.iter().filter(|row| affinity::matches(affinity, row).is_ok()).collect()
}

/// The clusters that a placement may use, over all terms and tiers.
pub(super) fn candidates<'a>(placement: &Placement, rows: &'a [Row]) -> Vec<&'a Row> {
    let terms = placement.cluster_affinities.iter().flatten();
    let mut choices: Vec<&ClusterAffinity> = terms
        .flat_map(|term| {
            std::iter::once(&term.affinity)
                .chain(term.overflow_affinities.iter().map(|o| &o.affinity))
        })
        .collect();
    choices.extend(&placement.cluster_affinity);
    if choices.is_empty() {
        return rows.iter().collect();
    }
    let chosen = |row: &&Row| choices.iter().any(|one| affinity::matches(one, row).is_ok());
    rows.iter().filter(chosen).collect()
}

/// The clusters that a placement names, each with its field. Names in `exclude` need not exist.
#[must_use]
pub fn named_clusters(placement: &Placement) -> Vec<(String, &str)> {
    let mut choices: Vec<(String, &ClusterAffinity)> = Vec::new();
    if let Some(affinity) = &placement.cluster_affinity {
        choices.push((format!("{FIELD}.clusterAffinity"), affinity));
    }
    for (at, term) in placement.cluster_affinities.iter().flatten().enumerate() {
        let field = format!("{FIELD}.clusterAffinities[{at}]");
        let tiers = term.overflow_affinities.iter().enumerate();
        let tiers = tiers.map(|(tier, overflow)| {
            (format!("{field}.overflowAffinities[{tier}]"), &overflow.affinity)
        });
        choices.push((field.clone(), &term.affinity));
        choices.extend(tiers);
    }
    if let Some(scheduling) = &placement.replica_scheduling {
        let field = format!("{FIELD}.replicaScheduling");
        let weights = scheduling.weight_preference.iter().flat_map(|w| &w.static_weight_list);
        choices.extend(weights.enumerate().map(|(at, rule)| {
            let list = format!("{field}.weightPreference.staticWeightList[{at}]");
            (format!("{list}.targetCluster"), &rule.target_cluster)
        }));
        choices.extend(scheduling.bounds.iter().enumerate().map(|(at, bound)| {
            (format!("{field}.bounds[{at}].targetCluster"), &bound.target_cluster)
        }));
    }
    let named = choices.into_iter().flat_map(|(field, affinity)| {
        let names = affinity.cluster_names.iter();
        names.map(move |name| (format!("{field}.clusterNames"), name.as_str()))
    });
    named.collect()
}

pub(super) fn placement(page: &mut Page, placement: &Placement, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    if let Some(affinity) = &placement.cluster_affinity {
        choice(page, &format!("{FIELD}.clusterAffinity"), affinity, rows, true);
    }
    for (at, term) in placement.cluster_affinities.iter().flatten().enumerate() {
        let field = format!("{FIELD}.clusterAffinities[{at}]");
        choice(page, &field, &term.affinity, rows, false);
        for (tier, overflow) in term.overflow_affinities.iter().enumerate() {
            let field = format!("{field}.overflowAffinities[{tier}]");
            choice(page, &field, &overflow.affinity, rows, false);
        }
    }
    let candidates = candidates(placement, rows);
    if candidates.is_empty() && placement.cluster_affinities.is_some() {
        let problem = format!("no term matches any of the {} clusters", rows.len());
        page.error(format!("{FIELD}.clusterAffinities"), problem, "let a term match one of them");
    }
    groups(page, placement, &candidates);
    let Some(scheduling) = &placement.replica_scheduling else { return };
    let field = format!("{FIELD}.replicaScheduling");
    let weights = scheduling.weight_preference.iter().flat_map(|w| &w.static_weight_list);
    let weights: Vec<_> = weights.collect();
    for (at, rule) in weights.iter().enumerate() {
        let field = format!("{field}.weightPreference.staticWeightList[{at}]");
        let own = matching(&rule.target_cluster, rows);
        let shadowed = |row: &&Row| {
            weights.iter().enumerate().any(|(other, stronger)| {
                other != at
                    && stronger.weight > rule.weight
                    && affinity::matches(&stronger.target_cluster, row).is_ok()
            })
        };
        if own.is_empty() {
            let problem = format!("matches none of the {} clusters", rows.len());
            page.warning(format!("{field}.targetCluster"), problem, "name existing clusters");
        } else if own.iter().all(shadowed) {
            let problem = "is shadowed: each of its clusters has a larger weight by another rule";
            page.warning(field, problem, "remove it or give it the larger weight");
        }
    }
    for (at, bound) in scheduling.bounds.iter().enumerate() {
        if !matching(&bound.target_cluster, rows).is_empty() {
            continue;
        }
        let field = format!("{field}.bounds[{at}].targetCluster");
        let problem = format!("matches none of the {} clusters", rows.len());
        if bound.min.is_some_and(|min| min > 0) {
            page.error(field, format!("{problem}, but sets a min"), "name existing clusters");
        } else {
            page.warning(field, problem, "name existing clusters");
        }
    }
}

fn choice(page: &mut Page, field: &str, affinity: &ClusterAffinity, rows: &[Row], only_one: bool) {
    for name in &affinity.cluster_names {
        if !rows.iter().any(|row| *row.name == **name) {
            let problem = format!("there is no Cluster {name:?}");
            page.warning(
                format!("{field}.clusterNames"),
                problem,
                "correct the name or register it",
            );
        }
    }
    if matching(affinity, rows).is_empty() {
        let problem = format!("matches none of the {} clusters", rows.len());
        let fix = "correct the selector, or label the intended clusters";
        if only_one { page.error(field, problem, fix) } else { page.warning(field, problem, fix) }
    }
}

/// Number of groups among the candidates for a key.
fn count(candidates: &[&Row], key: &str) -> usize {
    candidates.iter().filter_map(|row| row.domain(key)).collect::<BTreeSet<_>>().len()
}

fn groups(page: &mut Page, placement: &Placement, candidates: &[&Row]) {
    for (at, constraint) in placement.spread_constraints.iter().enumerate() {
        let key = match (constraint.spread_by_field, &constraint.spread_by_label) {
            (Some(SpreadField::Cluster), _) => "cluster",
            (Some(SpreadField::Region), _) => "region",
            (Some(SpreadField::Zone), _) => "zone",
            (Some(SpreadField::Provider), _) => "provider",
            (None, Some(label)) => label.as_str(),
            (None, None) => continue,
        };
        let have = count(candidates, key);
        let want = constraint.min_groups.unwrap_or(1);
        if usize::try_from(want).is_ok_and(|want| want > have) {
            let field = format!("{FIELD}.spreadConstraints[{at}].minGroups");
            let problem =
                format!("{want} groups by {key} are required, but the clusters form {have}");
            page.error(field, problem, "lower it, or let the placement choose more clusters");
        }
    }
    for (at, constraint) in placement.topology_spread_constraints.iter().enumerate() {
        let field = format!("{FIELD}.topologySpreadConstraints[{at}]");
        let have = count(candidates, &constraint.topology_key);
        if have == 0 && !candidates.is_empty() {
            let problem =
                format!("no cluster that can be selected has {:?}", constraint.topology_key);
            let fix = "correct the key or label the clusters";
            let field = format!("{field}.topologyKey");
            if constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule {
                page.error(field, problem, fix);
            } else {
                page.warning(field, problem, fix);
            }
        } else if constraint
            .min_domains
            .is_some_and(|min| i64::try_from(have).is_ok_and(|h| h < min))
        {
            let problem = format!(
                "is above the {} that exist: each gets at most maxSkew replicas",
                counted(have, "domain")
            );
            page.warning(format!("{field}.minDomains"), problem, "lower it or add clusters");
        }
    }
}
