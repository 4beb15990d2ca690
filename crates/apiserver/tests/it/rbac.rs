//! Servers that enforce RBAC.

use atoll_apiserver::{Authorization, Options};
use http::Method;
use serde_json::{Value, json};

use crate::common::{Answer, Api};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";

fn enforcing() -> Api {
    Api::with(Options { authorization: Authorization::Rbac, ..Options::memory() })
}

/// A request as user jane.
async fn jane(api: &Api, method: Method, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let kind = match method {
        Method::PATCH => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let headers = [("impersonate-user", "jane"), ("content-type", kind)];
    api.send(method, path, &headers, body).await
}

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules,
    })
}

fn binding(kind: &str, name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    })
}

#[tokio::test]
async fn a_user_may_do_what_the_roles_say_and_the_refusal_has_upstreams_words() {
    let api = enforcing();
    let refused = jane(&api, Method::GET, CONFIGS, &Value::Null).await;
    assert_eq!(
        refused.refused(403, "Forbidden"),
        "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    // Through a ClusterRole that aggregates others, bound in one namespace.
    let mut read = role(
        "ClusterRole",
        "read",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch"]}]),
    );
    read["metadata"]["labels"] = json!({"part": "all"});
    let mut all = role("ClusterRole", "all", json!([]));
    all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"part": "all"}}]});
    let path = format!("{RBAC}/clusterroles");
    api.post(&path, &read).await.ok();
    api.post(&path, &all).await.ok();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    api.post(&bindings, &binding("RoleBinding", "jane", "all")).await.ok();
    jane(&api, Method::GET, CONFIGS, &Value::Null).await.ok();
    jane(&api, Method::GET, "/api/v1/namespaces/kube-system/configmaps", &Value::Null)
        .await
        .refused(403, "Forbidden");
    // An apply that creates needs `create`, too.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let apply = format!("{CONFIGS}/a?fieldManager=jane");
    let refused = jane(&api, Method::PATCH, &apply, &config).await;
    assert!(refused.refused(403, "Forbidden").contains("cannot create"), "{refused:?}");
    api.post(CONFIGS, &config).await.ok();
    jane(&api, Method::PATCH, &apply, &config).await.ok();
    // Reviews say the same, and nobody becomes another user without a right.
    let review = |verb: &str| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": "default", "verb": verb, "resource": "configmaps",
            }},
        })
    };
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("get", true), ("delete", false)] {
        let answer = jane(&api, Method::POST, reviews, &review(verb)).await.ok();
        assert_eq!(answer["status"]["allowed"], allowed, "{answer:#}");
    }
}

#[tokio::test]
async fn a_user_grants_only_rights_that_the_user_has() {
    let api = enforcing();
    let roles = format!("{RBAC}/clusterroles");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let writer = |verbs: Value| {
        json!([
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ])
    };
    let mut own = role("ClusterRole", "own", writer(json!(["create", "patch"])));
    api.post(&roles, &own).await.ok();
    api.post(&bindings, &binding("ClusterRoleBinding", "jane", "own")).await.ok();

    let rule =
        |verb: &str| json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
    jane(&api, Method::POST, &roles, &role("ClusterRole", "held", rule("get"))).await.ok();
    let more = role("ClusterRole", "more", rule("delete"));
    let refused = jane(&api, Method::POST, &roles, &more).await;
    assert!(refused.refused(403, "Forbidden").contains("not currently held"), "{refused:?}");
    let path = format!("{roles}/held?fieldManager=jane&force=true");
    let refused =
        jane(&api, Method::PATCH, &path, &role("ClusterRole", "held", rule("delete"))).await;
    refused.refused(403, "Forbidden");
    api.post(&roles, &more).await.ok();
    let bound = binding("ClusterRoleBinding", "more", "more");
    jane(&api, Method::POST, &bindings, &bound).await.refused(403, "Forbidden");

    own["rules"] = writer(json!(["create", "patch", "escalate", "bind"]));
    api.put(&format!("{roles}/own"), &own).await.ok();
    jane(&api, Method::PATCH, &path, &role("ClusterRole", "held", rule("delete"))).await.ok();
    jane(&api, Method::POST, &bindings, &bound).await.ok();
}

#[tokio::test]
async fn cluster_admin_exists_and_grants_everything() {
    let api = enforcing();
    jane(&api, Method::GET, CONFIGS, &Value::Null).await.refused(403, "Forbidden");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let bound = binding("ClusterRoleBinding", "jane", "cluster-admin");
    api.post(&bindings, &bound).await.ok();
    jane(&api, Method::GET, CONFIGS, &Value::Null).await.ok();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    jane(&api, Method::GET, leases, &Value::Null).await.ok();
}
