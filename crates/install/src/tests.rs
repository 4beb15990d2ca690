use super::*;

fn named<'a>(parts: &'a [Part], kind: &str, name: &str) -> &'a Value {
    let mut objects = parts.iter().flat_map(|part| &part.objects);
    let found = objects.find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn everything() -> Options {
    Options {
        history: History::Secret("db".to_owned()),
        namespace: "federation".to_owned(),
        address: Some("hub.example.com:443".parse().unwrap()),
        secrets: true,
        cluster_kinds: true,
        replica_sync: true,
        observe: true,
        service_monitor: true,
        metrics_namespace: "metrics".to_owned(),
        priority_class: Some("system-cluster-critical".to_owned()),
        controller_args: vec!["--require-cluster-sets".to_owned()],
        ..Options::new("registry.example.com/atoll:1")
    }
}

#[test]
fn choices_that_contradict_are_refused_with_the_flag_and_the_fix() {
    let standard = || Options::new("atoll:1");
    let volume = |size: &str| History::Volume(size.to_owned());
    for (wrong, parts) in [
        (Options { replicas: Some(3), ..standard() }, ["--replicas 3", "--history-secret"]),
        (Options { replicas: Some(0), ..standard() }, ["--replicas 0", "1 to 9"]),
        (Options { history: volume("much"), ..standard() }, ["--history-volume", "10Gi"]),
        (Options { history: volume("0"), ..standard() }, ["--history-volume", "10Gi"]),
        (
            Options { history: History::Secret("A b".into()), ..standard() },
            ["--history-secret", "lower-case"],
        ),
        (Options { namespace: "kube-system".into(), ..standard() }, ["--namespace", "its own"]),
        (Options { namespace: "a.b".into(), ..standard() }, ["--namespace", "no name"]),
        (Options { image: "a b".into(), ..standard() }, ["--image", "REGISTRY"]),
        (
            Options { priority_class: Some(String::new()), ..standard() },
            ["--priority-class", "no name"],
        ),
    ] {
        let error = super::parts(&wrong).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    for address in ["hub", "hub:0", ":7443", "hub:65536", "a b:1", "[x]:1", "{{.}}:1"] {
        assert!(address.parse::<Address>().is_err(), "{address}");
    }
    for address in ["hub.example.com:7443", "10.0.0.1:1", "[::1]:7443"] {
        assert_eq!(address.parse::<Address>().unwrap().to_string(), address);
    }
}

#[test]
fn with_a_database_three_replicas_stay_apart_and_are_evicted_one_at_a_time() {
    let parts = parts(&everything()).unwrap();
    let deployment = named(&parts, "Deployment", CONTROLLER);
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["spec"]["strategy"]["type"], "RollingUpdate");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert!(pod["affinity"]["podAntiAffinity"].is_object());
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/atoll:1");
    // The password is neither in the manifest nor in the process list.
    assert!(!container["args"].to_string().contains("--history"));
    let history = container["env"].as_array().unwrap().last().unwrap();
    assert_eq!(history["valueFrom"]["secretKeyRef"], json!({"name": "db", "key": "url"}));
    assert_eq!(container["args"].as_array().unwrap().last().unwrap(), "--require-cluster-sets");
    named(&parts, "PodDisruptionBudget", CONTROLLER);

    let small = super::parts(&Options::new("atoll:1")).unwrap();
    let deployment = named(&small, "Deployment", CONTROLLER);
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    assert!(!text(&small).unwrap().contains("PodDisruptionBudget"));
}

/// A Pod in a namespace whose account has no rights there would not start, or not lead.
#[test]
fn in_another_namespace_the_pods_keep_their_rights_and_atolls_objects_stay() {
    let parts = parts(&everything()).unwrap();
    for object in parts.iter().flat_map(|part| &part.objects) {
        let text = object.to_string();
        assert!(kind_of(object) == "CustomResourceDefinition" || !text.contains(":null"), "{text}");
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let account =
            json!({"kind": "ServiceAccount", "name": CONTROLLER, "namespace": "federation"});
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(*subject, account, "{kind} {name}");
        }
        let stays = ["Role", "RoleBinding", "ConfigMap", "Namespace", "CustomResourceDefinition"];
        if !stays.iter().any(|stays| kind == stays) {
            assert!(!text.contains(SYSTEM_NAMESPACE), "{text}");
        }
    }
    let own = named(&parts, "Role", "atoll-controller");
    assert_eq!(own["metadata"]["namespace"], SYSTEM_NAMESPACE);
    assert!(!own["rules"].to_string().contains("pods"), "{own}");
    let pods = named(&parts, "Role", "atoll-controller-pod");
    assert_eq!(pods["metadata"]["namespace"], "federation");
    assert_eq!(pods["rules"][0]["resources"], json!(["pods"]));
    for namespace in [SYSTEM_NAMESPACE, "federation"] {
        let labels = &named(&parts, "Namespace", namespace)["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    }
    let args = &named(&parts, "Deployment", CONTROLLER)["spec"]["template"]["spec"]["containers"]
        [0]["args"];
    for arg in ["--api-name=atoll-api.federation.svc", "--reserved-namespaces=federation"] {
        assert!(args.as_array().unwrap().iter().any(|given| given == arg), "{args}");
    }
    let record = named(&parts, "ConfigMap", RECORD);
    assert_eq!(record_of(&record["data"]), (Some("federation"), Some("hub.example.com:443")));
    assert_eq!(named(&parts, "Service", CONTROLLER)["spec"]["ports"][0]["port"], 443);
    let metrics = &named(&parts, "NetworkPolicy", CONTROLLER)["spec"]["ingress"][1];
    assert!(
        metrics.to_string().contains(r#""kubernetes.io/metadata.name":"metrics""#),
        "{metrics}"
    );
}

#[test]
fn optional_parts_are_there_only_when_asked_for_and_nothing_has_two_sources() {
    let names = |options: &Options| -> Vec<&'static str> {
        parts(options).unwrap().iter().map(|part| part.name).collect()
    };
    let standard = ["crds", "rbac", "users", "deletion-protection", "network", "controller", "api"];
    assert_eq!(names(&Options::new("atoll:1")), standard);
    let all = names(&everything());
    assert!(
        ["secrets", "kinds", "replica-sync", "monitoring", "observe"]
            .iter()
            .all(|part| all.contains(part)),
        "{all:?}"
    );
    let mut seen = std::collections::BTreeSet::new();
    for object in parts(&everything()).unwrap().iter().flat_map(|part| &part.objects) {
        let metadata = &object["metadata"];
        let key = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
        assert!(seen.insert(key.clone()), "{key} twice");
    }
}

#[test]
fn the_text_is_the_objects_and_explains_each_part() {
    let parts = parts(&everything()).unwrap();
    let written = text(&parts).unwrap();
    let read: Vec<Value> = serde_saphyr::from_multiple(&written).unwrap();
    let objects: Vec<Value> = parts.iter().flat_map(|part| part.objects.clone()).collect();
    assert_eq!(read, objects);
    assert!(
        parts.iter().all(|part| part.comment.starts_with("# ") && part.comment.ends_with('\n'))
    );
}
