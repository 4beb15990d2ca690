//! `atoll ca`: the certificate authority of the federation, and its rotation.

use std::time::Duration;

use anyhow::{Context, bail};
use atoll_api::{Clock, Cluster};
use atoll_controller::members::{self, Standing, standing};
use atoll_history::api::text::age;
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::CertificateFacts;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::args::{Format, HubFlags, OutputFlag, seconds};
use crate::confirm::confirm;
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone, counted, note};

/// How often `--wait` looks at the hub again. Members renew within seconds.
const LOOK: Duration = Duration::from_secs(1);
/// Members per request when all are listed.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct CaArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the authority, how long it is valid, and during a rotation which members still need the old one
    Status {
        #[command(flatten)]
        output: OutputFlag,
    },
    /// Replace the authority. The old one stays trusted until every member has a certificate of the new one
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
struct RotateArgs {
    /// Stop trusting the old authority now, because its key was stolen. Every member has to join again (`atoll rejoin`).
    /// During a rotation, end it now: members without a new certificate have to join again
    #[arg(long)]
    at_once: bool,
    /// Wait until the old authority is no longer trusted, for at most this time: a number of seconds, or 90s, 5m
    #[arg(long, value_name = "SECONDS", value_parser = seconds::<u64>, conflicts_with = "at_once")]
    wait: Option<u64>,
    /// Do not ask, with --at-once
    #[arg(short, long, requires = "at_once")]
    yes: bool,
}

/// A member and its standing.
struct Row {
    name: String,
    standing: Standing,
    agent: Option<String>,
    connected: bool,
    until: Option<Timestamp>,
}

pub(crate) async fn run(flags: &HubFlags, args: CaArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    match args.verb {
        Verb::Status { output } => {
            let authorities = load(&hub).await?;
            let rows = rows(&hub, &authorities).await?;
            match output.output {
                Format::Table => show(&authorities, &rows, out),
                format => out.object(format, &object(&authorities, &rows)?),
            }
        }
        Verb::Rotate(args) => rotate(&hub, &args, out).await,
    }
}

async fn rotate(hub: &Hub, args: &RotateArgs, out: &Printer) -> anyhow::Result<()> {
    let before = load(hub).await?;
    let rows = rows(hub, &before).await?;
    let members = rows.iter().filter(|row| row.standing != Standing::NoCertificate).count();
    if args.at_once {
        let cut = if before.predecessor().is_some() {
            rows.iter().filter(|row| is_open(row.standing)).count()
        } else {
            members
        };
        confirm(
            args.yes,
            &format!(
                "The old authority is not trusted from now on: {} to join again with `atoll rejoin`. Workloads run on. \
             Continue?",
                counted(cut, "member has", "members have")
            ),
        )?;
    }
    let rotated = members::rotate(&hub.client, &Clock::system(), args.at_once).await;
    let rotated = rotated.context("replace the certificate authority")?;
    let Some((authorities, changed)) = rotated else { bail!(NO_AUTHORITY) };
    let hash = authorities.signing().hash();
    match (changed, args.at_once) {
        (true, true) => {
            return out.line(format!(
                "{hash} is the only trusted authority. Controllers follow within 10 s. `atoll rejoin MEMBER` admits each member \
                 again. Until then its agent trusts the old authority: rejoin the members first that untrusted networks can \
                 reach, or stop their agents."
            ));
        }
        (true, false) => out.line(format!(
            "{hash} signs from now on. Controllers read it within 10 s, and {} certificates. The old authority is trusted until \
             then.",
            counted(members, "member renews its", "members renew their")
        ))?,
        (false, _) => note("a rotation is already going on"),
    }
    match args.wait {
        None => out.line("`atoll ca status` shows the progress."),
        Some(limit) => wait(hub, &authorities, Duration::from_secs(limit), out).await,
    }
}

/// Waits for the end of the trust in the predecessor.
async fn wait(
    hub: &Hub,
    begun: &Authorities,
    limit: Duration,
    out: &Printer,
) -> anyhow::Result<()> {
    let ends = tokio::time::Instant::now() + limit;
    loop {
        let now = load(hub).await?;
        if now.signing().hash() != begun.signing().hash() {
            bail!("the authority was replaced again meanwhile: `atoll ca status` shows it");
        }
        if now.predecessor().is_none() {
            return out.line("Every member has a certificate of the new authority. The old one is no longer trusted.");
        }
        if tokio::time::Instant::now() >= ends {
            let rows = rows(hub, &now).await?;
            let open: Vec<_> =
                rows.iter().filter(|row| is_open(row.standing)).map(|row| &*row.name).collect();
            bail!(
                "after {} s the old authority is still trusted, for {}. The rotation goes on: `atoll ca status`",
                limit.as_secs(),
                if open.is_empty() {
                    "no member: is a controller leading?".to_owned()
                } else {
                    open.join(", ")
                }
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

const NO_AUTHORITY: &str =
    "no controller has run on this hub yet: the first one that leads creates the authority";

async fn load(hub: &Hub) -> anyhow::Result<Authorities> {
    let found = members::load(&hub.client).await.context("the certificate authority")?;
    found.context(NO_AUTHORITY)
}

async fn rows(hub: &Hub, authorities: &Authorities) -> anyhow::Result<Vec<Row>> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let (hash, now) = (authorities.signing().hash(), Timestamp::now());
    let mut rows = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = hub.call("list the Clusters", clusters.list(&page)).await?;
        rows.extend(list.items.iter().map(|cluster| {
            let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
            Row {
                name: cluster.name_any(),
                standing: standing(cluster.status.as_ref(), hash, now),
                agent: session.and_then(|session| session.agent_version.clone()),
                connected: session.is_some_and(|session| {
                    session.state == atoll_api::cluster::SessionState::Connected
                }),
                until: session.and_then(|session| Some(session.certificate_until.as_ref()?.0)),
            }
        }));
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(rows),
        }
    }
}

/// Whether the rotation waits for the member.
fn is_open(standing: Standing) -> bool {
    matches!(standing, Standing::Old | Standing::Unknown)
}

fn word(standing: Standing) -> (&'static str, Tone) {
    match standing {
        Standing::NoCertificate => ("None", Tone::Plain),
        Standing::Renewed => ("Present", Tone::Good),
        Standing::Expired => ("Expired", Tone::Bad),
        Standing::Old => ("Old", Tone::Warn),
        Standing::Unknown => ("Unknown", Tone::Warn),
    }
}

fn show(authorities: &Authorities, rows: &[Row], out: &Printer) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let mut table = Vec::new();
    for authority in authorities.all() {
        let signs = authority.hash() == authorities.signing().hash();
        let ends = CertificateFacts::read(authority.certificate())?.not_after;
        table.push(vec![
            authority.hash().to_string().into(),
            if signs { "Signs".into() } else { Text::toned("Being replaced", Tone::Warn) },
            left(ends, now).into(),
        ]);
    }
    out.table_keeping(1, &["AUTHORITY", "STATE", "ENDS IN"], table)?;
    if authorities.predecessor().is_none() {
        return Ok(());
    }
    let open = rows.iter().filter(|row| is_open(row.standing)).count();
    out.line(format!(
        "\n{} of {} still {} the old authority. Each renews when it is connected; a member with an agent that cannot follow \
         (Old although connected) needs a newer agent. Certificates that expire end the wait for their member.\n",
        open,
        counted(rows.len(), "member", "members"),
        if open == 1 { "needs" } else { "need" },
    ))?;
    let rows = rows.iter().map(|row| {
        let (text, tone) = word(row.standing);
        vec![
            (&row.name).into(),
            Text::toned(text, tone),
            row.until.map_or_else(|| "-".to_owned(), |until| left(until, now)).into(),
            if row.connected { "yes".into() } else { Text::toned("no", Tone::Warn) },
            row.agent.as_deref().unwrap_or("-").into(),
        ]
    });
    out.table(&["MEMBER", "CERTIFICATE", "ENDS IN", "CONNECTED", "AGENT"], rows.collect())
}

/// Time until then.
fn left(until: Timestamp, now: Timestamp) -> String {
    if until <= now { "ended".to_owned() } else { age(now, until) }
}

fn object(authorities: &Authorities, rows: &[Row]) -> anyhow::Result<Value> {
    let each = authorities.all().map(|authority| {
        let facts = CertificateFacts::read(authority.certificate())?;
        anyhow::Ok(json!({
            "hash": authority.hash().to_string(),
            "signs": authority.hash() == authorities.signing().hash(),
            "notAfter": facts.not_after.to_string(),
        }))
    });
    let rows = rows.iter().map(|row| {
        json!({
            "name": row.name,
            "certificate": word(row.standing).0,
            "certificateUntil": row.until.map(|until| until.to_string()),
            "connected": row.connected,
            "agentVersion": row.agent,
        })
    });
    Ok(json!({
        "rotating": authorities.predecessor().is_some(),
        "authorities": each.collect::<anyhow::Result<Vec<_>>>()?,
        "members": rows.collect::<Vec<_>>(),
    }))
}
