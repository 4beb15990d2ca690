//! The manifest that installs an agent on its member: rights, token, Deployment.

use anyhow::Context;
use atoll_api::marks;
use serde_json::{Value, json};

use super::invitation::{Invitation, Rights};
use crate::print::counted;

/// Refuses all connections to the agent.
const NETWORK: &str = include_str!("../../../../deploy/agent/network.yaml");
/// Name of the Deployment and the container, and of the ServiceAccount in [`atoll_agent::RBAC`].
const NAME: &str = "atoll-agent";
/// Name of the Secret with the token.
const TOKEN_SECRET: &str = "atoll-agent-join";
/// Port of the probes.
pub(super) const HEALTH_PORT: u16 = 8080;
/// Namespace from which Prometheus reads, as with `atoll install`.
const METRICS_NAMESPACE: &str = "monitoring";
/// The user of the image: distroless' `nonroot`.
const USER: u32 = 65_532;

/// The whole manifest.
pub(super) fn text(invitation: &Invitation) -> anyhow::Result<String> {
    let mut text = format!(
        "# Joins this cluster as member {} of the federation. Apply it within {}: the token works once.\n{}",
        invitation.cluster,
        counted(invitation.flags.token_life, "minute", "minutes"),
        atoll_agent::RBAC.trim_end(),
    );
    let roles = invitation.flags.rights.iter().copied().filter_map(Rights::role);
    for part in roles {
        text.push_str("\n---\n");
        text.push_str(part.trim_end());
    }
    if invitation.flags.metrics_port.is_none() {
        text.push_str("\n---\n");
        text.push_str(NETWORK.trim_end());
    }
    let network = invitation.flags.metrics_port.map(|_| network()).transpose()?;
    for object in network.into_iter().chain([secret(invitation), deployment(invitation)]) {
        let object = serde_saphyr::to_string(&object).context("write the manifest as YAML")?;
        text.push_str("\n---\n");
        text.push_str(object.trim_end());
    }
    Ok(text)
}

/// The policy, which also lets Prometheus read the metrics.
fn network() -> anyhow::Result<Value> {
    let mut policy: Value = serde_saphyr::from_str(NETWORK).context("read the NetworkPolicy")?;
    policy["spec"]["ingress"] = json!([{
        "from": [{"namespaceSelector": {"matchLabels": {
            "kubernetes.io/metadata.name": METRICS_NAMESPACE,
        }}}],
        "ports": [{"port": "metrics"}],
    }]);
    Ok(policy)
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
    let mut args = invitation.flags.agent_args();
    args.extend(["--ca-hash".to_owned(), invitation.ca_hash.clone()]);
    args.extend(["--health-listen".to_owned(), format!("0.0.0.0:{HEALTH_PORT}")]);
    let mut ports = vec![json!({"name": "health", "containerPort": HEALTH_PORT})];
    if let Some(port) = invitation.flags.metrics_port {
        args.extend(["--metrics-listen".to_owned(), format!("0.0.0.0:{port}")]);
        ports.push(json!({"name": "metrics", "containerPort": port}));
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": marks::SYSTEM_NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            // One agent acts at a time. The old one releases its Lease when it ends, so the next does not wait.
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
                        "command": [NAME],
                        "args": args,
                        "env": [
                            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            // Not needed once the agent has its certificate; the Secret may then be deleted.
                            {"name": "ATOLL_TOKEN", "valueFrom": {"secretKeyRef": {
                                "name": TOKEN_SECRET, "key": "token", "optional": true,
                            }}},
                        ],
                        "ports": ports,
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

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches, Parser};

    use super::*;
    use crate::join::invitation::InvitationFlags;

    const CONTROLLER: &str = include_str!("../../../../deploy/controller/controller.yaml");
    const CONTROLLER_RBAC: &str = include_str!("../../../../deploy/controller/rbac.yaml");
    const CONTROLLER_NETWORK: &str = include_str!("../../../../deploy/controller/network.yaml");

    fn documents(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    fn invitation(flags: &[&str]) -> Invitation {
        let command = InvitationFlags::augment_args(Command::new("join"));
        let given = ["join", "--address", "hub.example:7443"].iter().chain(flags);
        let flags = InvitationFlags::from_arg_matches(&command.get_matches_from(given)).unwrap();
        let text = |text: &str| text.to_owned();
        let (cluster, token, ca_hash) = (text("east"), text("id.secret"), text("sha256:00"));
        Invitation { cluster, token, ca_hash, flags }
    }

    fn agent() -> Vec<Value> {
        documents(&super::text(&invitation(&[])).unwrap())
    }

    #[test]
    fn reserved_namespaces_are_passed_on_to_the_agent_and_checked_before() {
        let made = invitation(&["--reserved-namespaces", "istio-system,*-infra"]);
        made.flags.check().unwrap();
        let documents = documents(&super::text(&made).unwrap());
        let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array().unwrap().iter();
        let args: Vec<_> = args.map(|arg| arg.as_str().unwrap().to_owned()).collect();
        let at = args.iter().position(|arg| arg == "--reserved-namespaces").unwrap();
        assert_eq!(args[at + 1], "istio-system,*-infra");
        assert!(made.command().contains(" --reserved-namespaces 'istio-system,*-infra' "));
        // The agent's own parser accepts the whole list.
        let parsed = crate::args::Cli::try_parse_from(
            ["atoll".to_owned(), "agent".to_owned()].into_iter().chain(args),
        );
        assert!(parsed.is_ok(), "{:?}", parsed.err());

        let wrong = invitation(&["--reserved-namespaces", "*"]).flags.check().unwrap_err();
        assert!(format!("{wrong:#}").contains("--reserved-namespaces"), "{wrong:#}");
        assert!(made.flags.check_hosted().unwrap_err().to_string().contains("mode hosted"));
        invitation(&[]).flags.check_hosted().unwrap();
    }

    #[test]
    fn rights_add_a_role_that_widens_the_agents_and_only_where_a_manifest_is_printed() {
        let roles = |flags: &[&str]| -> Vec<Value> {
            let documents = documents(&super::text(&invitation(flags)).unwrap());
            let widens = |role: &Value| {
                role["kind"] == "ClusterRole"
                    && role["metadata"]["labels"]["rbac.atoll.dev/aggregate-to-agent"] == "true"
            };
            documents.into_iter().filter(widens).collect()
        };
        let names = |roles: &[Value]| -> Vec<String> {
            roles.iter().map(|role| role["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&roles(&[])), ["atoll-agent-workloads"]);
        assert_eq!(names(&roles(&["--rights", "workloads"])), ["atoll-agent-workloads"]);
        let namespaced = roles(&["--rights", "namespaced"]);
        assert_eq!(names(&namespaced), ["atoll-agent-workloads", "atoll-agent-namespaced"]);
        let all = roles(&["--rights", "all"]);
        assert_eq!(names(&all), ["atoll-agent-workloads", "atoll-agent-all"]);
        // Less than `all` never lets the agent hand out rights that it lacks.
        let verbs = |roles: &[Value]| roles.iter().map(|role| role["rules"].to_string()).collect();
        let (narrow, wide): (String, String) = (verbs(&namespaced), verbs(&all));
        for verb in ["escalate", "bind", "*"] {
            assert!(!narrow.contains(&format!("{verb:?}")), "{narrow}");
            assert!(wide.contains(&format!("{verb:?}")), "{wide}");
        }

        invitation(&["--rights", "all", "-o", "yaml"]).flags.check().unwrap();
        let both = invitation(&["--rights", "all,namespaced", "-o", "yaml"]).flags.check();
        assert!(both.unwrap_err().to_string().contains("choose one of"));
        let useless = invitation(&["--rights", "all"]).flags.check().unwrap_err();
        assert!(useless.to_string().contains("-o yaml"), "{useless}");
        let hosted = invitation(&["--rights", "all"]).flags.check_hosted().unwrap_err();
        assert!(hosted.to_string().contains("mode hosted"), "{hosted}");
    }

    #[test]
    fn the_member_is_reached_through_the_hub_only_where_its_administrator_chose_it() {
        let proxies = |flags: &[&str]| {
            let documents = documents(&super::text(&invitation(flags)).unwrap());
            let role = documents.iter().find(|o| o["metadata"]["name"] == "atoll-agent-proxy");
            let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
            let args = pod["containers"][0]["args"].as_array().unwrap();
            (role.cloned(), args.contains(&json!("--proxy")))
        };
        assert_eq!(proxies(&["--rights", "all"]), (None, false));
        let (role, flag) = proxies(&["--rights", "namespaced,proxy"]);
        let groups = role.unwrap()["rules"][1].clone();
        assert_eq!(groups["resources"], json!(["groups"]));
        // Without names the agent could become a member of system:masters.
        assert_eq!(groups["resourceNames"], json!(["system:authenticated"]));
        assert!(flag);
    }

    #[test]
    fn metrics_are_served_where_the_flag_says_and_nowhere_else() {
        let args = |documents: &[Value]| {
            let pod = &of_kind(documents, "Deployment")["spec"]["template"]["spec"];
            pod["containers"][0]["args"].as_array().unwrap().clone()
        };
        assert!(!args(&agent()).contains(&json!("--metrics-listen")));
        let made = invitation(&["--metrics-port", "8082"]);
        made.flags.check().unwrap();
        assert!(made.command().contains(" --metrics-listen 127.0.0.1:8082 "), "{}", made.command());
        let documents = documents(&super::text(&made).unwrap());
        let args = args(&documents);
        let at = args.iter().position(|arg| arg == "--metrics-listen").unwrap();
        assert_eq!(args[at + 1], "0.0.0.0:8082");
        let words = args.iter().map(|arg| arg.as_str().unwrap());
        let parsed = crate::args::Cli::try_parse_from(["atoll", "agent"].into_iter().chain(words));
        assert!(parsed.is_ok(), "{:?}", parsed.err());
        let from = &of_kind(&documents, "NetworkPolicy")["spec"]["ingress"][0]["from"][0];
        let labels = &from["namespaceSelector"]["matchLabels"];
        assert_eq!(labels["kubernetes.io/metadata.name"], "monitoring");
        let taken = invitation(&["--metrics-port", "8080"]).flags.check().unwrap_err();
        assert!(taken.to_string().contains("probes"), "{taken}");
    }

    fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
        documents.iter().find(|document| document["kind"] == kind).unwrap()
    }

    /// The rules of the Pod Security Standard `restricted` that these Pods could break.
    #[test]
    fn the_pods_start_in_a_namespace_that_enforces_restricted() {
        for documents in [agent(), documents(&format!("{CONTROLLER_RBAC}\n---\n{CONTROLLER}"))] {
            let labels = &of_kind(&documents, "Namespace")["metadata"]["labels"];
            assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
            let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            for field in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod[field].is_null(), "{field}");
            }
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                assert!(volume["hostPath"].is_null(), "{volume}");
            }
            for container in pod["containers"].as_array().unwrap() {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false);
                assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
                assert!(
                    context["capabilities"]["add"].is_null() && context["privileged"].is_null()
                );
                assert!(
                    container["ports"].as_array().unwrap().iter().all(|p| p["hostPort"].is_null())
                );
            }
        }
    }

    #[test]
    fn network_policies_select_the_pods_and_leave_the_probes_to_the_kubelet() {
        let controller = documents(&format!("{CONTROLLER}\n---\n{CONTROLLER_NETWORK}"));
        let measured = invitation(&["--metrics-port", "8082"]);
        let measured = documents(&super::text(&measured).unwrap());
        for documents in [&agent(), &measured, &controller] {
            let policy = &of_kind(documents, "NetworkPolicy")["spec"];
            let pod = &of_kind(documents, "Deployment")["spec"]["template"];
            assert_eq!(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
            let container = &pod["spec"]["containers"][0];
            assert_eq!(container["livenessProbe"]["httpGet"]["port"], "health");
            let named = container["ports"].as_array().unwrap();
            let rules = policy["ingress"].as_array().into_iter().flatten();
            for port in rules.flat_map(|rule| rule["ports"].as_array().unwrap()) {
                assert_ne!(port["port"], "health");
                assert!(named.iter().any(|named| named["name"] == port["port"]), "{port}");
            }
        }
        // Controllers reach each other, also where address ranges do not match Pods.
        let policy = &of_kind(&controller, "NetworkPolicy")["spec"];
        let mut rules = policy["ingress"].as_array().unwrap().iter();
        let agents = rules.find(|rule| rule["ports"][0]["port"] == "agents").unwrap();
        let from = agents["from"].as_array().unwrap();
        assert!(from.iter().any(|peer| peer["podSelector"] == policy["podSelector"]), "{agents}");
    }
}
