//! A plan for the console: the same as `atoll plan` prints, as the rows of a page.

use anyhow::{Context, ensure};
use atoll_console::data::{Plan, PlanMember, PlanRow};
use clap::Parser;
use jiff::Timestamp;

use super::{PlanArgs, on_hub, show};
use crate::args::{ReservedFlag, TenancyFlag};
use crate::hub::Hub;
use crate::input;

/// Most workloads that are listed.
const MOST: usize = 200;

#[derive(Debug, Parser)]
#[command(name = "plan", no_binary_name = true)]
struct Words {
    #[command(flatten)]
    args: PlanArgs,
}

/// What these flags, and these objects as YAML, would move.
///
/// # Errors
/// When a flag or an object is wrong, or the hub does not answer.
pub(crate) async fn plan(
    hub: &Hub,
    words: &[String],
    objects: &str,
    tenancy: &TenancyFlag,
    reserved: &ReservedFlag,
) -> anyhow::Result<Plan> {
    let words = Words::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        // Without the usage, which is about a command line.
        let text = text.split("\n\n").next().unwrap_or_default();
        anyhow::Error::msg(text.trim_start_matches("error: ").to_owned())
    })?;
    let args = PlanArgs { tenancy: *tenancy, reserved: reserved.clone(), ..words.args };
    let now = Timestamp::now();
    let files = read(objects, &args)?;
    let found = on_hub(hub, &args, files, now).await?;
    let row = |change: &super::compare::Change| PlanRow {
        object: change.object.clone(),
        change: show::shares(change),
        why: change.why.clone(),
    };
    let member = |of: &super::compare::Member| PlanMember {
        name: of.name.clone(),
        replicas: show::arrow(of.replicas_before, of.replicas),
        cpu: show::used(of.used.get("cpu")).0,
        memory: show::used(of.used.get("memory")).0,
    };
    let changes = &found.plan.changes;
    let mut summary = vec![show::sentence(&found.plan)];
    summary.extend(found.plan.held_by.as_deref().map(show::held));
    Ok(Plan {
        summary: summary.join(" "),
        changes: changes.iter().take(MOST).map(row).collect(),
        more: changes.len().saturating_sub(MOST) + found.plan.hidden,
        members: match changes.is_empty() {
            true => Vec::new(),
            false => found.plan.members.iter().take(MOST).map(member).collect(),
        },
        problems: found.problems,
    })
}

/// The objects of a text.
fn read(objects: &str, args: &PlanArgs) -> anyhow::Result<Vec<serde_json::Value>> {
    if objects.trim().is_empty() {
        return Ok(Vec::new());
    }
    let texts = vec![("the text".to_owned(), objects.to_owned())];
    let mut found = Vec::new();
    let errors = input::read_texts(texts, args.validate.validate, &mut |document| {
        found.push(document.object);
        Ok(())
    })
    .context("read the objects")?;
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_flag_is_told_without_a_usage() {
        let error = Words::try_parse_from(["--scale=web"]).unwrap_err().to_string();
        assert!(error.contains("NAMESPACE/NAME=N"), "{error}");
        let args = Words::try_parse_from(["--drain=a", "--without=b"]).unwrap().args;
        assert!(!args.what_if.is_empty());
        let wrong = read("kind: [", &args).unwrap_err();
        assert!(format!("{wrong:#}").contains("the text"), "{wrong:#}");
        assert_eq!(read(" \n", &args).unwrap().len(), 0);
    }
}
