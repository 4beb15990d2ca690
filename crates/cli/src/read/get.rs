//! `atoll get`: members, and objects on members.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context, bail};
use atoll_api::cluster::{ResourceSummary, SessionState};
use atoll_api::quantity::ResourceList;
use atoll_api::{Cluster, MemberState, ResourceBinding};
use atoll_history::api::text::age;
use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::bindings::{self, Listed};
use super::fleet::{self, Wanted};
use crate::args::{HubFlags, ListFormat};
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone, named};

/// Page size of the list of Clusters.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// `members`, or a type of objects on members, as kubectl names it: `pods`, `deploy`, `widgets.example.com`
    #[arg(value_name = "members|TYPE")]
    what: String,
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Objects on members: in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Objects on members: with these labels, for example `app=web,tier!=cache`
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Objects on members: on this member only; may be given several times
    #[arg(long = "cluster", value_name = "MEMBER")]
    members: Vec<String>,
    /// Objects on members: continue with changes (with -o json one JSON object per line)
    #[arg(short, long)]
    watch: bool,
    /// How to print the answer; wide adds columns
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: ListFormat,
}

pub(crate) async fn run(flags: &HubFlags, args: GetArgs, out: &Printer) -> anyhow::Result<()> {
    if matches!(args.what.as_str(), "members" | "member") {
        let narrowed = args.selector.is_some() || !args.members.is_empty();
        if args.all_namespaces || args.watch || narrowed {
            bail!("`atoll get members` has no --all-namespaces, --selector, --cluster or --watch");
        }
        return members(flags, args.names, args.output, out).await;
    }
    let hub = Hub::find(flags).await?;
    let wanted = Wanted {
        type_: &args.what,
        names: &args.names,
        all_namespaces: args.all_namespaces,
        selector: args.selector.as_deref(),
        members: &args.members,
        watch: args.watch,
        output: args.output,
    };
    fleet::run(&hub, &wanted, out).await
}

async fn members(
    flags: &HubFlags,
    names: Vec<String>,
    output: ListFormat,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let api: Api<Cluster> = Api::all(hub.client.clone());
    let mut clusters = if names.is_empty() {
        list(&hub, &api).await?
    } else {
        let mut found = Vec::with_capacity(names.len());
        for name in &names {
            found.push(hub.call(&format!("get member {name}"), api.get(name)).await?);
        }
        found
    };
    if output == ListFormat::Name {
        let line = |cluster: &Cluster| {
            out.line(named(
                Cluster::kind(&()).as_ref(),
                Cluster::group(&()).as_ref(),
                &cluster.name_any(),
            ))
        };
        return clusters.iter().try_for_each(line);
    }
    let Some(format) = output.objects() else {
        return match clusters.is_empty() {
            true => out.line("No members."),
            false => table(&hub, &clusters, output == ListFormat::Wide, out).await,
        };
    };
    // As kubectl: managedFields are for those who read the API.
    for cluster in &mut clusters {
        cluster.metadata.managed_fields = None;
    }
    let items = serde_json::to_value(&clusters).context("write the answer")?;
    out.object(format, &json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// One line for each member.
async fn table(hub: &Hub, clusters: &[Cluster], wide: bool, out: &Printer) -> anyhow::Result<()> {
    let (shares, now) = (shares(hub).await?, Timestamp::now());
    let replicas = |name: &str| shares.get(name).copied().unwrap_or_default();
    let rows = clusters.iter().map(|c| row(c, replicas(&c.name_any()), wide, now)).collect();
    let mut header = vec!["NAME", "STATUS", "REASON", "MODE", "REPLICAS"];
    header.extend(["FREE CPU", "FREE MEM", "FREE PODS"]);
    if wide {
        header.extend(["SESSION", "VERSION"]);
        return out.wide_table(&header, rows);
    }
    out.table_keeping(3, &header, rows)
}

/// All Clusters.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn list(hub: &Hub, api: &Api<Cluster>) -> anyhow::Result<Vec<Cluster>> {
    let mut clusters = Vec::new();
    each(hub, "list members", api, |cluster| clusters.push(cluster)).await?;
    Ok(clusters)
}

/// Replicas that the committed decisions give each member.
async fn shares(hub: &Hub) -> anyhow::Result<BTreeMap<String, i64>> {
    let mut shares: BTreeMap<String, i64> = BTreeMap::new();
    let mut add = |binding: Listed| {
        for target in binding.spec.clusters {
            *shares.entry(target.name).or_default() += target.replicas;
        }
    };
    // Cluster-scoped templates have no replicas.
    bindings::each_of::<ResourceBinding>(hub, None, &mut add).await?;
    Ok(shares)
}

/// Passes every object of a list to the callback, page by page.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn each<K: Clone + DeserializeOwned + Debug>(
    hub: &Hub,
    doing: &str,
    api: &Api<K>,
    mut take: impl FnMut(K),
) -> anyhow::Result<()> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = hub.call(doing, api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// `free/all` of a resource over the ready nodes; `-` if it is not known.
pub(crate) fn free(
    summary: Option<&ResourceSummary>,
    resource: &str,
    unit: i128,
    suffix: &str,
) -> String {
    let milli = |list: &ResourceList| list.get(resource).map(|quantity| quantity.milli());
    let Some((summary, Some(Ok(all)))) = summary.map(|s| (s, milli(&s.allocatable))) else {
        return "-".to_owned();
    };
    let taken = milli(&summary.allocated).and_then(Result::ok).unwrap_or_default();
    let tenths = |milli: i128| {
        let tenths = milli.max(0) / (unit * 100);
        match tenths % 10 {
            0 => format!("{}{suffix}", tenths / 10),
            rest => format!("{}.{rest}{suffix}", tenths / 10),
        }
    };
    format!("{}/{}", tenths(all - taken), tenths(all))
}

fn row(cluster: &Cluster, replicas: i64, wide: bool, now: Timestamp) -> Vec<Text> {
    let status = cluster.status.clone().unwrap_or_default();
    let terminating = cluster.metadata.deletion_timestamp.is_some();
    let said = MemberState::of(&cluster.spec, &status.conditions, terminating);
    let (state, since) = match &status.session {
        Some(session) => (session.state, session.since.as_ref()),
        None => (SessionState::Unknown, None),
    };
    let tone = match said.state.split(',').next() {
        Some("NotReady") => Tone::Bad,
        Some("Ready") if said.state == "Ready" => Tone::Good,
        _ => Tone::Warn,
    };
    let mut cells = vec![
        cluster.name_any().into(),
        // One state per line: a drained member has three, and the table must fit the terminal.
        Text::toned(said.state.replace(',', "\n"), tone),
        said.reason.replace(',', "\n").into(),
        format!("{:?}", cluster.spec.mode).into(),
        replicas.into(),
        free(status.resource_summary.as_ref(), "cpu", 1, "").into(),
        free(status.resource_summary.as_ref(), "memory", 1 << 30, "Gi").into(),
        free(status.resource_summary.as_ref(), "pods", 1, "").into(),
    ];
    if wide {
        cells.push(match (state, since.map(|since| age(since.0, now))) {
            (SessionState::Connected, Some(age)) => age.into(),
            (state, Some(age)) => format!("{state:?} {age}").into(),
            (state, None) => format!("{state:?}").into(),
        });
        cells.push(status.kubernetes_version.unwrap_or_else(|| "-".to_owned()).into());
    }
    cells
}
