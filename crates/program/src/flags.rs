//! Flags that programs share.

use std::path::PathBuf;

use anyhow::Context;
use atoll_api::ReservedNamespaces;
use clap::Args;

use crate::logging::LogFormat;

/// Which API server to talk to, as kubectl has it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubernetes API")]
pub struct HubFlags {
    /// Kubeconfig file [default: the files in $KUBECONFIG, then ./.atoll/kubeconfig, then ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace [default: the context's]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// How a program that keeps running logs.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct LogFlag {
    /// How log lines on stderr are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// Namespaces that are not propagated, besides those that never are.
#[derive(Debug, Clone, Default, Args)]
pub struct ReservedFlag {
    /// Namespaces whose objects are never propagated, besides kube-* and atoll-*: names, comma separated, in which * stands
    /// for any text
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    reserved_namespaces: Vec<String>,
}

impl ReservedFlag {
    /// The patterns as given, for a command line that passes them on.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.reserved_namespaces
    }

    /// The built-in reserved namespaces plus those given by flag.
    ///
    /// # Errors
    /// When a pattern is invalid; the error names it.
    pub fn namespaces(&self) -> anyhow::Result<ReservedNamespaces> {
        ReservedNamespaces::with(&self.reserved_namespaces)
            .map_err(anyhow::Error::msg)
            .context("--reserved-namespaces")
    }
}
