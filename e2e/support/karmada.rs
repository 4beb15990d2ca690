//! Karmada's kinds, on an API server in its place.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use serde_json::json;

/// Karmada's kinds: group, version, kind, plural, scope.
const KINDS: [(&str, &str, &str, &str, &str); 11] = [
    ("cluster.karmada.io", "v1alpha1", "Cluster", "clusters", "Cluster"),
    ("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies", "Namespaced"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "ClusterPropagationPolicy",
        "clusterpropagationpolicies",
        "Cluster",
    ),
    ("policy.karmada.io", "v1alpha1", "OverridePolicy", "overridepolicies", "Namespaced"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "ClusterOverridePolicy",
        "clusteroverridepolicies",
        "Cluster",
    ),
    ("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings", "Namespaced"),
    ("work.karmada.io", "v1alpha2", "ClusterResourceBinding", "clusterresourcebindings", "Cluster"),
    ("work.karmada.io", "v1alpha1", "Work", "works", "Namespaced"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "FederatedResourceQuota",
        "federatedresourcequotas",
        "Namespaced",
    ),
    ("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy", "clustertaintpolicies", "Cluster"),
    (
        "config.karmada.io",
        "v1alpha1",
        "ResourceInterpreterCustomization",
        "resourceinterpretercustomizations",
        "Cluster",
    ),
];

/// CRDs that accept any fields, as wide as Karmada's.
pub(crate) async fn install(karmada: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(karmada.clone());
    for (group, version, kind, plural, scope) in KINDS {
        let name = format!("{plural}.{group}");
        let crd = json!({"metadata": {"name": name}, "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
        let crd = serde_json::from_value(crd).unwrap();
        crds.create(&PostParams::default(), &crd).await.unwrap();
        await_condition(crds.clone(), &name, conditions::is_crd_established()).await.unwrap();
    }
}
