//! `atoll migrate karmada finish`: Karmada's marks go, and there is no way back.

use anyhow::ensure;
use atoll_migrate::estate::{Binding, Estate, PolicyName};
use atoll_migrate::hub as plan;
use atoll_migrate::karmada;
use serde_json::{Value, json};

use super::{Migration, answer, list, members, needs, verify};
use crate::args::Format;
use crate::print::{Printer, counted, note};
use crate::reach::{self, Member};

pub(super) async fn run(
    migration: &Migration,
    format: Format,
    out: &Printer,
) -> anyhow::Result<()> {
    let estate = migration.estate().await?;
    needs::reaches_members(migration, &estate).await?;
    if !estate.moving().all(|binding| karmada::is_finished(&binding.object)) {
        let found = verify::deviations(migration, &estate).await?;
        for one in &found {
            note(format!("{}: {}", one.object, one.problem));
        }
        ensure!(
            found.is_empty(),
            "Atoll and Karmada differ: `verify` must find nothing before `finish`"
        );
        // From here on `rollback` refuses.
        migration.karmada.finish(&estate).await?;
    }
    let members = members::holding(migration, &estate).await?;
    for namespace in estate.namespaces() {
        let path = format!("/api/v1/namespaces/{}", reach::encode(&namespace));
        let works = estate.namespace_works().filter(|work| work.of.name == namespace);
        let names: Vec<&str> = works.map(|work| work.cluster.as_str()).collect();
        for member in members.iter().filter(|member| names.contains(&&*member.name)) {
            clean(member, &path).await?;
        }
    }
    for binding in estate.moving() {
        of_object(migration, binding, &members).await?;
    }
    let estate = migration.estate().await?;
    migration.karmada.release_works(&estate).await?;
    of_prepared(migration, &estate).await?;
    let objects = counted(estate.moving().count(), "object", "objects");
    answer(
        format,
        out,
        &json!({"objects": estate.moving().count()}),
        &format!(
            "{objects} in {} are Atoll's. What Karmada has of them is suspended and may be deleted: members keep everything.",
            list(&estate.namespaces())
        ),
    )
}

async fn of_object(
    migration: &Migration,
    binding: &Binding,
    members: &[Member],
) -> anyhow::Result<()> {
    let Some(plural) = migration.target.plural(binding).await? else { return Ok(()) };
    let path = verify::path(binding, &plural);
    for member in verify::holders(binding, members) {
        clean(&member, &path).await?;
    }
    match migration.target.template(binding).await? {
        Some(template) => migration.target.end(&template, Some(plural)).await,
        None => Ok(()),
    }
}

/// Removes Karmada's labels and annotations from an object of a member.
async fn clean(member: &Member, path: &str) -> anyhow::Result<()> {
    let failed = |failure: reach::Failure| {
        anyhow::anyhow!("{}: {path}: {failure}; run `finish` again, it goes on there", member.name)
    };
    let object: Value = match member.get(path, None).await {
        Ok(object) => object,
        Err(failure) if failure.is_not_found() => return Ok(()),
        Err(failure) => return Err(failed(failure)),
    };
    let Some(patch) = karmada::without_marks(&object) else { return Ok(()) };
    member.merge_patch(path, &patch).await.map_err(failed)
}

/// Ends the migration of the policies whose objects are all finished. The other prepared objects do not name what they are
/// for: they end with their namespace, and cluster-scoped ones with the last object.
async fn of_prepared(migration: &Migration, estate: &Estate) -> anyhow::Result<()> {
    let finished = |binding: &Binding| karmada::is_finished(&binding.object);
    let all = estate.bindings.iter().all(finished);
    for object in plan::prepared(&migration.converter, estate).objects {
        let name = PolicyName::of(&object);
        let mut claimed =
            estate.bindings.iter().filter(|binding| binding.policy.as_ref() == Some(&name));
        let claims =
            object["kind"].as_str().is_some_and(|kind| kind.ends_with("PropagationPolicy"));
        let ends = match claims {
            true => claimed.all(finished),
            false => all || name.namespace.is_some(),
        };
        if let (true, Some(there)) = (ends, migration.target.prepared(&object).await?) {
            migration.target.end(&there, None).await?;
        }
    }
    Ok(())
}
