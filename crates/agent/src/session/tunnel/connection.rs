//! Keeps the tunnel's connection open while there is a session.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Backoff;
use atoll_protocol::tls::tunnel_config;
use atoll_protocol::{transport, tunnel};
use tokio::time::Instant;

use super::super::enrol::{Renewal, chain};
use super::proxy::Proxy;
use super::service::Service;
use crate::options::Connector;

/// Waits between attempts. The session is up, so the controller is reachable: failures are refusals.
const RETRY: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// A connection that lived this long was accepted: the next attempt comes soon.
const LIVED: Duration = Duration::from_secs(30);

/// Serves users' requests over connections to this controller, one connection after another. Returns only by
/// cancellation: the session's end ends all requests.
pub(crate) async fn keep(
    proxy: Arc<Proxy>,
    (connector, address): (&Connector, &str),
    renewal: &Renewal,
    term: u64,
) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let connected = connect((connector, address), renewal).await;
        let why = match connected {
            Ok(io) => {
                let service = Service { proxy: proxy.clone(), term };
                match tunnel::serve(io, service, tunnel::MAX_STREAMS).await {
                    Ok(()) => "the controller closed it".to_owned(),
                    Err(error) => chain(&error),
                }
            }
            Err(why) => why,
        };
        failures = if began.elapsed() > LIVED { 1 } else { failures + 1 };
        let wait = RETRY.half_jitter(failures, &renewal.jitter);
        tracing::info!(%address, %why, ?wait, "no tunnel for users' requests");
        tokio::time::sleep(wait).await;
    }
}

async fn connect(
    (connector, address): (&Connector, &str),
    renewal: &Renewal,
) -> Result<impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static, String> {
    let identity = renewal.identity.borrow().clone();
    let tls = tunnel_config(&identity, renewal.clock.clone()).map_err(|error| chain(&error))?;
    let io = connector.connect(address).await.map_err(|error| chain(&error))?;
    transport::secured(io, tls).await.map_err(|error| chain(&error))
}
