//! `atoll kubeconfig`: contexts with which kubectl and other clients reach members through the hub.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use atoll_api::{Cluster, PROXY_GROUP, VERSION};
use clap::Args;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::args::HubFlags;
use crate::hub::{self, Hub};
use crate::print::{Printer, counted, note};

#[derive(Debug, Args)]
pub(crate) struct KubeconfigArgs {
    /// Members [default: all]
    #[arg(value_name = "MEMBER")]
    members: Vec<String>,
    /// Text before the members' names in the names of the contexts, for example `hub-`
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Add the contexts to this file, which is created if missing, instead of printing a kubeconfig
    #[arg(long, value_name = "FILE")]
    merge: Option<PathBuf>,
}

pub(crate) async fn run(
    flags: &HubFlags,
    args: KubeconfigArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let members = members(&hub, &args.members).await?;
    let (config, context) = hub::context(flags)?;
    let config = serde_json::to_value(&config).context("read the hub's kubeconfig")?;
    let made = contexts(&config, &context, &members, &args.prefix)?;
    let Some(file) = args.merge else {
        let text = serde_saphyr::to_string(&made).context("write the kubeconfig as YAML")?;
        return out.line(text.trim_end());
    };
    let old = match std::fs::read_to_string(&file) {
        Ok(text) => serde_saphyr::from_str(&text)
            .with_context(|| format!("--merge {}: not a kubeconfig", file.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error).with_context(|| format!("--merge {}", file.display())),
    };
    let merged = merge(old, &made).with_context(|| format!("--merge {}", file.display()))?;
    let text = serde_saphyr::to_string(&merged).context("write the kubeconfig as YAML")?;
    write(&file, &text).with_context(|| format!("--merge {}", file.display()))?;
    let count = counted(members.len(), "context", "contexts");
    note(format!("{count} written to {}", file.display()));
    Ok(())
}

/// The members that are asked for, which must exist; all without names.
async fn members(hub: &Hub, named: &[String]) -> anyhow::Result<Vec<String>> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let all = hub.call("list the members", clusters.list(&ListParams::default())).await?;
    let mut all: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    all.sort();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("there is no member {unknown:?}: choose from {}", all.join(", "));
    }
    Ok(if named.is_empty() { all } else { named.to_vec() })
}

/// A kubeconfig with one context for each member and the user of the hub's context.
///
/// # Errors
/// When the hub's kubeconfig is not complete.
pub(crate) fn contexts(
    config: &Value,
    context: &str,
    members: &[String],
    prefix: &str,
) -> anyhow::Result<Value> {
    let named = |list: &str, name: &str| {
        let entries = config[list].as_array().into_iter().flatten();
        entries.into_iter().find(|entry| entry["name"] == name).cloned()
    };
    let of_hub = named("contexts", context).context("the hub's context is missing")?;
    let text = |field: &str| of_hub["context"][field].as_str().unwrap_or_default().to_owned();
    let cluster = named("clusters", &text("cluster")).context("the hub's cluster is missing")?;
    let user = named("users", &text("user")).context("the hub's user is missing")?;
    let server = cluster["cluster"]["server"].as_str().context("the hub has no server")?;
    let server = server.trim_end_matches('/').to_owned();
    let user_name = format!("atoll-{}", text("user"));
    let (mut clusters, mut contexts) = (Vec::new(), Vec::new());
    for member in members {
        let name = format!("{prefix}{member}");
        let mut entry = cluster["cluster"].clone();
        entry["server"] =
            format!("{server}/apis/{PROXY_GROUP}/{VERSION}/clusters/{member}/proxy").into();
        clusters.push(json!({"name": name, "cluster": entry}));
        let mut place = json!({"cluster": name, "user": user_name});
        if !text("namespace").is_empty() {
            place["namespace"] = text("namespace").into();
        }
        contexts.push(json!({"name": name, "context": place}));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": contexts,
        "users": [{"name": user_name, "user": user["user"]}],
        "current-context": contexts.first().map(|context| context["name"].clone()),
    }))
}

/// Adds the entries of `made`. Entries of an earlier run are replaced; others with their names are not.
fn merge(old: Value, made: &Value) -> anyhow::Result<Value> {
    if old.is_null() {
        return Ok(made.clone());
    }
    let mut merged = old;
    if !merged.is_object() {
        bail!("the file is not a kubeconfig");
    }
    let marker = format!("/apis/{PROXY_GROUP}/");
    for list in ["clusters", "contexts", "users"] {
        let mut entries = merged[list].as_array().cloned().unwrap_or_default();
        for new in made[list].as_array().into_iter().flatten() {
            let ours = |entry: &Value| match list {
                "clusters" => {
                    entry["cluster"]["server"].as_str().is_some_and(|url| url.contains(&marker))
                }
                "contexts" => entry["context"] == new["context"],
                _ => true,
            };
            match entries.iter_mut().find(|entry| entry["name"] == new["name"]) {
                Some(entry) if ours(entry) => *entry = new.clone(),
                Some(_) => bail!(
                    "it has another entry {} in {list}: choose other names with --prefix",
                    new["name"]
                ),
                None => entries.push(new.clone()),
            }
        }
        merged[list] = entries.into();
    }
    Ok(merged)
}

/// Replaces the file atomically; it holds credentials.
fn write(file: &std::path::Path, text: &str) -> std::io::Result<()> {
    let partial = file.with_extension("atoll-partial");
    let mut options = std::fs::File::options();
    let mut open = options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    std::fs::rename(&partial, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> Value {
        json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://hub:6443/", "certificate-authority-data": "QQ=="}}],
            "contexts": [{"name": "hub", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        })
    }

    #[test]
    fn a_context_leads_to_the_member_through_the_hub_with_the_callers_credentials() {
        let made = contexts(&hub(), "hub", &["m1".to_owned(), "m2".to_owned()], "hub-").unwrap();
        assert_eq!(
            made["clusters"][1],
            json!({"name": "hub-m2", "cluster": {"certificate-authority-data": "QQ==",
                "server": "https://hub:6443/apis/proxy.atoll.dev/v1alpha1/clusters/m2/proxy"}})
        );
        let context = json!({"cluster": "hub-m1", "user": "atoll-u", "namespace": "shop"});
        assert_eq!(made["contexts"][0], json!({"name": "hub-m1", "context": context}));
        assert_eq!(made["users"], json!([{"name": "atoll-u", "user": {"token": "t"}}]));
        assert_eq!(made["current-context"], "hub-m1");
    }

    #[test]
    fn merging_keeps_what_the_file_has_and_refuses_to_replace_other_contexts() {
        let made = contexts(&hub(), "hub", &["m1".to_owned()], "").unwrap();
        let mut file = hub();
        file["current-context"] = "hub".into();
        let merged = merge(file, &made).unwrap();
        assert_eq!(merged["current-context"], "hub");
        assert_eq!(merged["contexts"].as_array().unwrap().len(), 2);
        assert_eq!(merge(merged.clone(), &made).unwrap(), merged, "a second run changes nothing");
        let direct =
            json!({"clusters": [{"name": "m1", "cluster": {"server": "https://m1:6443"}}]});
        let refused = merge(direct, &made).unwrap_err().to_string();
        assert!(refused.contains("--prefix") && refused.contains("m1"), "{refused}");
        assert!(merge(json!("text"), &made).is_err());
    }
}
