//! The answer as a table and as an object.

use serde_json::{Value, json};

use super::{Fate, ReplayArgs, Replayed, Side};
use crate::args::{Format, WideFormat};
use crate::print::{Printer, Text, Tone, counted};
use crate::read::item::Item;

/// Differences of one decision that a table shows; objects have all.
const MOST: usize = 20;
const HEADER: [&str; 5] = ["TIME", "ID", "WORKLOAD", "RESULT", "WHAT"];

/// Sums over all decisions.
#[derive(Default)]
struct Summary {
    same: usize,
    different: usize,
    missing: usize,
    failed: usize,
    /// Replicas moved by the decisions that were made again: then and now.
    moved: (i64, i64),
    pending: (i64, i64),
}

impl Summary {
    fn of(all: &[Replayed]) -> Self {
        let mut summary = Self::default();
        for one in all {
            match one.fate {
                Fate::Same => summary.same += 1,
                Fate::Different(_) => summary.different += 1,
                Fate::Missing(_) => summary.missing += 1,
                Fate::Failed(_) => summary.failed += 1,
            }
            if let Some((was, is)) = &one.sides {
                let add = |sum: &mut (i64, i64), was: i64, is: i64| {
                    *sum = (sum.0.saturating_add(was), sum.1.saturating_add(is));
                };
                add(&mut summary.moved, was.moved, is.moved);
                add(&mut summary.pending, was.pending, is.pending);
            }
        }
        summary
    }

    fn sentence(&self, all: usize, changed: bool) -> String {
        let Self { same, different, missing, failed, moved, pending } = self;
        let word = if changed { "would be different" } else { "are different" };
        let mut text = format!(
            "{}: {same} the same, {different} {word}, {missing} without inputs",
            counted(all, "decision", "decisions")
        );
        if *failed > 0 {
            text.push_str(&format!(", {failed} could not be made"));
        }
        if changed {
            text.push_str(&format!(
                ". Moved replicas: {} -> {}; pending, summed over decisions: {} -> {}",
                moved.0, moved.1, pending.0, pending.1
            ));
        }
        text
    }
}

pub(super) fn print(
    all: &[Replayed],
    args: &ReplayArgs,
    changed: bool,
    out: &Printer,
) -> anyhow::Result<()> {
    let wide = match args.output {
        WideFormat::Json => return out.object(Format::Json, &object(all, changed)),
        WideFormat::Yaml => return out.object(Format::Yaml, &object(all, changed)),
        WideFormat::Wide => true,
        WideFormat::Table => args.id.is_some(),
    };
    let shown = all.iter().filter(|one| wide || !matches!(one.fate, Fate::Same));
    let rows: Vec<_> = shown.map(row).collect();
    if !rows.is_empty() {
        out.table_keeping(4, &HEADER, rows)?;
        out.line("")?;
    }
    out.line(Summary::of(all).sentence(all.len(), changed))
}

fn row(one: &Replayed) -> Vec<Text> {
    let item = Item(&one.object);
    let workload = &one.object["spec"]["workload"];
    let text = |field: &str| workload[field].as_str().unwrap_or_default();
    let kind = text("kind").to_lowercase();
    let place = match text("namespace") {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let (result, what) = match &one.fate {
        Fate::Same => (Text::toned("same", Tone::Good), String::new()),
        Fate::Different(differences) => {
            let mut lines: Vec<&str> = differences.iter().take(MOST).map(String::as_str).collect();
            let rest = format!("and {} more", differences.len().saturating_sub(MOST));
            if differences.len() > MOST {
                lines.push(&rest);
            }
            let mut what = lines.join("\n");
            let decided = one.object["spec"]["provenance"]["version"].as_str();
            if let Some(version) = decided.filter(|version| *version != env!("CARGO_PKG_VERSION")) {
                what.push_str(&format!("\ndecided by version {version}"));
            }
            (Text::toned("different", Tone::Bad), what)
        }
        Fate::Missing(why) => (Text::toned("missing", Tone::Warn), why.clone()),
        Fate::Failed(why) => (Text::toned("failed", Tone::Bad), why.clone()),
    };
    vec![
        item.time().into(),
        item.short_id().into(),
        format!("{place}{kind}/{}", text("name")).into(),
        result,
        what.into(),
    ]
}

fn object(all: &[Replayed], changed: bool) -> Value {
    let items: Vec<Value> = all.iter().map(one_object).collect();
    let summary = Summary::of(all);
    let mut sums = json!({
        "decisions": all.len(),
        "same": summary.same,
        "different": summary.different,
        "missing": summary.missing,
        "failed": summary.failed,
    });
    if changed {
        sums["movedReplicas"] = json!({"was": summary.moved.0, "is": summary.moved.1});
        sums["pendingReplicas"] = json!({"was": summary.pending.0, "is": summary.pending.1});
    }
    json!({"version": env!("CARGO_PKG_VERSION"), "summary": sums, "items": items})
}

fn one_object(one: &Replayed) -> Value {
    let spec = &one.object["spec"];
    let (result, differences, why) = match &one.fate {
        Fate::Same => ("Same", None, None),
        Fate::Different(differences) => ("Different", Some(differences), None),
        Fate::Missing(why) => ("Missing", None, Some(why)),
        Fate::Failed(why) => ("Failed", None, Some(why)),
    };
    let mut object = json!({
        "decision": Item(&one.object).id(),
        "workload": spec["workload"],
        "at": spec["at"],
        "trigger": spec["trigger"],
        "decidedBy": spec["provenance"]["version"],
        "result": result,
    });
    if let Some(differences) = differences {
        object["differences"] = json!(differences);
    }
    if let Some(why) = why {
        object["why"] = json!(why);
    }
    if let (Some((was, is)), Fate::Different(_)) = (&one.sides, &one.fate) {
        let side = |side: &Side| {
            json!({
                "clusters": side.clusters,
                "outcome": side.outcome,
                "pending": side.pending,
                "moved": side.moved,
            })
        };
        object["was"] = side(was);
        object["is"] = side(is);
    }
    object
}
