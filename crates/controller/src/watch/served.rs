//! The kinds that the hub serves and that `kind: "*"` may select.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_scheduler::detect::{GroupKind, is_selected_by_every_kind};
use kube::Client;
use serde_json::{Value, json};

/// What every kind needs, so that its objects can be watched.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Lists the namespaced kinds that can be watched, each in the version that the hub names first: one object for each,
/// with apiVersion, kind and a name. Kinds that `kind: "*"` never selects are left out.
pub(super) async fn kinds(client: &Client) -> kube::Result<Vec<Arc<Value>>> {
    let core = client.list_core_api_versions_aggregated().await?;
    let groups = client.list_api_groups_aggregated().await?;
    let mut seen = BTreeSet::new();
    let mut kinds = Vec::new();
    for group in core.items.into_iter().chain(groups.items) {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            let Some(text) = version.version else { continue };
            for resource in version.resources {
                let usable = VERBS.iter().all(|verb| resource.verbs.iter().any(|v| v == verb));
                let Some(kind) = resource.response_kind.and_then(|kind| kind.kind) else {
                    continue;
                };
                let kind = GroupKind { group: name.clone(), kind };
                let namespaced = resource.scope.as_deref() == Some("Namespaced");
                if !namespaced || !usable || !is_selected_by_every_kind(kind.borrowed()) {
                    continue;
                }
                let api_version =
                    if name.is_empty() { text.clone() } else { format!("{name}/{text}") };
                if seen.insert(kind.clone()) {
                    kinds.push(Arc::new(json!({
                        "apiVersion": api_version,
                        "kind": kind.kind,
                        "metadata": {"name": kind.to_string()},
                    })));
                }
            }
        }
    }
    Ok(kinds)
}
