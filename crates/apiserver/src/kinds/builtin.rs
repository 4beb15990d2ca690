//! The table of built-in kinds.

use k8s_openapi::api::{
    apps::v1 as apps, authentication::v1 as authentication, authorization::v1 as authorization,
    autoscaling::v2 as autoscaling, batch::v1 as batch, coordination::v1 as coordination,
    core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use super::rules;
use crate::names;
use crate::table::{Printer, builtin as print};

/// One built-in kind.
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// Answers a question and is never stored.
    pub(crate) review: bool,
    /// PUT to a name that does not exist creates it.
    pub(crate) create_on_update: bool,
    /// Whether a `/status` write may change labels (nodes and pods: kubelets do).
    pub(crate) status_labels: bool,
    /// (label, path, value when missing)
    pub(crate) selectable: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) name: fn(&str) -> Result<(), String>,
    /// OpenAPI schema, for documents only.
    pub(crate) openapi: fn(&mut SchemaGenerator) -> Schema,
    /// Sets kube-apiserver's defaults; must be idempotent.
    pub(crate) default: fn(&mut Value),
    pub(crate) validate: fn(&mut rules::Check<'_>),
    pub(crate) printer: &'static Printer,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const NAMESPACED: Builtin = Builtin {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    status: false,
    scale: false,
    generation: false,
    review: false,
    create_on_update: false,
    status_labels: false,
    selectable: &[],
    name: names::dns_subdomain,
    openapi: schema::<core::ObjectReference>,
    default: rules::nothing,
    validate: rules::anything,
    printer: &print::NAME_AND_AGE,
};

const CLUSTER: Builtin = Builtin { namespaced: false, ..NAMESPACED };

/// Kinds of the workload groups: spec, status, generation.
const WORKLOAD: Builtin =
    Builtin { status: true, generation: true, categories: &["all"], ..NAMESPACED };

const REVIEW: Builtin = Builtin { review: true, ..CLUSTER };

/// Every built-in kind.
pub(crate) static ALL: &[Builtin] = &[
    Builtin {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        status: true,
        name: names::dns_label,
        selectable: &[("status.phase", "status.phase", ""), ("name", "metadata.name", "")],
        openapi: schema::<core::Namespace>,
        default: rules::core::namespace,
        printer: &print::NAMESPACE,
        ..CLUSTER
    },
    Builtin {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        categories: &["all"],
        status: true,
        status_labels: true,
        selectable: &[
            ("spec.nodeName", "spec.nodeName", ""),
            ("spec.restartPolicy", "spec.restartPolicy", "Always"),
            ("spec.schedulerName", "spec.schedulerName", ""),
            ("spec.serviceAccountName", "spec.serviceAccountName", ""),
            ("spec.hostNetwork", "spec.hostNetwork", "false"),
            ("status.phase", "status.phase", ""),
            ("status.podIP", "status.podIP", ""),
            ("status.nominatedNodeName", "status.nominatedNodeName", ""),
        ],
        openapi: schema::<core::Pod>,
        default: rules::pod::pod,
        validate: rules::pod::check_pod,
        printer: &print::POD,
        ..NAMESPACED
    },
    Builtin {
        kind: "Service",
        plural: "services",
        short: &["svc"],
        categories: &["all"],
        status: true,
        create_on_update: true,
        name: names::dns_1035_label,
        selectable: &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")],
        openapi: schema::<core::Service>,
        default: rules::core::service,
        validate: rules::core::check_service,
        printer: &print::SERVICE,
        ..NAMESPACED
    },
    Builtin {
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        openapi: schema::<core::ConfigMap>,
        validate: rules::core::check_config_map,
        printer: &print::CONFIG_MAP,
        ..NAMESPACED
    },
    Builtin {
        kind: "Secret",
        plural: "secrets",
        selectable: &[("type", "type", "")],
        openapi: schema::<core::Secret>,
        default: rules::core::secret,
        validate: rules::core::check_secret,
        printer: &print::SECRET,
        ..NAMESPACED
    },
    Builtin {
        kind: "Event",
        plural: "events",
        short: &["ev"],
        create_on_update: true,
        selectable: &[
            ("involvedObject.kind", "involvedObject.kind", ""),
            ("involvedObject.namespace", "involvedObject.namespace", ""),
            ("involvedObject.name", "involvedObject.name", ""),
            ("involvedObject.uid", "involvedObject.uid", ""),
            ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
            ("reason", "reason", ""),
            ("reportingComponent", "reportingComponent", ""),
            ("source", "source.component", ""),
            ("type", "type", ""),
        ],
        openapi: schema::<core::Event>,
        validate: rules::core::check_event,
        printer: &print::EVENT,
        ..NAMESPACED
    },
    Builtin {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        status: true,
        status_labels: true,
        selectable: &[("spec.unschedulable", "spec.unschedulable", "false")],
        openapi: schema::<core::Node>,
        printer: &print::NODE,
        ..CLUSTER
    },
    Builtin {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short: &["sa"],
        openapi: schema::<core::ServiceAccount>,
        printer: &print::SERVICE_ACCOUNT,
        ..NAMESPACED
    },
    Builtin {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short: &["pvc"],
        status: true,
        openapi: schema::<core::PersistentVolumeClaim>,
        default: rules::core::persistent_volume_claim,
        printer: &print::PERSISTENT_VOLUME_CLAIM,
        validate: rules::core::check_persistent_volume_claim,
        ..NAMESPACED
    },
    Builtin {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short: &["pv"],
        status: true,
        openapi: schema::<core::PersistentVolume>,
        default: rules::core::persistent_volume,
        printer: &print::PERSISTENT_VOLUME,
        ..CLUSTER
    },
    Builtin {
        kind: "Endpoints",
        plural: "endpoints",
        short: &["ep"],
        create_on_update: true,
        openapi: schema::<core::Endpoints>,
        printer: &print::ENDPOINTS,
        ..NAMESPACED
    },
    Builtin {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short: &["quota"],
        status: true,
        openapi: schema::<core::ResourceQuota>,
        validate: rules::core::check_resource_quota,
        ..NAMESPACED
    },
    Builtin {
        kind: "LimitRange",
        plural: "limitranges",
        short: &["limits"],
        openapi: schema::<core::LimitRange>,
        ..NAMESPACED
    },
    Builtin {
        kind: "PodTemplate",
        plural: "podtemplates",
        openapi: schema::<core::PodTemplate>,
        default: rules::pod::pod_template_object,
        ..NAMESPACED
    },
    Builtin {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short: &["rc"],
        scale: true,
        openapi: schema::<core::ReplicationController>,
        default: rules::apps::replication_controller,
        validate: rules::apps::check_replicas,
        printer: &print::REPLICA_SET,
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short: &["deploy"],
        scale: true,
        openapi: schema::<apps::Deployment>,
        default: rules::apps::deployment,
        validate: rules::apps::check_deployment,
        printer: &print::DEPLOYMENT,
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short: &["rs"],
        scale: true,
        selectable: &[("status.replicas", "status.replicas", "0")],
        openapi: schema::<apps::ReplicaSet>,
        default: rules::apps::replica_set,
        validate: rules::apps::check_workload,
        printer: &print::REPLICA_SET,
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        short: &["sts"],
        scale: true,
        openapi: schema::<apps::StatefulSet>,
        default: rules::apps::stateful_set,
        validate: rules::apps::check_stateful_set,
        printer: &print::STATEFUL_SET,
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        short: &["ds"],
        openapi: schema::<apps::DaemonSet>,
        default: rules::apps::daemon_set,
        validate: rules::apps::check_workload,
        printer: &print::DAEMON_SET,
        ..WORKLOAD
    },
    Builtin {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        openapi: schema::<apps::ControllerRevision>,
        printer: &print::CONTROLLER_REVISION,
        ..NAMESPACED
    },
    Builtin {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        selectable: &[("status.successful", "status.succeeded", "0")],
        openapi: schema::<batch::Job>,
        default: rules::batch::job,
        validate: rules::batch::check_job,
        printer: &print::JOB,
        ..WORKLOAD
    },
    Builtin {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short: &["cj"],
        openapi: schema::<batch::CronJob>,
        default: rules::batch::cron_job,
        validate: rules::batch::check_cron_job,
        printer: &print::CRON_JOB,
        ..WORKLOAD
    },
    Builtin {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        short: &["hpa"],
        generation: false,
        openapi: schema::<autoscaling::HorizontalPodAutoscaler>,
        default: rules::policy::horizontal_pod_autoscaler,
        validate: rules::policy::check_horizontal_pod_autoscaler,
        printer: &print::HORIZONTAL_POD_AUTOSCALER,
        ..WORKLOAD
    },
    Builtin {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        categories: &[],
        openapi: schema::<policy::PodDisruptionBudget>,
        validate: rules::policy::check_pod_disruption_budget,
        printer: &print::POD_DISRUPTION_BUDGET,
        ..WORKLOAD
    },
    Builtin {
        group: "networking.k8s.io",
        kind: "Ingress",
        plural: "ingresses",
        short: &["ing"],
        categories: &[],
        openapi: schema::<networking::Ingress>,
        printer: &print::INGRESS,
        validate: rules::network::check_ingress,
        ..WORKLOAD
    },
    Builtin {
        group: "networking.k8s.io",
        kind: "IngressClass",
        plural: "ingressclasses",
        generation: true,
        openapi: schema::<networking::IngressClass>,
        printer: &print::INGRESS_CLASS,
        ..CLUSTER
    },
    Builtin {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short: &["netpol"],
        generation: true,
        openapi: schema::<networking::NetworkPolicy>,
        default: rules::policy::network_policy,
        printer: &print::NETWORK_POLICY,
        validate: rules::network::check_network_policy,
        ..NAMESPACED
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        create_on_update: true,
        name: names::path_segment,
        openapi: schema::<rbac::Role>,
        printer: &print::CREATED_AT,
        validate: rules::policy::check_role,
        ..NAMESPACED
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        create_on_update: true,
        name: names::path_segment,
        openapi: schema::<rbac::RoleBinding>,
        default: rules::policy::role_binding,
        validate: rules::policy::check_role_binding,
        printer: &print::ROLE_BINDING,
        ..NAMESPACED
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        create_on_update: true,
        name: names::path_segment,
        openapi: schema::<rbac::ClusterRole>,
        printer: &print::CREATED_AT,
        validate: rules::policy::check_cluster_role,
        ..CLUSTER
    },
    Builtin {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        create_on_update: true,
        name: names::path_segment,
        openapi: schema::<rbac::ClusterRoleBinding>,
        default: rules::policy::role_binding,
        validate: rules::policy::check_role_binding,
        printer: &print::ROLE_BINDING,
        ..CLUSTER
    },
    Builtin {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        create_on_update: true,
        openapi: schema::<coordination::Lease>,
        validate: rules::policy::check_lease,
        printer: &print::LEASE,
        ..NAMESPACED
    },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        create_on_update: true,
        // Stored as core Events, so the paths are core's.
        selectable: &[
            ("regarding.kind", "involvedObject.kind", ""),
            ("regarding.namespace", "involvedObject.namespace", ""),
            ("regarding.name", "involvedObject.name", ""),
            ("regarding.uid", "involvedObject.uid", ""),
            ("regarding.apiVersion", "involvedObject.apiVersion", ""),
            ("regarding.resourceVersion", "involvedObject.resourceVersion", ""),
            ("regarding.fieldPath", "involvedObject.fieldPath", ""),
            ("reason", "reason", ""),
            ("reportingController", "reportingComponent", ""),
            ("type", "type", ""),
        ],
        openapi: schema::<events::Event>,
        validate: rules::core::check_event,
        printer: &print::EVENT,
        ..NAMESPACED
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        short: &["sc"],
        openapi: schema::<storage::StorageClass>,
        default: rules::policy::storage_class,
        printer: &print::STORAGE_CLASS,
        ..CLUSTER
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        plural: "csidrivers",
        generation: true,
        openapi: schema::<storage::CSIDriver>,
        ..CLUSTER
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "CSINode",
        plural: "csinodes",
        openapi: schema::<storage::CSINode>,
        ..CLUSTER
    },
    Builtin {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        status: true,
        openapi: schema::<storage::VolumeAttachment>,
        ..CLUSTER
    },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        status: true,
        generation: true,
        openapi: schema::<apiextensions::CustomResourceDefinition>,
        default: crate::crd::definition::default,
        validate: crate::crd::definition::check,
        printer: &print::CREATED_AT,
        ..CLUSTER
    },
    Builtin {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generation: true,
        openapi: schema::<discovery::EndpointSlice>,
        printer: &print::ENDPOINT_SLICE,
        ..NAMESPACED
    },
    Builtin {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short: &["pc"],
        generation: true,
        openapi: schema::<scheduling::PriorityClass>,
        default: rules::policy::priority_class,
        validate: rules::policy::check_priority_class,
        printer: &print::PRIORITY_CLASS,
        ..CLUSTER
    },
    Builtin {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        create_on_update: true,
        openapi: schema::<node::RuntimeClass>,
        ..CLUSTER
    },
    Builtin {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        openapi: schema::<authorization::SelfSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        openapi: schema::<authorization::SelfSubjectRulesReview>,
        ..REVIEW
    },
    Builtin {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        openapi: schema::<authorization::SubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        openapi: schema::<authorization::LocalSubjectAccessReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        openapi: schema::<authentication::SelfSubjectReview>,
        ..REVIEW
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        openapi: schema::<authentication::TokenReview>,
        ..REVIEW
    },
];

#[cfg(test)]
mod tests;
