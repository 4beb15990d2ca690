//! The life of a process: signals, listeners, its end.

use std::io;
use std::net::SocketAddr;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the token at the first Ctrl-C or SIGTERM.
///
/// # Errors
/// When signal handlers cannot be installed.
pub fn end_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    // Owned by the process: it ends with the runtime.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            _ = interrupt.recv() => tracing::info!("stopping: interrupted"),
            _ = terminate.recv() => tracing::info!("stopping: received SIGTERM"),
        }
        token.cancel();
    });
    Ok(())
}

/// Binds the address of a flag.
///
/// # Errors
/// When it cannot be bound; the text names the flag and the fix.
pub async fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| {
        let port = address.port();
        let fix = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another process listens there (`ss -ltnp 'sport = :{port}'` shows it): stop it, or choose another port"
            ),
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "{} is not an address of this machine: choose one of its addresses, or 0.0.0.0 for all",
                address.ip()
            ),
            _ => "choose another address".to_owned(),
        };
        anyhow::Error::new(error).context(format!("{flag} {address}: {fix}"))
    })
}

/// Stops the tasks beside a component that has ended.
pub async fn end(token: CancellationToken, beside: Vec<tokio::task::JoinHandle<()>>) {
    token.cancel();
    for task in beside {
        if let Err(error) = task.await {
            tracing::error!(%error, "a task beside it failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_cannot_be_had_is_named_with_its_flag_and_the_fix() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = format!("{:#}", listen("--listen", address).await.unwrap_err());
        assert!(error.starts_with(&format!("--listen {address}: another process")), "{error}");
        assert!(error.contains("choose another port") && error.contains("in use"), "{error}");
        let foreign = "192.0.2.1:7443".parse().unwrap();
        let error = format!("{:#}", listen("--http", foreign).await.unwrap_err());
        assert!(
            error.contains("--http 192.0.2.1:7443: 192.0.2.1 is not an address of this"),
            "{error}"
        );
    }
}
