//! Names on the hub that the unfinished command line means.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use atoll_api::{ChangeGuard, Cluster, ResourceBinding};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::args::HubFlags;
use crate::hub::Hub;

/// A shell that completes shows nothing else while it waits.
const LIMIT: Duration = Duration::from_secs(2);
/// Most candidates: a longer list helps no one.
const MOST: u32 = 500;

/// Names of members.
pub(super) fn members(words: &[String]) -> anyhow::Result<Vec<String>> {
    ask(words, async |hub| {
        let clusters: Api<Cluster> = Api::all(hub.client.clone());
        let page = clusters.list(&ListParams::default().limit(MOST)).await?;
        Ok(page.items.iter().map(ResourceExt::name_any).collect())
    })
}

/// Workloads of the namespace, as `deployment/nginx`.
pub(super) fn workloads(words: &[String]) -> anyhow::Result<Vec<String>> {
    ask(words, async |hub| {
        let bindings: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), &hub.namespace);
        let page = bindings.list(&ListParams::default().limit(MOST)).await?;
        let named = page.items.iter().map(|binding| {
            let resource = &binding.spec.resource;
            format!("{}/{}", resource.kind.to_lowercase(), resource.name)
        });
        Ok(named.collect())
    })
}

/// Plans that ChangeGuards hold.
pub(super) fn plans(words: &[String]) -> anyhow::Result<Vec<String>> {
    ask(words, async |hub| {
        let guards: Api<ChangeGuard> = Api::all(hub.client.clone());
        let page = guards.list(&ListParams::default().limit(MOST)).await?;
        let held = page.items.into_iter().filter_map(|guard| guard.status);
        let plans: BTreeSet<String> =
            held.flat_map(|status| status.held).map(|plan| plan.plan).collect();
        Ok(plans.into_iter().collect())
    })
}

fn ask(
    words: &[String],
    list: impl AsyncFnOnce(Hub) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ask = async { list(Hub::find(&flags(words)).await?).await };
        tokio::time::timeout(LIMIT, ask).await.context("no answer from the hub")?
    })
}

/// The flags about the hub among the words typed so far, which need not be a valid command line yet.
fn flags(words: &[String]) -> HubFlags {
    let value = |names: &[&str]| {
        words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
            None if names.contains(&word.as_str()) => words.get(at + 1).cloned(),
            _ => None,
        })
    };
    HubFlags {
        kubeconfig: value(&["--kubeconfig"]).map(Into::into),
        context: value(&["--context"]),
        namespace: value(&["-n", "--namespace"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_the_one_on_the_command_line() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = flags(&words("atoll -- atoll drain --kubeconfig hub.yaml -n shop --context=a"));
        assert_eq!(found.kubeconfig, Some("hub.yaml".into()));
        assert_eq!(
            (found.context.as_deref(), found.namespace.as_deref()),
            (Some("a"), Some("shop"))
        );
        assert_eq!(flags(&words("atoll -- atoll drain --context")).context, None);
    }
}
