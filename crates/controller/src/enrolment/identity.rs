//! The identity of one member: which certificates are valid for it, and which cluster it is.

use atoll_api::ClusterName;
use atoll_api::cluster::Revocation;

use super::renewals::Renewals;

/// What the certificates of a member, and its kube-system uid, are checked against.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// Which certificates are refused. May be newer than the Cluster's status.
    pub(crate) revocation: Option<Revocation>,
    pub(crate) renewals: Renewals,
    /// uid of the member's kube-system namespace.
    pub(crate) cluster_id: Option<String>,
    /// uid of the kube-system namespace in its last enrolment.
    pub(crate) enrolled_id: Option<String>,
}

/// Why a member's identity is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClusterIdError {
    /// Since its first contact the Cluster belongs to another member.
    #[error("IdentityChanged: this Cluster belongs to the member whose kube-system uid is {known}")]
    Changed { known: String },
    /// Another Cluster already represents this member.
    #[error(
        "DuplicateCluster: this member is registered as Cluster {other:?} already; if that Cluster represents another member, remove it with `atoll unjoin {other}` and connect again"
    )]
    Duplicate { other: ClusterName },
}
