//! The rules of overrides that the recorded answers do not cover, and the examples of docs/overrides.md.
#![allow(clippy::unwrap_used)]

use atoll_api::Cluster;
use atoll_render::overrides::{
    ClusterProperties, Division, OverrideError, Policies, Policy, apply, check, left_out,
};
use atoll_render::{Overrides, Share, render, render_overridden};
use proptest::prelude::*;
use serde_json::{Value, json};

fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": 4, "template": {"spec": {
            "containers": [{"name": "web", "image": "nginx:1.25", "args": ["-q"]}],
            "initContainers": [{"name": "init", "image": "busybox:1"}]}}}})
}

fn north() -> ClusterProperties {
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "member1", "labels": {"tier": "edge"}},
        "spec": {"region": "north", "zones": ["n1", "n2"]}}))
    .unwrap();
    ClusterProperties::from(&cluster)
}

/// An OverridePolicy of namespace `shop`, or a ClusterOverridePolicy, with one rule for all clusters.
fn policy(namespace: Option<&str>, name: &str, overriders: Value) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({"metadata": metadata, "spec": {"overrideRules": [{"overriders": overriders}]}})
}

fn policies<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Policies {
    objects.into_iter().map(|object| Policy::read(object).unwrap()).collect()
}

fn applied(object: Value, overriders: Value, division: Division) -> Result<Value, OverrideError> {
    let policies = policies([&policy(Some("shop"), "p", overriders)]);
    apply(object, &north(), &policies, division).map(|(manifest, _)| manifest)
}

fn refused(overriders: Value, division: Division) -> String {
    let error = applied(web(), overriders, division).unwrap_err();
    assert!(
        error.to_string().starts_with("OverridePolicy shop/p: spec.overrideRules[0].overriders.")
    );
    error.to_string()
}

#[test]
fn identity_and_marks_cannot_be_overridden_by_any_overrider() {
    let none = Division::default();
    let plaintext = |path: &str, value: Value| json!({"plaintext": [{"path": path, "operator": "add", "value": value}]});
    for (overriders, part) in [
        (plaintext("/metadata/name", json!("other")), "plaintext[0].path: metadata.name"),
        (plaintext("/metadata/namespace", json!("kube-system")), "metadata.namespace"),
        (plaintext("/metadata", json!({})), "metadata.name"),
        (plaintext("/kind", json!("Pod")), "kind identifies"),
        (plaintext("x/apiVersion", json!("v1")), "apiVersion identifies"),
        (
            plaintext("/metadata/labels/atoll.dev~1managed-by", json!("me")),
            "a mark that only Atoll",
        ),
        (plaintext("/metadata/annotations", json!({"atoll.dev/hash": "x"})), "\"atoll.dev/hash\""),
        (
            json!({"fieldOverrider": [{"fieldPath": "/metadata/name"}]}),
            "fieldOverrider[0].fieldPath",
        ),
        (
            json!({"imageOverrider": [{"predicate": {"path": "/metadata/name"}, "component": "Tag",
                "operator": "replace", "value": "2"}]}),
            "imageOverrider[0].predicate.path: metadata.name",
        ),
        (
            json!({"labelsOverrider": [{"operator": "add", "value": {"atoll.dev/claims": "x"}}]}),
            "labelsOverrider[0].value: \"atoll.dev/claims\"",
        ),
    ] {
        let error = refused(overriders, none);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn what_division_decides_can_be_overridden_for_duplicated_work_only() {
    let overriders =
        |path: &str| json!({"plaintext": [{"path": path, "operator": "add", "value": 9}]});
    let divided = Division { replicas: true, ordinals: false };
    let error = refused(overriders("/spec/replicas"), divided);
    assert!(
        error.contains("plaintext[0].path: spec.replicas is decided by the division"),
        "{error}"
    );
    assert!(refused(overriders("/spec/completions"), divided).contains("spec.completions"));
    let whole = json!({"plaintext": [{"path": "/spec", "operator": "replace", "value": {}}]});
    assert!(refused(whole, divided).contains("spec.replicas"));
    let other = applied(web(), overriders("/spec/minReadySeconds"), divided).unwrap();
    assert_eq!(other["spec"]["minReadySeconds"], 9);
    let duplicated = applied(web(), overriders("/spec/replicas"), Division::default()).unwrap();
    assert_eq!(duplicated["spec"]["replicas"], 9);
}

#[test]
fn the_rendered_manifest_has_overrides_after_division_and_keeps_its_marks() {
    let share = Share {
        cluster: "member1".into(),
        replicas: Some(2),
        claim: "uid".into(),
        ..Share::default()
    };
    let policies = policies([
        &policy(
            None,
            "a",
            json!({"labelsOverrider": [{"operator": "add", "value": {"zone": "a", "app": "x"}}]}),
        ),
        &policy(
            Some("shop"),
            "b",
            json!({"labelsOverrider": [{"operator": "replace", "value": {"zone": "b"}}]}),
        ),
        &policy(
            Some("other"),
            "c",
            json!({"labelsOverrider": [{"operator": "add", "value": {"zone": "c"}}]}),
        ),
    ]);
    let cluster = north();
    let overrides = Overrides { cluster: &cluster, policies: &policies, divided: true };
    let (rendered, applied) = render_overridden(&web(), &share, &overrides).unwrap();
    assert_eq!(rendered.manifest["spec"]["replicas"], 2);
    let labels = &rendered.manifest["metadata"]["labels"];
    assert_eq!(*labels, json!({"app": "x", "zone": "b", "atoll.dev/managed-by": "atoll"}));
    assert_eq!(
        serde_json::to_value(applied).unwrap(),
        json!([{"scope": "cluster", "policy": "a", "rule": 0}, {"scope": "namespace", "policy": "b", "rule": 0}])
    );
    let plain = render(&web(), &share).unwrap();
    assert_ne!(plain.hash, rendered.hash, "members must detect the change");
    let none = Overrides { policies: &Policies::default(), ..overrides };
    assert_eq!(render_overridden(&web(), &share, &none).unwrap(), (plain, Vec::new()));
}

#[test]
fn values_are_computed_from_the_cluster() {
    let image = |cel: &str| {
        let overriders = json!({"imageOverrider": [{"component": "Registry", "operator": "replace",
            "valueFrom": {"cluster": {"cel": cel}}}]});
        applied(web(), overriders, Division::default()).map(|manifest| {
            manifest.pointer("/spec/template/spec/containers/0/image").unwrap().clone()
        })
    };
    assert_eq!(
        image("cluster.region + '.registry.example'").unwrap(),
        "north.registry.example/nginx:1.25"
    );
    assert_eq!(
        image("cluster.labels['tier'] + '-' + cluster.name").unwrap(),
        "edge-member1/nginx:1.25"
    );
    for (cel, part) in [
        (
            "cluster.provider",
            "imageOverrider[0].valueFrom.cluster.cel: \"provider\" does not exist",
        ),
        ("cluster.zones", "the result is not a string"),
        ("cluster.status", "\"status\" does not exist"),
        ("cluster.region +", "valueFrom.cluster.cel"),
        ("member.region", "\"member\" is not known"),
        ("cluster.labels.map(key, key).join('')", "maps have no order"),
    ] {
        let error = image(cel).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    let list = json!({"plaintext": [{"path": "/spec/zones", "operator": "add",
        "valueFrom": {"cluster": {"cel": "cluster.zones.map(zone, zone + '-a')"}}}]});
    let list = applied(web(), list, Division::default()).unwrap();
    assert_eq!(list["spec"]["zones"], json!(["n1-a", "n2-a"]));
}

#[test]
fn all_containers_covers_init_containers_and_every_kind_with_a_pod_template() {
    let overriders = |scope: &str| json!({"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "r.io", "scope": scope}]});
    let pod = json!({"containers": [{"name": "a", "image": "a"}], "ephemeralContainers": [{"name": "e", "image": "e"}]});
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "shop"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}});
    let custom = json!({"apiVersion": "x.io/v1", "kind": "Farm", "metadata": {"name": "f", "namespace": "shop"},
        "spec": {"head": {"template": {"spec": pod}}, "workers": [{"template": {"spec": pod}}], "image": "not-touched"}});
    let images = |object: &Value| object.to_string().matches("r.io/").count();
    for (object, few, all) in [(web(), 1, 2), (cron, 0, 2), (custom, 0, 4)] {
        let changed =
            |scope| applied(object.clone(), overriders(scope), Division::default()).unwrap();
        assert_eq!(
            (images(&changed("Containers")), images(&changed("AllContainers"))),
            (few, all),
            "{object}"
        );
        let policy = Policy::read(&policy(None, "p", overriders("Containers"))).unwrap();
        let left = left_out(&policy, &object);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].0, "spec.overrideRules[0].overriders.imageOverrider[0].scope");
        let policy = Policy::read(&self::policy(None, "p", overriders("AllContainers"))).unwrap();
        assert!(left_out(&policy, &object).is_empty());
    }
}

#[test]
fn tag_and_digest_are_both_kept() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let other = format!("sha256:{}", "1".repeat(64));
    for (component, operator, value, expected) in [
        ("Registry", "replace", "r.io", format!("r.io/nginx:1@{digest}")),
        ("Repository", "add", "-slim", format!("nginx-slim:1@{digest}")),
        ("Tag", "replace", "2", format!("nginx:2@{digest}")),
        ("Tag", "add", "-alpine", format!("nginx:1-alpine@{digest}")),
        ("Tag", "replace", &other, format!("nginx:1@{other}")),
        ("Tag", "remove", "", format!("nginx@{digest}")),
    ] {
        let mut object = web();
        object["spec"]["template"]["spec"]["containers"][0]["image"] =
            json!(format!("nginx:1@{digest}"));
        let overriders = json!({"imageOverrider": [{"component": component, "operator": operator, "value": value}]});
        let changed = applied(object, overriders, Division::default()).unwrap();
        assert_eq!(changed["spec"]["template"]["spec"]["containers"][0]["image"], expected);
    }
}

#[test]
fn mistakes_are_found_before_a_policy_is_applied() {
    let found = |overriders: Value| {
        let problems = check(&policy(Some("shop"), "p", overriders));
        assert_eq!(problems.len(), 1, "{problems:?}");
        let problem = &problems[0];
        (problem.error, problem.field.replace("spec.overrideRules[0].overriders.", ""))
    };
    for (overriders, error, field) in [
        (json!({"plaintext": [{"path": "/a", "operator": "add"}]}), true, "plaintext[0].value"),
        (json!({"plaintext": [{"path": "a/b", "operator": "remove"}]}), false, "plaintext[0].path"),
        (
            json!({"plaintext": [{"path": "/kind", "operator": "remove"}]}),
            true,
            "plaintext[0].path",
        ),
        (json!({"plaintext": [{"path": "a", "operator": "remove"}]}), true, "plaintext[0].path"),
        (
            json!({"plaintext": [{"path": "/a", "operator": "add", "valueFrom": {"cluster": {"cel": "1 +"}}}]}),
            true,
            "plaintext[0].valueFrom.cluster.cel",
        ),
        (
            json!({"imageOverrider": [{"component": "Repository", "operator": "remove"}]}),
            true,
            "imageOverrider[0].operator",
        ),
        (
            json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "no tag"}]}),
            false,
            "imageOverrider[0].value",
        ),
        (json!({"imageOverrider": [{"component": "Port"}]}), true, "imageOverrider[0]"),
        (json!({"fieldOverrider": [{"fieldPath": "/data/a"}]}), false, "fieldOverrider[0]"),
        (
            json!({"labelsOverrider": [{"operator": "add", "value": {"atoll.dev/hash": ""}}]}),
            true,
            "labelsOverrider[0].value",
        ),
    ] {
        assert_eq!(found(overriders), (error, field.to_owned()));
    }
    let object = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "other"}],
        "overriders": {}, "overrideRules": [{"targetCluster": {"fieldSelector": {"matchExpressions":
            [{"key": "country", "operator": "In", "values": ["x"]}]}}}]}});
    let fields: Vec<String> = check(&object).into_iter().map(|problem| problem.field).collect();
    assert_eq!(
        fields,
        [
            "spec.resourceSelectors[0].namespace",
            "spec.overriders",
            "spec.overrideRules[0].targetCluster.fieldSelector.matchExpressions[0].key",
        ]
    );
}

/// The YAML documents in a page.
fn examples(page: &str) -> Vec<Value> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(|block| serde_saphyr::from_multiple::<Value>(block).unwrap()).collect()
}

#[test]
fn the_examples_of_the_documentation_work() {
    let page = include_str!("../../../docs/overrides.md");
    let is_override =
        |example: &Value| example["kind"].as_str().is_some_and(|k| k.ends_with("OverridePolicy"));
    let examples: Vec<Value> = examples(page).into_iter().filter(is_override).collect();
    assert!(examples.len() >= 2);
    for example in &examples {
        assert_eq!(check(example), [], "{example}");
    }
    let (manifest, applied) =
        apply(web(), &north(), &policies(&examples), Division::default()).unwrap();
    assert_eq!(applied.len(), 2);
    let pod = &manifest["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.north.example/nginx:1.25");
    assert_eq!(pod["initContainers"][0]["image"], "north.registry.example/busybox:1");
    assert_eq!(pod["containers"][0]["args"], json!(["-q", "--verbose"]));
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(manifest["metadata"]["labels"]["tier"], "edge");
    assert_eq!(manifest["metadata"]["annotations"]["example.com/mirrored"], "true");
    let strategy =
        json!({"plaintext": [{"path": "/spec/strategy/type", "operator": "add", "value": "x"}]});
    let error = self::applied(web(), strategy, Division::default()).unwrap_err().to_string();
    let shown = "spec.overrideRules[0].overriders.plaintext[0].path: /spec/strategy does not exist";
    assert!(error.ends_with(shown) && page.contains(shown), "{error}");
}

#[test]
fn a_plaintext_change_of_a_wrong_type_is_found_by_a_later_image_override() {
    let registry =
        |value: &str| json!({"component": "Registry", "operator": "replace", "value": value});
    let after = |path: &str, value: Value| {
        let rules = json!([
            {"overriders": {"imageOverrider": [registry("a.example")]}},
            {"overriders": {"plaintext": [{"path": path, "operator": "add", "value": value}]}},
            {"overriders": {"imageOverrider": [registry("b.example")]}},
        ]);
        let policy = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"overrideRules": rules}});
        apply(web(), &north(), &policies(&[policy]), Division::default()).map(|_| ())
    };
    assert_eq!(after("/spec/paused", json!(true)), Ok(()));
    assert_eq!(after("/spec/template/spec/containers/0/tty", json!(true)), Ok(()));
    for (path, value) in [
        ("/spec/paused", json!("yes")),
        ("/spec/template/spec/containers/0/tty", json!("yes")),
        ("/spec/template/spec/securityContext", json!({"runAsUser": "root"})),
    ] {
        let error = after(path, value).unwrap_err();
        assert_eq!(error.rule, 2, "{error}");
    }
}

fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "spec",
        "template",
        "containers",
        "initContainers",
        "metadata",
        "labels",
        "0",
        "1",
        "-1",
        "-",
        "image",
        "args",
        "name",
        "kind",
        "",
        "~1",
        "99999999999999999999",
        "é",
    ]);
    prop_oneof![
        8 => prop::collection::vec(part, 0..7).prop_map(|parts| format!("/{}", parts.join("/"))),
        1 => "[ -~]{0,12}",
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"a": [1, {"b": "c"}]})),
        Just(json!(1.5)),
        Just(json!(-3)),
        "[ -~]{0,12}".prop_map(Value::from),
    ]
}

fn overriders() -> impl Strategy<Value = Value> {
    let operator = || prop::sample::select(vec!["add", "remove", "replace"]);
    let component = prop::sample::select(vec!["Registry", "Repository", "Tag"]);
    let scope = prop::sample::select(vec!["Containers", "AllContainers"]);
    let plaintext = (path(), operator(), any_value()).prop_map(
        |(path, operator, value)| json!({"path": path, "operator": operator, "value": value}),
    );
    let image = (component, operator(), "[ -~]{0,12}", scope, prop::option::of(path())).prop_map(
        |(component, operator, value, scope, path)| {
            let predicate = path.map(|path| json!({"path": path}));
            let mut image = json!({"component": component, "operator": operator, "value": value, "scope": scope});
            if let Some(predicate) = predicate {
                image["predicate"] = predicate;
            }
            image
        },
    );
    let field = (path(), path(), operator(), any_value(), any::<bool>()).prop_map(
        |(field, path, operator, value, json)| {
            let list = if json { "json" } else { "yaml" };
            json!({"fieldPath": field, list: [{"subPath": path, "operator": operator, "value": value}]})
        },
    );
    (prop::collection::vec(plaintext, 0..4), prop::collection::vec(image, 0..3), prop::collection::vec(field, 0..3))
        .prop_map(|(plaintext, images, fields)| {
            json!({"plaintext": plaintext, "imageOverrider": images, "fieldOverrider": fields})
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn odd_paths_and_values_are_applied_or_refused_by_field_and_identity_stays(
        first in overriders(), second in overriders(), object in prop_oneof![4 => Just(web()), 1 => any_value()],
    ) {
        let policies = policies([&policy(None, "a", first), &policy(Some("shop"), "b", second)]);
        let divided = Division { replicas: true, ordinals: true };
        match apply(object.clone(), &north(), &policies, divided) {
            Err(error) => prop_assert!(error.field.starts_with("spec.overrideRules[0].overriders."), "{}", error),
            Ok((manifest, _)) => {
                for field in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/spec/replicas"] {
                    prop_assert_eq!(manifest.pointer(field), object.pointer(field));
                }
            }
        }
    }

    #[test]
    fn any_policy_is_read_or_refused(spec in any_value(), rule in any_value(), target in any_value()) {
        let rules = json!({"overrideRules": [{"overriders": rule, "targetCluster": target}]});
        for spec in [spec, rules] {
            let object = json!({"metadata": {"name": "p"}, "spec": spec});
            prop_assert_eq!(Policy::read(&object).is_ok() || !check(&object).is_empty(), true);
        }
    }
}
