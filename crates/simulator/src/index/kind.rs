//! The kinds that a member's controllers read and write.

use kube::core::{ApiResource, GroupVersionKind};

/// One built-in kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    Node,
    ServiceAccount,
    PersistentVolume,
    PersistentVolumeClaim,
    Service,
    EndpointSlice,
    ControllerRevision,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    CronJob,
    Job,
    Pod,
}

impl Kind {
    /// Every kind, in the order in which streams are opened.
    pub(crate) const ALL: [Self; 15] = [
        Self::Namespace,
        Self::Node,
        Self::ServiceAccount,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::Service,
        Self::EndpointSlice,
        Self::ControllerRevision,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::CronJob,
        Self::Job,
        Self::Pod,
    ];

    /// As written in `kind:`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::ServiceAccount => "ServiceAccount",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ControllerRevision => "ControllerRevision",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CronJob => "CronJob",
            Self::Job => "Job",
            Self::Pod => "Pod",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
            Self::ServiceAccount => "serviceaccounts",
            Self::PersistentVolume => "persistentvolumes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::ControllerRevision => "controllerrevisions",
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::CronJob => "cronjobs",
            Self::Job => "jobs",
            Self::Pod => "pods",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::ControllerRevision
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::DaemonSet => "apps",
            Self::CronJob | Self::Job => "batch",
            Self::EndpointSlice => "discovery.k8s.io",
            _ => "",
        }
    }

    /// As written in `apiVersion:`; every one of these kinds is served as `v1`.
    pub(crate) fn api_version(self) -> String {
        match self.group() {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        }
    }

    /// Whether its objects live in a namespace.
    pub(crate) fn namespaced(self) -> bool {
        !matches!(self, Self::Namespace | Self::Node | Self::PersistentVolume)
    }

    /// What a `kube::Api` needs to address it.
    pub(crate) fn api_resource(self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group(), "v1", self.name());
        ApiResource::from_gvk_with_plural(&gvk, self.plural())
    }
}
