//! `atoll get members`.

use anyhow::Context;
use atoll_api::Cluster;
use atoll_api::cluster::SessionState;
use atoll_history::api::text::age;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone};

/// Clusters that one page of the list brings.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The member clusters: session, version, nodes
    #[command(visible_alias = "member")]
    Members {
        /// Only these
        #[arg(value_name = "MEMBER")]
        names: Vec<String>,
        #[command(flatten)]
        output: OutputFlag,
    },
}

pub(crate) async fn run(flags: &HubFlags, args: GetArgs, out: &Printer) -> anyhow::Result<()> {
    let What::Members { names, output } = args.what;
    let hub = Hub::find(flags).await?;
    let api: Api<Cluster> = Api::all(hub.client.clone());
    let clusters = if names.is_empty() {
        list(&hub, &api).await?
    } else {
        let mut found = Vec::with_capacity(names.len());
        for name in &names {
            found.push(hub.call(&format!("get member {name}"), api.get(name)).await?);
        }
        found
    };
    match output.output {
        Format::Table if clusters.is_empty() => out.line("No members."),
        Format::Table => out.table(
            &["NAME", "MODE", "READY", "SESSION", "SINCE", "VERSION", "NODES", "REASON"],
            clusters.iter().map(|cluster| row(cluster, Timestamp::now())).collect(),
        ),
        format => {
            let items = serde_json::to_value(&clusters).context("write the answer")?;
            out.object(format, &json!({"apiVersion": "v1", "kind": "List", "items": items}))
        }
    }
}

async fn list(hub: &Hub, api: &Api<Cluster>) -> anyhow::Result<Vec<Cluster>> {
    let mut params = ListParams::default().limit(PAGE);
    let mut clusters = Vec::new();
    loop {
        let page = hub.call("list members", api.list(&params)).await?;
        clusters.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(clusters),
        }
    }
}

fn row(cluster: &Cluster, now: Timestamp) -> Vec<Text> {
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let (state, since) = match &status.session {
        Some(session) => (session.state, session.since.as_ref()),
        None => (SessionState::Unknown, None),
    };
    let ready_tone = match ready.map(|condition| condition.status.as_str()) {
        Some("True") => Tone::Good,
        Some("False") => Tone::Bad,
        _ => Tone::Warn,
    };
    let nodes = status
        .node_summary
        .map_or_else(|| "-".to_owned(), |nodes| format!("{}/{}", nodes.ready_num, nodes.total_num));
    vec![
        cluster.name_any().into(),
        format!("{:?}", cluster.spec.mode).into(),
        Text::toned(ready.map_or("Unknown", |condition| &condition.status), ready_tone),
        format!("{state:?}").into(),
        since.map_or_else(|| "-".to_owned(), |since| age(since.0, now)).into(),
        status.kubernetes_version.unwrap_or_else(|| "-".to_owned()).into(),
        nodes.into(),
        ready.map_or("", |condition| &condition.reason).into(),
    ]
}
