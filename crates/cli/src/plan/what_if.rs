//! Changes that need no file: members that fail or are drained, taints, new members, other replicas.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use atoll_api::conditions::{self, READY, Status};
use atoll_api::rebalancer::{RebalanceMode, WorkloadReference};
use atoll_api::{Cluster, marks};
use atoll_scheduler::detect::TemplateKey;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hub::typed;
use super::objects::{Identity, Objects};
use crate::cordon;
use crate::input::{self, Validation, title};

/// Group of Clusters.
const CLUSTERS: &str = "cluster.atoll.dev";
/// End of the groups of Atoll's kinds.
const ATOLL: &str = ".atoll.dev";
/// Effects of a taint.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

#[derive(Debug, Default, Args)]
pub(super) struct WhatIfFlags {
    /// This member fails and does not return: what moves, what waits; may be repeated
    #[arg(long, value_name = "MEMBER", value_delimiter = ',')]
    without: Vec<String>,
    /// This member is drained; may be repeated
    #[arg(long, value_name = "MEMBER", value_delimiter = ',')]
    drain: Vec<String>,
    /// This member gets a taint, or with - at the end loses it; may be repeated
    #[arg(long, value_name = "MEMBER=KEY[=VALUE]:EFFECT[-]")]
    taint: Vec<TaintChange>,
    /// A member joins: a file with its Cluster, status included, for example from `kubectl get cluster NAME -o yaml`; may
    /// be repeated
    #[arg(long, value_name = "FILE")]
    with_cluster: Vec<PathBuf>,
    /// A workload gets this number of replicas; may be repeated
    #[arg(long, value_name = "[KIND/]NAMESPACE/NAME=N")]
    scale: Vec<Scale>,
}

impl WhatIfFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.without.is_empty()
            && self.drain.is_empty()
            && self.taint.is_empty()
            && self.with_cluster.is_empty()
            && self.scale.is_empty()
    }

    /// The changes, with the Clusters of the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&self) -> anyhow::Result<Assumed> {
        let mut with_clusters = Vec::new();
        for path in &self.with_cluster {
            let errors =
                input::read_each(&[path.to_owned()], Validation::Strict, &mut |document| {
                    with_clusters.push(document.object);
                    Ok(())
                });
            if let Some(error) = errors?.first() {
                bail!("--with-cluster {}: {error}", path.display());
            }
        }
        Ok(Assumed {
            without: self.without.clone(),
            drain: self.drain.clone(),
            taint: self.taint.clone(),
            scale: self.scale.clone(),
            with_clusters,
            ..Assumed::default()
        })
    }
}

/// What is assumed to change, besides objects that somebody applies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Assumed {
    without: Vec<String>,
    drain: Vec<String>,
    taint: Vec<TaintChange>,
    scale: Vec<Scale>,
    with_clusters: Vec<Value>,
    /// Workloads for which a rebalance is asked.
    rebalance: Vec<WorkloadReference>,
    rebalance_mode: RebalanceMode,
}

/// A taint that a member gets or loses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct TaintChange {
    member: String,
    key: String,
    value: Option<String>,
    effect: String,
    removed: bool,
}

impl FromStr for TaintChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage =
            || format!("{text}: give MEMBER=KEY[=VALUE]:EFFECT, with - at the end to remove it");
        let (member, taint) = text.split_once('=').ok_or_else(usage)?;
        let (taint, effect) = taint.rsplit_once(':').ok_or_else(usage)?;
        let (effect, removed) = match effect.strip_suffix('-') {
            Some(effect) => (effect, true),
            None => (effect, false),
        };
        if !EFFECTS.contains(&effect) {
            return Err(format!("{effect}: no such effect; there are {}", EFFECTS.join(", ")));
        }
        let (key, value) = match taint.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (taint, None),
        };
        if member.is_empty() || key.is_empty() {
            return Err(usage());
        }
        let (member, key, effect) = (member.to_owned(), key.to_owned(), effect.to_owned());
        Ok(Self { member, key, value, effect, removed })
    }
}

/// Other replicas for a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct Scale {
    kind: Option<String>,
    namespace: String,
    name: String,
    replicas: i64,
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || format!("{text}: give [KIND/]NAMESPACE/NAME=N, for example shop/web=12");
        let (object, replicas) = text.rsplit_once('=').ok_or_else(usage)?;
        let replicas: u32 = replicas
            .parse()
            .map_err(|_| format!("{replicas}: the number of replicas must be 0 or more"))?;
        let parts: Vec<&str> = object.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [namespace, name] => (None, namespace, name),
            [kind, namespace, name] => (Some(kind.to_owned()), namespace, name),
            _ => return Err(usage()),
        };
        if namespace.is_empty() || name.is_empty() {
            return Err(usage());
        }
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Ok(Self { kind, namespace, name, replicas: replicas.into() })
    }
}

impl From<TaintChange> for String {
    fn from(taint: TaintChange) -> Self {
        let TaintChange { member, key, value, effect, removed } = taint;
        let value = value.map_or_else(Self::new, |value| format!("={value}"));
        format!("{member}={key}{value}:{effect}{}", if removed { "-" } else { "" })
    }
}

impl TryFrom<String> for TaintChange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scale> for String {
    fn from(scale: Scale) -> Self {
        let Scale { kind, namespace, name, replicas } = scale;
        let kind = kind.map_or_else(Self::new, |kind| format!("{kind}/"));
        format!("{kind}{namespace}/{name}={replicas}")
    }
}

impl TryFrom<String> for Scale {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Assumed {
    /// A drain of a member.
    pub(crate) fn drain(member: &str) -> Self {
        Self { drain: vec![member.to_owned()], ..Self::default() }
    }

    /// A rebalance of workloads.
    pub(crate) fn rebalance(workloads: Vec<WorkloadReference>, mode: RebalanceMode) -> Self {
        Self { rebalance: workloads, rebalance_mode: mode, ..Self::default() }
    }

    /// The workloads for which a rebalance is asked.
    pub(super) fn rebalanced(&self) -> impl Iterator<Item = (TemplateKey, RebalanceMode)> {
        let keys = self.rebalance.iter().map(super::request::key);
        keys.map(|key| (key, self.rebalance_mode))
    }

    /// Everything that it names.
    pub(super) fn len(&self) -> usize {
        self.without.len()
            + self.drain.len()
            + self.taint.len()
            + self.scale.len()
            + self.with_clusters.len()
            + self.rebalance.len()
    }

    /// The members that it names.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        let joining =
            self.with_clusters.iter().filter_map(|object| object["metadata"]["name"].as_str());
        let named = self.without.iter().chain(&self.drain).map(String::as_str);
        named.chain(self.taint.iter().map(|taint| &*taint.member)).chain(joining)
    }

    /// Namespaces and names of the workloads that it names.
    pub(super) fn workloads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.scale.iter().map(|scale| (&*scale.namespace, &*scale.name))
    }

    /// Changes the objects.
    ///
    /// # Errors
    /// It names what does not exist.
    pub(super) fn apply(&self, objects: &mut Objects, now: Timestamp) -> anyhow::Result<()> {
        for cluster in &self.with_clusters {
            join(cluster, objects).context("--with-cluster")?;
        }
        for member in &self.without {
            change(objects, member, "--without", |cluster| fail(cluster, now))?;
        }
        for member in &self.drain {
            change(objects, member, "--drain", |cluster| {
                cluster.spec.taints.retain(|taint| !cordon::is_drain(taint));
                cluster.spec.taints.push(cordon::drain_taint(now));
            })?;
        }
        for asked in &self.taint {
            let mut result = Ok(());
            change(objects, &asked.member, "--taint", |cluster| {
                result = taint(cluster, asked, now);
            })?;
            result?;
        }
        for asked in &self.scale {
            scale(objects, asked)?;
        }
        Ok(())
    }
}

fn join(object: &Value, objects: &mut Objects) -> anyhow::Result<()> {
    let identity = Identity::of(object);
    ensure!(
        (identity.group.as_str(), identity.kind.as_str()) == (CLUSTERS, "Cluster"),
        "{}: only Clusters can be given here",
        title(object)
    );
    ensure!(
        !object["status"]["resourceSummary"].is_null(),
        "{}: status.resourceSummary is missing: without it the member has no room; \
         `kubectl get cluster NAME -o yaml` prints one with it",
        title(object)
    );
    ensure!(!objects.has(&identity), "{}: this member has joined already", title(object));
    objects.put(object.clone());
    Ok(())
}

fn change(
    objects: &mut Objects,
    member: &str,
    flag: &str,
    change: impl FnOnce(&mut Cluster),
) -> anyhow::Result<()> {
    let identity = Identity {
        group: CLUSTERS.to_owned(),
        kind: "Cluster".to_owned(),
        namespace: String::new(),
        name: member.to_owned(),
    };
    let Some(held) = objects.get_mut(&identity) else {
        bail!("{flag} {member}: there is no member of that name: `atoll get members` lists them");
    };
    let mut cluster: Cluster = serde_json::from_value(held.clone())
        .with_context(|| format!("{flag} {member}: read the Cluster"))?;
    change(&mut cluster);
    *held = typed(&cluster);
    Ok(())
}

/// The Cluster as after a failover: not ready, and tainted for longer than any toleration lasts.
fn fail(cluster: &mut Cluster, now: Timestamp) {
    let taints = &mut cluster.spec.taints;
    taints.retain(|taint| taint.key != marks::TAINT_UNREACHABLE);
    for effect in ["NoSchedule", "NoExecute"] {
        taints.push(Taint {
            key: marks::TAINT_UNREACHABLE.to_owned(),
            effect: effect.to_owned(),
            value: None,
            time_added: Some(Time(Timestamp::UNIX_EPOCH)),
        });
    }
    let status = cluster.status.get_or_insert_default();
    let generation = cluster.metadata.generation;
    conditions::set(
        &mut status.conditions,
        READY,
        Status::False,
        "PlannedLoss",
        "",
        generation,
        now,
    );
}

fn taint(cluster: &mut Cluster, asked: &TaintChange, now: Timestamp) -> anyhow::Result<()> {
    let same = |taint: &Taint| taint.key == asked.key && taint.effect == asked.effect;
    if asked.removed && !cluster.spec.taints.iter().any(same) {
        let (member, key, effect) = (&asked.member, &asked.key, &asked.effect);
        let held =
            cluster.spec.taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect));
        let held = match held.collect::<Vec<_>>() {
            none if none.is_empty() => "it has none".to_owned(),
            some => format!("it has {}", some.join(", ")),
        };
        bail!("--taint {member}={key}:{effect}-: {member} has no such taint; {held}");
    }
    cluster.spec.taints.retain(|taint| !same(taint));
    if !asked.removed {
        cluster.spec.taints.push(Taint {
            key: asked.key.clone(),
            value: asked.value.clone(),
            effect: asked.effect.clone(),
            time_added: Some(Time(now)),
        });
    }
    Ok(())
}

/// Whether a workload can be scaled: a field that is missing counts as 1, as for the kinds of Kubernetes.
fn is_scalable(identity: &Identity, object: &Value) -> bool {
    let by_default = matches!(identity.kind.as_str(), "Deployment" | "StatefulSet" | "ReplicaSet")
        && identity.group == "apps";
    let replicas = &object["spec"]["replicas"];
    !identity.group.ends_with(ATOLL) && (replicas.is_i64() || (by_default && replicas.is_null()))
}

fn scale(objects: &mut Objects, asked: &Scale) -> anyhow::Result<()> {
    let place = format!("{}/{}", asked.namespace, asked.name);
    let mut found: Vec<(&Identity, &mut Value)> = objects
        .iter_mut()
        .filter(|(identity, object)| {
            identity.namespace == asked.namespace
                && identity.name == asked.name
                && asked.kind.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(&identity.kind))
                && is_scalable(identity, object)
        })
        .collect();
    match &mut found[..] {
        [(_, object)] => {
            object["spec"]["replicas"] = asked.replicas.into();
            Ok(())
        }
        [] => bail!("--scale {place}: no workload of that name with spec.replicas is placed"),
        several => {
            let kinds: Vec<&str> =
                several.iter().map(|(identity, _)| identity.kind.as_str()).collect();
            bail!("--scale {place}: there are several ({}): give KIND/{place}=N", kinds.join(", "))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn taints_and_numbers_of_replicas_are_read_or_refused_with_the_fix() {
        let taint: TaintChange = "member1=gpu=old:NoExecute".parse().unwrap();
        assert_eq!(
            (taint.key.as_str(), taint.value.as_deref(), taint.removed),
            ("gpu", Some("old"), false)
        );
        let taint: TaintChange = "member1=example.com/gpu:NoSchedule-".parse().unwrap();
        assert_eq!(
            (taint.key.as_str(), taint.value, taint.removed),
            ("example.com/gpu", None, true)
        );
        for wrong in ["member1", "=a:NoExecute", "member1=a", "member1=:NoExecute", "m=a:Never"] {
            wrong.parse::<TaintChange>().unwrap_err();
        }
        let scale: Scale = "shop/web=12".parse().unwrap();
        assert_eq!((scale.kind, scale.name.as_str(), scale.replicas), (None, "web", 12));
        let scale: Scale = "StatefulSet/shop/db=0".parse().unwrap();
        assert_eq!((scale.kind.as_deref(), scale.replicas), (Some("StatefulSet"), 0));
        for text in ["member1=gpu=old:NoExecute", "member1=example.com/gpu:NoSchedule-"] {
            assert_eq!(String::from(text.parse::<TaintChange>().unwrap()), text);
        }
        for text in ["shop/web=12", "StatefulSet/shop/db=0"] {
            assert_eq!(String::from(text.parse::<Scale>().unwrap()), text);
        }
        for wrong in ["web=2", "shop/web", "shop/web=-1", "a/b/c/d=1", "/web=1"] {
            wrong.parse::<Scale>().unwrap_err();
        }
    }
}
