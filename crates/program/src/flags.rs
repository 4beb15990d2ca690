//! Flags that programs share.

use std::path::PathBuf;

use anyhow::Context;
use atoll_api::ReservedNamespaces;
use atoll_traces::{Collector, CollectorError, Exporter, Ratio, Tracer};
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

/// Heading of the flags of traces: that of a whole group would go on below it.
const TRACES: &str = "Traces";

/// Where traces of decisions go.
#[derive(Debug, Clone, Args)]
pub struct TraceFlags {
    /// Collector that gets a trace of each decision, by OTLP over HTTP, for example http://127.0.0.1:4318 [default: no
    /// traces]
    #[arg(long, value_name = "URL", help_heading = TRACES)]
    otlp_endpoint: Option<String>,
    /// Part of all decisions that are traced, from 0 to 1. Give controllers and agents the same: they choose the same
    /// decisions
    #[arg(
        long,
        value_name = "RATIO",
        default_value = "1",
        requires = "otlp_endpoint",
        help_heading = TRACES
    )]
    otlp_sample: Ratio,
    /// Certificates of the authorities that are trusted for an https:// collector, in a PEM file
    #[arg(long, value_name = "FILE", requires = "otlp_endpoint", help_heading = TRACES)]
    otlp_ca: Option<PathBuf>,
}

impl TraceFlags {
    /// Starts to send traces, if the flags ask for it.
    ///
    /// # Errors
    /// When the collector's address or the authorities cannot be used.
    pub fn start(&self) -> anyhow::Result<Option<Exporter>> {
        let Some(url) = &self.otlp_endpoint else { return Ok(None) };
        let authorities = match &self.otlp_ca {
            Some(file) => {
                Some(std::fs::read(file).with_context(|| format!("--otlp-ca {}", file.display()))?)
            }
            None => None,
        };
        let collector = match Collector::new(url, authorities.as_deref()) {
            Ok(collector) => collector,
            Err(error @ CollectorError::NoAuthority) => {
                return Err(error).context("--otlp-endpoint: name them with --otlp-ca FILE");
            }
            Err(error @ CollectorError::Authority(_)) => return Err(error).context("--otlp-ca"),
            Err(error @ CollectorError::Url) => {
                return Err(error).with_context(|| format!("--otlp-endpoint {url:?}"));
            }
        };
        Ok(Some(atoll_traces::start(collector, self.otlp_sample)))
    }
}

/// The tracer of a service of this process: off without an exporter.
#[must_use]
pub fn tracer(exporter: Option<&Exporter>, name: &'static str, instance: &str) -> Tracer {
    exporter.map_or_else(Tracer::default, |exporter| exporter.tracer(name, instance))
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
