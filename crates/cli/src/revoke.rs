//! `atoll revoke`: revokes all certificates of a member.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use atoll_controller::members::REVOKED_BEFORE;
use clap::Args;
use jiff::Timestamp;

use crate::args::{HubFlags, seconds};
use crate::cluster;
use crate::hub::Hub;
use crate::print::{Printer, note};

/// Without an answer for this long, the user is warned that no controller may be running.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The member
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Seconds to wait until the controller has stored it: a number, or 90s, 5m; 0 = do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds::<u64>)]
    timeout: u64,
}

/// Requests the revocation and waits until the controller has stored its effective time.
pub(crate) async fn run(flags: &HubFlags, args: RevokeArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let name = &args.member;
    let seen = cluster::get(&hub, name).await?;
    let request = Timestamp::now().to_string();
    // Concurrent writes do not matter here.
    let annotations = BTreeMap::from([(REVOKED_BEFORE, request.clone())]);
    let seen = cluster::annotate_any(&hub, &seen, annotations).await?;
    if args.timeout == 0 {
        return out.line(format!("The revocation of {name} was requested."));
    }
    let quiet =
        || note("no controller has stored it yet: is `atoll controller` running on this hub?");
    let done = cluster::watch(&hub, &seen, PATIENCE, quiet, |seen| {
        let revocation = seen.status.as_ref()?.revocation.as_ref()?;
        (revocation.request.as_deref() == Some(&request)).then_some(revocation.before.0)
    });
    match tokio::time::timeout(Duration::from_secs(args.timeout), done).await {
        Ok(done) => match done? {
            Some(before) => out.line(format!(
                "Certificates and tokens of {name} up to {before} are revoked, and its session is closed. \
                 `atoll rejoin {name}` admits an agent again."
            )),
            None => bail!("Cluster {name} was deleted in the meantime, and all its certificates with it"),
        },
        Err(_) => bail!(
            "no controller stored it within {} s: the request is on Cluster {name} and takes effect when a controller leads",
            args.timeout
        ),
    }
}
