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

/// What the Dockerfile names exists, and the image is what the manifests expect. No test builds it: that needs docker.
#[test]
fn the_image_has_the_programs_and_the_user_of_the_manifests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (image, workspace) = (read("Dockerfile"), read("Cargo.toml"));
    let line = |start: &str| {
        let mut lines = image.lines().filter_map(|line| line.strip_prefix(start));
        lines.next_back().unwrap_or_else(|| panic!("no {start} in the Dockerfile"))
    };
    // Each profile with the programs of the package that is built with it.
    let builds =
        image.lines().filter_map(|line| line.strip_prefix("RUN cargo build ")).map(|build| {
            let words: Vec<_> = build.split(' ').collect();
            let value = |flag: &str| words.windows(2).find(|pair| pair[0] == flag).unwrap()[1];
            let (profile, package) = (value("--profile"), value("-p"));
            assert!(workspace.contains(&format!("[profile.{profile}]")), "{profile}");
            assert!(words.contains(&"--locked") && root.join("Cargo.lock").exists());
            let crate_folder = package.strip_prefix("atoll-").unwrap();
            (format!("/src/target/{profile}/"), read(&format!("crates/{crate_folder}/Cargo.toml")))
        });
    let builds: Vec<(String, String)> = builds.collect();

    // The copied programs are those of the built packages, and one is the entrypoint.
    let copied: Vec<_> = line("COPY --from=build ").split(' ').collect();
    let (folder, programs) = copied.split_last().unwrap();
    for program in programs {
        let is_built = builds.iter().any(|(folder, manifest)| {
            let name = program.strip_prefix(folder.as_str());
            name.is_some_and(|name| manifest.contains(&format!("[[bin]]\nname = \"{name}\"")))
        });
        assert!(is_built, "{program}");
    }
    assert_eq!(line("ENTRYPOINT "), format!("[\"{folder}atoll\"]"));
    assert!(programs.iter().any(|program| program.ends_with("/atoll-agent")));

    let parts = super::parts(&everything()).unwrap();
    let pod = &named(&parts, "Deployment", CONTROLLER)["spec"]["template"]["spec"];
    let user = &pod["securityContext"]["runAsUser"];
    assert_eq!(line("USER "), format!("{user}:{user}"));
    // The entrypoint is the program; the Pod passes its arguments only.
    assert!(pod["containers"][0]["command"].is_null());
    let toolchain = line("ARG BUILD_IMAGE=rust:").split('-').next().unwrap();
    assert!(workspace.contains(&format!("rust-version = \"{toolchain}\"")), "{toolchain}");
    let ignored = read(".dockerignore");
    assert!(ignored.lines().any(|line| line == "target") && ignored.contains(".git"));
}

fn bundled() -> Options {
    Options {
        hub: Hub::Bundled { volume: "5Gi".to_owned() },
        namespace: "federation".to_owned(),
        ..everything()
    }
}

/// Pod specs of all objects, with the objects' names.
fn pods(parts: &[Part]) -> Vec<(String, &Value)> {
    let objects = parts.iter().flat_map(|part| &part.objects);
    objects
        .filter_map(|object| {
            let spec = match kind_of(object) {
                "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
                "Deployment" | "StatefulSet" | "Job" => &object["spec"]["template"]["spec"],
                _ => return None,
            };
            Some((object["metadata"]["name"].as_str().unwrap().to_owned(), spec))
        })
        .collect()
}

#[test]
fn a_bundled_hub_has_its_pods_outside_and_its_kinds_inside() {
    let options = bundled();
    let host = super::parts(&options).unwrap();
    let of = |objects: &[Value], kind: &str| -> usize {
        objects.iter().filter(|object| kind_of(object) == kind).count()
    };
    let outside: Vec<_> = host.iter().flat_map(|part| part.objects.clone()).collect();
    let inside = hub_objects(&options).unwrap();
    for kind in
        ["CustomResourceDefinition", "ClusterRole", "APIService", "ValidatingAdmissionPolicy"]
    {
        assert_eq!(of(&outside, kind), 0, "{kind}");
        assert!(of(&inside, kind) > 0, "{kind}");
    }
    for kind in ["Deployment", "StatefulSet", "CronJob", "PersistentVolumeClaim", "NetworkPolicy"] {
        assert!(of(&outside, kind) > 0, "{kind}");
        assert_eq!(of(&inside, kind), 0, "{kind}");
    }
    // The hub finds the Services of the Pods' namespace, and the rights on it do not depend on that namespace.
    let api =
        inside.iter().find(|o| kind_of(o) == "Service" && o["metadata"]["name"] == "atoll-api");
    assert_eq!(api.unwrap()["spec"]["externalName"], "atoll-api.federation.svc");
    assert!(inside.iter().all(|object| object["metadata"]["namespace"] != "federation"));
    assert!(outside.iter().all(|object| object["metadata"]["namespace"] != "atoll-system"));
    let controller = named(&host, "Deployment", CONTROLLER);
    let args = &controller["spec"]["template"]["spec"]["containers"][0]["args"];
    let args: Vec<_> = args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert!(args.contains(&"--kubeconfig=/etc/atoll/hub/controller.kubeconfig"), "{args:?}");
    assert!(args.contains(&"--api-name=atoll-api.atoll-system.svc"), "{args:?}");
    let comment = &host.iter().find(|part| part.name == "hub").unwrap().comment;
    assert!(comment.contains("FOR EVALUATION AND SMALL ESTATES"), "{comment}");

    let wrong = Options { hub: Hub::Bundled { volume: "much".to_owned() }, ..bundled() };
    assert!(super::parts(&wrong).unwrap_err().to_string().contains("--hub-volume"));
}

#[test]
fn the_pods_of_a_bundled_hub_comply_with_restricted_and_mount_what_they_name() {
    let mut parts = super::parts(&bundled()).unwrap();
    parts.push(super::restore(&bundled(), "atoll-hub-backup-1.db").unwrap());
    let pods = pods(&parts);
    assert_eq!(pods.len(), 6, "controller, hub, two setups, backup, restore");
    for (name, pod) in pods {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        let named: Vec<_> =
            pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
        let lists = ["containers", "initContainers"].map(|list| pod[list].as_array());
        for container in lists.into_iter().flatten().flatten() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{name}");
            // The only one that `restricted` allows.
            let added = &context["capabilities"]["add"];
            assert!(added.is_null() || *added == json!(["NET_BIND_SERVICE"]), "{name}: {added}");
            let mounts = container["volumeMounts"].as_array().unwrap();
            let folders: Vec<_> =
                mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap()).collect();
            assert!(mounts.iter().all(|mount| named.contains(&&mount["name"])), "{name}");
            // No Pod mounts the keys of the authorities, and every file that is named is mounted.
            let mut volumes = pod["volumes"].as_array().unwrap().iter();
            let hub = volumes.find(|volume| volume["secret"]["secretName"] == HUB);
            let items = hub.map(|volume| volume["secret"]["items"].as_array().unwrap());
            let items: Vec<_> =
                items.into_iter().flatten().map(|item| item["path"].as_str().unwrap()).collect();
            assert!(items.iter().all(|file| !file.starts_with("authority.")), "{name}");
            // Every path in an argument is below a mounted folder.
            for arg in container["args"].as_array().into_iter().flatten() {
                let arg = arg.as_str().unwrap();
                let value = arg.split_once('=').map_or(arg, |(_, value)| value);
                let below = folders.iter().any(|folder| value.starts_with(folder));
                assert!(!value.starts_with('/') || below, "{name}: {arg}");
                if let Some(file) = value.strip_prefix("/etc/atoll/hub/") {
                    assert!(items.contains(&file), "{name}: {arg}");
                }
            }
        }
    }
}

#[test]
fn each_setup_has_a_job_of_its_own_and_wrong_snapshots_are_refused() {
    let job = |options: &Options| {
        let parts = super::parts(options).unwrap();
        let objects = parts.iter().flat_map(|part| &part.objects);
        let mut names = objects
            .filter(|object| kind_of(object) == "Job")
            .map(|job| job["metadata"]["name"].as_str().unwrap().to_owned());
        names.next().unwrap()
    };
    let first = job(&bundled());
    assert_eq!(first, job(&bundled()));
    // The template of a Job cannot change.
    assert_ne!(first, job(&Options { secrets: !bundled().secrets, ..bundled() }));
    assert_ne!(first, job(&Options { image: "atoll:other".to_owned(), ..bundled() }));
    for wrong in ["../hub.db", "hub", ".db", "a b.db"] {
        let error = super::restore(&bundled(), wrong).unwrap_err().to_string();
        assert!(error.contains("--hub-restore"), "{error}");
    }
    let existing = Options { hub: Hub::Existing, ..bundled() };
    assert!(super::restore(&existing, "a.db").unwrap_err().to_string().contains("--hub bundled"));
}
