//! `atoll top`: use of CPU and memory on all members.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::bail;
use atoll_api::quantity::Quantity;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::args::{HubFlags, WideFormat};
use crate::hub::Hub;
use crate::print::{Printer, Text};
use crate::reach;
use crate::read::fleet::{self, Answer, Collection, items};

/// The metrics API, which metrics-server serves.
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// What to measure
    #[arg(value_name = "pods|nodes")]
    what: What,
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Pods in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// With these labels, for example `app=web,tier!=cache`
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// On this member only; may be given several times
    #[arg(long = "cluster", value_name = "MEMBER")]
    members: Vec<String>,
    /// The largest first [default: by member, namespace and name]
    #[arg(long, value_name = "RESOURCE")]
    sort_by: Option<Resource>,
    /// How to print the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: WideFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    #[value(alias = "pod", alias = "po")]
    Pods,
    #[value(alias = "node", alias = "no")]
    Nodes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resource {
    Cpu,
    Memory,
}

/// What an object uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Used {
    member: String,
    namespace: String,
    name: String,
    /// Thousandths of a core.
    cpu: i128,
    /// Bytes.
    memory: i128,
}

/// Allocatable CPU in thousandths and memory in bytes, by member and node.
type Room = HashMap<(String, String), (i128, i128)>;

pub(crate) async fn run(flags: &HubFlags, args: TopArgs, out: &Printer) -> anyhow::Result<()> {
    if args.what == What::Nodes && args.all_namespaces {
        bail!("`atoll top nodes` has no --all-namespaces: nodes are in no namespace");
    }
    if args.sort_by.is_some() && args.output.objects().is_some() {
        bail!("--sort-by orders tables: it cannot be used with --output json or yaml");
    }
    let hub = Hub::find(flags).await?;
    let members = reach::members(&hub, &args.members).await?;
    let path = match (args.what, args.all_namespaces) {
        (What::Nodes, _) => format!("{METRICS}/nodes"),
        (What::Pods, true) => format!("{METRICS}/pods"),
        (What::Pods, false) => format!("{METRICS}/namespaces/{}/pods", hub.namespace),
    };
    let collection = Collection { path, labels: args.selector.clone(), ..Collection::default() };
    let mut answers = collection.of(&members).await;
    answers.iter_mut().for_each(explain);
    fleet::report(&answers)?;
    if let Some(format) = args.output.objects() {
        return out.object(format, &fleet::list_of(fleet::objects(&answers, &args.names)));
    }
    let mut used = used(&answers, &args.names);
    match args.sort_by {
        None => {}
        Some(Resource::Cpu) => used.sort_by_key(|used| Reverse(used.cpu)),
        Some(Resource::Memory) => used.sort_by_key(|used| Reverse(used.memory)),
    }
    if used.is_empty() {
        return out.line("No resources found.");
    }
    if args.what == What::Pods {
        return pods(&used, args.all_namespaces, out);
    }
    let nodes = Collection { path: "/api/v1/nodes".to_owned(), ..Collection::default() };
    let nodes = nodes.of(&members).await;
    out.wide_table(
        &["CLUSTER", "NAME", "CPU", "CPU%", "MEMORY", "MEMORY%"],
        node_rows(&used, &room(&nodes)),
    )
}

/// Says what a member without the metrics API lacks.
fn explain(answer: &mut Answer<'_>) {
    if let Err(failure) = &mut answer.pages
        && failure.is_not_found()
    {
        *failure = failure.saying("it serves no metrics: install metrics-server there");
    }
}

fn used(answers: &[Answer<'_>], names: &[String]) -> Vec<Used> {
    let mut all = Vec::new();
    for Answer { member, pages } in answers {
        for object in pages.iter().flatten().flat_map(items) {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let name = text("name").to_owned();
            if !names.is_empty() && !names.contains(&name) {
                continue;
            }
            let (cpu, memory) = sum(object);
            let (member, namespace) = (member.name.clone(), text("namespace").to_owned());
            all.push(Used { member, namespace, name, cpu, memory });
        }
    }
    all.sort_by(|a, b| (&a.member, &a.namespace, &a.name).cmp(&(&b.member, &b.namespace, &b.name)));
    all
}

/// What a node, or the containers of a pod, use: thousandths of a core, and bytes. Unreadable amounts count as none.
fn sum(object: &Value) -> (i128, i128) {
    let containers = object["containers"].as_array().into_iter().flatten();
    let each = containers.map(|container| &container["usage"]).chain([&object["usage"]]);
    each.fold((0, 0), |(cpu, memory), usage| {
        (cpu + milli(&usage["cpu"]), memory + milli(&usage["memory"]) / 1000)
    })
}

fn milli(quantity: &Value) -> i128 {
    let text = quantity.as_str().map(Quantity::new);
    text.and_then(|text| text.milli().ok()).unwrap_or_default()
}

fn room(answers: &[Answer<'_>]) -> Room {
    let mut room = Room::new();
    for Answer { member, pages } in answers {
        for node in pages.iter().flatten().flat_map(items) {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let allocatable = &node["status"]["allocatable"];
            let amounts = (milli(&allocatable["cpu"]), milli(&allocatable["memory"]) / 1000);
            room.insert((member.name.clone(), name), amounts);
        }
    }
    room
}

fn cores(milli: i128) -> String {
    format!("{milli}m")
}

fn mebibytes(bytes: i128) -> String {
    format!("{}Mi", bytes >> 20)
}

fn pods(used: &[Used], namespaces: bool, out: &Printer) -> anyhow::Result<()> {
    let mut header = vec!["CLUSTER", "NAME", "CPU", "MEMORY"];
    if namespaces {
        header.insert(1, "NAMESPACE");
    }
    let rows = used.iter().map(|used| {
        let mut cells: Vec<Text> = vec![used.member.as_str().into()];
        if namespaces {
            cells.push(used.namespace.as_str().into());
        }
        cells.extend([used.name.as_str().into(), cores(used.cpu).into()]);
        cells.push(mebibytes(used.memory).into());
        cells
    });
    out.wide_table(&header, rows.collect())
}

fn node_rows(used: &[Used], room: &Room) -> Vec<Vec<Text>> {
    let share = |part: i128, whole: Option<i128>| match whole {
        Some(whole) if whole > 0 => format!("{}%", part * 100 / whole),
        // The member has not said how much the node has.
        _ => "-".to_owned(),
    };
    let rows = used.iter().map(|used| {
        let room = room.get(&(used.member.clone(), used.name.clone()));
        vec![
            used.member.as_str().into(),
            used.name.as_str().into(),
            cores(used.cpu).into(),
            share(used.cpu, room.map(|room| room.0)).into(),
            mebibytes(used.memory).into(),
            share(used.memory, room.map(|room| room.1)).into(),
        ]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reach::Member;

    #[tokio::test]
    async fn a_member_without_metrics_is_named_with_what_it_lacks() {
        let members = [Member::answering("m1", |_| (404, "404 page not found".to_owned()))];
        let mut answers = Collection::default().of(&members).await;
        answers.iter_mut().for_each(explain);
        let failure = answers[0].pages.as_ref().unwrap_err().to_string();
        assert_eq!(failure, "it serves no metrics: install metrics-server there");
    }

    #[tokio::test]
    async fn containers_are_added_up_and_nodes_have_shares() {
        let member = Member::nowhere("m1");
        let usage = |cpu: &str, memory: &str| json!({"usage": {"cpu": cpu, "memory": memory}});
        let pods = json!({"items": [
            {"metadata": {"name": "web", "namespace": "shop"},
             "containers": [usage("250m", "64Mi"), usage("1500000n", "1Gi"), usage("x", "")]},
        ]});
        let of = |page: Value| Answer { member: &member, pages: Ok(vec![page]) };
        let found = used(&[of(pods)], &[]);
        assert_eq!((found[0].cpu, found[0].memory >> 20), (252, 1088));
        let node = |usage: Value| json!({"items": [{"metadata": {"name": "n1"}, "usage": usage}]});
        let found = used(&[of(node(json!({"cpu": "2", "memory": "1Gi"})))], &[]);
        let nodes = json!({"items": [{"metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "8", "memory": "4Gi"}}}]});
        let shown = |room: &Room| format!("{:?}", node_rows(&found, room));
        let known = shown(&room(&[of(nodes)]));
        assert!(known.contains("\"25%\"") && known.contains("\"2000m\""), "{known}");
        assert_eq!(shown(&Room::new()).matches("\"-\"").count(), 2);
    }
}
