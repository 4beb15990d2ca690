//! The Secret in which the hub keeps the hash of a bootstrap token.

use atoll_protocol::token::TokenId;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;

/// Type of the Secrets that hold tokens' hashes.
pub const TOKEN_SECRET_TYPE: &str = "atoll.dev/bootstrap-token";
/// Default lifetime of a token: long enough to copy a command to another window.
pub const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(15);
/// Longest lifetime that can be requested.
pub const MAX_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(24);

/// Prefix of their names; the token's id follows.
pub(super) const SECRET_PREFIX: &str = "bootstrap-token-";

/// Keys in a token's Secret.
pub(super) const HASH: &str = "hash";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const CLUSTER_UID: &str = "cluster-uid";
/// The Cluster's revocation when the token was created; absent = none. A later one invalidates the token.
pub(super) const AFTER_REVOCATION: &str = "after-revocation";
/// Present if using the token revokes the Cluster's earlier identities.
pub(super) const REPLACES: &str = "replaces-identity";
/// Present if the token also lets another member (another kube-system uid) take over the Cluster.
pub(super) const REPLACES_MEMBER: &str = "replaces-member";
pub(super) const EXPIRES: &str = "expires";
/// Hash of the public key that consumed the token; absent = not consumed.
pub(super) const USED_BY: &str = "used-by";

pub(super) fn secret_name(id: &TokenId) -> String {
    format!("{SECRET_PREFIX}{}", id.as_str())
}

pub(super) fn text<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()
}
