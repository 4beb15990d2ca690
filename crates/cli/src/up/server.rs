//! An embedded API server of `atoll up`: its store, its certificates, and its kubeconfig context.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use atoll_apiserver::{Options, Server, pki};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// Groups of the one user of the kubeconfig.
const ADMINS: [&str; 1] = ["system:masters"];

/// A server that is prepared but not listening yet.
pub(crate) struct Endpoint {
    pub(crate) server: Server,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) context: pki::Context,
}

/// Opens the server `name`, creating store and certificates if missing.
///
/// # Errors
/// When a file cannot be read, written or parsed.
pub(crate) fn open(
    name: &str,
    store: &Path,
    certificates: &Path,
    address: SocketAddr,
    seed: u64,
) -> anyhow::Result<Endpoint> {
    std::fs::create_dir_all(store).with_context(|| format!("make {}", store.display()))?;
    let options = Options { data: Some(store.join("objects.redb")), seed, ..Options::memory() };
    let server = Server::open(options).with_context(|| format!("open the objects of {name}"))?;
    let authority = pki::Authority::open(certificates)
        .with_context(|| format!("open the certificates of {name}"))?;
    let names = ["localhost".to_owned(), address.ip().to_string()];
    let presented =
        authority.server(&names).with_context(|| format!("make the certificate of {name}"))?;
    let tls = authority.server_config(&presented).with_context(|| format!("TLS of {name}"))?;
    let user = authority
        .client("admin", "admin", &ADMINS)
        .with_context(|| format!("make the client certificate for {name}"))?;
    let context = pki::Context {
        name: name.to_owned(),
        server: format!("https://{address}"),
        authority: authority.certificate().to_owned(),
        user,
        namespace: None,
    };
    Ok(Endpoint { server, tls, context })
}

/// Client configuration for HTTPS from this process, as an external client would use it.
///
/// # Errors
/// When the context makes no valid client configuration.
pub(crate) async fn config(context: &pki::Context) -> anyhow::Result<Config> {
    let text = pki::kubeconfig(std::slice::from_ref(context), &context.name);
    let kubeconfig: Kubeconfig = serde_json::from_str(&text).context("read our own kubeconfig")?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("use our own kubeconfig")
}
