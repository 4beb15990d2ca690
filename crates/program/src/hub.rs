//! Finds the hub: kubeconfig, context, namespace, and a client with timeouts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use crate::flags::HubFlags;

/// Connect timeout. A hub on another continent connects well within a second.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of one call.
const CALL: Duration = Duration::from_secs(30);
/// Default kubeconfig of `atoll up`.
const UP: &str = ".atoll/kubeconfig";

/// Connection to an API server.
pub struct Hub {
    /// A client for it.
    pub client: Client,
    /// The namespace asked for, else the context's, else `default`.
    pub namespace: String,
    /// Where its configuration was found, for errors.
    pub found: String,
}

impl Hub {
    /// The hub that the flags name.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it has no such context.
    pub async fn find(flags: &HubFlags) -> anyhow::Result<Self> {
        let (config, found) = config(flags).await?;
        let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = client(config, &found)?;
        Ok(Self { client, namespace, found })
    }

    /// Runs one call with a timeout; an error says what was being done.
    ///
    /// # Errors
    /// When the call fails or times out.
    pub async fn call<T>(
        &self,
        doing: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> anyhow::Result<T> {
        self.call_within(CALL, doing, call).await
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// When the call fails or times out.
    pub async fn call_within<T>(
        &self,
        limit: Duration,
        doing: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> anyhow::Result<T> {
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(kube::Error::Api(status)).with_context(|| format!("{doing} ({})", self.found))
            }
            Ok(Err(error)) => {
                let advice = advice(&error_text(&error));
                Err(error).with_context(|| format!("{doing}: {} {advice}", self.found))
            }
            Err(_) => bail!("{doing}: no answer from {} within {} s", self.found, limit.as_secs()),
        }
    }
}

/// The HTTP status of the answer that an error of [`Hub::call`] reports.
#[must_use]
pub fn status(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// The kubeconfig that the flags name, and the name of its context. The context exists.
///
/// # Errors
/// As [`Hub::find`].
pub fn context(flags: &HubFlags) -> anyhow::Result<(Kubeconfig, String)> {
    let (kubeconfig, context, _) = chosen(flags)?;
    Ok((kubeconfig, context))
}

/// Kubeconfig, context, and where they were found.
fn chosen(flags: &HubFlags) -> anyhow::Result<(Kubeconfig, String, String)> {
    let (kubeconfig, source) = kubeconfig(flags)?;
    let context = flags.context.clone().or_else(|| kubeconfig.current_context.clone());
    let Some(context) = context else {
        bail!("{source} has no current context: choose one with --context");
    };
    if !kubeconfig.contexts.iter().any(|known| known.name == context) {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
        bail!("--context {context:?} is not in {source}, which has {}", known.join(", "));
    }
    let found = format!("context {context:?} of {source}");
    Ok((kubeconfig, context, found))
}

/// The client configuration that the flags name, and where it was found.
async fn config(flags: &HubFlags) -> anyhow::Result<(Config, String)> {
    let (kubeconfig, context, found) = chosen(flags)?;
    let options = KubeConfigOptions { context: Some(context), ..KubeConfigOptions::default() };
    let read = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = read.with_context(|| unusable(&found))?;
    config.connect_timeout = Some(CONNECT);
    // Interactive use: one clear error now is better than an answer minutes later.
    config.default_retry = false;
    Ok((config, found))
}

/// The API server for a component: the one that the flags name, or, in a Pod without a kubeconfig, its own cluster.
///
/// # Errors
/// As [`Hub::find`].
pub async fn own_server(flags: &HubFlags) -> anyhow::Result<(Config, String)> {
    if in_pod() && flags.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none() {
        let mut config = Config::incluster().context("use the Pod's service account")?;
        config.connect_timeout = Some(CONNECT);
        config.default_retry = false;
        return Ok((config, "the Pod's own cluster".to_owned()));
    }
    config(flags).await
}

/// The API server of an agent's member. It must be named: the other verbs default to the hub, and an agent that took
/// the
/// hub for its member would write members' objects there.
///
/// # Errors
/// When neither flag names it outside of a Pod; otherwise as [`own_server`].
pub async fn member_server(flags: &HubFlags) -> anyhow::Result<(Config, String)> {
    if flags.kubeconfig.is_none() && flags.context.is_none() && !in_pod() {
        bail!(
            "which member is this agent for? Name the member's kubeconfig with --kubeconfig FILE, or its context with \
             --context NAME; only in a Pod of the member neither is needed"
        );
    }
    own_server(flags).await
}

fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// A client for this configuration.
///
/// # Errors
/// When its credentials cannot be used.
pub fn client(config: Config, found: &str) -> anyhow::Result<Client> {
    Client::try_from(config).with_context(|| unusable(found))
}

fn unusable(found: &str) -> String {
    format!("{found} cannot be used; correct it, or name another file with --kubeconfig")
}

/// Calls an API server once before anything starts. Permanent failures are errors; an unreachable server is not,
/// because
/// it may come back.
///
/// # Errors
/// When its certificate or our credentials are refused, or it is no Kubernetes API server.
pub async fn check(client: &Client, found: &str) -> anyhow::Result<()> {
    let review = SelfSubjectReview::default();
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let params = PostParams::default();
    let away = match tokio::time::timeout(CONNECT, reviews.create(&params, &review)).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => bail!(
            "{found}: the server does not accept these credentials; renew them, or name another file with --kubeconfig"
        ),
        // The server answers; missing kinds and rights are reported where they are needed.
        Ok(Err(kube::Error::Api(_))) => return Ok(()),
        Ok(Err(error @ (kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)))) => {
            return Err(error).with_context(|| {
                format!(
                    "{found}: the server is not a Kubernetes API server; correct `server` in the kubeconfig"
                )
            });
        }
        Ok(Err(error)) => {
            let text = error_text(&error);
            if text.contains(BAD_CERTIFICATE) {
                return Err(error).with_context(|| format!("{found} {}", advice(&text)));
            }
            text
        }
        Err(_) => format!("no answer within {} s", CONNECT.as_secs()),
    };
    tracing::warn!(server = found, reason = away, "the API server does not answer yet; retrying");
    Ok(())
}

/// Prefix of rustls' errors about a server's certificate.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// Advice for a failed connection, by its error.
fn advice(error: &str) -> &'static str {
    let Some((_, why)) = error.split_once(BAD_CERTIFICATE) else {
        return "does not answer, is it running?";
    };
    let why = why.to_lowercase().replace(' ', "");
    if why.contains("expired") || why.contains("notvalidyet") {
        "shows a certificate that is not valid now: renew it, or correct the clock of this machine"
    } else if why.contains("notvalidforname") {
        "shows a certificate for another host name: correct `server` in the kubeconfig, or set `tls-server-name`"
    } else {
        "shows a certificate that the kubeconfig's certificate-authority did not sign: it is the kubeconfig of another \
         server, or an old one; fetch it again and name it with --kubeconfig"
    }
}

/// An error and its causes.
fn error_text(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

fn kubeconfig(flags: &HubFlags) -> anyhow::Result<(Kubeconfig, String)> {
    if let Some(file) = &flags.kubeconfig {
        let read = Kubeconfig::read_from(file).with_context(|| {
            format!(
                "--kubeconfig {}: give a kubeconfig file (YAML), as kubectl takes it",
                file.display()
            )
        })?;
        return Ok((read, file.display().to_string()));
    }
    if let Some(read) = Kubeconfig::from_env()
        .context("read the files in $KUBECONFIG; correct it, or name one with --kubeconfig")?
    {
        return Ok((read, "$KUBECONFIG".to_owned()));
    }
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    let Some(file) = default_file(Path::new("."), home) else {
        bail!(
            "no kubeconfig: give one with --kubeconfig or $KUBECONFIG, or start `atoll up` in this folder"
        );
    };
    let read = Kubeconfig::read_from(&file).with_context(|| {
        format!("read {}; correct it, or name another with --kubeconfig", file.display())
    })?;
    Ok((read, file.display().to_string()))
}

/// The first default location that has a kubeconfig.
fn default_file(working: &Path, home: Option<PathBuf>) -> Option<PathBuf> {
    [Some(working.join(UP)), home].into_iter().flatten().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_up_comes_before_the_home_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (up, home) = (folder.path().join(UP), folder.path().join("config"));
        assert_eq!(default_file(folder.path(), Some(home.clone())), None);
        std::fs::write(&home, "").unwrap();
        assert_eq!(default_file(folder.path(), Some(home.clone())), Some(home.clone()));
        std::fs::create_dir_all(up.parent().unwrap()).unwrap();
        std::fs::write(&up, "").unwrap();
        assert_eq!(default_file(folder.path(), Some(home)), Some(up));
    }

    #[tokio::test]
    async fn wrong_flags_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let absent = HubFlags { kubeconfig: Some(file.clone()), ..HubFlags::default() };
        let error = format!("{:#}", Hub::find(&absent).await.err().unwrap());
        assert!(error.contains("--kubeconfig"), "{error}");
        std::fs::write(
            &file,
            "{apiVersion: v1, kind: Config, current-context: hub, contexts: [{name: hub, context: {cluster: c, user: u}}],
              clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u}]}",
        )
        .unwrap();
        let wrong = HubFlags { context: Some("moon".to_owned()), ..absent };
        let error = format!("{:#}", Hub::find(&wrong).await.err().unwrap());
        assert!(error.contains("--context \"moon\"") && error.contains("hub"), "{error}");
    }
}
