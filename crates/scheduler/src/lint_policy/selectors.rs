//! Finds selectors that no object can satisfy.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::placement::{ClusterAffinity, ClusterField, FieldOperator};
use atoll_api::selector::{Requirement, Selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Page;

/// The values of one key that the requirements allow.
#[derive(Default)]
struct Left<'a> {
    values: Option<BTreeSet<&'a str>>,
    never: BTreeSet<&'a str>,
    present: bool,
    absent: bool,
}

/// Why no labels can satisfy all requirements.
pub(super) fn contradiction(requirements: &[Requirement]) -> Option<String> {
    let mut keys: BTreeMap<&str, Left<'_>> = BTreeMap::new();
    for requirement in requirements {
        let left = keys.entry(requirement.key()).or_default();
        match requirement {
            Requirement::In(_, values) => {
                let values = values.iter().map(String::as_str).collect();
                left.values = Some(match left.values.take() {
                    Some(before) => before.intersection(&values).copied().collect(),
                    None => values,
                });
            }
            Requirement::NotIn(_, values) => left.never.extend(values.iter().map(String::as_str)),
            Requirement::Exists(_) => left.present = true,
            Requirement::DoesNotExist(_) => left.absent = true,
            // Only selectors of nodes have them.
            Requirement::GreaterThan(..) | Requirement::LessThan(..) => {}
        }
    }
    keys.into_iter().find_map(|(key, left)| {
        if left.absent && (left.present || left.values.is_some()) {
            return Some(format!("{key:?} must exist and must not exist"));
        }
        let values = left.values?;
        values.is_subset(&left.never).then(|| format!("no value of {key:?} meets all requirements"))
    })
}

pub(super) fn labels(page: &mut Page, field: &str, selector: &LabelSelector) {
    // Another check reports invalid selectors.
    let Ok(selector) = Selector::parse(selector) else { return };
    if let Some(why) = contradiction(selector.requirements()) {
        page.error(field, format!("can never match: {why}"), "remove one of the requirements");
    }
}

pub(super) fn affinity(page: &mut Page, field: &str, affinity: &ClusterAffinity) {
    if let Some(selector) = &affinity.label_selector {
        labels(page, &format!("{field}.labelSelector"), selector);
    }
    let names: BTreeSet<_> = affinity.cluster_names.iter().collect();
    let excluded: BTreeSet<_> = affinity.exclude_clusters.iter().collect();
    if !names.is_empty() && names.is_subset(&excluded) {
        let problem = "excludes every cluster of clusterNames";
        page.error(format!("{field}.exclude"), problem, "leave at least one of them");
    }
    if names.len() < affinity.cluster_names.len() {
        let problem = "names a cluster more than once";
        page.warning(format!("{field}.clusterNames"), problem, "name each once");
    }
    let expressions = affinity.field_selector.iter().flat_map(|s| &s.match_expressions);
    // A cluster may have several zones, so two disjoint lists can both match.
    let single = expressions.filter(|e| e.key != ClusterField::Zone);
    let requirements: Vec<_> = single
        .filter_map(|expression| {
            let operator = match expression.operator {
                FieldOperator::In => "In",
                FieldOperator::NotIn => "NotIn",
                FieldOperator::Exists => "Exists",
                FieldOperator::DoesNotExist => "DoesNotExist",
            };
            let key = if expression.key == ClusterField::Region { "region" } else { "provider" };
            Requirement::parse(key, operator, &expression.values).ok()
        })
        .collect();
    if let Some(why) = contradiction(&requirements) {
        let field = format!("{field}.fieldSelector");
        page.error(field, format!("can never match: {why}"), "remove one of the requirements");
    }
}
