//! Issued bootstrap tokens. Only hashes are stored, so none can be shown again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use atoll_api::{ClusterName, marks};
use atoll_protocol::token::TokenId;

use super::token_secret::{
    CLUSTER, EXPIRES, SECRET_PREFIX, TOKEN_SECRET_TYPE, USED_BY, secret_name, text,
};
use crate::member::context::Context;
use crate::member::hub::{HubError, in_time};

/// Secrets per page of the list.
const PAGE: u32 = 500;

/// Interval of sweeps.
const SWEEP: Duration = Duration::from_secs(600);
/// How long an expired token is still distinguished from an unknown one, for a late agent and for `atoll token list`.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// A token as stored in the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The public part of the token.
    pub id: String,
    /// Name of the Cluster that it is for.
    pub cluster: ClusterName,
    /// Expiry; `None` if the Secret has none, and then the token is refused.
    pub expires: Option<Timestamp>,
    /// An agent has used it, so no other can.
    pub used: bool,
}

/// Why tokens could not be listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenStoreError {
    /// The hub did not answer or rejected the request.
    #[error("Secrets in {} could not be read or deleted", marks::SYSTEM_NAMESPACE)]
    Hub(#[from] HubError),
}

/// All tokens of the hub, by Cluster and id; used and expired ones too.
///
/// # Errors
/// When the hub does not answer or rejects the request.
pub async fn list_tokens(client: &Client) -> Result<Vec<IssuedToken>, TokenStoreError> {
    let secrets = secrets(client);
    let mut params = ListParams::default().limit(PAGE);
    let mut tokens = Vec::new();
    loop {
        let page = in_time(secrets.list(&params)).await?;
        tokens.extend(page.items.iter().filter_map(read));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => break,
        }
    }
    tokens.sort_by(|a, b| (&a.cluster, &a.id).cmp(&(&b.cluster, &b.id)));
    Ok(tokens)
}

/// Revokes a token; returns whether it existed. Members that joined with it stay joined.
///
/// # Errors
/// When the hub does not answer or rejects the request.
pub async fn revoke_token(client: &Client, id: &TokenId) -> Result<bool, TokenStoreError> {
    let secrets = secrets(client);
    let name = secret_name(id);
    let Some(secret) =
        in_time(secrets.get_opt(&name)).await?.filter(|secret| read(secret).is_some())
    else {
        return Ok(false);
    };
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: secret.metadata.uid, resource_version: None }),
        ..DeleteParams::default()
    };
    match in_time(secrets.delete(&name, &params)).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Deletes tokens that expired an hour ago; returns how many.
///
/// # Errors
/// When the hub does not answer or rejects the request.
async fn sweep(client: &Client, now: Timestamp) -> Result<usize, TokenStoreError> {
    let mut swept = 0;
    for token in list_tokens(client).await? {
        // A Secret without an expiry is not Atoll's: it cannot be used to join, and a user should look at it.
        let Some(expires) = token.expires else { continue };
        if now.duration_since(expires) < REMEMBERED {
            continue;
        }
        if let Ok(id) = TokenId::new(&token.id)
            && revoke_token(client, &id).await?
        {
            swept += 1;
        }
    }
    Ok(swept)
}

/// Sweeps until the context's token is cancelled. Only a leader does.
pub(crate) async fn sweep_regularly(cx: Arc<Context>) {
    let mut term = cx.leadership.watch_term();
    loop {
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            leads = term.wait_for(Option::is_some) => if leads.is_err() { return },
        }
        match sweep(&cx.client, cx.clock.now()).await {
            Ok(0) => (),
            Ok(swept) => tracing::info!(swept, "expired bootstrap tokens were deleted"),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired bootstrap tokens could not be deleted: retried later"
            ),
        }
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            () = tokio::time::sleep(SWEEP) => (),
        }
    }
}

fn read(secret: &Secret) -> Option<IssuedToken> {
    if secret.type_.as_deref() != Some(TOKEN_SECRET_TYPE) {
        return None;
    }
    Some(IssuedToken {
        id: secret.name_any().strip_prefix(SECRET_PREFIX)?.to_owned(),
        cluster: text(secret, CLUSTER).unwrap_or_default().into(),
        expires: text(secret, EXPIRES).and_then(|text| text.parse().ok()),
        used: text(secret, USED_BY).is_some(),
    })
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), marks::SYSTEM_NAMESPACE)
}
