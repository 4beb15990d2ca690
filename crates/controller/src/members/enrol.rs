//! Enrolment: exchanges a bootstrap token for a certificate, once.

use atoll_api::cluster::Revocation;
use atoll_api::{Clock, Cluster, marks};
use atoll_protocol::ca::{CaError, Issued, PublicKeyHash};
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::token::{BootstrapToken, TokenError, TokenHash, TokenId};
use atoll_protocol::v1;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Resource, ResourceExt};
use tokio::time::timeout;
use tonic::Status;

use super::authority::{AuthorityError, ensure_namespace};
use super::context::{Context, HUB_TIMEOUT};
use super::registry::ClusterIdError;
use super::revocation;
use crate::manager;

/// Type of the Secrets that hold tokens' hashes.
pub const TOKEN_SECRET_TYPE: &str = "atoll.dev/bootstrap-token";
/// Default lifetime of a token: long enough to copy a command to another window.
pub const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(15);
/// Longest lifetime that can be requested.
pub const MAX_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(24);

/// Prefix of their names; the token's id follows.
pub(super) const SECRET_PREFIX: &str = "bootstrap-token-";

/// Keys in a token's Secret.
const HASH: &str = "hash";
pub(super) const CLUSTER: &str = "cluster";
const CLUSTER_UID: &str = "cluster-uid";
/// The Cluster's revocation when the token was created; absent = none. A later one invalidates the token.
const AFTER_REVOCATION: &str = "after-revocation";
/// Present if using the token revokes the Cluster's earlier identities.
const REPLACES: &str = "replaces-identity";
pub(super) const EXPIRES: &str = "expires";
/// Hash of the public key that consumed the token; absent = not consumed.
pub(super) const USED_BY: &str = "used-by";

/// Why a token could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TokenCreateError {
    /// The Cluster was not read from the hub.
    #[error("the Cluster has no {0}: read it from the hub first")]
    Cluster(&'static str),
    /// An invalid lifetime.
    #[error("a token's life must be above 0 and at most 24 hours, it is {0:?}")]
    Life(SignedDuration),
    /// No random numbers were available.
    #[error("make a token")]
    Token(#[from] TokenError),
    /// The namespace could not be created.
    #[error("make namespace {}", marks::SYSTEM_NAMESPACE)]
    Namespace(#[source] AuthorityError),
    /// The hub did not answer in time.
    #[error("the hub did not answer within {} s", HUB_TIMEOUT.as_secs())]
    Timeout,
    /// The hub rejected the request.
    #[error("store the token's hash in the hub")]
    Hub(#[source] Box<kube::Error>),
}

/// Creates a token for this Cluster and stores its hash in the hub. The caller shows the token once. The Cluster's
/// existing certificates stay valid when it is used.
///
/// # Errors
/// A Cluster without name or uid, a lifetime out of range, or a hub that rejects the Secret.
pub async fn create_token(
    client: &kube::Client,
    clock: &Clock,
    cluster: &Cluster,
    life: SignedDuration,
) -> Result<BootstrapToken, TokenCreateError> {
    create(client, clock, cluster, life, false).await
}

/// Like [`create_token`], for a token that revokes the Cluster's earlier certificates when an agent enrols with it.
///
/// # Errors
/// As [`create_token`].
pub async fn create_replacing_token(
    client: &kube::Client,
    clock: &Clock,
    cluster: &Cluster,
    life: SignedDuration,
) -> Result<BootstrapToken, TokenCreateError> {
    create(client, clock, cluster, life, true).await
}

async fn create(
    client: &kube::Client,
    clock: &Clock,
    cluster: &Cluster,
    life: SignedDuration,
    replaces: bool,
) -> Result<BootstrapToken, TokenCreateError> {
    if life <= SignedDuration::ZERO || life > MAX_TOKEN_LIFE {
        return Err(TokenCreateError::Life(life));
    }
    let name = cluster.metadata.name.clone().ok_or(TokenCreateError::Cluster("name"))?;
    let uid = cluster.metadata.uid.clone().ok_or(TokenCreateError::Cluster("uid"))?;
    let token = BootstrapToken::generate()?;
    let expires = clock.now_seconds().saturating_add(life).unwrap_or(Timestamp::MAX);
    let revocation = cluster.status.as_ref().and_then(|status| status.revocation.as_ref());
    let mut data = vec![
        (HASH, token.hash().to_string()),
        (CLUSTER, name.clone()),
        (CLUSTER_UID, uid.clone()),
        (EXPIRES, expires.to_string()),
    ];
    data.extend(revocation.map(|last| (AFTER_REVOCATION, last.before.0.to_string())));
    if replaces {
        data.push((REPLACES, "true".to_owned()));
    }
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(token.id())),
            namespace: Some(marks::SYSTEM_NAMESPACE.to_owned()),
            // Deleted with its Cluster.
            owner_references: Some(vec![OwnerReference {
                api_version: Cluster::api_version(&()).into_owned(),
                kind: Cluster::kind(&()).into_owned(),
                name,
                uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_SECRET_TYPE.to_owned()),
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
                .collect(),
        ),
        ..Secret::default()
    };
    ensure_namespace(client).await.map_err(TokenCreateError::Namespace)?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), marks::SYSTEM_NAMESPACE);
    timeout(HUB_TIMEOUT, secrets.create(&manager::create(marks::MANAGER), &secret))
        .await
        .map_err(|_| TokenCreateError::Timeout)?
        .map_err(|error| TokenCreateError::Hub(Box::new(error)))?;
    Ok(token)
}

pub(super) fn secret_name(id: &TokenId) -> String {
    format!("{SECRET_PREFIX}{}", id.as_str())
}

/// Why an enrolment is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnrolError {
    /// One error for several causes: unknown, malformed, wrong secret.
    #[error("the token is not valid")]
    Token,
    #[error("the token has expired: make a new one with `atoll token create`")]
    Expired,
    #[error("the token was used by another agent: make a new one with `atoll token create`")]
    Used,
    #[error("the token's Cluster is gone or was made anew: make a new token")]
    Cluster,
    #[error("the token was made before the Cluster's certificates were revoked: make a new one")]
    Revoked,
    #[error("member_uid must be the uid of the member's kube-system namespace")]
    MemberUid,
    #[error(transparent)]
    Identity(#[from] ClusterIdError),
    #[error(transparent)]
    Request(#[from] CaError),
    #[error("the controller has no certificate authority yet")]
    NoAuthority,
    #[error("the hub did not answer within {} s", HUB_TIMEOUT.as_secs())]
    Timeout,
    #[error("the hub refused")]
    Hub(#[source] Box<kube::Error>),
}

impl EnrolError {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Token | Self::Used | Self::Expired | Self::Revoked => "token",
            Self::Cluster => "unknown",
            Self::MemberUid | Self::Request(_) => "request",
            Self::Identity(_) => "identity",
            Self::NoAuthority | Self::Timeout | Self::Hub(_) => "hub",
        }
    }

    pub(super) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Token => Status::unauthenticated(text),
            Self::Expired | Self::Used | Self::Cluster | Self::Revoked => {
                Status::permission_denied(text)
            }
            Self::MemberUid | Self::Request(_) => Status::invalid_argument(text),
            Self::Identity(_) => Status::failed_precondition(text),
            Self::NoAuthority | Self::Timeout | Self::Hub(_) => Status::unavailable(text),
        }
    }
}

/// Checks the token and signs the request. The request is fully validated before the token is consumed; the same token
/// with the same public key is accepted again during its lifetime. If the token replaces identities, the earlier ones
/// are revoked before the new one is returned.
pub(super) async fn enrol(
    cx: &Context,
    request: v1::EnrollRequest,
) -> Result<(Issued, ClusterUid, String), EnrolError> {
    let authority = cx.authority.borrow().clone().ok_or(EnrolError::NoAuthority)?;
    let token: BootstrapToken = request.token.parse().map_err(|_| EnrolError::Token)?;
    let secrets: Api<Secret> = Api::namespaced(cx.client.clone(), marks::SYSTEM_NAMESPACE);
    let name = secret_name(token.id());
    // Twice: if the Secret changes meanwhile, its new content counts.
    for _ in 0..2 {
        let secret = hub(secrets.get_opt(&name)).await?.ok_or(EnrolError::Token)?;
        let Checked { uid, cluster } = check(cx, &token, &secret, &request).await?;
        let cluster_name = cluster.name_any();
        // Check that it can be signed before the token is consumed.
        let key = authority.sign_member(&request.csr_der, &uid, cx.clock.now())?.public_key;
        let replaces = text(&secret, REPLACES).is_some();
        match text(&secret, USED_BY).map(str::parse::<PublicKeyHash>) {
            Some(Ok(used)) if used == key => (),
            Some(_) => return Err(EnrolError::Used),
            None => match consume(&secrets, secret, &key).await {
                Ok(()) => (),
                Err(EnrolError::Hub(error)) if is_conflict(&error) => continue,
                Err(error) => return Err(error),
            },
        }
        let current = current(cx, &cluster);
        let revocation = if replaces {
            Some(revocation::replace_identity(cx, cluster, token.id()).await?)
        } else {
            current
        };
        let at = revocation::issue_at(revocation.as_ref(), cx.clock.now());
        let issued =
            authority.sign_member(&request.csr_der, &uid, at.ok_or(EnrolError::Revoked)?)?;
        // A revocation that arrived meanwhile applies to the new certificate too.
        let now = cx.registry.by_uid(&uid).and_then(|member| member.lock().revocation.clone());
        if now.is_some_and(|now| revocation.is_none_or(|seen| now.before.0 > seen.before.0)) {
            return Err(EnrolError::Revoked);
        }
        return Ok((issued, uid, cluster_name));
    }
    Err(EnrolError::Used)
}

/// The result of a valid token.
struct Checked {
    uid: ClusterUid,
    cluster: Cluster,
}

/// The revocation in force for a Cluster: from the hub, or seen here and not written yet.
fn current(cx: &Context, cluster: &Cluster) -> Option<Revocation> {
    let stored = cluster.status.as_ref().and_then(|status| status.revocation.clone());
    let member = cx.registry.get(&cluster.name_any());
    let same = member.filter(|member| member.lock().uid() == cluster.metadata.uid.as_deref());
    let known = same.and_then(|member| member.lock().revocation.clone());
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
) -> Result<Checked, EnrolError> {
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
    let name = text(secret, CLUSTER).ok_or(EnrolError::Cluster)?;
    let uid = text(secret, CLUSTER_UID).and_then(|uid| ClusterUid::new(uid).ok());
    let uid = uid.ok_or(EnrolError::Cluster)?;
    let clusters: Api<Cluster> = Api::all(cx.client.clone());
    let cluster = hub(clusters.get_opt(name)).await?.ok_or(EnrolError::Cluster)?;
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
    let known = cluster.status.as_ref().and_then(|status| status.cluster_id.clone());
    if let Some(known) = known.filter(|known| *known != request.member_uid) {
        return Err(ClusterIdError::Changed { known }.into());
    }
    cx.registry.check_cluster_id(name, &request.member_uid)?;
    Ok(Checked { uid, cluster })
}

/// One guarded update, with the resourceVersion that was checked.
async fn consume(
    secrets: &Api<Secret>,
    mut secret: Secret,
    key: &PublicKeyHash,
) -> Result<(), EnrolError> {
    let name = secret.name_any();
    let used = (USED_BY.to_owned(), ByteString(key.to_string().into_bytes()));
    secret.data.get_or_insert_default().extend([used]);
    hub(secrets.replace(&name, &manager::create(marks::MANAGER), &secret)).await.map(drop)
}

pub(super) fn text<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()
}

async fn hub<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, EnrolError> {
    timeout(HUB_TIMEOUT, call)
        .await
        .map_err(|_| EnrolError::Timeout)?
        .map_err(|error| EnrolError::Hub(Box::new(error)))
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}
