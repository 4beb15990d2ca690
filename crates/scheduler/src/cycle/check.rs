//! Checks placements and policies for contradictions before replicas are divided. Each mistake names the field and the
//! fix.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::{Component, ReplicaRequirements};
use atoll_api::names;
use atoll_api::placement::{ClusterAffinity, Placement, TopologySpreadConstraint};
use atoll_api::selector::{Requirement, Selector};
use atoll_api::text::counted;
use atoll_api::workload_affinity::{WorkloadAffinity, WorkloadGroup};
use atoll_api::workload_policy::WorkloadPolicySpec;
use atoll_api::workload_spread::{ScheduleStrategyType, Subset, WorkloadSpreadSpec};
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::intent::{ComponentNeeds, Intent, Mistake, Strategy};
use crate::state::needs::Needs;

fn selector(field: &str, selector: &LabelSelector) -> Result<(), Mistake> {
    Selector::parse(selector).map(drop).map_err(|error| Mistake::new(field, error.to_string()))
}

fn affinity(field: &str, affinity: &ClusterAffinity) -> Result<(), Mistake> {
    if let Some(labels) = &affinity.label_selector {
        selector(&format!("{field}.labelSelector"), labels)?;
    }
    for (at, requirement) in
        affinity.field_selector.iter().flat_map(|s| &s.match_expressions).enumerate()
    {
        let key = format!("{:?}", requirement.key);
        let operator = format!("{:?}", requirement.operator);
        Requirement::parse(&key, &operator, &requirement.values).map_err(|error| {
            let path = format!("{field}.fieldSelector.matchExpressions[{at}]");
            Mistake::new(path, error.to_string())
        })?;
    }
    Ok(())
}

/// Most replicas that a template may request: the limit of the Kubernetes scale subresource.
const MAX_REPLICAS: i64 = i32::MAX as i64;

/// Checks the number of replicas that a template requests.
///
/// # Errors
/// The number is out of range.
pub fn replicas(desired: Option<i64>) -> Result<(), Mistake> {
    match desired.filter(|replicas| !(0..=MAX_REPLICAS).contains(replicas)) {
        None => Ok(()),
        Some(replicas) => {
            let problem = format!("{replicas} must be within 0..={MAX_REPLICAS}");
            Err(Mistake::new("spec.replicas", problem))
        }
    }
}

/// Converts a request that overflows to a mistake: its resource and the problem.
pub fn request((resource, problem): (String, String)) -> Mistake {
    Mistake::new(request_field(&resource), format!("{problem}: {REQUEST_FIX}"))
}

/// The binding's field for the request of a resource.
pub fn request_field(resource: &str) -> String {
    format!("replicaRequirements.resourceRequest.{resource}")
}

/// Where users can fix a request.
pub const REQUEST_FIX: &str = "correct resources.requests of the pod template";

/// Checks the requests of one replica and their total.
///
/// # Errors
/// The first resource that cannot be counted, and why.
pub fn requests(
    requirements: Option<&ReplicaRequirements>,
    replicas: Option<i64>,
) -> Result<(), (String, String)> {
    Needs::read(requirements)?.countable(replicas.unwrap_or(1))
}

/// Reads what the components of an object need.
///
/// # Errors
/// The first component that cannot be counted, and why.
pub fn components(components: &[Component]) -> Result<Vec<ComponentNeeds>, Mistake> {
    let read = |(at, component): (usize, &Component)| {
        let wrong = |(resource, problem): (String, String)| {
            let field = format!("components[{at}].replicaRequirements.resourceRequest.{resource}");
            Mistake::new(field, format!("{problem}: correct the component {}", component.name))
        };
        let needs = Needs::read(component.replica_requirements.as_ref()).map_err(wrong)?;
        needs.countable(component.replicas.max(1)).map_err(wrong)?;
        let (name, replicas) = (component.name.clone(), component.replicas.max(0));
        Ok(ComponentNeeds { name, replicas, needs: Arc::new(needs) })
    };
    components.iter().enumerate().map(read).collect()
}

/// Checks the bounds of a placement against the desired replicas.
///
/// # Errors
/// The first mistake.
pub fn bounds(placement: &Placement, intent: &Intent) -> Result<(), Mistake> {
    let bounds = placement.replica_scheduling.iter().flat_map(|r| &r.bounds);
    let divides = matches!(
        intent.strategy,
        Strategy::StaticWeight(_) | Strategy::DynamicWeight | Strategy::Aggregated
    );
    if let (Some(desired), true) = (intent.desired, divides) {
        let least = bounds.clone().filter_map(|bound| bound.min).max().unwrap_or(0);
        if least > desired && desired > 0 {
            let problem =
                format!("a min of {least} is above the requested {}", counted(desired, "replica"));
            return Err(Mistake::new("placement.replicaScheduling.bounds", problem));
        }
    }
    Ok(())
}

/// Checks a placement on its own.
///
/// # Errors
/// The first mistake.
pub fn static_placement(placement: &Placement) -> Result<(), Mistake> {
    if placement.cluster_affinity.is_some() && placement.cluster_affinities.is_some() {
        let problem = "cannot be combined with clusterAffinities: keep one";
        return Err(Mistake::new("placement.clusterAffinity", problem));
    }
    if let Some(one) = &placement.cluster_affinity {
        affinity("placement.clusterAffinity", one)?;
    }
    let mut names = BTreeSet::new();
    for (at, term) in placement.cluster_affinities.iter().flatten().enumerate() {
        let field = format!("placement.clusterAffinities[{at}]");
        if !names.insert(&term.affinity_name) {
            let problem = format!("{:?} is the name of an earlier term", term.affinity_name);
            return Err(Mistake::new(format!("{field}.affinityName"), problem));
        }
        affinity(&field, &term.affinity)?;
        for (tier, overflow) in term.overflow_affinities.iter().enumerate() {
            affinity(&format!("{field}.overflowAffinities[{tier}]"), &overflow.affinity)?;
        }
    }
    for (at, constraint) in placement.spread_constraints.iter().enumerate() {
        let field = format!("placement.spreadConstraints[{at}]");
        if constraint.spread_by_field.is_some() == constraint.spread_by_label.is_some() {
            let problem = "exactly one of spreadByField and spreadByLabel is needed";
            return Err(Mistake::new(field, problem));
        }
        let (min, max) = (constraint.min_groups.unwrap_or(0), constraint.max_groups.unwrap_or(0));
        if min < 0 || max < 0 {
            return Err(Mistake::new(field, "minGroups and maxGroups must not be negative"));
        }
        if max > 0 && min > max {
            let problem = format!("minGroups {min} is above maxGroups {max}");
            return Err(Mistake::new(field, problem));
        }
    }
    for (at, constraint) in placement.topology_spread_constraints.iter().enumerate() {
        topology_spread(&format!("placement.topologySpreadConstraints[{at}]"), constraint)?;
    }
    if let Some(rules) = &placement.workload_affinity {
        workload_affinity(rules)?;
    }
    replica_scheduling(placement)
}

/// Checks one constraint, of a placement or of a profile.
///
/// # Errors
/// The first mistake.
pub fn topology_spread(field: &str, constraint: &TopologySpreadConstraint) -> Result<(), Mistake> {
    if constraint.max_skew < 1 {
        let problem = format!("{} must be at least 1", constraint.max_skew);
        return Err(Mistake::new(format!("{field}.maxSkew"), problem));
    }
    if constraint.topology_key.is_empty() {
        return Err(Mistake::new(format!("{field}.topologyKey"), "must not be empty"));
    }
    if constraint.min_domains.is_some_and(|min| min < 1) {
        return Err(Mistake::new(format!("{field}.minDomains"), "must be at least 1"));
    }
    let keys = constraint.match_label_keys.iter().enumerate();
    let Some(labels) = &constraint.label_selector else {
        return match keys.len() {
            0 => Ok(()),
            _ => {
                let problem = "narrows labelSelector, which is missing: add it";
                Err(Mistake::new(format!("{field}.matchLabelKeys"), problem))
            }
        };
    };
    selector(&format!("{field}.labelSelector"), labels)?;
    let selected = Selector::parse(labels).unwrap_or_default();
    for (at, key) in keys {
        let field = format!("{field}.matchLabelKeys[{at}]");
        if let Some(problem) = names::label_key_problem(key) {
            return Err(Mistake::new(field, problem));
        }
        if selected.requirements().iter().any(|requirement| requirement.key() == key) {
            let problem = format!("{key:?} is in labelSelector, too: keep one");
            return Err(Mistake::new(field, problem));
        }
    }
    Ok(())
}

fn workload_affinity(rules: &WorkloadAffinity) -> Result<(), Mistake> {
    let field = "placement.workloadAffinity";
    let label = |field: String, group: &Option<WorkloadGroup>| {
        let Some(group) = group else { return Ok(()) };
        match names::label_key_problem(&group.group_by_label_key) {
            None => Ok(()),
            Some(problem) => Err(Mistake::new(format!("{field}.groupByLabelKey"), problem)),
        }
    };
    label(format!("{field}.affinity"), &rules.affinity)?;
    label(format!("{field}.antiAffinity"), &rules.anti_affinity)?;
    if rules.affinity.is_some() && rules.affinity == rules.anti_affinity {
        let problem = "contradicts affinity, which groups by the same label: keep one";
        return Err(Mistake::new(format!("{field}.antiAffinity"), problem));
    }
    for (at, wish) in rules.preferred.iter().enumerate() {
        let field = format!("{field}.preferred[{at}]");
        if !(1..=100).contains(&wish.weight) {
            let problem = format!("{} must be within 1..=100", wish.weight);
            return Err(Mistake::new(format!("{field}.weight"), problem));
        }
        if wish.affinity.is_some() == wish.anti_affinity.is_some() {
            let problem = "exactly one of affinity and antiAffinity is needed";
            return Err(Mistake::new(field, problem));
        }
        label(format!("{field}.affinity"), &wish.affinity)?;
        label(format!("{field}.antiAffinity"), &wish.anti_affinity)?;
    }
    Ok(())
}

fn replica_scheduling(placement: &Placement) -> Result<(), Mistake> {
    let Some(scheduling) = &placement.replica_scheduling else { return Ok(()) };
    let field = "placement.replicaScheduling";
    let weights = scheduling.weight_preference.iter().flat_map(|w| &w.static_weight_list);
    for (at, rule) in weights.enumerate() {
        let field = format!("{field}.weightPreference.staticWeightList[{at}]");
        if rule.weight < 1 {
            let problem = format!("{} must be at least 1", rule.weight);
            return Err(Mistake::new(format!("{field}.weight"), problem));
        }
        affinity(&format!("{field}.targetCluster"), &rule.target_cluster)?;
    }
    for (at, bound) in scheduling.bounds.iter().enumerate() {
        let field = format!("{field}.bounds[{at}]");
        affinity(&format!("{field}.targetCluster"), &bound.target_cluster)?;
        let (min, max) = (bound.min.unwrap_or(0), bound.max.unwrap_or(i64::MAX));
        if min < 0 || max < 0 {
            return Err(Mistake::new(field, "min and max must not be negative"));
        }
        if min > max {
            return Err(Mistake::new(field, format!("min {min} is above max {max}")));
        }
    }
    Ok(())
}

/// Checks a WorkloadPolicy.
///
/// # Errors
/// The first mistake.
pub fn workload_policy(spec: &WorkloadPolicySpec) -> Result<(), Mistake> {
    if spec.topology_key.is_empty() {
        return Err(Mistake::new("WorkloadPolicy spec.topologyKey", "must not be empty"));
    }
    selector("WorkloadPolicy spec.labelSelector", &spec.label_selector)?;
    if spec.allocation_policy.is_empty() {
        let problem = "must have at least one domain";
        return Err(Mistake::new("WorkloadPolicy spec.allocationPolicy", problem));
    }
    let mut names = BTreeSet::new();
    for (at, domain) in spec.allocation_policy.iter().enumerate() {
        let field = format!("WorkloadPolicy spec.allocationPolicy[{at}]");
        if !names.insert(&domain.name) {
            let problem = format!("{:?} is listed twice", domain.name);
            return Err(Mistake::new(format!("{field}.name"), problem));
        }
        if !(1..=i64::from(i32::MAX)).contains(&domain.replicas) {
            let problem = format!("{} must be within 1..={}", domain.replicas, i32::MAX);
            return Err(Mistake::new(format!("{field}.replicas"), problem));
        }
    }
    Ok(())
}

/// Checks how a subset selects nodes.
fn node_selectors(field: &str, subset: &Subset) -> Result<(), Mistake> {
    let required = subset.required_node_selector_term.iter();
    let required = required.map(|term| (format!("{field}.requiredNodeSelectorTerm"), term));
    let mut terms: Vec<(String, &NodeSelectorTerm)> = required.collect();
    for (at, wish) in subset.preferred_node_selector_terms.iter().enumerate() {
        let field = format!("{field}.preferredNodeSelectorTerms[{at}]");
        if !(1..=100).contains(&wish.weight) {
            let problem = format!("{} must be within 1..=100", wish.weight);
            return Err(Mistake::new(format!("{field}.weight"), problem));
        }
        terms.push((format!("{field}.preference"), &wish.preference));
    }
    for (field, term) in terms {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return Err(Mistake::new(field, "selects no node: add matchExpressions"));
        }
        for (at, one) in expressions.iter().enumerate() {
            let values = one.values.as_deref().unwrap_or_default();
            Requirement::parse_node(&one.key, &one.operator, values).map_err(|error| {
                Mistake::new(format!("{field}.matchExpressions[{at}]"), error.to_string())
            })?;
        }
        for (at, one) in fields.iter().enumerate() {
            let is_name = one.key == "metadata.name";
            let is_one = one.values.as_ref().is_some_and(|values| values.len() == 1);
            if !is_name || !is_one || !matches!(one.operator.as_str(), "In" | "NotIn") {
                return Err(Mistake::new(
                    format!("{field}.matchFields[{at}]"),
                    "must have key metadata.name, operator In or NotIn, and exactly one value",
                ));
            }
        }
    }
    Ok(())
}

/// Parses a percentage.
#[must_use]
pub fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%')?.parse().ok().filter(|percent| (0..=100).contains(percent))
}

/// Checks a WorkloadSpread for a kind of workload.
///
/// # Errors
/// The first mistake.
pub fn workload_spread(spec: &WorkloadSpreadSpec, kind: &str) -> Result<(), Mistake> {
    let field = "WorkloadSpread spec.subsets";
    if spec.subsets.is_empty() {
        return Err(Mistake::new(field, "must have at least one subset"));
    }
    let mut names = BTreeSet::new();
    let (mut numbers, mut percents, mut sum) = (0, 0, 0_i64);
    for (at, subset) in spec.subsets.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if subset.name.is_empty() || !names.insert(&subset.name) {
            let problem = format!("{:?} must be set and unique", subset.name);
            return Err(Mistake::new(format!("{field}.name"), problem));
        }
        if let Some(required) = &subset.required_cluster_selector {
            selector(&format!("{field}.requiredClusterSelector"), required)?;
        }
        for (wish, preferred) in subset.preferred_cluster_selectors.iter().enumerate() {
            let field = format!("{field}.preferredClusterSelectors[{wish}]");
            selector(&format!("{field}.preference"), &preferred.preference)?;
            if !(1..=100).contains(&preferred.weight) {
                return Err(Mistake::new(format!("{field}.weight"), "must be within 1..=100"));
            }
        }
        node_selectors(&field, subset)?;
        if spec.shares_clusters(at)
            && subset.patch.is_some()
            && subset.patch != spec.subsets[at - 1].patch
        {
            let problem = "differs from the patch of the subset before, which has the same clusters: a copy on a member \
                           has one pod template";
            return Err(Mistake::new(format!("{field}.patch"), problem));
        }
        match &subset.max_replicas {
            None => {}
            Some(IntOrString::Int(max)) if *max >= 0 => numbers += 1,
            Some(IntOrString::String(text)) => match percent(text) {
                Some(percent) => {
                    percents += 1;
                    sum += percent;
                }
                None => {
                    let problem = format!("{text:?} must be a number or 0% to 100%");
                    return Err(Mistake::new(format!("{field}.maxReplicas"), problem));
                }
            },
            Some(IntOrString::Int(max)) => {
                let problem = format!("{max} must not be negative");
                return Err(Mistake::new(format!("{field}.maxReplicas"), problem));
            }
        }
    }
    if numbers > 0 && percents > 0 {
        let problem = "maxReplicas must be numbers or percentages, not both";
        return Err(Mistake::new(field, problem));
    }
    if percents > 0 && kind == "StatefulSet" {
        return Err(Mistake::new(field, "maxReplicas of a StatefulSet must be numbers"));
    }
    // Subsets that share clusters have one limit: none if one of them has none.
    let heads = (0..spec.subsets.len()).filter(|at| !spec.shares_clusters(*at));
    let is_open = |at: &usize| spec.sharing(*at).iter().any(|subset| subset.max_replicas.is_none());
    let open: Vec<usize> = heads.clone().filter(is_open).collect();
    if percents > 0 {
        if sum > 100 {
            return Err(Mistake::new(field, format!("maxReplicas add up to {sum}%, above 100%")));
        }
        if sum < 100 && open.len() != 1 {
            let problem = format!(
                "maxReplicas add up to {sum}%: exactly one subset must leave maxReplicas out and take the rest"
            );
            return Err(Mistake::new(field, problem));
        }
    }
    let (last, several) = (heads.clone().next_back().unwrap_or(0), heads.count() > 1);
    match spec.schedule_strategy.type_ {
        ScheduleStrategyType::Fixed if open.iter().any(|at| *at != last) => {
            Err(Mistake::new(field, "with Fixed only the last subset may leave maxReplicas out"))
        }
        ScheduleStrategyType::Adaptive if !open.contains(&last) && several => {
            Err(Mistake::new(field, "with Adaptive the last subset must leave maxReplicas out"))
        }
        _ => Ok(()),
    }
}
