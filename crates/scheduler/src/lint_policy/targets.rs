//! Checks WorkloadPolicies against the existing clusters and workloads.

use std::collections::BTreeSet;

use atoll_api::WorkloadPolicy;
use atoll_api::selector::Selector;

use super::Page;
use crate::offline::World;
use crate::state::row::Row;

pub(super) fn reach(page: &mut Page, policy: &WorkloadPolicy, rows: &[Row], world: &World) {
    let spec = &policy.spec;
    let domains: BTreeSet<_> =
        rows.iter().filter_map(|row| row.domain(&spec.topology_key)).collect();
    if !rows.is_empty() && domains.is_empty() {
        let problem = format!("none of the {} clusters has {:?}", rows.len(), spec.topology_key);
        page.error("spec.topologyKey", problem, "correct the key or label the clusters");
    } else if !rows.is_empty() {
        for (at, target) in spec.allocation_policy.iter().enumerate() {
            if !domains.iter().any(|domain| **domain == *target.name) {
                let field = format!("spec.allocationPolicy[{at}].name");
                let problem = format!(
                    "the domain {:?} is empty: no cluster has {}={}",
                    target.name, spec.topology_key, target.name
                );
                page.warning(field, problem, "correct the name or label the clusters");
            }
        }
    }
    let name = policy.metadata.name.as_deref();
    let namespace = policy.metadata.namespace.as_deref();
    let here: Vec<&crate::offline::Workload> =
        world.workloads.iter().filter(|w| w.key.namespace() == namespace).map(|w| &**w).collect();
    if here.is_empty() {
        return;
    }
    let steers = |w: &&&crate::offline::Workload| w.template.workload_policy.as_deref() == name;
    if !here.iter().any(|w| steers(&w)) {
        let problem = "has no effect: no workload of its namespace names it";
        let fix = "label the pod template policy.atoll.dev/workload-policy with its name";
        page.warning("metadata.name", problem, fix);
    }
    let Ok(selector) = Selector::parse(&spec.label_selector) else { return };
    let selected = |w: &&&crate::offline::Workload| selector.matches(&w.template.pod_labels);
    if !here.iter().any(|w| selected(&w)) {
        let problem = "matches no pods of a workload of its namespace";
        page.warning("spec.labelSelector", problem, "correct it to the labels of the pod template");
    }
}
