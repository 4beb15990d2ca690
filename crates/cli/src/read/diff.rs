//! `atoll diff ID ID`: the differences between two decisions.

use std::collections::{BTreeMap, BTreeSet};

use atoll_decision::{ClusterOutcome, Decision};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::decisions::{self, Of};
use super::explain::{self, fate};
use super::item::{self, Item};
use super::workload;
use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{self, Printer};

/// Lines of a section before the rest is summarised as a count; `-o json` has all.
const MOST: usize = 30;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The decision to compare with, by its id or the beginning of it as `atoll history` shows it
    #[arg(value_name = "ID", value_parser = item::id)]
    from: String,
    /// The decision to compare
    #[arg(value_name = "ID", value_parser = item::id)]
    to: String,
    /// Search all namespaces and cluster-scoped objects
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: DiffArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    if !workload::decisions_served(&hub).await? {
        anyhow::bail!(
            "{} does not serve {}: decisions cannot be compared",
            hub.found,
            atoll_api::HISTORY_GROUP
        );
    }
    let of = match args.all_namespaces {
        true => Of::Everything,
        false => Of::Namespace(hub.namespace.clone()),
    };
    let from = decisions::find(&hub, &of, &args.from, "ID").await?;
    let to = decisions::find(&hub, &of, &args.to, "ID").await?;
    let diff = Diff::of(&from, &to)?;
    match args.output.output {
        Format::Table => diff.lines().iter().try_for_each(|line| out.line(line)),
        format => out.object(format, &diff),
    }
}

/// The differences.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Diff {
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// Trigger, mode, outcome and other single values.
    pub(crate) fields: Vec<Change>,
    /// By cluster.
    pub(crate) shares: Vec<Change>,
    /// The inputs of the decisions, by object: generation and last author.
    pub(crate) sources: Vec<Change>,
    /// By cluster: chosen, or the rule that refused it.
    pub(crate) verdicts: Vec<Change>,
    /// By cluster: free capacity in replicas, and its limiting resource.
    pub(crate) capacity: Vec<Change>,
    /// By cluster and plugin.
    pub(crate) scores: Vec<Change>,
    /// What could not be compared, and why.
    pub(crate) unknown: Vec<String>,
}

/// One of the two decisions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Side {
    id: String,
    at: String,
    namespace: String,
    workload: String,
    reason: String,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    pub(crate) of: String,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

impl Side {
    fn of(object: &Value) -> Self {
        let item = Item(object);
        Self {
            id: item.id().to_owned(),
            at: item.text("at").to_owned(),
            namespace: item.namespace().to_owned(),
            workload: item.workload(),
            reason: item.reason(),
        }
    }
}

type Values = BTreeMap<String, String>;

/// Keys whose values differ.
fn changes(from: &Values, to: &Values) -> Vec<Change> {
    let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    keys.into_iter()
        .filter(|key| from.get(*key) != to.get(*key))
        .map(|key| Change {
            of: key.clone(),
            from: from.get(key).cloned(),
            to: to.get(key).cloned(),
        })
        .collect()
}

impl Diff {
    pub(crate) fn of(from: &Value, to: &Value) -> anyhow::Result<Self> {
        let mut unknown = Vec::new();
        let mut whole = |object: &Value| -> anyhow::Result<Option<Decision>> {
            Ok(match explain::detail(object)? {
                Ok(decision) => Some(decision),
                Err(why) => {
                    unknown.push(format!("{}: {why}", Item(object).short_id()));
                    None
                }
            })
        };
        let both = whole(from)?.zip(whole(to)?);
        let mut diff = Self {
            from: Side::of(from),
            to: Side::of(to),
            fields: changes(&fields(from), &fields(to)),
            shares: Vec::new(),
            sources: Vec::new(),
            verdicts: Vec::new(),
            capacity: Vec::new(),
            scores: Vec::new(),
            unknown: Vec::new(),
        };
        match (sources(from), sources(to)) {
            (Some(from), Some(to)) => diff.sources = changes(&from, &to),
            known => unknown.push(missing("Made from", [from, to], known)),
        }
        match (shares(from), shares(to)) {
            (Some(from), Some(to)) => diff.shares = changes(&from, &to),
            known => unknown.push(missing("Shares", [from, to], known)),
        }
        if let Some((from, to)) = both {
            let (a, b) = (Views::of(&from), Views::of(&to));
            diff.fields.extend(changes(&of_detail(&from), &of_detail(&to)));
            diff.verdicts = changes(&a.verdicts, &b.verdicts);
            diff.capacity = changes(&a.capacity, &b.capacity);
            diff.scores = changes(&a.scores, &b.scores);
        }
        diff.unknown = unknown;
        Ok(diff)
    }

    fn is_empty(&self) -> bool {
        let sections = [
            &self.fields,
            &self.shares,
            &self.sources,
            &self.verdicts,
            &self.capacity,
            &self.scores,
        ];
        sections.iter().all(|section| section.is_empty())
    }

    /// The differences as text.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (sign, side) in [('-', &self.from), ('+', &self.to)] {
            let namespace = match side.namespace.as_str() {
                "" => String::new(),
                namespace => format!("{namespace} "),
            };
            lines.push(cut(format!(
                "{sign} {} {} {namespace}{}: {}",
                side.id.chars().take(item::SHORT_ID).collect::<String>(),
                side.at,
                side.workload,
                side.reason
            )));
        }
        for (title, section) in [
            ("Decision", &self.fields),
            ("Shares", &self.shares),
            ("Made from", &self.sources),
            ("Verdicts", &self.verdicts),
            ("Room for more", &self.capacity),
            ("Scores", &self.scores),
        ] {
            if section.is_empty() {
                continue;
            }
            lines.push(String::new());
            lines.push(title.to_owned());
            let width = section
                .iter()
                .take(MOST)
                .map(|change| change.of.chars().count())
                .max()
                .unwrap_or(0);
            for change in section.iter().take(MOST) {
                lines.extend(in_words(change, width));
            }
            if section.len() > MOST {
                lines.push(format!("  and {} more: -o json", section.len() - MOST));
            }
        }
        if self.is_empty() {
            let text = match self.unknown.is_empty() {
                true => "No differences.",
                false => "No differences in what history has of both.",
            };
            lines.extend([String::new(), text.to_owned()]);
        }
        if !self.unknown.is_empty() {
            lines.push(String::new());
            lines.extend(self.unknown.iter().flat_map(|text| wrapped(text)));
        }
        lines
    }
}

/// One change: on one line if it fits, otherwise one line per side.
fn in_words(change: &Change, width: usize) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let (from, to) = (text(&change.from), text(&change.to));
    let line = format!("  {:width$}  {from} -> {to}", change.of);
    if line.chars().count() <= usize::from(print::width()) {
        return vec![line];
    }
    vec![format!("  {}", change.of), cut(format!("    - {from}")), cut(format!("    + {to}"))]
}

/// Which of two decisions lack something.
fn missing(what: &str, decisions: [&Value; 2], known: (Option<Values>, Option<Values>)) -> String {
    let known = [known.0.is_some(), known.1.is_some()];
    let without = decisions.into_iter().zip(known).filter(|(_, known)| !known);
    let ids: Vec<String> = without.map(|(decision, _)| Item(decision).short_id()).collect();
    format!("{what}: unknown for {}.", ids.join(" and "))
}

/// Wraps a text into lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line)
                if line.chars().count() + word.chars().count() < usize::from(print::width()) =>
            {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn cut(line: String) -> String {
    let width = usize::from(print::width());
    match line.chars().count() > width {
        true => line.chars().take(width - 1).chain(['…']).collect(),
        false => line,
    }
}

/// The single values of every decision.
fn fields(object: &Value) -> Values {
    let spec = &object["spec"];
    let mut values = Values::new();
    for field in ["trigger", "mode", "outcome", "desired", "term", "affinityName", "unreadable"] {
        match &spec[field] {
            Value::Null => {}
            Value::String(text) => drop(values.insert(field.to_owned(), text.clone())),
            value => drop(values.insert(field.to_owned(), value.to_string())),
        }
    }
    for group in spec["pending"].as_array().into_iter().flatten() {
        let (replicas, reason) = (&group["replicas"], group["reason"].as_str().unwrap_or("?"));
        values.insert(format!("pending: {reason}"), replicas.to_string());
    }
    if let Some(version) = spec["provenance"]["version"].as_str() {
        values.insert("version of the scheduler".to_owned(), version.to_owned());
    }
    values
}

/// The values that only a decision with detail has.
fn of_detail(decision: &Decision) -> Values {
    let mut values = Values::from([
        ("profile".to_owned(), decision.profile.to_string()),
        ("strategy".to_owned(), decision.strategy.to_string()),
    ]);
    if let Some(check) = decision.triggers.last().filter(|check| check.allowed) {
        values.insert("why".to_owned(), check.why.to_string());
    }
    values
}

fn shares(object: &Value) -> Option<Values> {
    let after = Item(object).after()?;
    Some(after.into_iter().map(|share| (share.name, share.replicas.to_string())).collect())
}

/// Generations of the template and policies, and their last authors.
fn sources(object: &Value) -> Option<Values> {
    let spec = &object["spec"];
    let recorded = spec["provenance"]["sources"].as_array();
    let listed = recorded.or_else(|| spec["detail"]["policies"].as_array());
    let one = |source: &Value| -> Option<(String, String)> {
        let text = |field: &str| source[field].as_str();
        let name = match text("namespace") {
            Some(namespace) => format!("{} {namespace}/{}", text("kind")?, text("name")?),
            None => format!("{} {}", text("kind")?, text("name")?),
        };
        let mut value = match source["generation"].as_i64() {
            Some(generation) => format!("generation {generation}"),
            None => "generation unknown".to_owned(),
        };
        let changed = &source["changed"];
        if let Some(manager) = changed["manager"].as_str() {
            value.push_str(&format!(" by {manager}"));
        }
        if let Some(at) = changed["at"].as_str() {
            value.push_str(&format!(" at {at}"));
        }
        Some((name, value))
    };
    Some(listed?.iter().filter_map(one).collect())
}

/// The inputs of a decision as lines; empty if they were not recorded.
pub(crate) fn made_from(object: &Value) -> Vec<String> {
    if object["spec"]["provenance"].is_null() {
        return Vec::new();
    }
    let mut lines: Vec<String> = sources(object)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|(name, value)| {
            let line = format!("  {name}: {value}");
            match line.chars().count() <= usize::from(print::width()) {
                true => vec![line],
                false => vec![cut(format!("  {name}:")), cut(format!("    {value}"))],
            }
        })
        .collect();
    let provenance = &object["spec"]["provenance"];
    if let Some(version) = provenance["version"].as_str().filter(|version| !version.is_empty()) {
        lines.push(format!("  scheduler {version}"));
    }
    lines
}

/// The per-cluster values of a decision.
#[derive(Default)]
struct Views {
    verdicts: Values,
    capacity: Values,
    scores: Values,
}

impl Views {
    fn of(decision: &Decision) -> Self {
        let mut views = Self::default();
        for verdict in &decision.verdicts {
            let rules: Vec<String> = verdict
                .rejections
                .iter()
                .map(|rejection| format!("{}: {}", rejection.plugin, rejection.reason))
                .collect();
            let words = match (verdict.outcome, rules.is_empty()) {
                (_, true) => fate(verdict.outcome).to_owned(),
                (ClusterOutcome::Kept, false) => format!("kept, although {}", rules.join("; ")),
                (_, false) => format!("{} by {}", fate(verdict.outcome), rules.join("; ")),
            };
            for (place, name) in verdict.clusters.iter().enumerate() {
                let name = name.to_string();
                if !verdict.capacity.is_empty() {
                    views.capacity.insert(name.clone(), explain::room(verdict, place));
                }
                for (plugin, scores) in &verdict.scores {
                    if let Some(score) = scores.get(place) {
                        views.scores.insert(format!("{name} {plugin}"), score.to_string());
                    }
                }
                views.verdicts.insert(name, words.clone());
            }
        }
        views
    }
}
