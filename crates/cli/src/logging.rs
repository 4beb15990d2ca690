//! Log lines on stderr.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Logs what RUST_LOG asks for, else what `default` does.
///
/// # Errors
/// When RUST_LOG cannot be parsed.
pub(crate) fn start(default: &str) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            EnvFilter::try_new(&directives).with_context(|| {
                format!("RUST_LOG={directives:?} is no log filter, try RUST_LOG=info")
            })?
        }
        // kube's client logs each failed request besides returning it: whoever asked says what it means.
        _ => EnvFilter::new(format!("{default},kube_client::client=off")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
