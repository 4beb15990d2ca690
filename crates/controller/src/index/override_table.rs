//! The table of override policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_render::overrides::Policies;
use serde_json::Value;

use super::key::PolicyKey;

/// The override policies. `policies` is a function of `rows`.
#[derive(Debug, Clone, Default)]
pub(super) struct OverrideTable {
    pub(super) rows: BTreeMap<PolicyKey, Arc<Value>>,
    pub(super) policies: Policies,
}

impl PartialEq for OverrideTable {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl OverrideTable {
    pub(super) fn keys(&self) -> impl Iterator<Item = &PolicyKey> {
        self.rows.keys()
    }
}
