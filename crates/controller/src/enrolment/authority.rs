//! Storage of the certificate authority: a Secret of the hub, created by the first leader. While `atoll ca rotate`
//! replaces the authority, the Secret also has the one before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, marks};
use atoll_protocol::authorities::{Authorities, Endorsement, EndorsementError};
use atoll_protocol::ca::{CaError, CertificateAuthority};
use atoll_protocol::identity::TrustDomain;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::rotation;
use crate::manager;
use crate::member::context::Context;
use crate::member::hub::{HubError, in_time};

/// Name of the Secret in [`marks::SYSTEM_NAMESPACE`].
pub const AUTHORITY_SECRET: &str = "atoll-ca";
/// Keys in the Secret, as in type `kubernetes.io/tls`: the authority that all members trust.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The authority that replaces the one above, and its endorsement by that one. In keys of their own: a controller of an earlier
/// version reads only the first two, and goes on with the authority that all members trust.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const ENDORSEMENT: &str = "endorsement.crt";
/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(1);
/// How often the Secret is read again: a rotation begins after at most this time. One small read for each controller.
const REFRESH: Duration = Duration::from_secs(10);

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
    /// The predecessor does not endorse the authority.
    #[error(
        "{NEXT_CERTIFICATE} and {ENDORSEMENT} of Secret {AUTHORITY_SECRET} cannot be used: restore it from a backup, or remove them and let the members join again"
    )]
    Endorsement(#[from] EndorsementError),
    /// Another one changed the Secret meanwhile.
    #[error("Secret {AUTHORITY_SECRET} was changed meanwhile: look at it, and try again")]
    Changed,
}

/// Loads the authorities from the hub's Secret; `None` when there are none yet.
///
/// # Errors
/// When the hub does not answer, or the Secret cannot be used.
pub async fn load(client: &kube::Client) -> Result<Option<Authorities>, AuthorityError> {
    let secret = in_time(secrets(client).get_opt(AUTHORITY_SECRET)).await?;
    secret.map(|secret| read(&secret)).transpose()
}

/// A new authority signs from now on. Its predecessor stays trusted, and endorses it, unless `at_once`.
///
/// Returns the authorities and whether they changed: while a rotation runs, it goes on, unless `at_once` ends it.
///
/// # Errors
/// When the hub does not answer, or there is no authority yet, or another one writes it at the same time.
pub async fn rotate(
    client: &kube::Client,
    clock: &Clock,
    at_once: bool,
) -> Result<Option<(Authorities, bool)>, AuthorityError> {
    let Some(secret) = in_time(secrets(client).get_opt(AUTHORITY_SECRET)).await? else {
        return Ok(None);
    };
    let present = read(&secret)?;
    let next = match (present.succeeded(clock.now())?, at_once) {
        (Some(next), false) => next,
        (Some(next), true) => next.alone(),
        (None, true) => present.alone(),
        (None, false) => return Ok(Some((present, false))),
    };
    replace(client, secret, &next).await?;
    Ok(Some((next, true)))
}

/// Ends the trust in the predecessor of `authorities`, if they are still those of the hub.
async fn finish(
    client: &kube::Client,
    authorities: &Authorities,
) -> Result<Authorities, AuthorityError> {
    let found = in_time(secrets(client).get_opt(AUTHORITY_SECRET)).await?;
    let Some(secret) = found else { return Err(AuthorityError::Changed) };
    if !read(&secret)?.same(authorities) {
        return Err(AuthorityError::Changed);
    }
    let alone = authorities.alone();
    replace(client, secret, &alone).await?;
    Ok(alone)
}

/// Writes the authorities, if the Secret is still the one that was read.
async fn replace(
    client: &kube::Client,
    mut secret: Secret,
    authorities: &Authorities,
) -> Result<(), AuthorityError> {
    secret.data = Some(data(authorities));
    let params = manager::create(marks::MANAGER);
    match in_time(secrets(client).replace(AUTHORITY_SECRET, &params, &secret)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_conflict() => Err(AuthorityError::Changed),
        Err(error) => Err(error.into()),
    }
}

fn secrets(client: &kube::Client) -> Api<Secret> {
    Api::namespaced(client.clone(), marks::SYSTEM_NAMESPACE)
}

/// Loads the authorities from the hub's Secret, creating one if there is none. Concurrent callers get the same one.
///
/// # Errors
/// When the hub does not answer, or the Secret cannot be used.
pub async fn load_or_create(
    client: &kube::Client,
    clock: &Clock,
    trust_domain: &TrustDomain,
) -> Result<Authorities, AuthorityError> {
    if let Some(authorities) = load(client).await? {
        return Ok(authorities);
    }
    let authority = CertificateAuthority::create(trust_domain, clock.now())?;
    store(client, Authorities::of(authority)).await
}

/// Stores the authorities unless there are others, and returns those of the hub.
async fn store(
    client: &kube::Client,
    authorities: Authorities,
) -> Result<Authorities, AuthorityError> {
    ensure_namespace(client).await?;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(AUTHORITY_SECRET.to_owned()),
            namespace: Some(marks::SYSTEM_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data(&authorities)),
        ..Secret::default()
    };
    let secrets = secrets(client);
    match in_time(secrets.create(&manager::create(marks::MANAGER), &secret)).await {
        Ok(_) => Ok(authorities),
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

fn read(secret: &Secret) -> Result<Authorities, AuthorityError> {
    let text = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes
            .and_then(|bytes| std::str::from_utf8(&bytes.0).ok())
            .ok_or(AuthorityError::Missing { key })
    };
    let first = CertificateAuthority::from_pem(text(CERTIFICATE)?, text(KEY)?)?;
    let rotates = secret.data.as_ref().is_some_and(|data| data.contains_key(NEXT_CERTIFICATE));
    let (signing, predecessor) = if rotates {
        let next = CertificateAuthority::from_pem(text(NEXT_CERTIFICATE)?, text(NEXT_KEY)?)?;
        (next, Some((first, Endorsement::from_pem(text(ENDORSEMENT)?)?)))
    } else {
        (first, None)
    };
    Ok(Authorities::stored(signing, predecessor)?)
}

fn data(authorities: &Authorities) -> BTreeMap<String, ByteString> {
    let signing = authorities.signing();
    let first = authorities.predecessor().unwrap_or(signing);
    let mut texts =
        vec![(CERTIFICATE, first.certificate_pem().to_owned()), (KEY, first.key_pem().to_owned())];
    if let Some(endorsement) = authorities.endorsement() {
        texts.push((NEXT_CERTIFICATE, signing.certificate_pem().to_owned()));
        texts.push((NEXT_KEY, signing.key_pem().to_owned()));
        texts.push((ENDORSEMENT, endorsement.to_pem()));
    }
    texts.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

/// Publishes the authorities once there are any: the leader creates one, followers wait for it.
pub(crate) async fn obtain(cx: &Context, trust_domain: &TrustDomain) -> Arc<Authorities> {
    loop {
        let obtained = if cx.term().is_some() {
            load_or_create(&cx.client, &cx.clock, trust_domain).await.map(Some)
        } else {
            load(&cx.client).await
        };
        match obtained {
            Ok(Some(authorities)) => {
                let authorities = Arc::new(authorities);
                cx.authority.send_replace(Some(authorities.clone()));
                return authorities;
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

/// Keeps the published authorities those of the hub until the context's token is cancelled, and ends a rotation once no
/// member needs the old authority.
pub(crate) async fn follow(cx: Arc<Context>) {
    let mut term = cx.leadership.watch_term();
    loop {
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            // A new leader needs the newest ones at once. An error means that the election has ended.
            Ok(()) = term.changed() => (),
            () = tokio::time::sleep(REFRESH) => (),
        }
        let Some(known) = cx.authority.borrow().clone() else { continue };
        if let Err(error) = refresh(&cx, &known).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the certificate authority could not be read again: the known one stays in use"
            );
        }
    }
}

async fn refresh(cx: &Context, known: &Authorities) -> Result<(), AuthorityError> {
    let leads = cx.term().is_some();
    let mut found = match load(&cx.client).await? {
        Some(found) => found,
        None if leads => {
            // Without it no controller could start again with the members' trust.
            tracing::warn!("Secret {AUTHORITY_SECRET} is gone: writing it again");
            store(&cx.client, known.clone()).await?
        }
        None => return Ok(()),
    };
    if leads && found.same(known) && rotation::is_done(cx, known) {
        found = finish(&cx.client, known).await?;
        tracing::info!(
            "every member has a certificate of the new authority: the old one is no longer trusted"
        );
    }
    if !found.same(known) {
        tracing::info!(authority = %found.signing().hash(), rotates = found.predecessor().is_some(), "the certificate authority changed");
        let found = Arc::new(found);
        cx.authority.send_replace(Some(found.clone()));
        rotation::enforce(cx, &found);
    }
    Ok(())
}
