//! The parts of kube-controller-manager that scenarios need on a real API server, which runs without it: aggregated
//! ClusterRoles, and the finalizers of volume claims. The simulator runs workloads; garbage collection and the deletion
//! of namespaces are missing.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::core::{Selector, SelectorExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The finalizer that kube-apiserver sets on every claim; removed when no Pod uses the claim. No scenario has such
/// Pods.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Runs all of it until dropped.
pub(crate) async fn run(client: Client) {
    tokio::join!(roles(client.clone()), claims(client));
}

/// Removes the finalizer of deleted claims (`persistentvolumeclaim-protection-controller`).
async fn claims(client: Client) {
    let all: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let changes = watcher(all, watcher::Config::default());
    let mut changes = changes.default_backoff().applied_objects().boxed();
    while let Some(changed) = changes.next().await {
        let Ok(claim) = changed else { continue };
        let protected = claim.finalizers().iter().any(|finalizer| finalizer == PROTECTION);
        if claim.metadata.deletion_timestamp.is_none() || !protected {
            continue;
        }
        let others: Vec<_> = claim.finalizers().iter().filter(|f| *f != PROTECTION).collect();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": others}}));
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        if let Err(error) = api.patch(&claim.name_any(), &PatchParams::default(), &patch).await {
            println!("let {} go: {error}", claim.name_any());
        }
    }
}

/// Fills ClusterRoles with an `aggregationRule` (`clusterrole-aggregation-controller`).
async fn roles(client: Client) {
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
                // The server may stop meanwhile: the scenario is over then.
                if let Err(error) =
                    api.patch(&role.name_any(), &PatchParams::default(), &patch).await
                {
                    println!("aggregate {}: {error}", role.name_any());
                }
            }
        }
    }
}
