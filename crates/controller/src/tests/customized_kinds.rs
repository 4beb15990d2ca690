//! A kind that only customizations know: its replicas are divided, and what it refers to goes along.

use serde_json::{Value, json};

use super::customizations::{CUSTOMIZATION, until_status};
use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

pub(super) const WEB_APP: (&str, &str) = ("apps.example.io/v1", "WebApp");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

pub(super) fn web() -> String {
    atoll_api::names::binding_name("web", "WebApp", "apps.example.io")
}

/// The kind, its rules, and a policy that divides its replicas over m1 and m2.
async fn federation() -> Federation {
    let federation = Federation::start().await;
    serve(&federation).await;
    customize(&federation, rules()).await;
    policy(&federation).await;
    federation
}

/// Has hub and members serve the kind.
pub(super) async fn serve(federation: &Federation) {
    let crd = json!({
        "metadata": {"name": "webapps.apps.example.io"},
        "spec": {
            "group": "apps.example.io", "scope": "Namespaced",
            "names": {"plural": "webapps", "singular": "webapp", "kind": "WebApp"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let crds = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    federation.hub.apply(crds.0, crds.1, None, crd).await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [
            {"groupVersion": "apps.example.io/v1", "resources": [{"name": "webapps", "kind": "WebApp"}]},
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
        ]});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", name, apis).await;
    }
}

/// A policy that divides the replicas over m1 and m2.
pub(super) async fn policy(federation: &Federation) {
    let policy = json!({"metadata": {"name": "apps"}, "spec": {
        "resourceSelectors": [{"apiVersion": WEB_APP.0, "kind": WEB_APP.1}], "propagateDeps": true,
        "placement": {
            "clusterAffinity": {"clusterNames": ["m1", "m2"]},
            "replicaScheduling": {"replicaSchedulingType": "Divided"},
        },
    }});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy).await;
}

async fn customize(federation: &Federation, mut rules: Value) {
    let held = federation.hub.get(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "webapp").await;
    for rule in rules.as_object_mut().unwrap().values_mut().filter(|_| !held.is_null()) {
        for form in ["luaScript", "cel", "jsonPointer"] {
            // A merge patch would keep another form of the rule.
            rule[form] = rule[form].take();
        }
    }
    let spec = json!({
        "target": {"apiVersion": WEB_APP.0, "kind": WEB_APP.1}, "customizations": rules,
    });
    let object = json!({"metadata": {"name": "webapp"}, "spec": spec});
    federation.hub.apply(CUSTOMIZATION.0, CUSTOMIZATION.1, None, object).await;
}

fn rules() -> Value {
    json!({
        "replicaResource": {"luaScript": "function GetReplicas(object)
            return object.spec.size, {resourceRequest = {cpu = '100m'}} end"},
        "replicaRevision": {"luaScript": "function ReviseReplica(object, replicas)
            object.spec.size = replicas return object end"},
        "dependencyInterpretation": {"cel":
            "[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': object.metadata.namespace,
               'name': object.spec.config}]"},
    })
}

pub(super) async fn app(federation: &Federation, size: Value, config: &str) {
    let object = json!({"metadata": {"name": "web"}, "spec": {"size": size, "config": config}});
    federation.hub.apply(WEB_APP.0, WEB_APP.1, Some("shop"), object).await;
}

async fn config(federation: &Federation, name: &str) {
    let object = json!({"metadata": {"name": name}, "data": {"colour": "blue"}});
    federation.hub.apply("v1", "ConfigMap", Some("shop"), object).await;
}

/// Waits until m1 and m2 have these shares.
pub(super) async fn until_sizes(federation: &Federation, expected: [i64; 2]) {
    let sizes = || {
        ["m1", "m2"].map(|name| federation.members.manifest_of(name, "web")["spec"]["size"].clone())
    };
    eventually(&format!("sizes {expected:?}"), 2 * SOON, || async {
        sizes() == expected.map(Value::from)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_with_rules_is_divided_and_what_it_refers_to_goes_along() {
    let federation = federation().await;
    config(&federation, "blue").await;
    config(&federation, "green").await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    let binding = federation.hub.binding(&web()).await;
    assert_eq!(binding["spec"]["replicas"], 4);
    assert_eq!(binding["spec"]["replicaRequirements"]["resourceRequest"]["cpu"], "100m");
    let came = federation.members.take_moves();
    let place = |what: &str| came.iter().position(|moved| moved == what).unwrap();
    assert!(place("m1 +ConfigMap/blue") < place("m1 +WebApp/web"), "{came:?}");
    app(&federation, json!(7), "blue").await;
    federation.until(BINDING, &web(), "/spec/replicas", json!(7)).await;
    eventually("all seven are placed", SOON, || async {
        let sizes = ["m1", "m2"]
            .map(|name| federation.members.manifest_of(name, "web")["spec"]["size"].clone());
        sizes.iter().filter_map(Value::as_i64).sum::<i64>() == 7
    })
    .await;
    app(&federation, json!(4), "green").await;
    eventually("blue leaves", 2 * SOON, || async {
        let held = federation.members.objects("m1");
        held.contains("ConfigMap/green") && !held.contains("ConfigMap/blue")
    })
    .await;
    // The next leader sends nothing else, although it has to ask the rules first.
    until_sizes(&federation, [2, 2]).await;
    federation.members.take_moves();
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    until_sizes(&federation, [2, 2]).await;
    assert_eq!(federation.members.take_moves(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn rules_that_fail_move_nothing_and_are_shown_until_they_are_mended() {
    let federation = federation().await;
    config(&federation, "blue").await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    let broken = [
        ("replicaResource", json!({"luaScript": "function GetReplicas(object"}), "Compiled"),
        (
            "replicaResource",
            json!({"luaScript": "function GetReplicas(o) while true do end end"}),
            "Failing",
        ),
        ("replicaResource", json!({"cel": "'many'"}), "Failing"),
        (
            "replicaRevision",
            json!({"luaScript": "function ReviseReplica(o, n) error('no') end"}),
            "Failing",
        ),
        ("replicaRevision", json!({"jsonPointer": "/spec/config/size"}), "Failing"),
        (
            "dependencyInterpretation",
            json!({"cel": "[{'apiVersion': 'v1', 'kind': 'ConfigMap'}]"}),
            "Failing",
        ),
        (
            "dependencyInterpretation",
            json!({"cel":
            "[{'apiVersion': 'v1', 'kind': 'Secret', 'namespace': 'atoll-system', 'name': 'ca'}]"}),
            "Failing",
        ),
    ];
    federation.members.take_moves();
    for (rule, script, condition) in broken {
        let mut rules = rules();
        rules[rule] = script.clone();
        customize(&federation, rules).await;
        let (at, status) = if condition == "Compiled" { (0, "False") } else { (1, "True") };
        let path = format!("/conditions/{at}/status");
        until_status(&federation, "webapp", &path, json!(status)).await;
        let object = federation.hub.get(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "webapp").await;
        let message = object["status"]["conditions"][at]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("spec.customizations.{rule}")), "{script}: {message}");
        // Another kind goes on meanwhile.
        let name = format!("other-{}", message.len());
        federation
            .hub
            .policy("all", DEPLOYMENT, json!({"clusterAffinity": {"clusterNames": ["m3"]}}))
            .await;
        federation.hub.deployment(&name, 1).await;
        federation
            .until(BINDING, &format!("{name}-deployment"), "/status/summary/applied", json!(1))
            .await;
        tokio::time::sleep(SOON).await;
        until_sizes(&federation, [2, 2]).await;
        let moves = federation.members.take_moves();
        assert!(
            moves.iter().all(|moved| moved.starts_with("m3 +Deployment/other")),
            "{script}: {moves:?}"
        );
        let mended = self::rules();
        customize(&federation, mended).await;
        until_status(&federation, "webapp", "/conditions/0/status", json!("True")).await;
        until_status(&federation, "webapp", "/conditions/1/status", json!("False")).await;
    }
    // After all that it still follows.
    app(&federation, json!(6), "blue").await;
    until_sizes(&federation, [3, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_fails_holds_the_members_back_and_says_so() {
    let federation = federation().await;
    config(&federation, "blue").await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    let mut broken = rules();
    broken["replicaRevision"] =
        json!({"luaScript": "function ReviseReplica(o, n) error('no') end"});
    customize(&federation, broken).await;
    app(&federation, json!(8), "blue").await;
    federation.until(BINDING, &web(), "/spec/replicas", json!(8)).await;
    eventually("the binding says so", SOON, || async {
        let binding = federation.hub.binding(&web()).await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|held| held["reason"] == "CannotRender")
    })
    .await;
    until_sizes(&federation, [2, 2]).await;
    customize(&federation, rules()).await;
    until_sizes(&federation, [4, 4]).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_a_built_in_kind_comes_before_the_built_in_rule() {
    let federation = Federation::start().await;
    let spec = json!({
        "target": {"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1},
        "customizations": {"replicaResource": {"cel": "object.spec.replicas * 2"}},
    });
    let object = json!({"metadata": {"name": "twice"}, "spec": spec});
    federation
        .hub
        .policy("all", DEPLOYMENT, json!({"clusterAffinity": {"clusterNames": ["m1"]}}))
        .await;
    federation.hub.deployment("web", 2).await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(2)).await;
    federation.hub.apply(CUSTOMIZATION.0, CUSTOMIZATION.1, None, object).await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(4)).await;
    federation.hub.delete(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "twice").await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(2)).await;
}

#[tokio::test(start_paused = true)]
async fn components_by_a_rule_go_to_one_cluster_together() {
    let federation = federation().await;
    let components = "[{'name': 'head', 'replicas': 1},
        {'name': 'worker', 'replicas': object.spec.size, 'podTemplate': {'spec': {'containers': [
            {'name': 'c', 'resources': {'requests': {'cpu': '1'}}}]}}}]";
    customize(&federation, json!({"componentResource": {"cel": components}})).await;
    let policy =
        json!({"metadata": {"name": "apps"}, "spec": {"placement": {"replicaScheduling": null}}});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy).await;
    app(&federation, json!(4), "blue").await;
    federation.until(BINDING, &web(), "/status/summary/applied", json!(1)).await;
    let spec = federation.hub.binding(&web()).await["spec"].clone();
    assert_eq!(spec["clusters"].as_array().unwrap().len(), 1, "{spec}");
    assert_eq!(spec["components"][1]["name"], "worker");
    assert_eq!(spec["components"][1]["replicas"], 4);
    assert_eq!(spec["components"][1]["replicaRequirements"]["resourceRequest"]["cpu"], "1");
    assert_eq!(spec.get("replicas"), None);
    // A changed set stays where it is.
    app(&federation, json!(5), "blue").await;
    federation.until(BINDING, &web(), "/spec/components/1/replicas", json!(5)).await;
    tokio::time::sleep(SOON).await;
    let now = federation.hub.binding(&web()).await["spec"].clone();
    assert_eq!(now["clusters"], spec["clusters"]);
}
