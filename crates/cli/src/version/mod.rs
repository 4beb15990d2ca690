//! `atoll version`: of this program, of the controller that leads, and of the agents.

use std::collections::BTreeMap;

use atoll_api::Cluster;
use clap::Args;
use kube::{Api, ResourceExt};
use serde::Serialize;

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::leader;
use crate::print::{Printer, Text, Tone, counted};
use crate::read::get;

/// Version of this program.
pub(crate) const OWN: &str = env!("CARGO_PKG_VERSION");
/// Stands for a version that is not known: of a program that does not report it, or that never ran.
const UNKNOWN: &str = "unknown";
/// Most members that one line names.
const NAMES: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Only of this program; asks no hub
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// The answer.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<Controller>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<Agents>,
}

/// The controller that led last.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Controller {
    version: String,
    leader: String,
}

/// Agents of one version.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Agents {
    pub(crate) version: String,
    pub(crate) members: Vec<String>,
}

pub(crate) async fn run(flags: &HubFlags, args: VersionArgs, out: &Printer) -> anyhow::Result<()> {
    let mut versions = Versions { client: OWN, controller: None, agents: Vec::new() };
    if !args.client {
        let hub = Hub::find(flags).await?;
        versions.controller = leader::find(&hub).await?.map(|leader| Controller {
            version: leader.version.unwrap_or_else(|| UNKNOWN.to_owned()),
            leader: leader.holder,
        });
        versions.agents = agents(&get::list(&hub, &Api::all(hub.client.clone())).await?);
    }
    match args.output.output {
        Format::Table => out.wide_table(&["PROGRAM", "VERSION", "WHERE"], rows(&versions)),
        format => out.object(format, &versions),
    }
}

/// The versions of all agents, with their members.
pub(crate) fn agents(clusters: &[Cluster]) -> Vec<Agents> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cluster in clusters {
        let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
        let version = session.and_then(|session| session.agent_version.clone());
        let version = version.unwrap_or_else(|| UNKNOWN.to_owned());
        found.entry(version).or_default().push(cluster.name_any());
    }
    found.into_iter().map(|(version, members)| Agents { version, members }).collect()
}

fn rows(versions: &Versions) -> Vec<Vec<Text>> {
    let toned = |version: &str| match version == versions.client {
        true => Text::from(version),
        false => Text::toned(version, Tone::Warn),
    };
    let mut rows: Vec<Vec<Text>> = vec![vec!["client".into(), versions.client.into(), "".into()]];
    if let Some(controller) = &versions.controller {
        let leader = controller.leader.as_str();
        rows.push(vec!["controller".into(), toned(&controller.version), leader.into()]);
    }
    for agents in &versions.agents {
        let members = match agents.members.len() {
            count if count > NAMES => counted(count as u64, "member", "members"),
            _ => agents.members.join(", "),
        };
        rows.push(vec!["agents".into(), toned(&agents.version), members.into()]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_are_grouped_by_version_and_one_that_reports_none_is_unknown() {
        let cluster = |name: &str, version: Option<&str>| -> Cluster {
            let session = version.map(|v| json!({"state": "Connected", "agentVersion": v}));
            let mut cluster = json!({
                "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {}, "status": {},
            });
            if let Some(session) = session {
                cluster["status"]["session"] = session;
            }
            serde_json::from_value(cluster).unwrap()
        };
        let found = agents(&[
            cluster("a", Some("0.2.0")),
            cluster("b", Some("0.1.0")),
            cluster("c", Some("0.2.0")),
            cluster("d", None),
        ]);
        let seen: Vec<_> = found
            .iter()
            .map(|agents| (agents.version.as_str(), agents.members.join(",")))
            .collect();
        let owned = str::to_owned;
        assert_eq!(seen, [("0.1.0", owned("b")), ("0.2.0", owned("a,c")), (UNKNOWN, owned("d"))]);
    }
}
