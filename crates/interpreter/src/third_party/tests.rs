//! Each kind with the fields that its project documents.

use serde_json::{Value, json};

use crate::{
    HealthState::{self, Healthy, Progressing, Unhealthy},
    aggregate, components, dependencies, health, observed, replicas, set_replicas,
};

use super::table;

fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "a", "namespace": "shop", "generation": 2},
        "spec": spec, "status": status,
    })
}

fn pod(secret: &str, cpu: &str) -> Value {
    json!({"spec": {
        "imagePullSecrets": [{"name": secret}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    }})
}

fn states(api_version: &str, kind: &str, spec: &Value, cases: &[(Value, HealthState)]) {
    for (status, expected) in cases {
        let found = health(&object(api_version, kind, spec.clone(), status.clone()));
        assert_eq!(found.state, *expected, "{kind} {status}: {found}");
    }
}

fn summed(api_version: &str, kind: &str, one: Value, two: Value) -> Value {
    let template = object(api_version, kind, json!({}), Value::Null);
    aggregate(&template, &[("m1", &one), ("m2", &two)]).unwrap()
}

fn names(api_version: &str, kind: &str, spec: Value) -> Vec<String> {
    let found = dependencies(&object(api_version, kind, spec, Value::Null));
    found.iter().map(|r| format!("{}/{}", r.kind, r.name)).collect()
}

fn parts(api_version: &str, kind: &str, spec: Value) -> Vec<(String, i64, String)> {
    let parts = components(&object(api_version, kind, spec, Value::Null)).unwrap();
    let requested = |part: &crate::Component, name: &str| {
        let requirements = part.requirements.as_ref()?;
        Some(requirements.resource_request.get(name)?.to_string())
    };
    let part = |part: crate::Component| {
        let amounts = ["cpu", "memory"].map(|name| requested(&part, name).unwrap_or_default());
        (part.name, part.replicas, amounts.join(" ").trim().to_owned())
    };
    parts.into_iter().map(part).collect()
}

fn part(name: &str, replicas: i64, amounts: &str) -> (String, i64, String) {
    (name.to_owned(), replicas, amounts.to_owned())
}

#[test]
fn the_table_has_every_kind_once() {
    let mut kinds: Vec<(&str, &str)> =
        table::all().map(|rules| (rules.group, rules.kind)).collect();
    assert_eq!(kinds.len(), 28, "27 kinds of Karmada's table, and Rollout");
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 28);
    assert!(kinds.iter().all(|(group, kind)| !group.is_empty() && !kind.is_empty()));
}

#[test]
fn kruise_workloads_have_replicas_and_wait_for_their_rollout() {
    let kruise = "apps.kruise.io/v1alpha1";
    for (kind, spec) in [
        ("CloneSet", json!({"replicas": 3, "template": pod("pull", "1")})),
        ("StatefulSet", json!({"replicas": 3, "template": pod("pull", "1")})),
        (
            "UnitedDeployment",
            json!({"replicas": 3, "template": {"cloneSetTemplate": {"spec": {"template": pod("pull", "1")}}}}),
        ),
    ] {
        let mut found = object(kruise, kind, spec.clone(), Value::Null);
        assert_eq!(replicas(&found), Some(3), "{kind}");
        let requirements = crate::requirements(&found).unwrap();
        assert_eq!(requirements.resource_request["cpu"].as_str(), "1", "{kind}");
        set_replicas(&mut found, 5);
        assert_eq!(found["spec"]["replicas"], 5, "{kind}");
        assert_eq!(names(kruise, kind, spec.clone()), ["Secret/pull"], "{kind}");
        let status = |updated: i64, up: i64, observed: i64| {
            json!({
                "observedGeneration": observed, "replicas": 3, "updatedReplicas": updated,
                "readyReplicas": up, "availableReplicas": up,
            })
        };
        let cases = [
            (status(3, 3, 2), Healthy),
            (status(2, 3, 2), Progressing),
            (status(3, 2, 2), Progressing),
            (status(3, 3, 1), Progressing),
        ];
        states(kruise, kind, &spec, &cases);
        let sum = summed(kruise, kind, status(1, 2, 2), status(3, 3, 2));
        assert_eq!(sum["updatedReplicas"], 4, "{kind}");
        assert_eq!(sum["availableReplicas"], 5, "{kind}");
        assert!(sum.get("observedGeneration").is_none(), "{kind}");
    }
    let partitioned = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    let status = json!({"updatedReplicas": 1, "availableReplicas": 3});
    states(kruise, "StatefulSet", &partitioned, &[(status, Healthy)]);
    let expected =
        json!({"expectedUpdatedReplicas": 1, "updatedReplicas": 1, "availableReplicas": 3});
    states(kruise, "CloneSet", &json!({"replicas": 3}), &[(expected, Healthy)]);
}

#[test]
fn kruise_sets_of_nodes_and_sidecars_count_in_their_own_fields() {
    let kruise = "apps.kruise.io/v1alpha1";
    let nodes = |updated: i64, available: i64| {
        json!({
            "observedGeneration": 2, "desiredNumberScheduled": 2,
            "updatedNumberScheduled": updated, "numberAvailable": available,
        })
    };
    let cases = [(nodes(2, 2), Healthy), (nodes(1, 2), Progressing), (nodes(2, 1), Progressing)];
    states(kruise, "DaemonSet", &json!({}), &cases);
    assert_eq!(summed(kruise, "DaemonSet", nodes(1, 1), nodes(2, 2))["numberAvailable"], 3);
    assert_eq!(
        replicas(&object(kruise, "DaemonSet", json!({"template": pod("p", "1")}), json!({}))),
        None
    );

    let pods = |updated: i64, ready: i64| json!({"matchedPods": 2, "updatedPods": updated, "readyPods": ready});
    let cases = [(pods(2, 2), Healthy), (pods(1, 2), Progressing), (pods(2, 1), Progressing)];
    states(kruise, "SidecarSet", &json!({}), &cases);
    let sidecars = json!({"imagePullSecrets": [{"name": "pull"}], "containers": [
        {"name": "s", "envFrom": [{"configMapRef": {"name": "conf"}}]},
    ]});
    assert_eq!(names(kruise, "SidecarSet", sidecars), ["ConfigMap/conf", "Secret/pull"]);
    assert_eq!(summed(kruise, "SidecarSet", pods(1, 1), pods(2, 2))["matchedPods"], 4);
}

#[test]
fn kruise_jobs_follow_their_phase_and_cron_jobs_exist() {
    let kruise = "apps.kruise.io/v1alpha1";
    let phase = |phase: &str| json!({ "phase": phase, "active": 1 });
    let cases = [
        (phase("running"), Healthy),
        (phase("completed"), Healthy),
        (phase("pending"), Progressing),
        (phase("failed"), Unhealthy),
    ];
    states(kruise, "BroadcastJob", &json!({}), &cases);
    let sum = summed(kruise, "BroadcastJob", phase("completed"), phase("running"));
    assert_eq!((sum["phase"].clone(), sum["active"].clone()), (json!("running"), json!(2)));
    let job =
        json!({"template": {"broadcastJobTemplate": {"spec": {"template": pod("pull", "1")}}}});
    assert_eq!(names(kruise, "AdvancedCronJob", job.clone()), ["Secret/pull"]);
    states(kruise, "AdvancedCronJob", &job, &[(Value::Null, Healthy)]);
    let status = json!({"type": "BroadcastJob", "lastScheduleTime": "t", "active": [], "extra": 1});
    let reflected = observed(&object(kruise, "AdvancedCronJob", job, status)).status.unwrap();
    assert_eq!(reflected, json!({"type": "BroadcastJob", "lastScheduleTime": "t", "active": []}));
}

#[test]
fn argo_rollouts_have_replicas_and_workflows_send_no_nodes() {
    let argo = "argoproj.io/v1alpha1";
    let spec = json!({"replicas": 2, "template": pod("pull", "1")});
    assert_eq!(replicas(&object(argo, "Rollout", spec.clone(), json!({}))), Some(2));
    assert_eq!(names(argo, "Rollout", spec.clone()), ["Secret/pull"]);
    // A Rollout writes its observed generation as a text.
    let phase = |phase: &str, seen: &str| json!({"phase": phase, "observedGeneration": seen});
    let cases = [
        (phase("Healthy", "2"), Healthy),
        (phase("Healthy", "1"), Progressing),
        (phase("Progressing", "2"), Progressing),
        (phase("Paused", "2"), Progressing),
        (phase("Degraded", "2"), Unhealthy),
    ];
    states(argo, "Rollout", &spec, &cases);
    let member = |phase: &str| json!({"phase": phase, "readyReplicas": 1});
    let sum = summed(argo, "Rollout", member("Healthy"), member("Progressing"));
    assert_eq!(sum, json!({"phase": "Progressing", "readyReplicas": 2}));

    let phase = |phase: &str| json!({ "phase": phase });
    let cases = [
        (phase("Running"), Healthy),
        (phase("Succeeded"), Healthy),
        (json!({}), Progressing),
        (phase("Error"), Unhealthy),
    ];
    states(argo, "Workflow", &json!({}), &cases);
    let status = json!({"phase": "Running", "progress": "1/2", "nodes": {"a": {}}});
    let reflected = observed(&object(argo, "Workflow", json!({}), status)).status.unwrap();
    assert_eq!(reflected, json!({"phase": "Running", "progress": "1/2"}));
    let spec = json!({
        "serviceAccountName": "flow",
        "templates": [{"container": {"envFrom": [{"secretRef": {"name": "key"}}]}}],
        "volumes": [{"name": "v", "configMap": {"name": "conf"}}],
    });
    assert_eq!(
        names(argo, "Workflow", spec),
        ["ConfigMap/conf", "Secret/key", "ServiceAccount/flow"]
    );
    assert_eq!(summed(argo, "Workflow", phase("Succeeded"), phase("Failed"))["phase"], "Failed");
}

#[test]
fn a_volcano_job_has_its_tasks_as_components() {
    let volcano = "batch.volcano.sh/v1alpha1";
    let spec = json!({
        "tasks": [
            {"name": "master", "template": pod("a", "1")},
            {"replicas": 3, "template": pod("b", "2")},
        ],
        "volumes": [{"volumeClaimName": "data"}],
    });
    let expected = [part("master", 1, "1"), part("task-1", 3, "2")];
    assert_eq!(parts(volcano, "Job", spec.clone()), expected);
    assert_eq!(names(volcano, "Job", spec), ["PersistentVolumeClaim/data", "Secret/a", "Secret/b"]);
    let phase = |phase: &str| json!({"state": {"phase": phase}, "running": 2});
    let cases = [
        (phase("Running"), Healthy),
        (phase("Pending"), Progressing),
        (phase("Failed"), Unhealthy),
    ];
    states(volcano, "Job", &json!({}), &cases);
    let sum = summed(volcano, "Job", phase("Running"), phase("Pending"));
    assert_eq!(sum, json!({"state": {"phase": "Pending"}, "running": 4}));
}

#[test]
fn a_flink_deployment_needs_as_many_task_managers_as_its_slots_ask_for() {
    let flink = "flink.apache.org/v1beta1";
    let spec = json!({
        "serviceAccount": "flink",
        "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2"},
        "job": {"parallelism": 5},
        "jobManager": {"resource": {"cpu": 1, "memory": "2048m"}},
        "taskManager": {"resource": {"cpu": 0.5, "memory": "1g"}},
    });
    let expected = [part("jobmanager", 1, "1 2Gi"), part("taskmanager", 3, "0.5 1Gi")];
    assert_eq!(parts(flink, "FlinkDeployment", spec.clone()), expected);
    assert_eq!(names(flink, "FlinkDeployment", spec), ["ServiceAccount/flink"]);
    let state = |state: &str| json!({ "lifecycleState": state });
    let cases = [
        (state("STABLE"), Healthy),
        (state("DEPLOYED"), Progressing),
        (state("FAILED"), Unhealthy),
    ];
    states(flink, "FlinkDeployment", &json!({}), &cases);
    let sum = summed(flink, "FlinkDeployment", state("STABLE"), state("UPGRADING"));
    assert_eq!(sum["lifecycleState"], "UPGRADING");
}

#[test]
fn flux_and_kyverno_objects_are_healthy_when_they_are_ready() {
    let ready = |status: &str| {
        json!({"observedGeneration": 2, "conditions": [
            {"type": "Ready", "status": status, "reason": "R", "message": "m"},
        ]})
    };
    for (api_version, kind) in [
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository"),
        ("source.toolkit.fluxcd.io/v1", "Bucket"),
        ("source.toolkit.fluxcd.io/v1", "HelmChart"),
        ("source.toolkit.fluxcd.io/v1", "HelmRepository"),
        ("source.toolkit.fluxcd.io/v1", "OCIRepository"),
        ("kyverno.io/v1", "ClusterPolicy"),
        ("kyverno.io/v1", "Policy"),
    ] {
        let cases = [
            (ready("True"), Healthy),
            (ready("Unknown"), Progressing),
            (ready("False"), Unhealthy),
            (json!({}), Progressing),
        ];
        states(api_version, kind, &json!({}), &cases);
        states(api_version, kind, &json!({"suspend": true}), &[(json!({}), Healthy)]);
        let sum = summed(api_version, kind, ready("True"), ready("False"));
        assert_eq!(sum["conditions"][0]["status"], "False", "{kind}");
        assert_eq!(sum["conditions"][0]["message"], "Ready is False in m2", "{kind}");
    }
    let release = json!({
        "valuesFrom": [{"kind": "Secret", "name": "values"}, {"kind": "ConfigMap", "name": "conf"}],
        "kubeConfig": {"secretRef": {"name": "other"}},
    });
    let expected = ["ConfigMap/conf", "Secret/other", "Secret/values"];
    assert_eq!(names("helm.toolkit.fluxcd.io/v2", "HelmRelease", release), expected);
    let kustomization = json!({
        "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}]},
        "decryption": {"secretRef": {"name": "age"}}, "serviceAccountName": "apply",
    });
    let expected = ["ConfigMap/vars", "Secret/age", "ServiceAccount/apply"];
    assert_eq!(names("kustomize.toolkit.fluxcd.io/v1", "Kustomization", kustomization), expected);
    let source = json!({"secretRef": {"name": "login"}, "certSecretRef": {"name": "ca"}});
    assert_eq!(
        names("source.toolkit.fluxcd.io/v1", "Bucket", source),
        ["Secret/ca", "Secret/login"]
    );
}

#[test]
fn kubeflow_jobs_have_their_roles_as_components_and_notebooks_are_ready() {
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    for (api_version, kind, field) in [
        ("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs"),
        ("kubeflow.org/v1", "TFJob", "tfReplicaSpecs"),
        ("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs"),
    ] {
        let spec = json!({ field: {
            "Master": {"template": pod("pull", "1")},
            "Worker": {"replicas": 4, "template": pod("pull", "2")},
        }});
        let expected = [part("master", 1, "1"), part("worker", 4, "2")];
        assert_eq!(parts(api_version, kind, spec.clone()), expected, "{kind}");
        assert_eq!(names(api_version, kind, spec), ["Secret/pull"], "{kind}");
        let cases = [
            (condition("Running"), Healthy),
            (condition("Succeeded"), Healthy),
            (condition("Created"), Progressing),
            (condition("Failed"), Unhealthy),
        ];
        states(api_version, kind, &json!({}), &cases);
        let active = |n: i64| json!({"replicaStatuses": {"Worker": {"active": n}}});
        let sum = summed(api_version, kind, active(1), active(2));
        assert_eq!(sum, active(3), "{kind}");
    }
    let ready = json!({"readyReplicas": 1, "conditions": [{"type": "Ready", "status": "True"}]});
    let cases = [(ready.clone(), Healthy), (json!({}), Progressing)];
    states("kubeflow.org/v1", "Notebook", &json!({}), &cases);
    let notebook = json!({"template": pod("pull", "1")});
    assert_eq!(names("kubeflow.org/v1", "Notebook", notebook), ["Secret/pull"]);
    assert_eq!(summed("kubeflow.org/v1", "Notebook", ready.clone(), ready)["readyReplicas"], 2);
}

#[test]
fn ray_clusters_have_a_head_and_groups_of_workers() {
    let cluster = json!({
        "headGroupSpec": {"template": pod("head", "1")},
        "workerGroupSpecs": [
            {"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": pod("gpu", "4")},
            {"minReplicas": 1, "template": pod("small", "2")},
        ],
    });
    let expected = [part("ray-head", 1, "1"), part("gpu", 4, "4"), part("worker-1", 1, "2")];
    let secrets = ["Secret/gpu", "Secret/head", "Secret/small"];
    let job = json!({ "rayClusterSpec": cluster });
    for (kind, spec) in [("RayCluster", cluster.clone()), ("RayJob", job)] {
        assert_eq!(parts("ray.io/v1", kind, spec.clone()), expected, "{kind}");
        assert_eq!(names("ray.io/v1", kind, spec), secrets, "{kind}");
    }
    let service = json!({ "rayClusterConfig": cluster });
    assert_eq!(names("ray.io/v1", "RayService", service), secrets);
    let state = |field: &'static str| move |word: &str| json!({ field: word });
    let cluster = state("state");
    let cases =
        [(cluster("ready"), Healthy), (cluster(""), Progressing), (cluster("failed"), Unhealthy)];
    states("ray.io/v1", "RayCluster", &json!({}), &cases);
    let job = state("jobDeploymentStatus");
    let cases = [
        (job("Complete"), Healthy),
        (job("Initializing"), Progressing),
        (job("Failed"), Unhealthy),
    ];
    states("ray.io/v1", "RayJob", &json!({}), &cases);
    let service = state("serviceStatus");
    states(
        "ray.io/v1",
        "RayService",
        &json!({}),
        &[(service("Running"), Healthy), (service(""), Progressing)],
    );
    let workers = |n: i64| json!({"state": "ready", "readyWorkerReplicas": n});
    let sum = summed("ray.io/v1", "RayCluster", workers(1), workers(2));
    assert_eq!(sum, workers(3));
    assert_eq!(summed("ray.io/v1", "RayJob", job("Running"), job("Failed")), job("Failed"));
}

#[test]
fn a_spark_application_has_a_driver_and_executors_with_their_memory_overhead() {
    let spark = "sparkoperator.k8s.io/v1beta2";
    let spec = json!({
        "imagePullSecrets": ["pull"],
        "volumes": [{"name": "v", "configMap": {"name": "conf"}}],
        "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
        "executor": {
            "instances": 3, "cores": 2, "memory": "8g", "memoryOverhead": "1g",
            "secrets": [{"name": "key", "path": "/p"}],
        },
    });
    let expected = [part("driver", 1, "1 896Mi"), part("executor", 3, "2 9Gi")];
    assert_eq!(parts(spark, "SparkApplication", spec.clone()), expected);
    let needed = ["ConfigMap/conf", "Secret/key", "Secret/pull", "ServiceAccount/spark"];
    assert_eq!(names(spark, "SparkApplication", spec), needed);
    let state = |state: &str| json!({"applicationState": {"state": state}});
    let cases = [
        (state("COMPLETED"), Healthy),
        (state("SUBMITTED"), Progressing),
        (state("FAILED"), Unhealthy),
    ];
    states(spark, "SparkApplication", &json!({}), &cases);
    let sum = summed(spark, "SparkApplication", state("RUNNING"), state("COMPLETED"));
    assert_eq!(sum, state("RUNNING"));
}

#[test]
fn hostile_objects_have_answers_too() {
    for rules in table::all() {
        let api_version = format!("{}/v1", rules.group);
        for odd in [json!("text"), json!([1]), json!({"phase": 1, "state": [], "conditions": "x"})]
        {
            let found = object(&api_version, rules.kind, odd.clone(), odd.clone());
            assert_ne!(health(&found).reason, "", "{}", rules.kind);
            assert_eq!(dependencies(&found), [], "{}", rules.kind);
            assert_eq!(observed(&found).replicas, None, "{}", rules.kind);
            let sum = aggregate(&found, &[("m1", &odd), ("m2", &odd)]);
            assert!(sum.is_none_or(|sum| sum.is_object()), "{}", rules.kind);
        }
    }
    let hosts = json!({"workerGroupSpecs": [{"replicas": i64::MAX, "numOfHosts": i64::MAX}]});
    assert_eq!(parts("ray.io/v1", "RayCluster", hosts)[1].1, i64::MAX);
    let slots =
        json!({"job": {"parallelism": i64::MAX}, "taskManager": {"resource": {"memory": "1e99g"}}});
    assert_eq!(parts("flink.apache.org/v1beta1", "FlinkDeployment", slots)[1].1, i64::MAX);
    let negative = json!({"tasks": [{"name": "t", "replicas": -3}]});
    assert_eq!(parts("batch.volcano.sh/v1", "Job", negative), [part("t", 0, "")]);
}
