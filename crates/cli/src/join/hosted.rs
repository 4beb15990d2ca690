//! Members whose agent runs beside the controller: their kubeconfig is stored in a Secret of the hub.

use std::path::PathBuf;

use anyhow::{Context, bail};
use atoll_api::cluster::ClusterMode;
use atoll_api::{Cluster, marks};
use clap::{Args, ValueEnum};
use k8s_openapi::ByteString;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::MANAGER;
use crate::hub::Hub;
use crate::member_config;

/// Where a member's agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Mode {
    /// In the member, or wherever it is started
    #[default]
    Agent,
    /// Beside the controller, by the member's kubeconfig
    Hosted,
}

impl From<Mode> for ClusterMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Agent => Self::Agent,
            Mode::Hosted => Self::Hosted,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct HostedFlags {
    /// Mode hosted: kubeconfig of the member, with the rights of the manifests in deploy/agent. One context of it, with the files
    /// that it names, is stored in a Secret of the hub
    #[arg(long, value_name = "FILE")]
    pub(super) member_kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "member_kubeconfig")]
    pub(super) member_context: Option<String>,
}

impl HostedFlags {
    /// The kubeconfig, if the mode needs one.
    ///
    /// # Errors
    /// When it is missing, unusable, or given for a mode that needs none.
    pub(super) fn kubeconfig(&self, mode: ClusterMode) -> anyhow::Result<Option<String>> {
        match (mode, &self.member_kubeconfig) {
            (ClusterMode::Agent, None) => Ok(None),
            (ClusterMode::Agent, Some(_)) => {
                bail!("--member-kubeconfig is for --mode hosted; an agent in the member needs none")
            }
            (ClusterMode::Hosted, Some(file)) => {
                member_config::pack(file, self.member_context.as_deref()).map(Some)
            }
            (ClusterMode::Hosted, None) => {
                bail!(
                    "--mode hosted needs --member-kubeconfig FILE: the controller reaches the member by it"
                )
            }
        }
    }
}

/// Name of the Secret for a member.
pub(super) fn secret_name(member: &str) -> String {
    format!("{member}-kubeconfig")
}

/// Stores a kubeconfig in the Secret that the Cluster names. The Secret is deleted with its Cluster.
///
/// # Errors
/// When the Cluster names no Secret, or the hub refuses.
pub(super) async fn store(hub: &Hub, cluster: &Cluster, kubeconfig: &str) -> anyhow::Result<()> {
    let name = cluster.spec.kubeconfig_secret.as_deref();
    let name =
        name.with_context(|| format!("Cluster {} has no kubeconfigSecret", cluster.name_any()))?;
    let secret: Value = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": marks::SYSTEM_NAMESPACE,
            "ownerReferences": [{
                "apiVersion": Cluster::api_version(&()),
                "kind": Cluster::kind(&()),
                "name": cluster.name_any(),
                "uid": cluster.metadata.uid,
            }],
        },
        "type": "Opaque",
        "data": {member_config::KEY: ByteString(kubeconfig.as_bytes().to_vec())},
    });
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    let secrets: Api<DynamicObject> =
        Api::namespaced_with(hub.client.clone(), marks::SYSTEM_NAMESPACE, &resource);
    let params = PatchParams::apply(MANAGER).force();
    let doing = format!("write Secret {}/{name}", marks::SYSTEM_NAMESPACE);
    hub.call(&doing, secrets.patch(name, &params, &Patch::Apply(secret))).await.map(drop)
}
