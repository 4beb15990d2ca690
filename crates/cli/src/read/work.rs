//! `atoll work [MEMBER]`: what each member should run, by the bindings. The hub has no Work objects to list.

use std::collections::BTreeMap;

use atoll_api::binding::{AggregatedStatusItem, ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::cluster::ObjectName;
use clap::Args;
use kube::Api;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;

use crate::args::{Format, HubFlags, OutputFlag};
use crate::cluster;
use crate::hub::Hub;
use crate::orphans;
use crate::print::{Printer, Text, Tone, counted, note};
use crate::read::{bindings, get};

#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Only the work of this member
    #[arg(value_name = "MEMBER")]
    member: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
}

/// One object on one member.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    pub(crate) member: String,
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// Absent if only the member's Cluster names the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    binding: String,
    /// Replicas that it should have there, including those that an eviction task keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
    pub(crate) standing: Standing,
    /// The member's report. Absent: none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<AggregatedStatusItem>,
}

/// The role of a member for a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Standing {
    /// It has a share.
    Target,
    /// It has a share, and keeps more until its replacements are healthy.
    Shrinking,
    /// It has no share, and keeps replicas until their replacements are healthy.
    Leaving,
    /// It has no share; its copy is removed as soon as the member can be reached.
    Gone,
    /// It has no share, and its copy still runs: the removal is held back by the limit on mass removals.
    RemovalHeld,
}

pub(crate) async fn run(flags: &HubFlags, args: WorkArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let mut work = Vec::new();
    let wanted = |member: &str| args.member.as_ref().is_none_or(|wanted| wanted == member);
    // In a namespace, cluster-scoped objects are left out.
    bindings::each(&hub, flags.namespace.as_deref(), |binding| {
        let of = of(binding.name(), &binding.spec, binding.status.as_ref());
        work.extend(of.into_iter().filter(|work| wanted(&work.member)));
    })
    .await?;
    if let Some(member) = &args.member
        && work.is_empty()
    {
        // A member without work may be misspelt.
        cluster::get(&hub, member).await?;
    }
    // Read access to bindings of a namespace does not imply access to Clusters.
    let clusters = match get::list(&hub, &Api::all(hub.client.clone())).await {
        Ok(clusters) => clusters,
        Err(error) => {
            note(format!("held removals are not shown: {error:#}"));
            Vec::new()
        }
    };
    let clusters: Vec<_> = clusters.into_iter().filter(|c| wanted(&c.name_any())).collect();
    for cluster in &clusters {
        mark_held(
            &mut work,
            &cluster.name_any(),
            orphans::held(cluster),
            flags.namespace.as_deref(),
        );
    }
    let key = |work: &Work| {
        (work.member.clone(), work.namespace.clone(), work.kind.clone(), work.name.clone())
    };
    work.sort_by_cached_key(key);
    for cluster in &clusters {
        let (name, count) = (cluster.name_any(), orphans::held_count(cluster));
        if count > 0 {
            let held = counted(count, "removal is held", "removals are held");
            note(format!(
                "{name}: {held}; `atoll orphans {name}` shows why, `atoll prune --confirm {name}` releases them"
            ));
        }
    }
    match args.output.output {
        Format::Table if work.is_empty() => out.line("No work."),
        Format::Table => out.table(
            &[
                "MEMBER",
                "NAMESPACE",
                "OBJECT",
                "REPLICAS",
                "READY",
                "STANDING",
                "APPLIED",
                "HEALTH",
            ],
            work.iter().map(row).collect(),
        ),
        format => out.object(format, &json!({ "items": work })),
    }
}

/// Marks objects that a member still runs although they belong elsewhere. Objects that no binding lists any more are
/// added.
fn mark_held(work: &mut Vec<Work>, member: &str, held: &[ObjectName], namespace: Option<&str>) {
    for object in held {
        let is = |work: &&mut Work| {
            let group = work.api_version.split_once('/').map_or("", |(group, _)| group);
            work.member == member
                && (group, &work.kind, &work.namespace, &work.name)
                    == (object.group.as_str(), &object.kind, &object.namespace, &object.name)
        };
        if let Some(known) = work.iter_mut().find(is) {
            known.standing = Standing::RemovalHeld;
        } else if namespace.is_none_or(|wanted| object.namespace.as_deref() == Some(wanted)) {
            work.push(Work {
                member: member.to_owned(),
                // The Cluster names only the group.
                api_version: object.group.clone(),
                kind: object.kind.clone(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                binding: String::new(),
                replicas: None,
                standing: Standing::RemovalHeld,
                report: None,
            });
        }
    }
}

/// The work of one binding.
pub(crate) fn of(
    binding: &str,
    spec: &ResourceBindingSpec,
    status: Option<&ResourceBindingStatus>,
) -> Vec<Work> {
    let mut members: BTreeMap<&str, (i64, Standing)> = BTreeMap::new();
    for target in &spec.clusters {
        members.insert(&target.name, (target.replicas, Standing::Target));
    }
    for task in &spec.graceful_eviction_tasks {
        let kept = if task.keep { task.replicas } else { 0 };
        let (none, more) = if task.keep {
            (Standing::Leaving, Standing::Shrinking)
        } else {
            (Standing::Gone, Standing::Target)
        };
        members
            .entry(&task.from_cluster)
            .and_modify(|(replicas, standing)| {
                *replicas += kept;
                *standing = more;
            })
            .or_insert((kept, none));
    }
    let reports = status.map(|status| status.aggregated_status.as_slice()).unwrap_or_default();
    let of = |(member, (replicas, standing)): (&str, (i64, Standing))| Work {
        member: member.to_owned(),
        api_version: spec.resource.api_version.clone(),
        kind: spec.resource.kind.clone(),
        namespace: spec.resource.namespace.clone(),
        name: spec.resource.name.clone(),
        binding: binding.to_owned(),
        replicas: spec.replicas.map(|_| replicas),
        standing,
        report: reports.iter().find(|report| report.cluster_name == member).cloned(),
    };
    members.into_iter().map(of).collect()
}

fn row(work: &Work) -> Vec<Text> {
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let report = work.report.as_ref();
    let applied = match report {
        None => Text::toned("Unknown", Tone::Warn),
        Some(report) if report.applied => Text::toned("True", Tone::Good),
        Some(report) => Text::toned(
            report
                .applied_message
                .as_deref()
                .map_or_else(|| "False".to_owned(), |message| format!("False: {message}")),
            Tone::Bad,
        ),
    };
    let (health, tone) = health(report);
    vec![
        work.member.as_str().into(),
        work.namespace.as_deref().unwrap_or("-").into(),
        format!("{}/{}", work.kind.to_lowercase(), work.name).into(),
        number(work.replicas).into(),
        number(report.and_then(|report| report.ready_replicas)).into(),
        format!("{:?}", work.standing).into(),
        applied,
        Text::toned(health, tone),
    ]
}

/// Health on the member and the reason if it is unhealthy: the pods' reason if there is one.
pub(crate) fn health(report: Option<&AggregatedStatusItem>) -> (String, Tone) {
    let Some(report) = report else { return ("Unknown".to_owned(), Tone::Plain) };
    let health = format!("{:?}", report.health);
    match (&report.health_reason, &report.health_message) {
        (Some(reason), Some(message)) => (format!("{health}: {reason}: {message}"), Tone::Bad),
        (Some(reason), None) => (format!("{health}: {reason}"), Tone::Warn),
        (None, _) => (health, Tone::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_on_a_member_is_shown_as_running_there() {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "replicas": 2, "clusters": [{"name": "b", "replicas": 2}],
            "gracefulEvictionTasks": [{"fromCluster": "a", "replicas": 2, "keep": false, "reason": "Failover",
                "creationTimestamp": "2026-01-01T00:00:00Z"}],
        }))
        .unwrap();
        let mut work = of("web-deployment", &spec, None);
        let names = ["Deployment.apps/shop/web", "Deployment.apps/shop/api"];
        let held = names.map(|name| name.parse().unwrap());
        mark_held(&mut work, "a", &held, Some("shop"));
        mark_held(&mut work, "a", &held[1..], Some("other"));
        let seen: Vec<_> =
            work.iter().map(|w| (w.member.as_str(), w.name.as_str(), w.standing)).collect();
        let (target, held) = (Standing::Target, Standing::RemovalHeld);
        assert_eq!(seen, [("a", "web", held), ("b", "web", target), ("a", "api", held)]);
    }

    #[test]
    fn a_member_runs_its_share_and_what_it_keeps() {
        let task = |cluster: &str, replicas: i64, keep: bool| {
            json!({"fromCluster": cluster, "replicas": replicas, "keep": keep, "reason": "Reconcile",
                   "creationTimestamp": "2026-01-01T00:00:00Z"})
        };
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "replicas": 9,
            "clusters": [{"name": "a", "replicas": 5}, {"name": "b", "replicas": 4}],
            "gracefulEvictionTasks": [task("a", 1, true), task("c", 2, true), task("d", 3, false)],
        }))
        .unwrap();
        let status: ResourceBindingStatus = serde_json::from_value(json!({
            "aggregatedStatus": [{"clusterName": "b", "applied": true, "health": "Healthy", "readyReplicas": 4}],
        }))
        .unwrap();
        let work = of("web-deployment", &spec, Some(&status));
        let seen: Vec<_> =
            work.iter().map(|w| (w.member.as_str(), w.replicas.unwrap(), w.standing)).collect();
        assert_eq!(
            seen,
            [
                ("a", 6, Standing::Shrinking),
                ("b", 4, Standing::Target),
                ("c", 2, Standing::Leaving),
                ("d", 0, Standing::Gone),
            ]
        );
        assert_eq!(work[1].report.as_ref().unwrap().ready_replicas, Some(4));
        let config = ResourceBindingSpec { replicas: None, ..spec };
        assert!(of("c", &config, None).iter().all(|work| work.replicas.is_none()));
    }

    #[test]
    fn health_comes_with_the_reason_of_the_pods() {
        let of = |report: serde_json::Value| {
            let report: AggregatedStatusItem = serde_json::from_value(report).unwrap();
            health(Some(&report)).0
        };
        assert_eq!(of(json!({"clusterName": "b", "health": "Healthy"})), "Healthy");
        let rolling =
            json!({"clusterName": "b", "health": "Unhealthy", "healthReason": "Updating"});
        assert_eq!(of(rolling), "Unhealthy: Updating");
        let sick = json!({
            "clusterName": "b", "health": "Unhealthy", "healthReason": "Pending",
            "healthMessage": "Insufficient cpu",
        });
        assert_eq!(of(sick), "Unhealthy: Pending: Insufficient cpu");
        assert_eq!(health(None).0, "Unknown");
    }
}
