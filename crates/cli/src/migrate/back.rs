//! `atoll migrate karmada rollback`: Karmada gets its objects back, where they are now.

use anyhow::{bail, ensure};
use atoll_api::binding::TargetCluster;
use atoll_migrate::estate::{Binding, Estate};
use atoll_migrate::karmada;
use serde_json::json;
use tokio::time::Instant;

use super::{Migration, answer, list, verify};
use crate::args::Format;
use crate::print::{Printer, counted, note};

pub(super) async fn run(
    migration: &Migration,
    format: Format,
    out: &Printer,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + migration.wait;
    let estate = migration.estate().await?;
    if let Some(done) = estate.moving().find(|binding| karmada::is_finished(&binding.object)) {
        bail!(
            "{}: `finish` has made it Atoll's for good: there is no way back by this command",
            done.of
        );
    }
    // 1. Karmada must be able to go on from here, or nothing is changed.
    let mut placements = Vec::new();
    for binding in estate.moving() {
        if let Some(placement) = present(migration, &estate, binding).await? {
            placements.push((binding, placement));
        }
    }
    // 2. Karmada's bindings get the present placement. They are suspended, so this only changes Works.
    for (binding, placement) in &placements {
        migration.karmada.hand_back(binding, placement).await?;
    }
    if !placements.is_empty() {
        migration.until(deadline, || works_follow(migration)).await?;
    }
    // 3. Atoll lets go, of what others need first: its bindings are released while those others still ask for it.
    let mut released = 0;
    for binding in estate.moving() {
        released += usize::from(release(migration, binding, deadline).await?);
    }
    // 4. Karmada goes on.
    let estate = migration.estate().await?;
    migration.karmada.restore_all(&estate).await?;
    let objects = counted(released, "object", "objects");
    let namespaces = list(&estate.namespaces());
    answer(
        format,
        out,
        &json!({"released": released}),
        &format!(
            "Karmada has {namespaces} again; Atoll released {objects} now. The policies on Atoll's hub stay for another `switch`."
        ),
    )
}

/// The placement of an object that Atoll has, or why Karmada could not go on with it. `None`: Atoll does not have it, or
/// it has no placement of its own.
async fn present(
    migration: &Migration,
    estate: &Estate,
    binding: &Binding,
) -> anyhow::Result<Option<Vec<TargetCluster>>> {
    let of = &binding.of;
    let Some(template) = migration.target.template(binding).await? else { return Ok(None) };
    let mut problems = Vec::new();
    verify::of_template(migration, estate, binding, &template, &mut problems);
    ensure!(
        problems.is_empty(),
        "{of}: {}; make the same change in Karmada, whose object counts after a rollback",
        problems.join(", ")
    );
    let Some(ours) = migration.target.binding(of).await? else { return Ok(None) };
    let spec = &ours["spec"];
    ensure!(
        spec["preserveResourcesOnDeletion"] == true,
        "{of}: Atoll's binding does not have preserveResourcesOnDeletion: its objects would be deleted. The policy has lost what \
         `prepare` set: set spec.preserveResourcesOnDeletion to true there"
    );
    if binding.is_attached() {
        return Ok(None);
    }
    let is_leaving =
        spec["gracefulEvictionTasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
    ensure!(
        !is_leaving,
        "{of}: it is leaving a member: wait until `atoll get bindings` shows no eviction"
    );
    let clusters: Vec<TargetCluster> = serde_json::from_value(spec["clusters"].clone())?;
    ensure!(!clusters.is_empty(), "{of}: Atoll has not placed it: `atoll explain` says why");
    if let Some(unknown) = clusters.iter().find(|target| {
        !estate.clusters.iter().any(|cluster| cluster["metadata"]["name"] == target.name.as_str())
    }) {
        bail!("{of}: it runs on {}, which Karmada does not have", unknown.name);
    }
    let pending = spec["decision"]["pending"].as_array().is_some_and(|pending| !pending.is_empty());
    ensure!(
        !pending,
        "{of}: some of its replicas have no place: Karmada would move others to make room"
    );
    Ok(Some(clusters))
}

/// Works that do not follow their binding yet.
async fn works_follow(migration: &Migration) -> anyhow::Result<Vec<String>> {
    let estate = migration.estate().await?;
    let mut waits = Vec::new();
    for binding in estate.moving() {
        for cluster in binding.holders() {
            let work = estate.works_of(&binding.of).find(|work| work.cluster == cluster);
            if !work.is_some_and(|work| work.is_still()) {
                waits.push(format!("{cluster} has no suspended Work of {}", binding.of));
            }
        }
        let others = estate.works_of(&binding.of);
        let others = others.filter(|work| !binding.holders().any(|name| name == work.cluster));
        waits.extend(
            others.map(|work| format!("{} still has a Work of {}", work.cluster, binding.of)),
        );
    }
    Ok(waits)
}

/// Deletes an object on the hub and waits until no member holds it for Atoll. Returns whether there was one.
async fn release(
    migration: &Migration,
    binding: &Binding,
    deadline: Instant,
) -> anyhow::Result<bool> {
    let template = migration.target.template(binding).await?;
    let ours = migration.target.binding(&binding.of).await?;
    if let Some(template) = &template {
        migration.target.remove(binding, template).await?;
    }
    if let Some(ours) = ours.as_ref().filter(|_| binding.is_attached()) {
        migration.target.remove_binding(ours).await?;
    }
    migration.until(deadline, || held(migration, binding)).await?;
    if template.is_some() {
        note(format!("released {}", binding.of));
    }
    Ok(template.is_some())
}

/// Whether Atoll's binding of an object is still there.
async fn held(migration: &Migration, binding: &Binding) -> anyhow::Result<Vec<String>> {
    let left = migration.target.binding(&binding.of).await?;
    Ok(left.map(|_| format!("members still hold {} for Atoll", binding.of)).into_iter().collect())
}
