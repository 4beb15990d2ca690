//! The manifest that installs an agent on its member: rights, token, Deployment.

use anyhow::Context;
use atoll_api::marks;
use serde_json::{Value, json};

use super::invitation::Invitation;

/// Name of Deployment and container; the ServiceAccount of [`atoll_agent::RBAC`] has it too.
const NAME: &str = "atoll-agent";
/// Name of the Secret with the token.
const TOKEN_SECRET: &str = "atoll-agent-join";
/// Port of the probe.
const HEALTH_PORT: u16 = 8080;
/// The user of the image: distroless' `nonroot`.
const USER: u32 = 65_532;

/// The whole manifest.
pub(super) fn text(invitation: &Invitation) -> anyhow::Result<String> {
    let mut text = format!(
        "# Joins this cluster as member {} of the federation. Apply it within {} minutes: the token works once.\n{}",
        invitation.cluster,
        invitation.flags.token_life,
        atoll_agent::RBAC.trim_end(),
    );
    for object in [secret(invitation), deployment(invitation)] {
        let object = serde_saphyr::to_string(&object).context("write the manifest as YAML")?;
        text.push_str("\n---\n");
        text.push_str(object.trim_end());
    }
    Ok(text)
}

fn secret(invitation: &Invitation) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN_SECRET, "namespace": marks::SYSTEM_NAMESPACE},
        "type": "Opaque",
        "stringData": {"token": invitation.token},
    })
}

fn deployment(invitation: &Invitation) -> Value {
    let labels = json!({"app.kubernetes.io/name": NAME});
    let mut args = vec!["agent".to_owned()];
    for address in &invitation.flags.addresses {
        args.extend(["--address".to_owned(), address.clone()]);
    }
    args.extend(["--ca-hash".to_owned(), invitation.ca_hash.clone()]);
    args.extend(["--health-listen".to_owned(), format!("0.0.0.0:{HEALTH_PORT}")]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": marks::SYSTEM_NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            // One agent acts at a time. The old one gives its Lease up when it ends, so the next need not wait.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": NAME,
                        "image": invitation.flags.image,
                        "args": args,
                        "env": [
                            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            // Of no use once the agent has its certificate: the Secret may be deleted then.
                            {"name": "ATOLL_TOKEN", "valueFrom": {"secretKeyRef": {
                                "name": TOKEN_SECRET, "key": "token", "optional": true,
                            }}},
                        ],
                        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
                        "livenessProbe": {
                            "httpGet": {"path": "/livez", "port": "health"},
                            "periodSeconds": 10,
                            "timeoutSeconds": 5,
                            "failureThreshold": 3,
                        },
                        "resources": {
                            "requests": {"cpu": "20m", "memory": "32Mi"},
                            "limits": {"memory": "256Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}
