//! Whether a `clusterAffinity` selects a cluster, and if not, which value fails.

use atoll_api::placement::{ClusterAffinity, ClusterField, FieldOperator, FieldRequirement};
use atoll_api::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::row::Row;

/// Whether the cluster is selected. The error names the first rule that fails, with the cluster's value.
pub fn matches(affinity: &ClusterAffinity, row: &Row) -> Result<(), String> {
    if affinity.exclude_clusters.iter().any(|name| **name == *row.name) {
        return Err("is in exclude".to_owned());
    }
    if !affinity.cluster_names.is_empty()
        && !affinity.cluster_names.iter().any(|name| **name == *row.name)
    {
        return Err("is not in clusterNames".to_owned());
    }
    if let Some(selector) = &affinity.label_selector {
        labels(selector, row)?;
    }
    let fields = affinity.field_selector.iter().flat_map(|selector| &selector.match_expressions);
    fields.clone().try_for_each(|requirement| field(requirement, row))
}

/// Whether the cluster's labels match. The error names the requirement that fails, with the cluster's value.
pub fn labels(selector: &LabelSelector, row: &Row) -> Result<(), String> {
    // The placement check rejects an invalid selector. Here it selects nothing.
    let selector = Selector::parse(selector).map_err(|error| error.to_string())?;
    match selector.first_failing(&row.labels) {
        None => Ok(()),
        Some(requirement) => {
            let value = row.labels.get(requirement.key()).map_or("absent", String::as_str);
            Err(format!("label {requirement} does not hold: it is {value}"))
        }
    }
}

fn field(requirement: &FieldRequirement, row: &Row) -> Result<(), String> {
    let (name, values): (_, Vec<&str>) = match requirement.key {
        ClusterField::Provider => ("provider", row.provider.as_deref().into_iter().collect()),
        ClusterField::Region => ("region", row.region.as_deref().into_iter().collect()),
        ClusterField::Zone => ("zone", row.zones.iter().map(String::as_str).collect()),
    };
    let listed = values.iter().any(|value| requirement.values.iter().any(|want| want == value));
    let holds = match requirement.operator {
        FieldOperator::In => listed,
        FieldOperator::NotIn => !listed,
        FieldOperator::Exists => !values.is_empty(),
        FieldOperator::DoesNotExist => values.is_empty(),
    };
    if holds {
        return Ok(());
    }
    let value = if values.is_empty() { "absent".to_owned() } else { values.join(",") };
    let wanted = match requirement.operator {
        FieldOperator::In => format!("in ({})", requirement.values.join(", ")),
        FieldOperator::NotIn => format!("not in ({})", requirement.values.join(", ")),
        FieldOperator::Exists => "exists".to_owned(),
        FieldOperator::DoesNotExist => "does not exist".to_owned(),
    };
    Err(format!("{name} {wanted} does not hold: it is {value}"))
}
