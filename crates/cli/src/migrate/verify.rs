//! `atoll migrate karmada verify`: both sides side by side.

use anyhow::ensure;
use atoll_api::marks::{MANAGED_BY, MANAGED_BY_VALUE};
use atoll_migrate::compare;
use atoll_migrate::estate::{Binding, Estate};
use atoll_migrate::{hub as plan, karmada};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LOOK, Migration, Patience, members, needs};
use crate::args::Format;
use crate::print::{Printer, Text, counted};
use crate::reach::{self, Member};

/// Something that is not as it was under Karmada.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Deviation {
    pub(super) object: String,
    pub(super) problem: String,
}

pub(super) async fn run(
    migration: &Migration,
    format: Format,
    out: &Printer,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + migration.wait;
    let estate = migration.estate().await?;
    needs::reaches_members(migration, &estate).await?;
    let mut patience = Patience::new();
    let found = loop {
        let found = deviations(migration, &estate).await?;
        // Agents need a while for what was just switched.
        match found.first() {
            Some(first) if Instant::now() < deadline => {
                patience.say(&format!("{}: {}", first.object, first.problem), found.len());
            }
            _ => break found,
        }
        tokio::time::sleep(LOOK).await;
    };
    let all = estate.moving().count();
    if format == Format::Table {
        if !found.is_empty() {
            let rows =
                found.iter().map(|one| vec![(&*one.object).into(), Text::from(&*one.problem)]);
            out.table_keeping(1, &["OBJECT", "DIFFERENCE"], rows.collect())?;
        }
        let differences = match found.len() {
            0 => "no differences".to_owned(),
            count => counted(count, "difference", "differences"),
        };
        out.line(format!("{}: {differences}.", counted(all, "object", "objects")))?;
    } else {
        out.object(format, &json!({"objects": all, "differences": found}))?;
    }
    ensure!(found.is_empty(), "Atoll and Karmada differ");
    Ok(())
}

pub(super) async fn deviations(
    migration: &Migration,
    estate: &Estate,
) -> anyhow::Result<Vec<Deviation>> {
    let mut found = Vec::new();
    let members = members::holding(migration, estate).await?;
    for binding in estate.moving() {
        let mut problems = Vec::new();
        match migration.target.template(binding).await? {
            None if karmada::is_finished(&binding.object) => {}
            None => problems.push("it is not on Atoll's hub: run `switch`".to_owned()),
            Some(template) => {
                of_template(migration, estate, binding, &template, &mut problems);
                of_binding(migration, binding, &mut problems).await?;
                let plural = migration.target.plural(binding).await?;
                if let (true, Some(plural)) = (problems.is_empty(), plural) {
                    on_members(binding, &plural, &members, &mut problems).await;
                }
            }
        }
        let object = binding.of.to_string();
        found.extend(
            problems.into_iter().map(|problem| Deviation { object: object.clone(), problem }),
        );
    }
    Ok(found)
}

/// The object on the hub and the one that Karmada has.
pub(super) fn of_template(
    migration: &Migration,
    estate: &Estate,
    binding: &Binding,
    ours: &Value,
    problems: &mut Vec<String>,
) {
    let Some(theirs) = estate.templates.get(&binding.of) else { return };
    let (Some(theirs), _) = plan::template(&migration.converter, binding, theirs) else { return };
    for difference in compare::manifests(&theirs, ours) {
        // The hub fills in defaults, which Karmada's API server did, too.
        if !difference.karmada.is_null() {
            let field = &difference.field;
            problems.push(format!(
                "{field} is {} in Karmada and {} on Atoll's hub",
                difference.karmada, difference.atoll
            ));
        }
    }
}

/// The placement.
async fn of_binding(
    migration: &Migration,
    theirs: &Binding,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    let Some(ours) = migration.target.binding(&theirs.of).await? else {
        problems.push("Atoll has not decided on it: is its controller running?".to_owned());
        return Ok(());
    };
    let placed = |clusters: &Value| -> Vec<String> {
        let each = clusters.as_array().into_iter().flatten();
        let mut each: Vec<String> = each
            .map(|target| {
                let name = target["name"].as_str().unwrap_or_default();
                format!("{name} {}", target["replicas"].as_i64().unwrap_or_default())
            })
            .collect();
        each.sort_unstable();
        each
    };
    let before = placed(&theirs.object["spec"]["clusters"]);
    let now = placed(&ours["spec"]["clusters"]);
    if before != now {
        problems.push(format!(
            "Karmada has it on {}, Atoll on {}",
            before.join(", "),
            now.join(", ")
        ));
    }
    let conditions = ours["status"]["conditions"].as_array().into_iter().flatten();
    let applied = conditions.into_iter().find(|condition| condition["type"] == "FullyApplied");
    match applied {
        Some(condition) if condition["status"] == "True" => {}
        Some(condition) => {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            problems.push(format!(
                "not applied everywhere: {} {}",
                text("reason"),
                text("message")
            ));
        }
        None => problems.push("no member has reported it yet".to_owned()),
    }
    Ok(())
}

/// The object on each member: Atoll's agent has taken it over.
async fn on_members(
    binding: &Binding,
    plural: &str,
    members: &[Member],
    problems: &mut Vec<String>,
) {
    let path = path(binding, plural);
    let holders = holders(binding, members);
    let answers = reach::each(&holders, |member| member.get(&path, None)).await;
    for (member, answer) in answers {
        let name = &member.name;
        match answer {
            Err(failure) => problems.push(format!("{name}: {failure}")),
            Ok(object) => {
                if object["metadata"]["labels"][MANAGED_BY] != MANAGED_BY_VALUE {
                    problems.push(format!("{name}: Atoll's agent has not taken it over"));
                }
                if let Some(manager) = other_owner(&object) {
                    problems.push(format!("{name}: {manager} still owns fields of its spec"));
                }
            }
        }
    }
}

/// Path of a binding's object on a member.
pub(super) fn path(binding: &Binding, plural: &str) -> String {
    let prefix = if binding.of.group.is_empty() { "api" } else { "apis" };
    let place = match binding.of.namespace.as_deref() {
        Some(namespace) => format!("namespaces/{}/", reach::encode(namespace)),
        None => String::new(),
    };
    let (version, name) = (&binding.api_version, reach::encode(&binding.of.name));
    format!("/{prefix}/{version}/{place}{plural}/{name}")
}

/// The members that have a binding's object.
pub(super) fn holders(binding: &Binding, members: &[Member]) -> Vec<Member> {
    let holds = |member: &&Member| binding.holders().any(|name| name == member.name);
    members.iter().filter(holds).cloned().collect()
}

/// Karmada's program that still owns a part of the spec.
fn other_owner(object: &Value) -> Option<&str> {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let entry = entries.find(|entry| {
        let is_karmadas =
            entry["manager"].as_str().is_some_and(|manager| manager.starts_with("karmada-"));
        is_karmadas && !entry["fieldsV1"]["f:spec"].is_null()
    })?;
    entry["manager"].as_str()
}
