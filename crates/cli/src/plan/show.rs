//! A plan as a table, as Markdown and as an object.

use atoll_api::binding::TargetCluster;
use serde_json::{Value, json};

use super::compare::{Change, FULL, Member, Plan, Use};
use super::manifests::{self, Manifest};
use crate::args::Format;
use crate::print::{self, Printer, Text, Tone};

/// Lines of shares in one cell.
const MOST_SHARES: usize = 12;
const HEADER: [&str; 3] = ["WORKLOAD", "CHANGE", "WHY"];
const WIDE: [&str; 7] = ["WORKLOAD", "OUTCOME", "CHANGE", "MOVED", "LEAVES", "WAITS FOR", "WHY"];
const MEMBERS: [&str; 4] = ["MEMBER", "REPLICAS", "CPU", "MEMORY"];

/// A plan with everything that is printed.
pub(super) struct Answer {
    pub(super) plan: Plan,
    pub(super) manifests: Vec<Manifest>,
    /// What the plan does not contain.
    pub(super) problems: Vec<String>,
    /// Whether manifests are printed.
    pub(super) diff: bool,
}

pub(super) fn object(answer: &Answer, format: Format, out: &Printer) -> anyhow::Result<()> {
    let mut document = json!(answer.plan);
    document["problems"] = json!(answer.problems);
    let manifests = answer.manifests.iter().map(|manifest| match answer.diff {
        true => json!(manifest),
        false => json!({"object": manifest.object, "cluster": manifest.cluster}),
    });
    document["manifests"] = Value::Array(manifests.collect());
    out.object(format, &document)
}

pub(super) fn tables(answer: &Answer, wide: bool, out: &Printer) -> anyhow::Result<()> {
    let Answer { plan, manifests, .. } = answer;
    if !plan.changes.is_empty() {
        match wide {
            true => out.wide_table(&WIDE, plan.changes.iter().map(wide_row).collect())?,
            false => out.table(&HEADER, plan.changes.iter().map(row).collect())?,
        }
        out.line("")?;
    }
    if !plan.changes.is_empty() && !plan.members.is_empty() {
        out.table(&MEMBERS, plan.members.iter().map(member).collect())?;
        out.line("")?;
    }
    if answer.diff {
        for manifest in manifests {
            out.line(manifests::unified(manifest)?)?;
        }
    }
    out.line(sentence(plan))?;
    hidden(plan).map_or(Ok(()), |text| out.line(text))?;
    plan.held_by.as_deref().map_or(Ok(()), |why| out.line(held(why)))
}

/// What is counted and not shown.
fn hidden(plan: &Plan) -> Option<String> {
    let workloads = print::counted(plan.hidden, "of these workloads is", "of these workloads are");
    (plan.hidden > 0).then(|| format!("{workloads} not shown: you may not read them."))
}

/// What happens to a change that a guard holds.
pub(super) fn held(why: &str) -> String {
    format!("It would wait for an approval. {why}.")
}

/// Made to be pasted into a pull request.
pub(super) fn markdown(answer: &Answer, out: &Printer) -> anyhow::Result<()> {
    let Answer { plan, manifests, .. } = answer;
    out.line(format!("**{}**", sentence(plan)))?;
    hidden(plan).map_or(Ok(()), |text| out.line(format!("\n{text}")))?;
    if let Some(why) = &plan.held_by {
        out.line(format!("\n{}", markdown_text(&held(why))))?;
    }
    if !plan.changes.is_empty() {
        out.line("\n| Workload | Change | Why |\n| --- | --- | --- |")?;
        for change in &plan.changes {
            let cells = [change.object.clone(), shares(change).join("\n"), change.why.clone()];
            out.line(markdown_row(&cells))?;
        }
    }
    if !plan.changes.is_empty() && !plan.members.is_empty() {
        out.line("\n| Member | Replicas | CPU | Memory |\n| --- | --- | --- | --- |")?;
        for of in &plan.members {
            let percent = |resource: &str| used(of.used.get(resource)).0;
            let replicas = arrow(of.replicas_before, of.replicas);
            out.line(markdown_row(&[
                of.name.clone(),
                replicas,
                percent("cpu"),
                percent("memory"),
            ]))?;
        }
    }
    if answer.diff && !manifests.is_empty() {
        out.line("\n<details><summary>Manifests</summary>\n\n```diff")?;
        for manifest in manifests {
            out.line(manifests::unified(manifest)?.replace("```", "` ` `"))?;
        }
        out.line("```\n\n</details>")?;
    }
    Ok(())
}

fn markdown_row(cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| {
        let lines: Vec<String> = cell.lines().map(markdown_text).collect();
        lines.join("<br>")
    });
    format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// Text as Markdown without any formatting, links or mentions: it can come from whoever writes policies or members.
fn markdown_text(text: &str) -> String {
    let mut escaped = String::new();
    for character in print::visible_line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            // A backslash does not keep GitHub from making a mention of it.
            '@' => escaped.push_str("&#64;"),
            '\\' | '|' | '[' | ']' | '`' | '*' | '_' | '~' => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The plan in one line.
pub(super) fn sentence(plan: &Plan) -> String {
    let Plan { summary, id, snapshot, .. } = plan;
    let mut parts = Vec::new();
    match summary.workloads {
        0 => parts.push("No workload moves".to_owned()),
        changed => parts.push(format!(
            "{} of {} would change, {} would move",
            changed,
            print::counted(changed + summary.unchanged, "workload", "workloads"),
            print::counted(summary.moved_replicas, "replica", "replicas"),
        )),
    }
    match summary.more_pending {
        more @ 1.. => parts.push(format!("{more} more would be pending")),
        less @ ..=-1 => parts.push(format!("{} fewer would be pending", -less)),
        0 => {}
    }
    if summary.manifests > 0 {
        parts.push(format!(
            "{} on members would change",
            print::counted(summary.manifests, "manifest", "manifests")
        ));
    }
    if !summary.full.is_empty() {
        parts.push(format!("requested beyond {FULL} %: {}", summary.full.join(", ")));
    }
    let of = snapshot.as_ref().map_or(String::new(), |snapshot| format!(" of snapshot {snapshot}"));
    format!("{}. Plan {id}{of}.", parts.join("; "))
}

fn row(change: &Change) -> Vec<Text> {
    let bad = change.pending > change.pending_before;
    let lines = shares(change).join("\n");
    let moves = if bad { Text::toned(lines, Tone::Warn) } else { Text::from(lines) };
    vec![Text::from(&change.object), moves, Text::from(&change.why)]
}

fn wide_row(change: &Change) -> Vec<Text> {
    let lines = |lines: &[String]| match lines {
        [] => Text::from("-"),
        lines => Text::from(lines.join("\n")),
    };
    vec![
        Text::from(&change.object),
        Text::from(&change.outcome),
        lines(&shares(change)),
        Text::from(change.moved),
        lines(&change.leaves),
        lines(&change.waits_for),
        Text::from(&change.why),
    ]
}

/// `member1: 4 -> 2`, one line per member, then pending replicas.
pub(super) fn shares(change: &Change) -> Vec<String> {
    let base = change.otherwise.as_ref().unwrap_or(&change.before);
    let on = |shares: &[TargetCluster], name: &str| {
        shares.iter().find(|share| share.name == name).map(|share| share.replicas)
    };
    let names: std::collections::BTreeSet<&String> =
        base.iter().chain(&change.after).map(|share| &share.name).collect();
    let mut lines = Vec::new();
    for name in names {
        let (before, after) = (on(base, name), on(&change.after, name));
        if before == after {
            continue;
        }
        let text = |share: Option<i64>| share.map_or("-".to_owned(), |share| share.to_string());
        lines.push(match (change.counted, before, after) {
            (true, ..) => format!("{name}: {} -> {}", text(before), text(after)),
            (false, None, _) => format!("+ {name}"),
            (false, _, None) => format!("- {name}"),
            (false, ..) => continue,
        });
    }
    let more = lines.len().saturating_sub(MOST_SHARES);
    if more > 0 {
        lines.truncate(MOST_SHARES);
        lines.push(format!("and {more} more"));
    }
    if change.pending != change.pending_before {
        lines.push(format!("pending: {} -> {}", change.pending_before, change.pending));
    }
    if lines.is_empty() {
        lines.push(change.outcome.clone());
    }
    lines
}

fn member(of: &Member) -> Vec<Text> {
    let percent = |resource: &str| {
        let (text, full) = used(of.used.get(resource));
        if full { Text::toned(text, Tone::Warn) } else { Text::from(text) }
    };
    vec![
        Text::from(&of.name),
        Text::from(arrow(of.replicas_before, of.replicas)),
        percent("cpu"),
        percent("memory"),
    ]
}

pub(super) fn used(used: Option<&Use>) -> (String, bool) {
    match used {
        None => ("-".to_owned(), false),
        Some(Use { before, after }) if before == after => (format!("{after} %"), *after > FULL),
        Some(Use { before, after }) => (format!("{before} -> {after} %"), *after > FULL),
    }
}

pub(super) fn arrow(before: i64, after: i64) -> String {
    if before == after { after.to_string() } else { format!("{before} -> {after}") }
}
