//! What runs on the hub itself.

use std::collections::{BTreeMap, BTreeSet};

use super::key::TemplateKey;
use super::source::Source;

/// Evidence of workloads on the hub.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HubWorkloads {
    /// Nodes by name.
    pub(super) nodes: BTreeSet<String>,
    /// ReplicaSets and Pods by namespace/name, with the template that controls them.
    pub(super) controlled: BTreeMap<(Source, String), TemplateKey>,
}
