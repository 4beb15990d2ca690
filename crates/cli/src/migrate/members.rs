//! Joins members by the credentials with which Karmada reaches them, and reaches members to compare and clean objects.

use anyhow::Context;
use atoll_api::{Cluster, marks};
use atoll_migrate::estate::Estate;
use atoll_migrate::members as plan;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::Value;
use tokio::time::Instant;

use super::Migration;
use crate::hub::Hub;
use crate::print::note;
use crate::{join, member_config, reach};

/// A member, with what it is joined by.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) cluster: Cluster,
    kubeconfig: String,
}

impl Member {
    /// Whether a finding is about it.
    pub(super) fn is(&self, object: &str) -> bool {
        object.strip_prefix("Cluster ") == Some(&self.name)
    }
}

/// Members that have not joined Atoll and that Karmada has usable credentials of. Why it has none of others is printed.
pub(super) async fn find(migration: &Migration, estate: &Estate) -> anyhow::Result<Vec<Member>> {
    let mut found = Vec::new();
    let hub = migration.target.clusters().await?;
    for (cluster, access) in plan::to_take(&migration.converter, estate, &hub) {
        let cluster: Cluster = serde_json::from_value(cluster).context("read Karmada's Cluster")?;
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let kubeconfig = match access {
            Ok(access) => {
                let secret = migration.karmada.secret(access.namespace, access.secret).await?;
                access.kubeconfig(&secret)
            }
            Err(why) => Err(why),
        };
        match kubeconfig {
            Ok(kubeconfig) => {
                let kubeconfig = member_config::write(&kubeconfig)
                    .with_context(|| format!("Karmada's credentials of {name}"))?;
                let cluster = join::hosted(cluster);
                found.push(Member { name, cluster, kubeconfig });
            }
            Err(why) => note(format!("{name} cannot be joined by Karmada's credentials: {why}")),
        }
    }
    Ok(found)
}

/// Joins them, and waits until their agents serve.
pub(super) async fn register(migration: &Migration, members: &[Member]) -> anyhow::Result<()> {
    let hub = &migration.target.hub;
    for member in members {
        join::register_hosted(hub, &member.cluster, &member.kubeconfig).await?;
        let name = &member.name;
        note(format!(
            "{name} joins by Karmada's credentials. Before you remove Karmada from it: `atoll rejoin {name} --member-kubeconfig FILE`"
        ));
    }
    let deadline = Instant::now() + migration.wait;
    let unready = || async {
        let hub = migration.target.clusters().await?;
        let ready = |name: &str| hub.get(name).is_some_and(plan::is_ready);
        let unready = members.iter().filter(|member| !ready(&member.name));
        Ok(unready
            .map(|member| {
                format!("{0} is not Ready: `atoll get members {0}` says why", member.name)
            })
            .collect())
    };
    migration.until(deadline, unready).await
}

/// The members that hold what moves: those whose agent runs beside the controller by the kubeconfig that it uses, because the
/// hub has no way to them for users; the others through the hub.
pub(super) async fn holding(
    migration: &Migration,
    estate: &Estate,
) -> anyhow::Result<Vec<reach::Member>> {
    let hub = &migration.target.hub;
    let holders = plan::holders(estate);
    let mut found = Vec::new();
    for (name, cluster) in migration.target.clusters().await? {
        if holders.contains(&*name) {
            found.push(match plan::is_hosted(&cluster) {
                true => hosted(hub, &name, &cluster).await?,
                false => reach::Member::of(hub, &name),
            });
        }
    }
    Ok(found)
}

async fn hosted(hub: &Hub, name: &str, cluster: &Value) -> anyhow::Result<reach::Member> {
    let secret = cluster["spec"]["kubeconfigSecret"].as_str().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(hub.client.clone(), marks::SYSTEM_NAMESPACE);
    let doing =
        format!("read the kubeconfig of {name} in Secret {}/{secret}", marks::SYSTEM_NAMESPACE);
    let data = hub.call(&doing, secrets.get(secret)).await?.data.unwrap_or_default();
    let text = data.get(member_config::KEY).with_context(|| format!("{doing}: it has none"))?;
    let text = std::str::from_utf8(&text.0).with_context(|| doing.clone())?;
    let config = member_config::unpack(text).await.with_context(|| doing.clone())?;
    let client = atoll_agent::member_client(config).with_context(|| doing.clone())?;
    Ok(reach::Member::direct(name, client))
}
