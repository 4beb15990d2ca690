//! Trust in the front proxy, as the hub describes it.
//!
//! kube-apiserver keeps ConfigMap `kube-system/extension-apiserver-authentication` for this (upstream:
//! `authentication/clientca` and `server/options/authentication.go`, `RequestHeaderAuthenticationOptions`).

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_http::tls::client_verifier;
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::server::danger::ClientCertVerifier;
use tokio_util::sync::CancellationToken;

/// Namespace of the hub's ConfigMap.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Reload interval: an authority is replaced over days, with both in the bundle for a while.
const RELOAD: Duration = Duration::from_secs(60);
/// Pause after a failed read.
const RETRY: Duration = Duration::from_secs(2);
/// Timeout of one read.
pub(super) const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// How the front proxy authenticates and which headers carry the user.
#[derive(Debug)]
pub(super) struct Trust {
    /// Verifies its certificate.
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Allowed common names of its certificate; empty: any.
    pub(super) names: Vec<String>,
    /// Headers with the user name; the first one present counts.
    pub(super) users: Vec<HeaderName>,
    /// Headers with the user's uid. Ignored unless the hub's ConfigMap lists them: a front proxy that does not support
    /// the header does not strip it from its clients' requests either.
    pub(super) uids: Vec<HeaderName>,
    /// Headers with one group each.
    pub(super) groups: Vec<HeaderName>,
    /// Prefixes of headers with extra user fields, in lower case.
    pub(super) extras: Vec<String>,
}

/// The latest configuration from the hub. Every request is refused until there is one.
#[derive(Debug, Default)]
pub(super) struct FrontProxy(RwLock<Option<Arc<Trust>>>);

impl FrontProxy {
    /// The current configuration.
    pub(super) fn trust(&self) -> Option<Arc<Trust>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, trust: Trust) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(trust));
    }
}

/// Keeps it up to date until the token is cancelled. After a failed read the previous configuration stays in force.
pub(super) async fn follow(client: Client, proxy: Arc<FrontProxy>, token: CancellationToken) {
    let mut logged = false;
    loop {
        let pause = match load(&client).await {
            Ok(trust) => {
                proxy.set(trust);
                logged = false;
                RELOAD
            }
            Err(error) => {
                if !std::mem::replace(&mut logged, true) {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "the aggregated API refuses all users until this is fixed"
                    );
                }
                RETRY
            }
        };
        if token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn load(client: &Client) -> anyhow::Result<Trust> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let doing = || format!("read ConfigMap {NAMESPACE}/{NAME}");
    let map = tokio::time::timeout(HUB_TIMEOUT, maps.get(NAME)).await.with_context(doing)?;
    read(&map.with_context(doing)?).with_context(doing)
}

/// Parses the hub's ConfigMap.
pub(super) fn read(map: &ConfigMap) -> anyhow::Result<Trust> {
    let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    let Some(pem) = text("requestheader-client-ca-file") else {
        bail!(
            "it has no requestheader-client-ca-file: start kube-apiserver with --requestheader-client-ca-file"
        );
    };
    let verifier = client_verifier(pem).context("requestheader-client-ca-file")?;
    let list = |key: &str| -> anyhow::Result<Vec<String>> {
        let Some(json) = text(key) else { return Ok(Vec::new()) };
        serde_json::from_str(json).with_context(|| format!("{key} is not a JSON list of strings"))
    };
    let headers = |key: &str| -> anyhow::Result<Vec<HeaderName>> {
        let names = list(key)?;
        let header = |name: &String| HeaderName::from_bytes(name.as_bytes());
        let headers = names.iter().map(header).collect::<Result<_, _>>();
        headers.with_context(|| format!("{key} contains an invalid header name"))
    };
    let users = headers("requestheader-username-headers")?;
    if users.is_empty() {
        bail!("requestheader-username-headers names no header");
    }
    let extras = list("requestheader-extra-headers-prefix")?;
    Ok(Trust {
        verifier,
        names: list("requestheader-allowed-names")?,
        users,
        uids: headers("requestheader-uid-headers")?,
        groups: headers("requestheader-group-headers")?,
        extras: extras.iter().map(|prefix| prefix.to_lowercase()).collect(),
    })
}
