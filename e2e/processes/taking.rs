//! What comes before `atoll migrate karmada switch`: `prepare --take-credentials`, by which members that Karmada reaches by a
//! token join Atoll, and what `check` says that the hub lacks.

use std::process::Command;

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::Processes;
use crate::support::cli::{fail, run};
use crate::support::federation::cluster_objects;
use crate::support::karmada;
use crate::support::recording::{self, Recording};
use crate::support::servers::ApiServer;
use crate::support::wait::LIMIT;

impl Processes {
    fn step(&self, karmada: &ApiServer, step: &str) -> Command {
        let mut command = self.atoll(&["migrate", "karmada", step]);
        command.arg("--from").arg(&karmada.kubeconfig);
        command
    }

    fn prepare(&self, karmada: &ApiServer, flags: &[&str]) -> Command {
        let mut command = self.step(karmada, "prepare");
        command.args(flags);
        command
    }
}

/// A token with all rights on a member, as `karmadactl join` makes one.
pub(crate) async fn token(member: &ApiServer) -> String {
    member
        .apply(
            r#"
{apiVersion: v1, kind: ServiceAccount, metadata: {name: karmada, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: karmada}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: karmada, namespace: default}]
"#,
        )
        .await;
    let accounts: Api<ServiceAccount> = Api::namespaced(member.client.clone(), "default");
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let made = accounts.create_token_request("karmada", &PostParams::default(), &request).await;
    made.unwrap().status.unwrap().token
}

/// A Cluster of Karmada in push mode, after the Secret with its token.
pub(crate) fn push_member(name: &str, member: &ApiServer, token: &str) -> [Value; 2] {
    let kubeconfig = Kubeconfig::read_from(&member.kubeconfig).unwrap();
    let server = kubeconfig.clusters[0].cluster.clone().unwrap();
    let data =
        json!({"caBundle": server.certificate_authority_data, "token": ByteString(token.into())});
    [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "karmada-cluster"}, "data": data}),
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name, "labels": {"tier": "1"}},
            "spec": {"id": name, "syncMode": "Push", "apiEndpoint": server.server, "region": "north",
                "secretRef": {"namespace": "karmada-cluster", "name": name}}}),
    ]
}

/// Karmada with a ConfigMap on members.
async fn estate(karmada: &ApiServer, member: &ApiServer, token: &str, on: &[&str]) {
    let clusters: Vec<Value> = on.iter().map(|name| json!({"name": name})).collect();
    let [secret, cluster] = push_member("member1", member, token);
    let object = |group: &str, kind: &str, metadata: Value, spec: Value| json!({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec});
    let all = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-cluster"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        secret,
        cluster,
        object(
            "cluster.karmada.io/v1alpha1",
            "Cluster",
            json!({"name": "member2"}),
            json!({"syncMode": "Pull"}),
        ),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": {"a": "b"}}),
        object(
            "policy.karmada.io/v1alpha1",
            "PropagationPolicy",
            json!({"name": "web", "namespace": "shop"}),
            json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "web"}], "placement": {}}),
        ),
        object(
            "work.karmada.io/v1alpha2",
            "ResourceBinding",
            json!({"name": "web-configmap", "namespace": "shop", "annotations": {
                "propagationpolicy.karmada.io/name": "web", "propagationpolicy.karmada.io/namespace": "shop"}}),
            json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "web"}, "clusters": clusters}),
        ),
    ];
    for object in all {
        karmada.apply(&object.to_string()).await;
    }
    for name in on {
        let place = format!("karmada-es-{name}");
        let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        karmada.apply(&namespace(&place).to_string()).await;
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": {"a": "b"}});
        for (name, manifest) in [("web", config), ("shop", namespace("shop"))] {
            let work = object(
                "work.karmada.io/v1alpha1",
                "Work",
                json!({"name": name, "namespace": place}),
                json!({"workload": {"manifests": [manifest]}}),
            );
            karmada.apply(&work.to_string()).await;
        }
    }
}

/// The findings of `check`, of which some block.
pub(crate) fn found(command: &mut Command) -> Vec<Value> {
    let output = command.args(["-o", "json"]).output().unwrap();
    assert!(!output.status.success(), "nothing blocks: {output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["findings"].as_array().unwrap().clone()
}

/// The manifests in findings, to be applied as they are.
pub(crate) fn grants(findings: &[Value]) -> Vec<String> {
    let problems = findings.iter().filter_map(|finding| finding["problem"].as_str());
    let grants = problems.filter_map(|problem| {
        let (_, rest) = problem.split_once("`echo '")?;
        Some(rest.split_once("' | kubectl apply -f -`")?.0.to_owned())
    });
    grants.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_join_by_karmadas_credentials() {
    let (federation, _controller) = Processes::started().await;
    let member = ApiServer::member("member1", federation.folder()).await;
    let karmada = ApiServer::hub(&federation.folder().join("karmada")).await;
    karmada::install(&karmada.client).await;
    let token = token(&member).await;
    estate(&karmada, &member, &token, &["member1"]).await;
    let clusters = cluster_objects(&federation.hub.client);

    let refused = fail(&mut federation.prepare(&karmada, &[]));
    assert!(refused.contains("it has not joined Atoll"), "{refused}");
    assert!(refused.contains("--take-credentials"), "{refused}");
    let planned = run(&mut federation.prepare(&karmada, &["--take-credentials", "--dry-run"]));
    assert!(planned.contains("mode: Hosted") && !planned.contains(&token), "{planned}");
    assert!(clusters.get_opt("member1").await.unwrap().is_none(), "a dry run writes nothing");

    run(&mut federation.prepare(&karmada, &["--take-credentials"]));
    let cluster = serde_json::to_value(clusters.get("member1").await.unwrap()).unwrap();
    assert_eq!(
        (&cluster["spec"]["mode"], &cluster["spec"]["region"]),
        (&json!("Hosted"), &json!("north"))
    );
    assert_eq!(cluster["metadata"]["labels"], json!({"tier": "1"}));
    let again = run(&mut federation.prepare(&karmada, &["--take-credentials", "-o", "json"]));
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again, json!({"created": [], "members": []}));

    // Karmada has no credentials of a member in pull mode.
    estate(&karmada, &member, &token, &["member1", "member2"]).await;
    let refused = fail(&mut federation.prepare(&karmada, &["--take-credentials"]));
    assert!(
        refused.contains("member2 cannot be joined") && refused.contains("syncMode Pull"),
        "{refused}"
    );
    assert!(refused.contains("`atoll join member2`"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_lacks_is_found_before_anything_waits_for_it() {
    let (federation, _controller) = Processes::started().await;
    let karmada = ApiServer::hub(&federation.folder().join("karmada")).await;
    karmada::install(&karmada.client).await;
    for server in [&federation.hub, &karmada] {
        recording::define(&server.client).await;
    }
    recording::control_plane(&karmada.client, &Recording::read()).await;
    let check = || federation.step(&karmada, "check");

    let early = json!(found(&mut check())).to_string();
    let missing = ["clusterroles.rbac.authorization.k8s.io", "gadgets.example.com"];
    for kind in missing {
        let problem = format!("Atoll's controller may not get {kind}");
        assert!(early.contains(&problem), "{problem}: {early}");
    }
    assert!(early.contains("the aggregated API is not installed"), "{early}");
    for grant in grants(&found(&mut check())) {
        federation.hub.apply(&grant).await;
    }
    // Roles are aggregated by a controller, a moment later.
    let granted = async {
        while json!(found(&mut check())).to_string().contains("may not get") {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, granted).await.is_ok(), "the grants have no effect");
    for step in ["verify", "finish"] {
        let refused = fail(&mut federation.step(&karmada, step));
        let times = refused.matches("the aggregated API is not installed").count();
        assert_eq!(times, 1, "{step}: {refused}");
    }
}
