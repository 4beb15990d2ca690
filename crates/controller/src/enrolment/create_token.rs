//! Creates bootstrap tokens.

use atoll_api::{Clock, Cluster, marks};
use atoll_protocol::token::{BootstrapToken, TokenError};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Resource};

use super::authority::ensure_namespace;
use super::token_secret::{
    AFTER_REVOCATION, CLUSTER, CLUSTER_UID, EXPIRES, HASH, MAX_TOKEN_LIFE, REPLACES,
    REPLACES_MEMBER, TOKEN_SECRET_TYPE, secret_name,
};
use crate::manager;
use crate::member::hub::{HubError, in_time};

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
    #[error("no token could be created")]
    Token(#[from] TokenError),
    /// The namespace could not be created.
    #[error("namespace {} could not be created", marks::SYSTEM_NAMESPACE)]
    Namespace(#[source] HubError),
    /// The hub did not answer or rejected the request.
    #[error("the token's hash could not be stored in the hub")]
    Hub(#[source] HubError),
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
    create(client, clock, cluster, life, Replaces::Nothing).await
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
    create(client, clock, cluster, life, Replaces::Certificates).await
}

/// Like [`create_replacing_token`], for a token that also lets another member take over the Cluster: the member was
/// built anew, so its kube-system namespace has another uid.
///
/// # Errors
/// As [`create_token`].
pub async fn create_rebuilt_token(
    client: &kube::Client,
    clock: &Clock,
    cluster: &Cluster,
    life: SignedDuration,
) -> Result<BootstrapToken, TokenCreateError> {
    create(client, clock, cluster, life, Replaces::Member).await
}

/// What the use of a token replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaces {
    Nothing,
    /// The Cluster's earlier certificates.
    Certificates,
    /// The member, and with it the earlier certificates.
    Member,
}

async fn create(
    client: &kube::Client,
    clock: &Clock,
    cluster: &Cluster,
    life: SignedDuration,
    replaces: Replaces,
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
    if replaces != Replaces::Nothing {
        data.push((REPLACES, "true".to_owned()));
    }
    if replaces == Replaces::Member {
        data.push((REPLACES_MEMBER, "true".to_owned()));
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
    let created = in_time(secrets.create(&manager::create(marks::MANAGER), &secret)).await;
    created.map_err(TokenCreateError::Hub)?;
    Ok(token)
}
