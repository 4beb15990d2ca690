//! `atoll uninstall`: removes the hub side. Workloads on members keep running.
//!
//! The controller goes first, and everything else only when no controller leads: a controller that still runs would take the
//! end of a binding for the end of its workload.

mod purge;

use std::time::Duration;

use anyhow::{Context, bail};
use atoll_api::marks::SYSTEM_NAMESPACE;
use atoll_install::{CONTROLLER, History, IMAGE, Options};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use crate::args::HubFlags;
use crate::confirm::YesFlag;
use crate::hub::Hub;
use crate::install::record;
use crate::leader;
use crate::print::{Printer, note};

/// How long the controllers may take to stop. A Pod has 30 s after its signal, a Lease ends 15 s after its last renewal.
const STOP: Duration = Duration::from_secs(90);
/// Pause between two looks at what still runs.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Also delete what a new installation would continue with: policies, Clusters and bindings with their kinds, the
    /// certificate authority, the history volume, the namespaces
    #[arg(long)]
    purge: bool,
    /// Print what would be deleted, and what stays
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    yes: YesFlag,
}

/// An object to delete.
struct Target {
    api: Api<DynamicObject>,
    name: String,
    shown: String,
}

pub(crate) async fn run(
    flags: &HubFlags,
    args: UninstallArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let found = record::find(&hub).await?;
    if let Some(record) = found.as_ref().filter(|record| record.bundled) {
        bail!(
            "this hub was installed with --hub bundled: delete it in the cluster of its Pods, with `atoll install --hub bundled \
             -n {} | kubectl delete -f -`. Members run on",
            record.namespace
        );
    }
    let recorded = found.map(|record| record.namespace);
    let namespace = match (flags.namespace.clone(), recorded) {
        (Some(given), Some(recorded)) if given != recorded => {
            bail!("--namespace {given}: Atoll is installed in {recorded}; leave the flag out")
        }
        (given, recorded) => recorded.or(given).unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned()),
    };
    let mut present = Vec::new();
    for object in objects(&namespace, args.purge)? {
        let target = target(&hub, &object);
        if exists(&hub, &target).await? {
            present.push(target);
        }
    }
    if present.is_empty() {
        return out.line("Atoll is not installed on this hub.");
    }
    let stays = stays(&namespace, args.purge);
    if args.dry_run {
        out.line("These objects would be deleted:")?;
        for target in &present {
            out.line(format!("  {}", target.shown))?;
        }
        return out.line(stays);
    }
    note(&stays);
    let count = present.len();
    args.yes.confirm(&format!("Delete {count} objects of Atoll from {}?", hub.found))?;
    let (controllers, others): (Vec<_>, Vec<_>) =
        present.into_iter().partition(|target| target.shown.starts_with("Deployment"));
    for target in &controllers {
        delete(&hub, target).await?;
    }
    stopped(&hub, &namespace).await?;
    if args.purge {
        purge::release(&hub).await?;
    }
    for target in &others {
        delete(&hub, target).await?;
    }
    out.line(format!("{count} objects of Atoll were deleted from {}.", hub.found))
}

/// Everything that the templates can make, in the order of deletion: the reverse of the installation's, with the record last,
/// so that a repetition finds the namespace.
fn objects(namespace: &str, purge: bool) -> anyhow::Result<Vec<Value>> {
    let everything = |history: History| Options {
        namespace: namespace.to_owned(),
        replicas: matches!(history, History::Secret(_)).then_some(2),
        history,
        secrets: true,
        cluster_kinds: true,
        replica_sync: true,
        observe: true,
        service_monitor: true,
        ..Options::new(IMAGE)
    };
    let mut objects: Vec<Value> = Vec::new();
    for history in [History::Secret("any".to_owned()), Options::new(IMAGE).history] {
        for object in
            atoll_install::parts(&everything(history))?.into_iter().flat_map(|p| p.objects)
        {
            let same = |other: &Value| {
                other["kind"] == object["kind"]
                    && other["metadata"]["name"] == object["metadata"]["name"]
                    && other["metadata"]["namespace"] == object["metadata"]["namespace"]
            };
            if !objects.iter().any(same) && (purge || !is_kept(&object)) {
                objects.push(object);
            }
        }
    }
    // The namespaces contain the rest.
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("Namespace") => 0,
        Some("ConfigMap") if object["metadata"]["name"] == atoll_install::RECORD => 1,
        _ => 2,
    });
    objects.reverse();
    Ok(objects)
}

/// Data, and what holds it: a new installation continues with it.
fn is_kept(object: &Value) -> bool {
    let kept = ["Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"];
    kept.iter().any(|kind| object["kind"] == *kind)
}

fn stays(namespace: &str, purge: bool) -> String {
    let mut text = "These stay:\n  on members: all workloads, and the agents. `kubectl delete namespace atoll-system` there \
                    removes an agent; workloads keep the label atoll.dev/managed-by\n  on the hub: all workloads with their \
                    last status"
        .to_owned();
    if !purge {
        text.push_str(&format!(
            "; Atoll's kinds with all policies, Clusters and bindings; Namespace {SYSTEM_NAMESPACE} with the certificate \
             authority; the history volume in {namespace}. `atoll install` continues with them, --purge deletes them"
        ));
    }
    text.push_str("\n  elsewhere: the history in PostgreSQL, if there is one");
    text
}

fn target(hub: &Hub, object: &Value) -> Target {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let name = text(&object["metadata"]["name"]);
    let (api, shown) = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => (
            Api::namespaced_with(hub.client.clone(), namespace, &resource),
            format!("{kind} {namespace}/{name}"),
        ),
        None => (Api::all_with(hub.client.clone(), &resource), format!("{kind} {name}")),
    };
    Target { api, name, shown }
}

/// Whether the object exists. A hub that does not serve its kind answers as if it did not.
async fn exists(hub: &Hub, target: &Target) -> anyhow::Result<bool> {
    let doing = format!("look for {}", target.shown);
    // For a kind that is not served, kube-apiserver's answer is no Status.
    let call = async {
        match target.api.get_opt(&target.name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            other => other,
        }
    };
    Ok(hub.call(&doing, call).await?.is_some())
}

async fn delete(hub: &Hub, target: &Target) -> anyhow::Result<()> {
    let params = DeleteParams::background();
    let call = async {
        match target.api.delete(&target.name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    };
    hub.call(&format!("delete {}", target.shown), call).await
}

/// Waits until no controller runs.
async fn stopped(hub: &Hub, namespace: &str) -> anyhow::Result<()> {
    let wait = async {
        let mut said = String::new();
        while let Some(running) = running(hub, namespace).await? {
            if running != said {
                note(format!("waiting: {running}"));
                said = running;
            }
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(STOP, wait).await;
    ended.with_context(|| {
        format!(
            "a controller still runs after {} s, and nothing else was deleted: stop controllers that were started by other \
             means, see the Lease {SYSTEM_NAMESPACE}/{CONTROLLER}, then repeat",
            STOP.as_secs()
        )
    })?
}

/// A controller that runs, in words.
async fn running(hub: &Hub, namespace: &str) -> anyhow::Result<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(hub.client.clone(), namespace);
    let labels = ListParams::default().labels(&format!("app.kubernetes.io/name={CONTROLLER}"));
    let pods = hub.call("list the controller's Pods", pods.list_metadata(&labels)).await?;
    if let Some(pod) = pods.items.first() {
        return Ok(Some(format!("Pod {} ends", pod.metadata.name.as_deref().unwrap_or("?"))));
    }
    let leader = leader::find(hub).await?.filter(|leader| leader.leads(Timestamp::now()));
    Ok(leader.map(|leader| format!("controller {} leads", leader.holder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_goes_first_and_data_stays_unless_purged() {
        let names = |purge| -> Vec<String> {
            let name = |o: &Value| {
                format!(
                    "{} {}",
                    o["kind"].as_str().unwrap(),
                    o["metadata"]["name"].as_str().unwrap()
                )
            };
            objects("atoll-system", purge).unwrap().iter().map(name).collect()
        };
        let (kept, purged) = (names(false), names(true));
        let data = [
            "Namespace atoll-system",
            "CustomResourceDefinition clusters.cluster.atoll.dev",
            "PersistentVolumeClaim atoll-history",
        ];
        for name in data {
            assert!(!kept.iter().any(|kept| kept == name), "{name}");
            assert!(purged.iter().any(|purged| purged == name), "{name}");
        }
        assert_eq!(kept.last().unwrap(), "ConfigMap atoll-install");
        assert_eq!(purged.last().unwrap(), "Namespace atoll-system");
        let optional = [
            "ClusterRole atoll-controller-secrets",
            "PrometheusRule atoll-controller",
            "ConfigMap atoll-dashboard-member",
            "ClusterRole atoll-controller-replica-sync",
            "ServiceMonitor atoll-controller",
            "PodDisruptionBudget atoll-controller",
            "APIService v1alpha1.proxy.atoll.dev",
        ];
        for name in optional {
            assert_eq!(kept.iter().filter(|kept| *kept == name).count(), 1, "{name}");
        }
    }
}
