//! What scenarios need of kube-controller-manager on a real API server, which comes without it: the rules of aggregated
//! ClusterRoles. Workloads are the simulator's; what nobody does here is to collect garbage and to end namespaces.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::core::{Selector, SelectorExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// Fills ClusterRoles with an `aggregationRule` (`clusterrole-aggregation-controller`), until dropped.
pub(crate) async fn run(client: Client) {
    let api: Api<ClusterRole> = Api::all(client);
    let mut known: BTreeMap<String, ClusterRole> = BTreeMap::new();
    let changes = watcher(api.clone(), watcher::Config::default());
    let mut changes = changes.default_backoff().applied_objects().boxed();
    while let Some(changed) = changes.next().await {
        let Ok(changed) = changed else { continue };
        known.insert(changed.name_any(), changed);
        for role in known.values() {
            let Some(rule) = &role.aggregation_rule else { continue };
            let selectors = rule.cluster_role_selectors.iter().flatten().cloned();
            let selectors: Vec<Selector> =
                selectors.filter_map(|selector| selector.try_into().ok()).collect();
            let chosen = known.values().filter(|other| {
                other.name_any() != role.name_any()
                    && selectors.iter().any(|selector| selector.matches(other.labels()))
            });
            let rules: Vec<_> = chosen.flat_map(|other| other.rules.clone()).flatten().collect();
            if role.rules.as_ref() != Some(&rules) {
                let patch = Patch::Merge(json!({"rules": rules}));
                // The server may go while its roles are filled: the scenario is over then.
                if let Err(error) =
                    api.patch(&role.name_any(), &PatchParams::default(), &patch).await
                {
                    println!("aggregate {}: {error}", role.name_any());
                }
            }
        }
    }
}
