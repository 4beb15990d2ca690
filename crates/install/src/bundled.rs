//! `--hub bundled`: etcd, kube-apiserver and a reduced kube-controller-manager as one Pod of the cluster in which the
//! controller runs. For evaluation and small estates.
//!
//! Two sets of objects: [`host_parts`] are for the cluster that runs the Pods, and [`hub_objects`] for the hub inside.
//! A Job (`atoll hub-setup`) makes the certificates and applies the second set.

use atoll_api::hex;
use atoll_api::marks::SYSTEM_NAMESPACE;
use atoll_api::quantity::Quantity;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workload::{self, CONTROLLER, USER};
use crate::{API, Error, Hub, Options, Part, RBAC, fixed, network};

/// Name of the StatefulSet, of its Service, and of the Secret with certificates and kubeconfigs.
pub const HUB: &str = "atoll-hub";
/// Value of `hub` in the record of an installation whose Pods run in another cluster than the hub.
pub const BUNDLED: &str = "bundled";
/// Port of the hub's API server.
pub const HUB_PORT: u16 = 6443;
/// Port of its etcd, for backups.
const ETCD_PORT: u16 = 2379;
/// Port of etcd's health, without TLS.
const ETCD_HEALTH_PORT: u16 = 2381;
/// Folder of the Secret in all Pods.
pub const CERTIFICATES: &str = "/etc/atoll/hub";
/// Folder of etcd's volume.
pub(crate) const DATA: &str = "/var/lib/etcd";
/// Folder of the backups' volume.
pub(crate) const BACKUPS: &str = "/var/lib/atoll-backups";
/// Backups that are kept: two days, one an hour.
const KEPT: u32 = 48;
/// How long a finished Job stays for its log, in seconds: a day.
const JOB_STAYS: u32 = 24 * 60 * 60;
/// The programs of the hub.
pub(crate) const ETCD_IMAGE: &str = "registry.k8s.io/etcd:3.5.21-0";
const APISERVER_IMAGE: &str = "registry.k8s.io/kube-apiserver:v1.33.1";
const MANAGER_IMAGE: &str = "registry.k8s.io/kube-controller-manager:v1.33.1";
/// The hub runs no workloads, so these are all controllers that it needs.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,serviceaccount-controller,\
    clusterrole-aggregation-controller,resourcequota-controller,validatingadmissionpolicy-status-controller";
/// The kubeconfig of Atoll's controller in the Secret.
pub const CONTROLLER_KUBECONFIG: &str = "controller.kubeconfig";

const COMMENT: &str = "\
# A hub in this cluster: one Pod with etcd, kube-apiserver and a kube-controller-manager that runs no workloads.
#
# FOR EVALUATION AND SMALL ESTATES. It has one replica: while its Pod moves or its node is down, nothing is decided, and members
# run on. In production use a hub with several replicas of etcd, and `atoll install` on it.
#
# The Job makes certificates (Secret atoll-hub, once) and applies Atoll's kinds and rights to the hub; the CronJob repeats that
# every week, which renews certificates 30 days before their end and then restarts the Pods that use them. Another CronJob saves a
# snapshot of etcd every hour.
#
# kubectl for the hub:
#   kubectl -n NAMESPACE get secret atoll-hub -o go-template='{{index .data \"admin.kubeconfig\" | base64decode}}' > hub.kubeconfig
#   kubectl -n NAMESPACE port-forward service/atoll-hub 6443 &
#   kubectl --kubeconfig hub.kubeconfig --server https://localhost:6443 get clusters
";

/// Everything for the cluster that runs the Pods.
pub(crate) fn host_parts(options: &Options, volume: &str) -> Result<Vec<Part>, Error> {
    let mut parts = vec![rights(options)?, hub(options, volume)];
    parts.push(network(options)?);
    parts.push(hub_network(options));
    let mut controller = workload::part(options);
    // It is read on the hub.
    controller.objects.retain(|object| object["kind"] != "ConfigMap");
    parts.push(controller);
    let mut api = fixed("api", API, options)?;
    api.objects.retain(|object| object["kind"] == "Service");
    parts.push(api);
    Ok(parts)
}

/// Everything for the hub inside: kinds, rights and policies as on any other hub. The Services of the aggregated APIs are names of
/// those in the namespace of the Pods.
///
/// # Errors
/// When a template cannot be read.
pub fn hub_objects(options: &Options) -> Result<Vec<Value>, Error> {
    let inside = Options {
        hub: Hub::Existing,
        namespace: SYSTEM_NAMESPACE.to_owned(),
        observe: false,
        service_monitor: false,
        ..options.clone()
    };
    let mut objects = Vec::new();
    for part in crate::all_parts(&inside)? {
        if part.name == "network" {
            continue;
        }
        for mut object in part.objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            match (part.name, kind) {
                ("api", "Service") => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let target = format!("{name}.{}.svc", options.namespace);
                    object["spec"] = json!({
                        "type": "ExternalName", "externalName": target,
                        "ports": object["spec"]["ports"],
                    });
                }
                ("controller", "ConfigMap") => {
                    object["data"]["namespace"] = options.namespace.as_str().into();
                    object["data"]["hub"] = BUNDLED.into();
                }
                ("controller", _) => continue,
                _ => {}
            }
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Names by which clients reach the hub's API server.
#[must_use]
pub fn hub_names(namespace: &str) -> Vec<String> {
    let service = format!("{HUB}.{namespace}.svc");
    [
        HUB,
        &format!("{HUB}.{namespace}"),
        &service,
        "kubernetes.default.svc",
        "localhost",
        "127.0.0.1",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The namespace, the controller's account and its right to label its Pod, and the rights of the setup.
fn rights(options: &Options) -> Result<Part, Error> {
    let part = fixed("rbac", RBAC, options)?;
    let namespace = &options.namespace;
    let mut objects: Vec<Value> = part
        .objects
        .into_iter()
        .filter(|object| {
            matches!(object["kind"].as_str(), Some("Namespace" | "ServiceAccount"))
                && [namespace.as_str(), CONTROLLER]
                    .contains(&object["metadata"]["name"].as_str().unwrap_or_default())
        })
        .collect();
    let setup = format!("{HUB}-setup");
    objects.push(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": setup, "namespace": namespace},
    }));
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]);
    let secrets = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [HUB], "verbs": ["get", "update"]},
    ]);
    let mut restarts = secrets;
    for (resource, name) in [("statefulsets", HUB), ("deployments", CONTROLLER)] {
        if let Some(rules) = restarts.as_array_mut() {
            rules.push(json!({
                "apiGroups": ["apps"], "resources": [resource], "resourceNames": [name], "verbs": ["patch"],
            }));
        }
    }
    for (name, rules) in [(CONTROLLER, pods), (setup.as_str(), restarts)] {
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace}, "rules": rules,
        }));
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }));
    }
    let comment = "# What the Pods may do in this cluster: the leader labels its own Pod, and the setup writes one Secret and restarts\n# the Pods that use it.\n";
    Ok(Part { name: "rbac", comment: comment.to_owned(), objects })
}

fn labels(name: &str) -> Value {
    json!({"app.kubernetes.io/name": name})
}

fn hub(options: &Options, volume: &str) -> Part {
    let namespace = &options.namespace;
    let claim = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": volume}}},
        })
    };
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": HUB, "namespace": namespace},
        "spec": {
            "selector": labels(HUB),
            // The setup and the controller connect while the hub starts.
            "publishNotReadyAddresses": true,
            "ports": [
                {"name": "api", "port": HUB_PORT, "targetPort": "api"},
                {"name": "etcd", "port": ETCD_PORT, "targetPort": "etcd"},
            ],
        },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": HUB, "namespace": namespace, "labels": labels(HUB)},
        "spec": {
            "replicas": 1, "serviceName": HUB,
            "selector": {"matchLabels": labels(HUB)},
            "template": {"metadata": {"labels": labels(HUB)}, "spec": hub_pod()},
        },
    });
    // The template of a Job cannot change, so each one has a Job of its own. Old ones go by themselves.
    let mut once = setup(options);
    let hash = hex::encode(&Sha256::digest(once.to_string())[..4]);
    once["ttlSecondsAfterFinished"] = JOB_STAYS.into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("{HUB}-setup-{hash}"), "namespace": namespace,
            "labels": labels(&format!("{HUB}-setup")),
        },
        "spec": once,
    });
    let weekly = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": format!("{HUB}-setup"), "namespace": namespace},
        "spec": {
            "schedule": "30 3 * * 0", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": setup(options)},
        },
    });
    let objects = vec![
        claim(&format!("{HUB}-data")),
        claim(&format!("{HUB}-backups")),
        service,
        set,
        job,
        weekly,
        backup(options, volume),
    ];
    Part { name: "hub", comment: COMMENT.replace("NAMESPACE", namespace), objects }
}

pub(crate) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

pub(crate) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// These files of the Secret: no Pod needs the keys of the authorities.
fn certificates_volume(files: &[&str]) -> Value {
    let items: Vec<_> = files.iter().map(|file| json!({"key": file, "path": file})).collect();
    json!({"name": "certificates", "secret": {"secretName": HUB, "defaultMode": 0o440, "items": items}})
}

fn certificates_mount() -> Value {
    json!({"name": "certificates", "mountPath": CERTIFICATES, "readOnly": true})
}

fn hub_pod() -> Value {
    let probe = |path: &str, port: &str, scheme: &str, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": port, "scheme": scheme},
            "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": failures,
        })
    };
    let mut apiserver = json!({
        "name": "kube-apiserver", "image": APISERVER_IMAGE,
        "command": ["kube-apiserver"], "args": apiserver_args(),
        "ports": [{"name": "api", "containerPort": HUB_PORT}],
        "startupProbe": probe("/livez", "api", "HTTPS", 30),
        "livenessProbe": probe("/livez", "api", "HTTPS", 6),
        "readinessProbe": probe("/readyz", "api", "HTTPS", 3),
        "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}},
        "securityContext": container_security(),
        "volumeMounts": [certificates_mount()],
    });
    // The program of the image has this file capability, and does not start without it.
    apiserver["securityContext"]["capabilities"]["add"] = json!(["NET_BIND_SERVICE"]);
    json!({
        "automountServiceAccountToken": false,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": "etcd", "image": ETCD_IMAGE,
                "command": ["etcd"], "args": etcd_args(),
                "ports": [
                    {"name": "etcd", "containerPort": ETCD_PORT},
                    {"name": "etcd-health", "containerPort": ETCD_HEALTH_PORT},
                ],
                "livenessProbe": probe("/livez", "etcd-health", "HTTP", 6),
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                "securityContext": container_security(),
                "volumeMounts": [certificates_mount(), {"name": "data", "mountPath": DATA}],
            },
            apiserver,
            {
                "name": "kube-controller-manager", "image": MANAGER_IMAGE,
                "command": ["kube-controller-manager"], "args": manager_args(),
                "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
                "securityContext": container_security(),
                "volumeMounts": [certificates_mount()],
            },
        ],
        "volumes": [
            hub_volume(),
            {"name": "data", "persistentVolumeClaim": {"claimName": format!("{HUB}-data")}},
        ],
    })
}

/// Flags of kube-apiserver, and the file of each.
const APISERVER_FILES: [(&str, &str); 11] = [
    ("etcd-cafile", "etcd-ca.crt"),
    ("etcd-certfile", "etcd-client.crt"),
    ("etcd-keyfile", "etcd-client.key"),
    ("tls-cert-file", "server.crt"),
    ("tls-private-key-file", "server.key"),
    ("client-ca-file", "ca.crt"),
    ("service-account-key-file", "accounts.crt"),
    ("service-account-signing-key-file", "accounts.key"),
    ("requestheader-client-ca-file", "front-proxy-ca.crt"),
    ("proxy-client-cert-file", "front-proxy.crt"),
    ("proxy-client-key-file", "front-proxy.key"),
];
const MANAGER_KUBECONFIG: &str = "controller-manager.kubeconfig";

/// The files of a volume for the programs of the hub: those of kube-apiserver, etcd's own, and the manager's.
fn hub_volume() -> Value {
    let own = ["etcd.crt", "etcd.key", MANAGER_KUBECONFIG];
    let files: Vec<_> = APISERVER_FILES.iter().map(|(_, file)| *file).chain(own).collect();
    certificates_volume(&files)
}

fn file(name: &str) -> String {
    format!("{CERTIFICATES}/{name}")
}

fn etcd_args() -> Vec<String> {
    vec![
        format!("--data-dir={DATA}/data"),
        // Backups come from another Pod. Every client needs a certificate of etcd's own authority.
        format!("--listen-client-urls=https://0.0.0.0:{ETCD_PORT}"),
        format!("--advertise-client-urls=https://127.0.0.1:{ETCD_PORT}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        format!("--listen-metrics-urls=http://0.0.0.0:{ETCD_HEALTH_PORT}"),
        "--client-cert-auth=true".to_owned(),
        format!("--trusted-ca-file={}", file("etcd-ca.crt")),
        format!("--cert-file={}", file("etcd.crt")),
        format!("--key-file={}", file("etcd.key")),
    ]
}

fn apiserver_args() -> Vec<String> {
    let mut args = vec![
        format!("--secure-port={HUB_PORT}"),
        "--authorization-mode=RBAC".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--etcd-servers=https://127.0.0.1:{ETCD_PORT}"),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ];
    for (flag, name) in APISERVER_FILES {
        args.push(format!("--{flag}={}", file(name)));
    }
    args
}

fn manager_args() -> Vec<String> {
    let kubeconfig = file(MANAGER_KUBECONFIG);
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--controllers={CONTROLLERS}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        // Its own identity may only read; the role of each controller may do what that controller does.
        "--use-service-account-credentials=true".to_owned(),
    ]
}

/// The Job that makes certificates and applies the objects of the hub.
fn setup(options: &Options) -> Value {
    let mut args = vec!["hub-setup".to_owned(), format!("--pod-namespace={}", options.namespace)];
    if let Some(address) = &options.address {
        args.push(format!("--address={address}"));
    }
    for (chosen, flag) in [
        (options.secrets, "--secrets"),
        (options.cluster_kinds, "--cluster-kinds"),
        (options.replica_sync, "--replica-sync"),
    ] {
        if chosen {
            args.push(flag.to_owned());
        }
    }
    json!({
        "backoffLimit": 10,
        "template": {"metadata": {"labels": labels(&format!("{HUB}-setup"))}, "spec": {
            "serviceAccountName": format!("{HUB}-setup"),
            "securityContext": pod_security(),
            "restartPolicy": "OnFailure",
            "containers": [{
                "name": "setup", "image": options.image, "args": args,
                "securityContext": container_security(),
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }],
            // Keys on their way into the Secret.
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
        }},
    })
}

/// A snapshot of etcd every hour, named by its Pod; the oldest ones are deleted first.
fn backup(options: &Options, volume: &str) -> Value {
    // The options have been checked. A file system takes a part of its volume.
    let room = Quantity::new(volume).units().unwrap_or_default() / 10 * 9;
    let mount = json!({"name": "backups", "mountPath": BACKUPS});
    let name = format!("{HUB}-backup");
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": name, "namespace": options.namespace},
        "spec": {
            "schedule": "0 * * * *", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {
                "backoffLimit": 2,
                "template": {"metadata": {"labels": labels(&name)}, "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": pod_security(),
                    "restartPolicy": "Never",
                    "initContainers": [{
                        "name": "prune", "image": options.image,
                        "args": ["hub-backups", format!("--folder={BACKUPS}"), format!("--keep={KEPT}"), format!("--volume={room}")],
                        "securityContext": container_security(),
                        "volumeMounts": [mount],
                    }],
                    "containers": [{
                        "name": "snapshot", "image": ETCD_IMAGE, "command": ["etcdctl"],
                        "args": [
                            format!("--endpoints=https://{HUB}.{}.svc:{ETCD_PORT}", options.namespace),
                            format!("--cacert={}", file("etcd-ca.crt")),
                            format!("--cert={}", file("etcd-client.crt")),
                            format!("--key={}", file("etcd-client.key")),
                            "snapshot", "save", format!("{BACKUPS}/$(POD_NAME).db"),
                        ],
                        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "securityContext": container_security(),
                        "volumeMounts": [certificates_mount(), mount],
                    }],
                    "volumes": [
                        certificates_volume(&["etcd-ca.crt", "etcd-client.crt", "etcd-client.key"]),
                        {"name": "backups", "persistentVolumeClaim": {"claimName": format!("{HUB}-backups")}},
                    ],
                }},
            }},
        },
    })
}

/// Who may connect to the hub's Pod: everyone to the API, which authenticates; backups to etcd.
fn hub_network(options: &Options) -> Part {
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": HUB, "namespace": options.namespace},
        "spec": {
            "podSelector": {"matchLabels": labels(HUB)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"port": "api"}]},
                {
                    "from": [{"podSelector": {"matchLabels": labels(&format!("{HUB}-backup"))}}],
                    "ports": [{"port": "etcd"}],
                },
            ],
        },
    });
    Part {
        name: "hub-network",
        comment: "# Who may connect to the hub.\n".to_owned(),
        objects: vec![policy],
    }
}
