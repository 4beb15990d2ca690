//! The addresses of `atoll up`: consecutive ports on loopback, all bound before anything starts.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, bail};
use tokio::net::TcpListener;

/// Default first port. Not 6443, which a kube-apiserver on this machine may use.
pub(crate) const DEFAULT: u16 = 16443;
/// Ports in addition to the members': the hub, and the controller's address for agents.
const OTHERS: u16 = 2;

/// Bound listeners.
pub(crate) struct Ports {
    pub(crate) hub: TcpListener,
    pub(crate) agents: TcpListener,
    pub(crate) members: Vec<TcpListener>,
}

impl Ports {
    /// The address of a member that is added to `members` others.
    ///
    /// # Errors
    /// When there is no such port, or it is in use.
    pub(crate) async fn next(first: u16, members: u16) -> anyhow::Result<TcpListener> {
        let port = first
            .checked_add(members + OTHERS)
            .context("there are no more ports after the members'")?;
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .await
            .with_context(|| format!("port {port} on 127.0.0.1, the next member's, cannot be had"))
    }

    /// Binds the hub's port, the next for agents, and one for each member after it.
    ///
    /// # Errors
    /// When one of them is in use; the error names it and the flag to change.
    pub(crate) async fn bind(first: u16, members: u16) -> anyhow::Result<Self> {
        let count = members + OTHERS;
        if first == 0 || first.checked_add(count - 1).is_none() {
            bail!(
                "--port {first} leaves no room for {count} ports: choose one from 1 to {}",
                u16::MAX - count + 1
            );
        }
        let (hub, agents) =
            (bind(first, first, count).await?, bind(first + 1, first, count).await?);
        let mut bound = Vec::with_capacity(usize::from(members));
        for port in first + OTHERS..first + count {
            bound.push(bind(port, first, count).await?);
        }
        Ok(Self { hub, agents, members: bound })
    }
}

async fn bind(port: u16, first: u16, count: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.with_context(|| {
        format!(
            "port {port} on 127.0.0.1 cannot be had; {count} in a row are needed from {first} on: \
             choose another first port with --port"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_the_flag_that_helps() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = format!("{:#}", Ports::bind(port, 1).await.err().unwrap());
        assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
        let error = format!("{:#}", Ports::bind(u16::MAX, 3).await.err().unwrap());
        assert!(error.contains("--port 65535"), "{error}");
    }
}
