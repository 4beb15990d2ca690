//! Upstream's validation errors, one test for each rule, in upstream's wording.

use serde_json::{Value, json};

use crate::common::{Api, pod};

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The bad spec is refused with this message, and the good one is accepted.
async fn refuses(path: &str, bad: Value, words: &[&str], good: Value) {
    let api = Api::new();
    let answer = api.post(path, &bad).await;
    let message = answer.refused(422, "Invalid");
    for words in words {
        assert!(message.contains(words), "{words}: {message}");
    }
    api.post(path, &good).await.ok();
}

fn named(mut fields: Value) -> Value {
    fields["metadata"] = json!({"name": "x"});
    fields
}

fn with_resources(resources: Value) -> Value {
    let mut pod = pod("x");
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

#[tokio::test]
async fn requests_above_limits_are_refused_as_validate_container_resource_requirements_does() {
    refuses(
        PODS,
        with_resources(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}})),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1500m",
        ],
        with_resources(json!({"requests": {"cpu": "1500m"}, "limits": {"cpu": "1.5"}})),
    )
    .await;
    refuses(
        PODS,
        with_resources(json!({"requests": {"a.com/gpu": "1"}, "limits": {"a.com/gpu": "2"}})),
        &["must be equal to a.com/gpu limit of 2"],
        with_resources(json!({"limits": {"a.com/gpu": "2"}})),
    )
    .await;
}

#[tokio::test]
async fn ingresses_without_backend_or_rules_are_refused_as_validate_ingress_spec_does() {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    refuses(
        INGRESSES,
        named(json!({"spec": {}})),
        &["spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"],
        named(json!({"spec": {"defaultBackend": backend}})),
    )
    .await;
    let path = |path: Value| named(json!({"spec": {"rules": [{"http": {"paths": [path]}}]}}));
    refuses(
        INGRESSES,
        path(json!({"path": "web"})),
        &[
            "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
            "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
        ],
        path(json!({"path": "/web", "pathType": "Prefix", "backend": backend})),
    )
    .await;
}

#[tokio::test]
async fn network_policies_with_a_bad_cidr_are_refused_as_validate_ip_block_does() {
    let policy =
        |peer: Value| named(json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}}));
    let good = || policy(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}));
    for (peer, words) in [
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/33"}}),
            "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value",
        ),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}),
            "ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
        ),
        (json!({}), "spec.ingress[0].from[0]: Required value: must specify a peer"),
        (
            json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
            "may not specify both ipBlock and another peer",
        ),
    ] {
        refuses(POLICIES, policy(peer), &[words], good()).await;
    }
}

#[tokio::test]
async fn claims_without_access_modes_are_refused_as_validate_persistent_volume_claim_spec_does() {
    let storage = json!({"requests": {"storage": "1Gi"}});
    let claim = |spec: Value| named(json!({"spec": spec}));
    refuses(
        CLAIMS,
        claim(json!({"resources": storage})),
        &["spec.accessModes: Required value: at least 1 access mode is required"],
        claim(json!({"accessModes": ["ReadWriteOnce"], "resources": storage})),
    )
    .await;
    refuses(
        CLAIMS,
        claim(json!({"accessModes": ["Sometimes"]})),
        &[
            "spec.accessModes[0]: Unsupported value: \"Sometimes\"",
            "spec.resources[storage]: Required value",
        ],
        claim(json!({"accessModes": ["ReadWriteOncePod"], "resources": storage})),
    )
    .await;
}

#[tokio::test]
async fn rules_without_verbs_or_resources_are_refused_as_validate_policy_rule_does() {
    let role = |rule: Value| named(json!({"rules": [rule]}));
    let good = || role(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    refuses(
        ROLES,
        role(json!({"apiGroups": [""], "resources": ["pods"]})),
        &["rules[0].verbs: Required value: verbs must contain at least one value"],
        good(),
    )
    .await;
    refuses(
        CLUSTER_ROLES,
        role(json!({"verbs": ["get"]})),
        &[
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ],
        good(),
    )
    .await;
    let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]});
    let words = "namespaced rules cannot apply to non-resource URLs";
    refuses(ROLES, role(urls.clone()), &[words], good()).await;
    Api::new().post(CLUSTER_ROLES, &role(urls)).await.ok();
}

#[tokio::test]
async fn schedules_and_zones_that_are_none_are_refused_as_validate_cron_job_spec_does() {
    let cron = |schedule: &str, zone: Value| {
        named(
            json!({"spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            }}}}}),
        )
    };
    let good = || cron("*/5 9-17 * * mon-fri", json!("Europe/Berlin"));
    for (schedule, zone, words) in [
        (
            "* * * *",
            Value::Null,
            "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4",
        ),
        ("61 * * * *", Value::Null, "spec.schedule: Invalid value: \"61 * * * *\": minute"),
        ("TZ=UTC 1 * * * *", Value::Null, "use timeZone field instead"),
        ("1 * * * *", json!("Europe/Atlantis"), "unknown time zone Europe/Atlantis"),
    ] {
        refuses(CRON_JOBS, cron(schedule, zone), &[words], good()).await;
    }
}
