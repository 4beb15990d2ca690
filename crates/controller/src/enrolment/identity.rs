//! The identity of one member: which certificates are valid for it, and which cluster it is.

use atoll_api::ClusterName;
use atoll_api::cluster::Revocation;
use atoll_protocol::ca::PublicKeyHash;
use jiff::Timestamp;

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
    /// The certificate of its agent.
    pub(crate) certificate: Option<Certificate>,
}

/// A certificate of a member's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) authority: PublicKeyHash,
    /// End of its validity, or of another one of the authority.
    pub(crate) until: Timestamp,
}

impl Identity {
    /// A certificate was issued, or its agent connected with it. Of one authority the one that lasts longest counts: an
    /// agent may hold it without having used it.
    pub(crate) fn certified(&mut self, fresh: Certificate) {
        let same = self.certificate.filter(|known| known.authority == fresh.authority);
        let until = same.map_or(fresh.until, |known| known.until.max(fresh.until));
        self.certificate = Some(Certificate { until, ..fresh });
    }
}

/// Why a member's identity is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClusterIdError {
    /// Since its first contact the Cluster belongs to another member.
    #[error(
        "IdentityChanged: this Cluster belongs to the member whose kube-system uid is {known}; if the member was built anew, `atoll rejoin --replace` lets it take the Cluster over"
    )]
    Changed { known: String },
    /// Another Cluster already represents this member.
    #[error(
        "DuplicateCluster: this member is registered as Cluster {other:?} already; if that Cluster represents another member, remove it with `atoll unjoin {other}` and connect again"
    )]
    Duplicate { other: ClusterName },
}
