//! One row for each kind, from the fields that the projects document.

use super::table::{Components, Count, HealthRule, NONE, Phase, Reference, Rules};
use Reference::{Named, Typed};

/// The rows of all projects.
pub(super) static ALL: [&[Rules]; 10] =
    [KRUISE, ARGO, VOLCANO, FLINK, FLUX, FLUX_SOURCES, KUBEFLOW, KYVERNO, RAY, SPARK];

const POD_COUNTS: &[&str] = &[
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "currentReplicas",
    "updatedReadyReplicas",
    "updatedAvailableReplicas",
    "expectedUpdatedReplicas",
];

const fn count(
    path: &'static str,
    name: &'static str,
    desired: &'static [&'static str],
    kept: &'static str,
) -> Count {
    Count { path, name, desired, kept }
}

const JOB_PHASES: &[&str] = &["failed", "pending", "running", "paused", "completed"];

const KRUISE: &[Rules] = &[
    Rules {
        group: "apps.kruise.io",
        kind: "AdvancedCronJob",
        templates: &[
            "spec.template.jobTemplate.spec.template",
            "spec.template.broadcastJobTemplate.spec.template",
        ],
        reflect: &["active", "lastScheduleTime", "type"],
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "BroadcastJob",
        templates: &["spec.template"],
        health: HealthRule::Phase {
            path: "status.phase",
            healthy: &["running", "completed", "paused"],
            failed: &["failed"],
        },
        counts: &["active", "succeeded", "failed", "desired"],
        phase: Some(Phase { path: &["phase"], order: JOB_PHASES, waiting: "pending" }),
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "CloneSet",
        replicas: Some("replicas"),
        templates: &["spec.template"],
        health: HealthRule::Counts(&[
            // With a partition fewer pods than all are to be updated.
            count(
                "status.updatedReplicas",
                "updated",
                &["status.expectedUpdatedReplicas", "spec.replicas"],
                "",
            ),
            count("status.availableReplicas", "available", &["spec.replicas"], ""),
        ]),
        counts: POD_COUNTS,
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "DaemonSet",
        templates: &["spec.template"],
        health: HealthRule::Counts(&[
            count(
                "status.updatedNumberScheduled",
                "updated",
                &["status.desiredNumberScheduled"],
                "spec.updateStrategy.rollingUpdate.partition",
            ),
            count("status.numberAvailable", "available", &["status.desiredNumberScheduled"], ""),
        ]),
        counts: &[
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberAvailable",
            "numberMisscheduled",
            "numberReady",
            "numberUnavailable",
            "updatedNumberScheduled",
        ],
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "SidecarSet",
        pod_specs: &["spec"],
        health: HealthRule::Counts(&[
            count("status.updatedPods", "updated", &["status.matchedPods"], ""),
            count("status.readyPods", "ready", &["status.matchedPods"], ""),
        ]),
        counts: &["matchedPods", "updatedPods", "readyPods", "updatedReadyPods"],
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "UnitedDeployment",
        replicas: Some("replicas"),
        templates: &[
            "spec.template.statefulSetTemplate.spec.template",
            "spec.template.advancedStatefulSetTemplate.spec.template",
            "spec.template.cloneSetTemplate.spec.template",
            "spec.template.deploymentTemplate.spec.template",
        ],
        health: HealthRule::Counts(&[
            count(
                "status.updatedReplicas",
                "updated",
                &["spec.replicas"],
                "spec.updateStrategy.manualUpdate.partitions{}",
            ),
            count("status.readyReplicas", "ready", &["spec.replicas"], ""),
        ]),
        counts: POD_COUNTS,
        ..NONE
    },
    Rules {
        group: "apps.kruise.io",
        kind: "StatefulSet",
        replicas: Some("replicas"),
        templates: &["spec.template"],
        health: HealthRule::Counts(&[
            count(
                "status.updatedReplicas",
                "updated",
                &["spec.replicas"],
                "spec.updateStrategy.rollingUpdate.partition",
            ),
            count("status.availableReplicas", "available", &["spec.replicas"], ""),
        ]),
        counts: POD_COUNTS,
        ..NONE
    },
];

const ARGO: &[Rules] = &[
    Rules {
        group: "argoproj.io",
        kind: "Rollout",
        replicas: Some("replicas"),
        templates: &["spec.template"],
        health: HealthRule::Phase {
            path: "status.phase",
            healthy: &["Healthy"],
            failed: &["Degraded", "InvalidSpec", "Error"],
        },
        counts: POD_COUNTS,
        phase: Some(Phase {
            path: &["phase"],
            order: &["InvalidSpec", "Error", "Degraded", "Paused", "Progressing", "Healthy"],
            waiting: "Progressing",
        }),
        ..NONE
    },
    Rules {
        group: "argoproj.io",
        kind: "Workflow",
        // A Workflow's own spec has the pod fields that all its templates share.
        pod_specs: &["spec"],
        references: &[
            Named("Secret", "spec.templates[].container.env[].valueFrom.secretKeyRef.name"),
            Named("Secret", "spec.templates[].container.envFrom[].secretRef.name"),
            Named("Secret", "spec.templates[].script.env[].valueFrom.secretKeyRef.name"),
            Named("Secret", "spec.templates[].volumes[].secret.secretName"),
            Named("ConfigMap", "spec.templates[].container.env[].valueFrom.configMapKeyRef.name"),
            Named("ConfigMap", "spec.templates[].container.envFrom[].configMapRef.name"),
            Named("ConfigMap", "spec.templates[].script.env[].valueFrom.configMapKeyRef.name"),
            Named("ConfigMap", "spec.templates[].volumes[].configMap.name"),
            Named(
                "PersistentVolumeClaim",
                "spec.templates[].volumes[].persistentVolumeClaim.claimName",
            ),
            Named("ConfigMap", "spec.arguments.parameters[].valueFrom.configMapKeyRef.name"),
            Named("ServiceAccount", "spec.templates[].serviceAccountName"),
        ],
        health: HealthRule::Phase {
            path: "status.phase",
            healthy: &["Running", "Succeeded"],
            failed: &["Failed", "Error"],
        },
        phase: Some(Phase {
            path: &["phase"],
            order: &["Error", "Failed", "Pending", "Running", "Succeeded"],
            waiting: "Pending",
        }),
        // The nodes of a workflow can have megabytes.
        reflect: &["phase", "message", "progress", "startedAt", "finishedAt", "estimatedDuration"],
        ..NONE
    },
];

const VOLCANO: &[Rules] = &[Rules {
    group: "batch.volcano.sh",
    kind: "Job",
    templates: &["spec.tasks[].template"],
    references: &[Named("PersistentVolumeClaim", "spec.volumes[].volumeClaimName")],
    health: HealthRule::Phase {
        path: "status.state.phase",
        healthy: &["Running", "Completing", "Completed"],
        failed: &["Failed", "Aborted", "Terminated"],
    },
    counts: &[
        "pending",
        "running",
        "succeeded",
        "failed",
        "terminating",
        "unknown",
        "minAvailable",
        "retryCount",
    ],
    phase: Some(Phase {
        path: &["state", "phase"],
        order: &[
            "Failed",
            "Aborted",
            "Terminated",
            "Aborting",
            "Terminating",
            "Restarting",
            "Pending",
            "Running",
            "Completing",
            "Completed",
        ],
        waiting: "Pending",
    }),
    components: Components::List {
        items: "spec.tasks[]",
        name: ("name", "task-"),
        template: "template",
    },
    ..NONE
}];

const FLINK: &[Rules] = &[Rules {
    group: "flink.apache.org",
    kind: "FlinkDeployment",
    templates: &["spec.podTemplate", "spec.jobManager.podTemplate", "spec.taskManager.podTemplate"],
    references: &[Named("ServiceAccount", "spec.serviceAccount")],
    health: HealthRule::Phase {
        path: "status.lifecycleState",
        healthy: &["STABLE", "SUSPENDED"],
        failed: &["FAILED", "ROLLED_BACK"],
    },
    phase: Some(Phase {
        path: &["lifecycleState"],
        order: &[
            "FAILED",
            "ROLLED_BACK",
            "ROLLING_BACK",
            "DELETING",
            "CREATED",
            "UPGRADING",
            "DEPLOYED",
            "SUSPENDED",
            "STABLE",
        ],
        waiting: "CREATED",
    }),
    components: Components::Flink,
    ..NONE
}];

const READY: HealthRule = HealthRule::Condition("Ready");

const FLUX: &[Rules] = &[
    Rules {
        group: "helm.toolkit.fluxcd.io",
        kind: "HelmRelease",
        references: &[
            Typed("spec.valuesFrom[]"),
            Named("Secret", "spec.kubeConfig.secretRef.name"),
            Named("ConfigMap", "spec.kubeConfig.configMapRef.name"),
            Named("Secret", "spec.chart.spec.verify.secretRef.name"),
            Named("ServiceAccount", "spec.serviceAccountName"),
        ],
        health: READY,
        counts: &["failures", "installFailures", "upgradeFailures"],
        ..NONE
    },
    Rules {
        group: "kustomize.toolkit.fluxcd.io",
        kind: "Kustomization",
        references: &[
            Typed("spec.postBuild.substituteFrom[]"),
            Named("Secret", "spec.decryption.secretRef.name"),
            Named("Secret", "spec.kubeConfig.secretRef.name"),
            Named("ConfigMap", "spec.kubeConfig.configMapRef.name"),
            Named("ServiceAccount", "spec.serviceAccountName"),
        ],
        health: READY,
        ..NONE
    },
];

const SOURCE: Rules = Rules {
    group: "source.toolkit.fluxcd.io",
    references: &[
        Named("Secret", "spec.secretRef.name"),
        Named("Secret", "spec.certSecretRef.name"),
        Named("Secret", "spec.proxySecretRef.name"),
        Named("Secret", "spec.verify.secretRef.name"),
        Named("ServiceAccount", "spec.serviceAccountName"),
    ],
    health: READY,
    ..NONE
};

const FLUX_SOURCES: &[Rules] = &[
    Rules { kind: "GitRepository", ..SOURCE },
    Rules { kind: "Bucket", ..SOURCE },
    Rules { kind: "HelmChart", ..SOURCE },
    Rules { kind: "HelmRepository", ..SOURCE },
    Rules { kind: "OCIRepository", ..SOURCE },
];

const TRAINING: Rules = Rules {
    group: "kubeflow.org",
    health: HealthRule::Job {
        failed: &["Failed"],
        healthy: &["Succeeded", "Running", "Suspended"],
    },
    counts: &[
        "replicaStatuses{}.active",
        "replicaStatuses{}.succeeded",
        "replicaStatuses{}.failed",
    ],
    ..NONE
};

const KUBEFLOW: &[Rules] = &[
    Rules {
        group: "kubeflow.org",
        kind: "Notebook",
        templates: &["spec.template"],
        health: READY,
        counts: &["readyReplicas"],
        ..NONE
    },
    Rules {
        kind: "PyTorchJob",
        templates: &["spec.pytorchReplicaSpecs{}.template"],
        components: Components::Map("spec.pytorchReplicaSpecs"),
        ..TRAINING
    },
    Rules {
        kind: "TFJob",
        templates: &["spec.tfReplicaSpecs{}.template"],
        components: Components::Map("spec.tfReplicaSpecs"),
        ..TRAINING
    },
    Rules {
        kind: "MPIJob",
        templates: &["spec.mpiReplicaSpecs{}.template"],
        components: Components::Map("spec.mpiReplicaSpecs"),
        ..TRAINING
    },
];

const KYVERNO: &[Rules] = &[
    Rules { group: "kyverno.io", kind: "ClusterPolicy", health: READY, ..NONE },
    Rules { group: "kyverno.io", kind: "Policy", health: READY, ..NONE },
];

const RAY_COUNTS: &[&str] = &[
    "desiredWorkerReplicas",
    "minWorkerReplicas",
    "maxWorkerReplicas",
    "availableWorkerReplicas",
    "readyWorkerReplicas",
];

const RAY: &[Rules] = &[
    Rules {
        group: "ray.io",
        kind: "RayCluster",
        templates: &["spec.headGroupSpec.template", "spec.workerGroupSpecs[].template"],
        health: HealthRule::Phase {
            path: "status.state",
            healthy: &["ready", "suspended"],
            failed: &["failed"],
        },
        counts: RAY_COUNTS,
        phase: Some(Phase {
            path: &["state"],
            order: &["failed", "", "suspended", "ready"],
            waiting: "",
        }),
        components: Components::Ray("spec"),
        ..NONE
    },
    Rules {
        group: "ray.io",
        kind: "RayJob",
        templates: &[
            "spec.rayClusterSpec.headGroupSpec.template",
            "spec.rayClusterSpec.workerGroupSpecs[].template",
            "spec.submitterPodTemplate",
        ],
        health: HealthRule::Phase {
            path: "status.jobDeploymentStatus",
            healthy: &["Running", "Complete", "Suspended"],
            failed: &["Failed", "ValidationFailed"],
        },
        counts: &["failed", "succeeded"],
        phase: Some(Phase {
            path: &["jobDeploymentStatus"],
            order: &[
                "ValidationFailed",
                "Failed",
                "Retrying",
                "Suspending",
                "Waiting",
                "Initializing",
                "Suspended",
                "Running",
                "Complete",
            ],
            waiting: "Initializing",
        }),
        components: Components::Ray("spec.rayClusterSpec"),
        ..NONE
    },
    Rules {
        group: "ray.io",
        kind: "RayService",
        templates: &[
            "spec.rayClusterConfig.headGroupSpec.template",
            "spec.rayClusterConfig.workerGroupSpecs[].template",
        ],
        health: HealthRule::Phase {
            path: "status.serviceStatus",
            healthy: &["Running"],
            failed: &[],
        },
        counts: &["numServeEndpoints"],
        phase: Some(Phase {
            path: &["serviceStatus"],
            order: &["", "WaitForServeDeploymentReady", "Restarting", "Running"],
            waiting: "",
        }),
        ..NONE
    },
];

const SPARK: &[Rules] = &[Rules {
    group: "sparkoperator.k8s.io",
    kind: "SparkApplication",
    templates: &["spec.driver.template", "spec.executor.template"],
    // Driver and executor have the fields of a container, the application the volumes of both.
    pod_specs: &["spec"],
    references: &[
        Named("Secret", "spec.imagePullSecrets[]"),
        Named("ServiceAccount", "spec.driver.serviceAccount"),
        Named("ServiceAccount", "spec.executor.serviceAccount"),
        Named("Secret", "spec.driver.secrets[].name"),
        Named("Secret", "spec.executor.secrets[].name"),
        Named("ConfigMap", "spec.driver.configMaps[].name"),
        Named("ConfigMap", "spec.executor.configMaps[].name"),
        Named("Secret", "spec.driver.env[].valueFrom.secretKeyRef.name"),
        Named("Secret", "spec.executor.env[].valueFrom.secretKeyRef.name"),
        Named("ConfigMap", "spec.driver.env[].valueFrom.configMapKeyRef.name"),
        Named("ConfigMap", "spec.executor.env[].valueFrom.configMapKeyRef.name"),
        Named("Secret", "spec.driver.envFrom[].secretRef.name"),
        Named("Secret", "spec.executor.envFrom[].secretRef.name"),
        Named("ConfigMap", "spec.driver.envFrom[].configMapRef.name"),
        Named("ConfigMap", "spec.executor.envFrom[].configMapRef.name"),
        Named("ConfigMap", "spec.sparkConfigMap"),
        Named("ConfigMap", "spec.hadoopConfigMap"),
    ],
    health: HealthRule::Phase {
        path: "status.applicationState.state",
        healthy: &["RUNNING", "SUCCEEDING", "COMPLETED"],
        failed: &["FAILED", "FAILING", "SUBMISSION_FAILED"],
    },
    counts: &["executionAttempts", "submissionAttempts"],
    phase: Some(Phase {
        path: &["applicationState", "state"],
        order: &[
            "SUBMISSION_FAILED",
            "FAILED",
            "FAILING",
            "UNKNOWN",
            "INVALIDATING",
            "PENDING_RERUN",
            "NEW",
            "SUBMITTED",
            "RUNNING",
            "SUCCEEDING",
            "COMPLETED",
        ],
        waiting: "NEW",
    }),
    components: Components::Spark,
    ..NONE
}];
