//! `atoll console`: the web console on loopback, with the rights of the caller. This module reads for its pages; what a
//! page looks like, and how it is served, is in the crate `atoll-console`.

mod actions;
mod copy;
mod decisions;
mod fleet;
mod guards;
mod index;
mod member;
mod policies;
mod rows;
mod workload;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use atoll_console::data::{
    Action, Copy, DecisionFilter, DecisionPage, Decisions, DiffPage, Member, Overview, Placement,
    PlacementFilter, Plan, Policies, WhatIf, Workload, WorkloadId,
};
use atoll_console::{Answer, Changes, Fault, Serving, Settings, Source, Topic};
use atoll_program::process::end_on_signal;
use clap::Args;
use futures::FutureExt;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::fleet::Fleet;
use crate::args::{HubFlags, ReservedFlag, TenancyFlag};
use crate::hub::{self, Hub};
use crate::print::{Printer, causes, note};

#[derive(Debug, Args)]
#[command(
    after_help = "The printed address opens one browser; when it was used, the next one is printed. The console shows what the \
                  kubeconfig's user may see, and needs no other login. docs/console.md describes the pages and the limits."
)]
pub(crate) struct ConsoleArgs {
    /// Loopback address to serve on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Port to serve on; 0 = any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Offer no actions: nothing can be cordoned, drained, rebalanced, confirmed or approved
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    rules: RuleFlags,
}

/// How the controller was started, as far as plans depend on it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RuleFlags {
    #[command(flatten)]
    pub(crate) tenancy: TenancyFlag,
    #[command(flatten)]
    pub(crate) reserved: ReservedFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: ConsoleArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let token = CancellationToken::new();
    end_on_signal(token.clone())?;
    let listener = bind(SocketAddr::new(args.address, args.port)).await?;
    let only = flags.namespace.clone();
    let serving = serve(hub, only, args.read_only, args.rules, listener, token)?;
    out.line(format!("console  {}", serving.url))?;
    note("Ctrl-C ends it.");
    serving.task.await;
    Ok(())
}

/// A listener for the console.
///
/// # Errors
/// When the address is in use or not on loopback.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        anyhow::bail!(
            "--address {}: the console is served on loopback only; choose 127.0.0.1 or ::1, and reach it from elsewhere with \
             `ssh -L`",
            address.ip()
        );
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{address}, the console's, cannot be had: choose another port"))
}

/// The console over this hub. `only` is the namespace that it is limited to.
///
/// # Errors
/// When the listener cannot be used.
pub(crate) fn serve(
    hub: Hub,
    only: Option<String>,
    read_only: bool,
    rules: RuleFlags,
    listener: TcpListener,
    token: CancellationToken,
) -> anyhow::Result<Serving> {
    let settings = Settings {
        // The context; which file it is in says nothing about the hub.
        hub: hub.found.split_once(" of ").map_or(&*hub.found, |(context, _)| context).to_owned(),
        read_only,
        announce: Box::new(|url| note(format!("another browser: {url}"))),
    };
    let hub = Arc::new(hub);
    let fleet = Arc::new(Fleet::new(&hub, only.clone()));
    let source = Reader { fleet, hub, only, rules, token: token.clone() };
    atoll_console::start(listener, settings, Arc::new(source), token).context("serve the console")
}

/// Reads from the hub, with the rights of the caller.
struct Reader {
    hub: Arc<Hub>,
    fleet: Arc<Fleet>,
    /// The namespace that the console is limited to.
    only: Option<String>,
    rules: RuleFlags,
    /// The end of the console.
    token: CancellationToken,
}

impl Reader {
    /// The hub, with another namespace.
    fn within(&self, namespace: Option<&str>) -> Hub {
        let client: Client = self.hub.client.clone();
        Hub {
            client,
            namespace: namespace.unwrap_or(&self.hub.namespace).to_owned(),
            found: self.hub.found.clone(),
        }
    }
}

/// What the user is told about an error.
fn fault(error: anyhow::Error) -> Fault {
    let text = causes(&error);
    match hub::status(&error) {
        Some(403) => Fault::Forbidden(text),
        Some(404) => Fault::NotFound(text),
        Some(400 | 409 | 422) => Fault::Invalid(text),
        _ => Fault::Failed(text),
    }
}

/// As [`fault`]; an error that is none of the hub's says what does not exist.
fn missing(error: anyhow::Error) -> Fault {
    match hub::status(&error) {
        None => Fault::NotFound(causes(&error)),
        Some(_) => fault(error),
    }
}

/// Most characters of a name.
const NAME: usize = 253;

/// Refuses what no object's name can be: names become parts of the paths of requests.
fn named<'a>(what: &str, name: &'a str) -> Result<&'a str, Fault> {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '@' | '+');
    let dots = name.chars().all(|c| c == '.');
    match !name.is_empty() && name.len() <= NAME && name.chars().all(allowed) && !dots {
        true => Ok(name),
        false => Err(Fault::NotFound(format!("{what} cannot have the name {name:?}"))),
    }
}

/// Checks the parts of a workload's name.
fn checked(of: &WorkloadId) -> Result<(), Fault> {
    named("a kind", &of.type_())?;
    named("an object", &of.name)?;
    of.namespace.as_deref().map_or(Ok(""), |namespace| named("a namespace", namespace))?;
    Ok(())
}

impl Source for Reader {
    fn overview(&self, members: usize, concerns: usize) -> Answer<'_, Overview> {
        self.read_overview(members, concerns).boxed()
    }

    fn placement<'a>(&'a self, filter: &'a PlacementFilter) -> Answer<'a, Placement> {
        self.fleet.placement(filter.clone()).boxed()
    }

    fn workload<'a>(
        &'a self,
        of: &'a WorkloadId,
        shares: usize,
        verdicts: usize,
    ) -> Answer<'a, Workload> {
        self.read_workload(of, shares, verdicts).boxed()
    }

    fn copy<'a>(&'a self, of: &'a WorkloadId, member: &'a str) -> Answer<'a, Copy> {
        self.read_copy(of, member).boxed()
    }

    fn member<'a>(&'a self, name: &'a str, page: usize) -> Answer<'a, Member> {
        self.read_member(name, page).boxed()
    }

    fn decisions<'a>(&'a self, filter: &'a DecisionFilter) -> Answer<'a, Decisions> {
        self.read_decisions(filter).boxed()
    }

    fn decision<'a>(
        &'a self,
        namespace: Option<&'a str>,
        id: &'a str,
        page: usize,
    ) -> Answer<'a, DecisionPage> {
        self.read_decision(namespace, id, page).boxed()
    }

    fn diff<'a>(&'a self, from: &'a str, to: &'a str) -> Answer<'a, DiffPage> {
        self.read_diff(from, to).boxed()
    }

    fn policies(&self, page: usize, findings: usize) -> Answer<'_, Policies> {
        self.read_policies(page, findings).boxed()
    }

    fn plan<'a>(&'a self, ask: &'a WhatIf) -> Answer<'a, Plan> {
        self.read_plan(ask).boxed()
    }

    fn preview<'a>(&'a self, action: &'a Action) -> Answer<'a, Plan> {
        self.read_preview(action).boxed()
    }

    fn act<'a>(&'a self, action: &'a Action) -> Answer<'a, String> {
        self.do_action(action).boxed()
    }

    fn changes(&self, topic: Topic) -> Changes {
        match topic {
            Topic::Fleet => self.fleet.changes(),
            Topic::Decisions(filter) => self.new_decisions(&filter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_place_in_a_path_are_refused() {
        for good in ["web", "system:node", "a.b-c_d"] {
            assert!(named("an object", good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a?b", "a%2f", "a#b", "a b", "ä", &"x".repeat(254)] {
            assert!(named("an object", bad).is_err(), "{bad}");
        }
    }
}
