//! `atoll replay` with changed policies and profiles.

use std::path::Path;

use serde_json::{Value, json};

use super::{Kubectl, SHOP};
use crate::support::cli::{atoll, fail};

/// Which decisions another policy or profile would have made differently.
pub(crate) fn with_changes(kubectl: &Kubectl) {
    let folder = tempfile::tempdir().unwrap();
    let policy = |name: &str, cluster: &str| {
        let file = folder.path().join("policy.yaml");
        let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name, "namespace": SHOP}, "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "placement": {"clusterAffinity": {"clusterNames": [cluster]}}}});
        std::fs::write(&file, policy.to_string()).unwrap();
        file
    };
    let replay = |flag: &str, file: &Path| {
        let mut command = atoll();
        command.arg("replay").arg("--kubeconfig").arg(&kubectl.kubeconfig);
        command.args(["--context", kubectl.context, "--since", "1h", "-o", "json", flag]).arg(file);
        let output = command.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), answer)
    };
    let (code, answer) = replay("--with", &policy("web", "nowhere"));
    let summary = &answer["summary"];
    assert_eq!(code, Some(2), "{answer:#}");
    assert_eq!((&summary["different"], &summary["failed"]), (&json!(5), &json!(0)), "{answer:#}");
    assert_eq!(summary["pendingReplicas"]["was"], 0, "{answer:#}");
    assert!(summary["pendingReplicas"]["is"].as_i64().unwrap() > 0, "{answer:#}");
    let (code, answer) = replay("--with", &policy("other", "nowhere"));
    assert_eq!((code, &answer["summary"]["different"]), (Some(0), &json!(0)), "{answer:#}");
    let config = folder.path().join("config.yaml");
    let profile = |plugins: &str| {
        let text = format!(
            "{{apiVersion: config.atoll.dev/v1alpha1, kind: SchedulerConfiguration, profiles: [{{schedulerName: default, plugins: {plugins}}}]}}"
        );
        std::fs::write(&config, text).unwrap();
    };
    profile("{}");
    let (code, answer) = replay("--scheduler-config", &config);
    assert_eq!((code, &answer["summary"]["different"]), (Some(0), &json!(0)), "{answer:#}");
    profile("{filter: {disabled: [{name: ClusterAffinity}]}}");
    let (code, answer) = replay("--scheduler-config", &config);
    // Without the affinity, the first replica goes to the member with most room, which may be the same one.
    let different = answer["summary"]["different"].as_i64().unwrap();
    assert!(code == Some(2) && (4..=5).contains(&different), "{answer:#}");
    profile("{filter: {disabled: [{name: Nonsense}]}}");
    let mut command = atoll();
    command.arg("replay").arg("--kubeconfig").arg(&kubectl.kubeconfig);
    command
        .args(["--context", kubectl.context, "--since", "1h", "--scheduler-config"])
        .arg(&config);
    let refused = fail(&mut command);
    assert!(refused.contains("--scheduler-config") && refused.contains("Nonsense"), "{refused}");
}
