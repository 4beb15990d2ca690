//! Enrolment: exchanges a bootstrap token for a certificate, once.

use atoll_api::cluster::Revocation;
use atoll_api::{Cluster, ClusterName, marks};
use atoll_protocol::ca::{Issued, PublicKeyHash};
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::token::{BootstrapToken, TokenHash};
use atoll_protocol::v1;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use super::error::EnrolError;
use super::identity::ClusterIdError;
use super::token_secret::{
    AFTER_REVOCATION, CLUSTER, CLUSTER_UID, EXPIRES, HASH, REPLACES, REPLACES_MEMBER,
    TOKEN_SECRET_TYPE, USED_BY, secret_name, text,
};
use super::{revocation, revoke};
use crate::manager;
use crate::member::context::Context;
use crate::member::hub::{HubError, in_time};

/// Checks the token and signs the request. The request is fully validated before the token is consumed; the same token
/// with the same public key is accepted again during its lifetime. If the token replaces identities, the earlier ones
/// are revoked before the new one is returned.
pub(crate) async fn enrol(
    cx: &Context,
    request: v1::EnrollRequest,
) -> Result<Enrolled, EnrolError> {
    let authorities = cx.authority.borrow().clone().ok_or(EnrolError::NoAuthority)?;
    let authority = authorities.signer(request.follows_authority, None);
    let token: BootstrapToken = request.token.parse().map_err(|_| EnrolError::Token)?;
    let secrets: Api<Secret> = Api::namespaced(cx.client.clone(), marks::SYSTEM_NAMESPACE);
    let name = secret_name(token.id());
    // Twice: if the Secret changes meanwhile, its new content counts.
    for _ in 0..2 {
        let secret = in_time(secrets.get_opt(&name)).await?.ok_or(EnrolError::Token)?;
        let CheckedToken { uid, cluster, rebuilt } = check(cx, &token, &secret, &request).await?;
        let cluster_name = ClusterName::from(cluster.name_any());
        // Check that it can be signed before the token is consumed.
        let key = authority.sign_member(&request.csr_der, &uid, cx.clock.now())?.public_key;
        let replaces = text(&secret, REPLACES).is_some();
        match text(&secret, USED_BY).map(str::parse::<PublicKeyHash>) {
            Some(Ok(used)) if used == key => (),
            Some(_) => return Err(EnrolError::Used),
            None => match consume(&secrets, secret, &key).await {
                Ok(()) => (),
                Err(error) if error.is_conflict() => continue,
                Err(error) => return Err(error.into()),
            },
        }
        let current = current(cx, &cluster);
        let revocation = if replaces {
            let member_uid = rebuilt.then_some(request.member_uid.as_str());
            Some(revoke::replace_identity(cx, cluster, token.id(), member_uid).await?)
        } else {
            current
        };
        let at = revocation::issue_at(revocation.as_ref(), cx.clock.now());
        let issued =
            authority.sign_member(&request.csr_der, &uid, at.ok_or(EnrolError::Revoked)?)?;
        // A revocation that arrived meanwhile applies to the new certificate too.
        let now =
            cx.registry.by_uid(&uid).and_then(|member| member.lock().identity.revocation.clone());
        if now.is_some_and(|now| revocation.is_none_or(|seen| now.before.0 > seen.before.0)) {
            return Err(EnrolError::Revoked);
        }
        return Ok(Enrolled { issued, authority: authority.hash(), uid, name: cluster_name });
    }
    Err(EnrolError::Used)
}

/// A certificate that was issued for a token.
pub(crate) struct Enrolled {
    pub(crate) issued: Issued,
    /// The authority that signed it.
    pub(crate) authority: PublicKeyHash,
    pub(crate) uid: ClusterUid,
    pub(crate) name: ClusterName,
}

/// The result of a valid token.
struct CheckedToken {
    uid: ClusterUid,
    cluster: Cluster,
    /// Another member may take over the Cluster.
    rebuilt: bool,
}

/// The revocation in force for a Cluster: from the hub, or seen here and not written yet.
fn current(cx: &Context, cluster: &Cluster) -> Option<Revocation> {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.clone());
    let member = cx.registry.get(&cluster.name_any());
    let same = member.filter(|member| member.lock().uid() == cluster.metadata.uid.as_deref());
    let known = same.and_then(|member| member.lock().identity.revocation.clone());
    [stored, known].into_iter().flatten().max_by_key(|revocation| revocation.before.0)
}

/// Whether no revocation followed the token's creation, apart from one that the token itself caused.
fn outlived(cx: &Context, token: &BootstrapToken, secret: &Secret, cluster: &Cluster) -> bool {
    if revocation::is_pending(cluster) {
        return false;
    }
    let Some(current) = current(cx, cluster) else { return true };
    current.token.as_deref() == Some(token.id().as_str())
        || text(secret, AFTER_REVOCATION) == Some(current.before.0.to_string().as_str())
}

/// Whether the token is valid and for an existing Cluster.
async fn check(
    cx: &Context,
    token: &BootstrapToken,
    secret: &Secret,
    request: &v1::EnrollRequest,
) -> Result<CheckedToken, EnrolError> {
    if secret.type_.as_deref() != Some(TOKEN_SECRET_TYPE) {
        return Err(EnrolError::Token);
    }
    let hash: TokenHash =
        text(secret, HASH).and_then(|text| text.parse().ok()).ok_or(EnrolError::Token)?;
    if !hash.matches(token) {
        return Err(EnrolError::Token);
    }
    // From here on the caller is known to have the secret and may get details.
    let expires: Timestamp =
        text(secret, EXPIRES).and_then(|text| text.parse().ok()).ok_or(EnrolError::Expired)?;
    if expires <= cx.clock.now() {
        return Err(EnrolError::Expired);
    }
    let name = ClusterName::from(text(secret, CLUSTER).ok_or(EnrolError::Cluster)?);
    let uid = text(secret, CLUSTER_UID).and_then(|uid| ClusterUid::new(uid).ok());
    let uid = uid.ok_or(EnrolError::Cluster)?;
    let clusters: Api<Cluster> = Api::all(cx.client.clone());
    let cluster = in_time(clusters.get_opt(&name)).await?.ok_or(EnrolError::Cluster)?;
    if cluster.metadata.uid.as_deref() != Some(uid.as_str())
        || cluster.metadata.deletion_timestamp.is_some()
    {
        return Err(EnrolError::Cluster);
    }
    if !outlived(cx, token, secret, &cluster) {
        return Err(EnrolError::Revoked);
    }
    if request.member_uid.is_empty() {
        return Err(EnrolError::MemberUid);
    }
    let rebuilt = text(secret, REPLACES_MEMBER).is_some();
    let known = cluster.status.as_ref().and_then(|status| status.cluster_id.clone());
    if let Some(known) = known.filter(|known| !rebuilt && *known != request.member_uid) {
        return Err(ClusterIdError::Changed { known }.into());
    }
    match cx.registry.check_cluster_id(&name, &request.member_uid) {
        Err(ClusterIdError::Changed { .. }) if rebuilt => {
            cx.registry.check_unknown(&name, &request.member_uid)?;
        }
        checked => checked?,
    }
    Ok(CheckedToken { uid, cluster, rebuilt })
}

/// One guarded update, with the resourceVersion that was checked.
async fn consume(
    secrets: &Api<Secret>,
    mut secret: Secret,
    key: &PublicKeyHash,
) -> Result<(), HubError> {
    let name = secret.name_any();
    let used = (USED_BY.to_owned(), ByteString(key.to_string().into_bytes()));
    secret.data.get_or_insert_default().extend([used]);
    in_time(secrets.replace(&name, &manager::create(marks::MANAGER), &secret)).await.map(drop)
}
