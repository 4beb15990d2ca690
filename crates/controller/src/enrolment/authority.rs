//! Storage of the certificate authority: a Secret of the hub, created by the first leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, marks};
use atoll_protocol::ca::{CaError, CertificateAuthority};
use atoll_protocol::identity::TrustDomain;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use crate::manager;
use crate::member::context::Context;
use crate::member::hub::{HubError, in_time};

/// Name of the Secret in [`marks::SYSTEM_NAMESPACE`].
pub const AUTHORITY_SECRET: &str = "atoll-ca";
/// Keys in the Secret, as in type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(1);

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The hub did not answer or rejected the request.
    #[error("Secret {}/{AUTHORITY_SECRET} could not be read or created", marks::SYSTEM_NAMESPACE)]
    Hub(#[from] HubError),
    /// The Secret lacks this key.
    #[error("Secret {AUTHORITY_SECRET} has no {key}: restore it from a backup")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The key or certificate is invalid or could not be created.
    #[error("the certificate authority cannot be used")]
    Authority(#[from] CaError),
}

/// Loads the authority from the hub's Secret; `None` when there is none yet.
///
/// # Errors
/// When the hub does not answer, or the Secret cannot be used.
pub async fn load(client: &kube::Client) -> Result<Option<CertificateAuthority>, AuthorityError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), marks::SYSTEM_NAMESPACE);
    let secret = in_time(secrets.get_opt(AUTHORITY_SECRET)).await?;
    secret.map(|secret| read(&secret)).transpose()
}

/// Loads the authority from the hub's Secret, creating it if there is none. Concurrent callers get the same one.
///
/// # Errors
/// When the hub does not answer, or the Secret cannot be used.
pub async fn load_or_create(
    client: &kube::Client,
    clock: &Clock,
    trust_domain: &TrustDomain,
) -> Result<CertificateAuthority, AuthorityError> {
    if let Some(authority) = load(client).await? {
        return Ok(authority);
    }
    ensure_namespace(client).await?;
    let authority = CertificateAuthority::create(trust_domain, clock.now())?;
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(AUTHORITY_SECRET.to_owned()),
            namespace: Some(marks::SYSTEM_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(BTreeMap::from([
            (CERTIFICATE.to_owned(), bytes(authority.certificate_pem())),
            (KEY.to_owned(), bytes(authority.key_pem())),
        ])),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), marks::SYSTEM_NAMESPACE);
    match in_time(secrets.create(&manager::create(marks::MANAGER), &secret)).await {
        Ok(_) => Ok(authority),
        Err(error) if error.is_already_exists() => {
            read(&in_time(secrets.get(AUTHORITY_SECRET)).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates the namespace for Atoll's own objects if it is missing.
pub(crate) async fn ensure_namespace(client: &kube::Client) -> Result<(), HubError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if in_time(namespaces.get_opt(marks::SYSTEM_NAMESPACE)).await?.is_some() {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(marks::SYSTEM_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match in_time(namespaces.create(&manager::create(marks::MANAGER), &namespace)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

fn read(secret: &Secret) -> Result<CertificateAuthority, AuthorityError> {
    let text = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes
            .and_then(|bytes| std::str::from_utf8(&bytes.0).ok())
            .ok_or(AuthorityError::Missing { key })
    };
    Ok(CertificateAuthority::from_pem(text(CERTIFICATE)?, text(KEY)?)?)
}

/// Publishes the authority once it exists: the leader creates it, followers wait for it.
pub(crate) async fn obtain(cx: &Context, trust_domain: &TrustDomain) -> Arc<CertificateAuthority> {
    loop {
        let obtained = if cx.term().is_some() {
            load_or_create(&cx.client, &cx.clock, trust_domain).await.map(Some)
        } else {
            load(&cx.client).await
        };
        match obtained {
            Ok(Some(authority)) => {
                let authority = Arc::new(authority);
                cx.authority.send_replace(Some(authority.clone()));
                return authority;
            }
            Ok(None) => (),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the certificate authority is not available yet: retrying"
                );
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
