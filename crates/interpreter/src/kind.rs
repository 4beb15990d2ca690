//! The kind of an object, if the interpreter knows its meaning.

use serde_json::Value;

use crate::read::text;

/// The known kinds, regardless of version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    ReplicationController,
    Job,
    CronJob,
    Pod,
    Service,
    Ingress,
    PersistentVolumeClaim,
    PersistentVolume,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    ServiceAccount,
    Secret,
    Namespace,
    ServiceImport,
    Other,
}

impl Kind {
    pub(crate) fn of(obj: &Value) -> Self {
        let group = text(obj, &["apiVersion"]).rsplit_once('/').map_or("", |(group, _)| group);
        Self::named(group, text(obj, &["kind"]))
    }

    /// The kind, if the rules of the operations cover this version of it; `Other` if not.
    pub(crate) fn native(obj: &Value) -> Self {
        let version = text(obj, &["apiVersion"]).rsplit('/').next().unwrap_or_default();
        let kind = Self::of(obj);
        let covered = match kind {
            Self::HorizontalPodAutoscaler => "v2",
            Self::ServiceImport => "v1alpha1",
            _ => "v1",
        };
        if version == covered { kind } else { Self::Other }
    }

    pub(crate) fn named(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("apps", "Deployment") => Self::Deployment,
            ("apps", "ReplicaSet") => Self::ReplicaSet,
            ("apps", "StatefulSet") => Self::StatefulSet,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("", "ReplicationController") => Self::ReplicationController,
            ("batch", "Job") => Self::Job,
            ("batch", "CronJob") => Self::CronJob,
            ("", "Pod") => Self::Pod,
            ("", "Service") => Self::Service,
            ("networking.k8s.io", "Ingress") => Self::Ingress,
            ("", "PersistentVolumeClaim") => Self::PersistentVolumeClaim,
            ("", "PersistentVolume") => Self::PersistentVolume,
            ("autoscaling", "HorizontalPodAutoscaler") => Self::HorizontalPodAutoscaler,
            ("policy", "PodDisruptionBudget") => Self::PodDisruptionBudget,
            ("", "ServiceAccount") => Self::ServiceAccount,
            ("", "Secret") => Self::Secret,
            ("", "Namespace") => Self::Namespace,
            ("multicluster.x-k8s.io", "ServiceImport") => Self::ServiceImport,
            _ => Self::Other,
        }
    }
}
