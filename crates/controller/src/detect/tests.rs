use std::sync::Arc;

use atoll_api::ReservedNamespaces;
use atoll_api::marks;
use atoll_scheduler::detect::Excluded;
use serde_json::{Value, json};

use super::refusal::refusal;
use super::*;
use crate::index::Source;
use crate::index::key::{GroupKind, TemplateKey};
use crate::index::rows::Binding;

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

fn deployment() -> GroupKind {
    GroupKind::of(DEPLOYMENT.0, DEPLOYMENT.1)
}

/// A policy; without a namespace a cluster-scoped one.
fn policy(
    namespace: Option<&str>,
    name: &str,
    selector: Value,
    spec: Value,
) -> (Source, Arc<Value>) {
    let mut selector = selector;
    selector["apiVersion"] = json!(DEPLOYMENT.0);
    selector["kind"] = json!(DEPLOYMENT.1);
    let mut object = json!({
        "metadata": {"name": name, "uid": format!("{namespace:?}/{name}"), "generation": 1},
        "spec": {"resourceSelectors": [selector], "placement": {}},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    let source = match namespace {
        Some(namespace) => {
            object["metadata"]["namespace"] = json!(namespace);
            Source::PropagationPolicies
        }
        None => Source::ClusterPropagationPolicies,
    };
    (source, Arc::new(object))
}

fn template(namespace: &str, name: &str, extra: Value) -> Arc<Value> {
    let mut object = json!({
        "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1,
        "metadata": {
            "namespace": namespace, "name": name, "uid": "t", "resourceVersion": "1",
            "labels": {"app": "web"},
        },
        "spec": {"replicas": 1},
    });
    for (field, value) in extra.as_object().unwrap() {
        object[field] = value.clone();
    }
    Arc::new(object)
}

fn index(policies: Vec<(Source, Arc<Value>)>) -> Index {
    let mut index = Index::default();
    for (source, policy) in policies {
        index.apply(&source, policy);
    }
    index.replace(&Source::Templates(deployment()), vec![template("shop", "web", json!({}))]);
    index
}

fn key(namespace: Option<&str>, name: &str) -> PolicyKey {
    PolicyKey { namespace: namespace.map(str::to_owned), name: name.to_owned() }
}

fn claimed(index: &Index, current: Option<PolicyKey>) -> Claim {
    let key = TemplateKey::new(deployment().borrowed(), Some("shop"), "web");
    claim(index, index.template(&key).unwrap(), current.as_ref())
}

fn winner(policies: Vec<(Source, Arc<Value>)>, current: Option<PolicyKey>) -> Option<String> {
    claimed(&index(policies), current).policy().map(|policy| policy.key.to_string())
}

fn by_name() -> Value {
    json!({"name": "web"})
}

fn by_label() -> Value {
    json!({"labelSelector": {"matchLabels": {"app": "web"}}})
}

#[test]
fn the_strongest_policy_claims() {
    let none = || json!({});
    let priority = |priority: i32| json!({"priority": priority});
    let table = [
        (
            "a namespaced one before a cluster-scoped one, whatever its priority",
            vec![
                policy(None, "cluster", by_name(), priority(10)),
                policy(Some("shop"), "local", none(), none()),
            ],
            Some("shop/local"),
        ),
        (
            "explicit priority before narrowness",
            vec![
                policy(Some("shop"), "named", by_name(), none()),
                policy(Some("shop"), "high", none(), priority(1)),
            ],
            Some("shop/high"),
        ),
        (
            "a name before labels before the kind",
            vec![
                policy(Some("shop"), "a-kind", none(), none()),
                policy(Some("shop"), "b-labels", by_label(), none()),
                policy(Some("shop"), "c-name", by_name(), none()),
            ],
            Some("shop/c-name"),
        ),
        (
            "labels before the kind",
            vec![
                policy(Some("shop"), "a-kind", none(), none()),
                policy(Some("shop"), "b-labels", by_label(), none()),
            ],
            Some("shop/b-labels"),
        ),
        (
            "the smaller name",
            vec![
                policy(Some("shop"), "b", by_name(), none()),
                policy(Some("shop"), "a", by_name(), none()),
            ],
            Some("shop/a"),
        ),
        (
            "a policy selects in its own namespace only",
            vec![policy(Some("other"), "a", by_name(), none())],
            None,
        ),
        (
            "labels beside a name are ignored, as in Karmada",
            vec![policy(
                Some("shop"),
                "a",
                json!({"name": "web", "labelSelector": {"matchLabels": {"app": "other"}}}),
                none(),
            )],
            Some("shop/a"),
        ),
        (
            "a selector's namespace narrows a cluster-scoped policy",
            vec![
                policy(None, "a", json!({"namespace": "other"}), none()),
                policy(None, "b", json!({"namespace": "shop"}), none()),
            ],
            Some("b"),
        ),
        (
            "a selector that cannot be read selects nothing",
            vec![policy(
                Some("shop"),
                "a",
                json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}),
                none(),
            )],
            None,
        ),
    ];
    for (rule, policies, expected) in table {
        assert_eq!(winner(policies, None).as_deref(), expected, "{rule}");
    }
}

#[test]
fn a_claim_stays_until_its_policy_lets_go_or_another_preempts_it() {
    let plain = |namespace, name| policy(namespace, name, json!({}), json!({}));
    let always = |namespace, name, priority: i32| {
        policy(namespace, name, by_name(), json!({"preemption": "Always", "priority": priority}))
    };
    let shop = Some("shop");
    let table = [
        (
            "a stronger one does not take it by being there",
            vec![plain(shop, "old"), policy(shop, "new", by_name(), json!({"priority": 5}))],
            key(shop, "old"),
            "shop/old",
        ),
        (
            "preemption needs a higher priority within a scope",
            vec![plain(shop, "old"), always(shop, "new", 0)],
            key(shop, "old"),
            "shop/old",
        ),
        (
            "and with it takes the object",
            vec![plain(shop, "old"), always(shop, "new", 1)],
            key(shop, "old"),
            "shop/new",
        ),
        (
            "a namespaced one takes it from a cluster-scoped one whatever the priority",
            vec![policy(None, "old", json!({}), json!({"priority": 9})), always(shop, "new", 0)],
            key(None, "old"),
            "shop/new",
        ),
        (
            "never the other way round",
            vec![plain(shop, "old"), always(None, "new", 9)],
            key(shop, "old"),
            "shop/old",
        ),
        (
            "a policy that is gone holds nothing",
            vec![plain(None, "next")],
            key(shop, "old"),
            "next",
        ),
    ];
    for (rule, policies, current, expected) in table {
        assert_eq!(winner(policies, Some(current)).as_deref(), Some(expected), "{rule}");
    }
}

#[test]
fn a_deleted_policy_claims_nothing_though_its_object_is_still_there() {
    let (source, object) = policy(Some("shop"), "a", by_name(), json!({}));
    let mut object = (*object).clone();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let index = index(vec![(source, Arc::new(object))]);
    assert_eq!(claimed(&index, Some(key(Some("shop"), "a"))), Claim::None);
}

#[test]
fn a_workload_policys_label_or_a_spread_claims_without_a_policy() {
    let kind = Source::Templates(deployment());
    let labels = |label: &str| {
        json!({"metadata": {
            "namespace": "shop", "name": "web", "uid": "t", "resourceVersion": "1",
            "labels": {label: "wp"},
        }})
    };
    for label in [marks::WORKLOAD_POLICY].into_iter().chain(marks::WORKLOAD_POLICY_ALIASES) {
        let mut index = index(vec![]);
        index.replace(&kind, vec![template("shop", "web", labels(label))]);
        assert_eq!(claimed(&index, None), Claim::Bare, "{label}");
    }
    let pods = json!({"spec": {"template": {"metadata": {"labels": {
        marks::WORKLOAD_POLICY: "wp",
    }}}}});
    let mut index = index(vec![]);
    assert_eq!(claimed(&index, None), Claim::None);
    index.replace(&kind, vec![template("shop", "web", pods)]);
    assert_eq!(claimed(&index, None), Claim::Bare, "the pod template's label");

    index.replace(&kind, vec![template("shop", "web", json!({}))]);
    index.apply(
        &Source::WorkloadSpreads,
        Arc::new(json!({
            "metadata": {"namespace": "shop", "name": "ws", "uid": "s"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "subsets": [{"name": "a"}],
            },
        })),
    );
    assert_eq!(claimed(&index, None), Claim::Bare, "the target of a WorkloadSpread");
}

#[test]
fn reserved_namespaces_and_own_kinds_are_never_claimed() {
    let any = policy(None, "all", json!({}), json!({}));
    let mut index = index(vec![any]);
    for namespace in ["kube-system", "atoll-system"] {
        let object = template(namespace, "web", json!({}));
        let template = Template::read(&deployment(), &object, &Default::default()).unwrap();
        let claim = claim(&index, &template, None);
        assert_eq!(claim, Claim::Excluded(Excluded::ReservedNamespace), "{namespace}");
    }
    let infra = template("team-infra", "web", json!({}));
    let infra = Template::read(&deployment(), &infra, &Default::default()).unwrap();
    assert!(claim(&index, &infra, None).holds());
    index.reserve(ReservedNamespaces::with(["*-infra"]).unwrap());
    let excluded = Claim::Excluded(Excluded::ReservedNamespace);
    assert_eq!(claim(&index, &infra, None), excluded, "by a pattern of --reserved-namespaces");

    let own = GroupKind::of("work.atoll.dev/v1alpha1", "ResourceBinding");
    let object = template("shop", "web", json!({}));
    let template = Template::read(&own, &object, &Default::default()).unwrap();
    assert_eq!(claim(&index, &template, None), Claim::Excluded(Excluded::OwnKind));

    let (source, object) = policy(Some("shop"), "own", json!({}), json!({}));
    let mut object = (*object).clone();
    object["spec"]["resourceSelectors"][0]["apiVersion"] = json!("cluster.atoll.dev/v1alpha1");
    index.apply(&source, Arc::new(object));
    let mistake = index.policy(&key(Some("shop"), "own")).unwrap().selectors.clone();
    assert!(mistake.unwrap_err().contains("spec.resourceSelectors[0]"));
}

#[test]
fn on_a_hub_that_runs_workloads_kinds_that_make_pods_are_not_claimed() {
    let any = policy(None, "all", json!({}), json!({}));
    let mut index = index(vec![any]);
    assert!(claimed(&index, None).holds());
    let node = json!({"metadata": {"name": "node-1", "uid": "n"}});
    index.apply(&Source::Nodes, Arc::new(node.clone()));
    let Claim::Excluded(why) = claimed(&index, None) else { panic!("claimed") };
    assert!(why.to_string().starts_with("HubRunsWorkloads"), "{why}");
    index.delete(&Source::Nodes, &node);
    assert!(claimed(&index, None).holds());

    let controlled_by = |name: &str| {
        Arc::new(json!({"metadata": {
            "namespace": "shop", "name": "web-1", "uid": "r", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "controller": true},
            ],
        }}))
    };
    index.apply(&Source::ReplicaSets, controlled_by("other"));
    assert!(claimed(&index, None).holds(), "it belongs to no template");
    index.apply(&Source::ReplicaSets, controlled_by("web"));
    assert!(!claimed(&index, None).holds());
}

#[test]
fn what_every_cluster_makes_itself_is_not_claimed_and_the_reason_names_it() {
    let made = [
        ("ServiceAccount", "default", json!({}), Some("ServiceAccount \"default\"")),
        ("ServiceAccount", "builder", json!({}), None),
        ("ConfigMap", "kube-root-ca.crt", json!({}), Some("ConfigMap \"kube-root-ca.crt\"")),
        ("ConfigMap", "default", json!({}), None),
        (
            "Secret",
            "builder-token-x",
            json!({"type": "kubernetes.io/service-account-token"}),
            Some("a service account's token"),
        ),
        ("Secret", "default", json!({"type": "Opaque"}), None),
    ];
    for (kind, name, extra, reason) in made {
        let mut index = Index::default();
        let (source, object) = policy(Some("shop"), "all", json!({}), json!({}));
        let mut object = (*object).clone();
        object["spec"]["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": kind}]);
        index.apply(&source, Arc::new(object));
        let group = GroupKind::of("v1", kind);
        let template =
            Template::read(&group, &template("shop", name, extra), &Default::default()).unwrap();
        match (claim(&index, &template, None), reason) {
            (Claim::Excluded(why), Some(reason)) => {
                assert!(why.to_string().contains(reason), "{why}");
            }
            (claim, None) => assert!(claim.holds(), "{kind} {name}"),
            (claim, Some(_)) => panic!("{kind} {name}: {claim:?}"),
        }
    }
}

#[test]
fn a_binding_is_refused_unless_its_namespace_and_name_are_those_of_its_resource() {
    let binding = |namespace: Option<&str>, name: &str, resource: Value| {
        Binding::read(&json!({
            "metadata": {"namespace": namespace, "name": name, "uid": "b"},
            "spec": {"resource": resource},
        }))
        .unwrap()
    };
    let web = |namespace: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web"});
    let secret = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "admin"});
    let role_name =
        atoll_api::names::binding_name("admin", "ClusterRole", "rbac.authorization.k8s.io");
    let shop = Some("shop");
    let reserved = ReservedNamespaces::with(["infra"]).unwrap();
    let refused = |binding: &Binding| refusal(binding, &reserved).map(|why| why.to_string());

    for derived in [
        binding(shop, "web-deployment", web("shop")),
        binding(shop, "db-secret", secret("shop", "db")),
        binding(None, &role_name, role.clone()),
    ] {
        assert_eq!(refused(&derived), None, "{}", derived.key);
    }
    let misplaced = [
        ("another namespace's object", binding(shop, "web-deployment", web("bank"))),
        ("another name", binding(shop, "mine", web("shop"))),
        ("a cluster-scoped object", binding(shop, &role_name, role)),
        ("a namespaced object", binding(None, "web-deployment", web("shop"))),
    ];
    for (what, binding) in misplaced {
        let why = refused(&binding).expect(what);
        assert!(why.contains("restore spec.resource or delete"), "{what}: {why}");
    }
    let off_limits = [
        (
            "the CA key from elsewhere",
            binding(shop, "atoll-ca-secret", secret("atoll-system", "atoll-ca")),
        ),
        (
            "the CA key in its place",
            binding(Some("atoll-system"), "atoll-ca-secret", secret("atoll-system", "atoll-ca")),
        ),
        (
            "a pattern of --reserved-namespaces",
            binding(Some("infra"), "db-secret", secret("infra", "db")),
        ),
        (
            "a namespace that is reserved",
            binding(
                None,
                "kube-system-namespace",
                json!({"apiVersion": "v1", "kind": "Namespace", "name": "kube-system"}),
            ),
        ),
        (
            "one of Atoll's own",
            binding(
                None,
                "m-cluster",
                json!({"apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "name": "m"}),
            ),
        ),
    ];
    for (what, binding) in off_limits {
        let why = refused(&binding).expect(what);
        assert!(why.contains("never propagated"), "{what}: {why}");
    }
}

#[test]
fn a_lazy_policy_takes_effect_with_the_next_change_of_the_object() {
    let at = |time: &str| json!([{"manager": "kubectl", "time": time}]);
    let claimed_at = |policy_changed: &str, object_changed: &str, spec: Value| {
        let (source, object) = policy(Some("shop"), "a", json!({}), spec);
        let mut object = Arc::unwrap_or_clone(object);
        object["metadata"]["managedFields"] = at(policy_changed);
        let mut index = index(vec![(source, Arc::new(object))]);
        let mut web = Arc::unwrap_or_clone(template("shop", "web", json!({})));
        web["metadata"]["managedFields"] = at(object_changed);
        // The status is Atoll's own, and no change of the object.
        let status =
            json!({"manager": "atoll", "subresource": "status", "time": "2026-09-01T00:00:00Z"});
        web["metadata"]["managedFields"].as_array_mut().unwrap().push(status);
        index.apply(&Source::Templates(deployment()), Arc::new(web));
        claimed(&index, None)
    };
    let lazy = || json!({"activationPreference": "Lazy"});
    let (earlier, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    assert!(matches!(claimed_at(later, earlier, lazy()), Claim::Waiting(_)));
    assert!(claimed_at(earlier, later, lazy()).holds());
    assert!(claimed_at(later, later, lazy()).holds(), "times have whole seconds");
    assert!(claimed_at(later, earlier, json!({})).holds(), "not lazy");
}

fn served(kinds: &[(&str, &str)]) -> Vec<Arc<Value>> {
    let row = |(api_version, kind): &(&str, &str)| {
        let name = GroupKind::of(api_version, kind).to_string();
        Arc::new(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
    };
    kinds.iter().map(row).collect()
}

fn for_every_kind(name: &str, extra: Value) -> (Source, Arc<Value>) {
    let (source, object) = policy(Some("shop"), name, json!({}), json!({}));
    let mut object = (*object).clone();
    object["spec"]["resourceSelectors"] = json!([{"apiVersion": "*", "kind": "*"}]);
    for (field, value) in extra.as_object().unwrap() {
        object["spec"]["resourceSelectors"][0][field] = value.clone();
    }
    (source, Arc::new(object))
}

#[test]
fn a_selector_of_the_kind_is_stronger_than_one_of_every_kind() {
    let by_labels = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let mut index = index(vec![for_every_kind("a", by_labels)]);
    index.replace(&Source::Kinds, served(&[DEPLOYMENT]));
    let how = |index: &Index| match claimed(index, None) {
        Claim::Policy(policy, rules::Why::Strongest(how)) => (policy.key.name.clone(), how),
        other => panic!("{other:?}"),
    };
    assert_eq!(how(&index), ("a".to_owned(), Match::EveryKind));
    let (source, named) = policy(Some("shop"), "z", json!({}), json!({}));
    index.apply(&source, named);
    assert_eq!(how(&index), ("z".to_owned(), Match::Kind), "although its name is later");
}

#[test]
fn mistakes_in_selectors_of_every_kind_name_the_field() {
    for (extra, field) in [
        (json!({"apiVersion": "apps/v1"}), "spec.resourceSelectors[0].apiVersion"),
        (json!({"kind": "Deployment"}), "spec.resourceSelectors[0].apiVersion"),
        (json!({"name": "web"}), "spec.resourceSelectors[0].name"),
    ] {
        let mut index = index(vec![for_every_kind("all", extra)]);
        index.replace(&Source::Kinds, served(&[DEPLOYMENT]));
        let policy = index.policy(&key(Some("shop"), "all")).unwrap();
        let mistake = policy.selectors.clone().unwrap_err();
        assert!(mistake.starts_with(field), "{mistake}");
        assert_eq!(claimed(&index, None), Claim::None);
    }
}

#[test]
fn no_more_kinds_than_the_limit_are_watched_and_the_status_names_the_others() {
    use crate::status::policy::status;
    use atoll_scheduler::detect::MOST_KINDS;

    let mut index = index(vec![for_every_kind("all", json!({}))]);
    let own: Vec<String> = (0..=MOST_KINDS).map(|at| format!("Kind{at:03}")).collect();
    let mut kinds: Vec<(&str, &str)> =
        own.iter().map(|kind| ("crd.example.com/v1", kind.as_str())).collect();
    kinds.push(DEPLOYMENT);
    index.replace(&Source::Kinds, served(&kinds));
    assert_eq!(index.wanted_kinds().len(), MOST_KINDS);
    assert!(claimed(&index, None).holds(), "kinds of Kubernetes come first");
    for kind in index.wanted_kinds().into_keys() {
        if kind != deployment() {
            index.replace(&Source::Templates(kind), Vec::<Arc<Value>>::new());
        }
    }
    let answer = |index: &Index| {
        let policy = index.policy(&key(Some("shop"), "all")).unwrap();
        let status = status(index, policy, ["default"], jiff::Timestamp::UNIX_EPOCH);
        let accepted = &status.conditions[0];
        (accepted.reason.clone(), accepted.message.clone())
    };
    let (reason, message) = answer(&index);
    assert_eq!(reason, "TooManyKinds");
    assert!(message.contains("Kind127.crd.example.com, Kind128.crd.example.com"), "{message}");
    index.replace(&Source::Kinds, served(&kinds[2..]));
    for kind in index.wanted_kinds().into_keys() {
        index.replace(&Source::Templates(kind), Vec::<Arc<Value>>::new());
    }
    assert_eq!(answer(&index).0, "Accepted");
    index.delete(
        &Source::PropagationPolicies,
        &json!({"metadata": {"namespace": "shop", "name": "all"}}),
    );
    assert!(index.wanted_kinds().is_empty());
}
