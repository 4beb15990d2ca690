//! What runs on the hub itself.

use std::collections::{BTreeMap, BTreeSet};

use super::key::TemplateKey;
use super::{Index, Source};

/// Evidence of workloads on the hub.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HubWorkloads {
    /// Nodes by name.
    pub(super) nodes: BTreeSet<String>,
    /// ReplicaSets and Pods by namespace/name, with the template that controls them.
    pub(super) controlled: BTreeMap<(Source, String), TemplateKey>,
}

impl Index {
    /// Evidence that something other than Atoll runs templates on the hub: then kinds that create Pods are not claimed.
    #[must_use]
    pub fn hub_runs_workloads(&self) -> Option<String> {
        if let Some(node) = self.hub_workloads.nodes.first() {
            return Some(format!("the hub has a Node ({node})"));
        }
        self.hub_workloads
            .controlled
            .iter()
            .find(|(_, owner)| self.templates.contains_key(*owner))
            .map(|((source, name), owner)| {
                let kind = if *source == Source::Pods { "Pod" } else { "ReplicaSet" };
                format!("the hub has the {kind} {name} of {owner}")
            })
    }

    /// Whether the hub has a Node.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.hub_workloads.nodes.is_empty()
    }
}
