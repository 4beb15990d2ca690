//! The controller's Deployment with its storage, Services and disruption budget.

use atoll_api::marks::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

use crate::{
    AGENTS_PORT, CERTIFICATES, CONTROLLER_KUBECONFIG, HUB, History, Hub, Options, Part, RECORD,
};

/// Name of the Deployment, its Pods' label, its ServiceAccount and the Service for agents.
pub const CONTROLLER: &str = "atoll-controller";
/// Name of the Service of the aggregated APIs.
pub const API_SERVICE: &str = "atoll-api";
/// Key of the PostgreSQL URL in the Secret of `--history-secret`.
pub const HISTORY_KEY: &str = "url";
/// Port of the metrics.
pub const METRICS_PORT: u16 = 8080;
/// Port of the probes, so that slow readers of metrics cannot make the kubelet restart the Pod.
pub const HEALTH_PORT: u16 = 8081;
/// Port of the aggregated APIs.
pub const API_PORT: u16 = 6443;

/// Name of the volume claim.
const CLAIM: &str = "atoll-history";
/// Folder of the SQLite file.
const VOLUME_FOLDER: &str = "/var/lib/atoll";
/// Folder of the certificate authority of PostgreSQL, for `?sslrootcert=/etc/atoll/history/ca.crt` in its URL.
const CA_FOLDER: &str = "/etc/atoll/history";
/// Key of that authority in the Secret of `--history-secret`.
const CA_KEY: &str = "ca.crt";
/// The user of the image: distroless' `nonroot`.
pub(crate) const USER: u32 = 65_532;

const COMMENT: &str = "\
# The controller. The cluster that it runs in is its hub.
#
# The image is built from the Dockerfile. Put it into a registry that the cluster pulls from, and name it preferably by digest.
# Members must reach the Service's port from outside. Agents use TLS with client certificates: a load balancer in front must
# pass TCP through, and must not terminate TLS.
";

/// The controller with all that its Pods need.
pub(crate) fn part(options: &Options) -> Part {
    let mut objects = vec![record(options)];
    if let History::Volume(size) = &options.history {
        objects.push(claim(options, size));
    }
    objects.extend([deployment(options), service(options)]);
    if options.replicas() > 1 {
        objects.push(budget(options));
    }
    Part { name: "controller", comment: COMMENT.to_owned(), objects }
}

/// For the Prometheus operator.
pub(crate) fn monitoring(options: &Options) -> Part {
    let labels = json!({"app.kubernetes.io/name": "atoll-metrics"});
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "atoll-metrics", "namespace": options.namespace, "labels": labels},
        "spec": {
            // Every replica is read by itself.
            "clusterIP": "None",
            "selector": pod_labels(),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
        },
    });
    let monitor = json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "endpoints": [{"port": "metrics", "interval": "30s"}],
        },
    });
    Part {
        name: "monitoring",
        comment: "# For the Prometheus operator, whose CustomResourceDefinitions must exist.\n"
            .to_owned(),
        objects: vec![service, monitor],
    }
}

/// How Atoll was installed, for `atoll join`, `check` and `uninstall`.
fn record(options: &Options) -> Value {
    let mut data = json!({"namespace": options.namespace, "version": env!("CARGO_PKG_VERSION")});
    if let Some(address) = &options.address {
        data["address"] = address.to_string().into();
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": SYSTEM_NAMESPACE},
        "data": data,
    })
}

/// Namespace of the Pods and address for agents, from the data of the record.
#[must_use]
pub fn record_of(data: &Value) -> (Option<&str>, Option<&str>) {
    let text = |key: &str| data[key].as_str().filter(|text| !text.is_empty());
    (text("namespace"), text("address"))
}

fn pod_labels() -> Value {
    json!({"app.kubernetes.io/name": CONTROLLER})
}

fn claim(options: &Options, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": options.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    })
}

fn deployment(options: &Options) -> Value {
    let strategy = match options.history {
        // Two Pods cannot use one history file.
        History::Volume(_) => json!({"type": "Recreate"}),
        // A new standby is ready before an old Pod stops.
        History::Secret(_) => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        }
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace, "labels": pod_labels()},
        "spec": {
            "replicas": options.replicas(),
            "strategy": strategy,
            "selector": {"matchLabels": pod_labels()},
            "template": {"metadata": {"labels": pod_labels()}, "spec": pod(options)},
        },
    })
}

fn pod(options: &Options) -> Value {
    let volume = match &options.history {
        History::Volume(_) => json!({"persistentVolumeClaim": {"claimName": CLAIM}}),
        History::Secret(name) => json!({"secret": {
            "secretName": name, "optional": true, "items": [{"key": CA_KEY, "path": CA_KEY}],
        }}),
    };
    let mut pod = json!({
        "serviceAccountName": CONTROLLER,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(options)],
        "volumes": [merged(json!({"name": "history"}), volume)],
    });
    if let Hub::Bundled { .. } = options.hub {
        let item = json!({"key": CONTROLLER_KUBECONFIG, "path": CONTROLLER_KUBECONFIG});
        let secret = json!({"secretName": HUB, "defaultMode": 0o440, "items": [item]});
        let volumes = pod["volumes"].as_array_mut();
        volumes.into_iter().for_each(|all| all.push(json!({"name": "hub", "secret": secret})));
    }
    if options.replicas() > 1 {
        pod["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            apart(100, "kubernetes.io/hostname"),
            apart(50, "topology.kubernetes.io/zone"),
        ]}});
    }
    if let Some(class) = &options.priority_class {
        pod["priorityClassName"] = class.as_str().into();
    }
    pod
}

/// Prefers to keep the Pods in different domains.
fn apart(weight: u32, domain: &str) -> Value {
    json!({
        "weight": weight,
        "podAffinityTerm": {"labelSelector": {"matchLabels": pod_labels()}, "topologyKey": domain},
    })
}

fn container(options: &Options) -> Value {
    let mut mounts = vec![];
    if let Hub::Bundled { .. } = options.hub {
        mounts.push(json!({"name": "hub", "mountPath": CERTIFICATES, "readOnly": true}));
    }
    let history_folder = match options.history {
        History::Volume(_) => json!({"name": "history", "mountPath": VOLUME_FOLDER}),
        History::Secret(_) => json!({"name": "history", "mountPath": CA_FOLDER, "readOnly": true}),
    };
    mounts.insert(0, history_folder);
    json!({
        "name": CONTROLLER,
        "image": options.image,
        "args": args(options),
        "env": env(options),
        "ports": [
            {"name": "agents", "containerPort": AGENTS_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "api", "containerPort": API_PORT},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        // A controller that does not lead refuses agents, and is ready to take over.
        "readinessProbe": {"tcpSocket": {"port": "agents"}, "periodSeconds": 5},
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    })
}

fn args(options: &Options) -> Vec<String> {
    let namespace = &options.namespace;
    // The namespace of the Service by whose name the hub connects.
    let api = match options.hub {
        Hub::Existing => namespace,
        Hub::Bundled { .. } => SYSTEM_NAMESPACE,
    };
    let mut args = vec![
        "controller".to_owned(),
        format!("--listen=0.0.0.0:{AGENTS_PORT}"),
        format!("--http=0.0.0.0:{METRICS_PORT}"),
        format!("--health-listen=0.0.0.0:{HEALTH_PORT}"),
        format!("--api-address=0.0.0.0:{API_PORT}"),
        format!("--api-name={API_SERVICE}.{api}.svc"),
    ];
    if let Hub::Bundled { .. } = options.hub {
        args.push(format!("--kubeconfig={CERTIFICATES}/{CONTROLLER_KUBECONFIG}"));
    }
    if let History::Volume(_) = options.history {
        args.push(format!("--history={VOLUME_FOLDER}/history.db"));
    }
    // Namespaces with these prefixes are never propagated, whatever the flag says.
    if !namespace.starts_with("atoll-") {
        args.push(format!("--reserved-namespaces={namespace}"));
    }
    args.extend(options.controller_args.iter().cloned());
    args
}

fn env(options: &Options) -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut env = vec![
        json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}),
        // The leader labels its Pod, by which the Service for agents selects it.
        json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
        // At which the other controllers reach the leader.
        json!({"name": "POD_IP", "valueFrom": field("status.podIP")}),
    ];
    if let History::Secret(name) = &options.history {
        let key = json!({"secretKeyRef": {"name": name, "key": HISTORY_KEY}});
        env.push(json!({"name": "ATOLL_HISTORY", "valueFrom": key}));
    }
    env.into()
}

fn service(options: &Options) -> Value {
    let port = options.address.as_ref().map_or(AGENTS_PORT, |address| address.port);
    let mut selector = pod_labels();
    // Agents connect to the leader.
    selector["atoll.dev/leader"] = "true".into();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace},
        "spec": {
            "type": options.service_type.as_str(),
            "selector": selector,
            "ports": [{"name": "agents", "port": port, "targetPort": "agents"}],
        },
    })
}

/// One Pod at a time may be evicted.
fn budget(options: &Options) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": pod_labels()}},
    })
}

/// The fields of both objects.
fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
