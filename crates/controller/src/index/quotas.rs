//! FederatedResourceQuotas of the hub.

use std::sync::Arc;

use atoll_api::FederatedResourceQuota;
use atoll_api::static_assignment::Assigned;
use kube::ResourceExt;
use serde_json::json;

use super::key::{NamespacedName, PolicyKey};
use super::rows::{Policy, RowError};
use super::{Index, Touched};

impl Index {
    /// A FederatedResourceQuota.
    #[must_use]
    pub fn quota(&self, key: &NamespacedName) -> Option<&Arc<FederatedResourceQuota>> {
        self.tenancy.quotas.get(key)
    }

    /// All FederatedResourceQuotas.
    pub fn quotas(&self) -> impl Iterator<Item = (&NamespacedName, &Arc<FederatedResourceQuota>)> {
        self.tenancy.quotas.iter()
    }

    /// The FederatedResourceQuotas of a namespace.
    pub fn quotas_of(&self, namespace: &str) -> impl Iterator<Item = &NamespacedName> {
        let from = (namespace.to_owned(), String::new());
        let here = move |key: &&NamespacedName| key.0 == from.0;
        self.tenancy
            .quotas
            .range((namespace.to_owned(), String::new())..)
            .map(|(key, _)| key)
            .take_while(here)
    }

    pub(super) fn set_quota(
        &mut self,
        key: &NamespacedName,
        quota: Option<FederatedResourceQuota>,
        touched: &mut Touched,
    ) {
        touched.tenancy.quotas.insert(key.clone());
        let before = self.quota(key).and_then(|quota| Assigned::of(quota));
        let assigned = quota.as_ref().and_then(Assigned::of);
        self.set_assigned(before.as_ref(), assigned.as_ref(), touched);
        match quota {
            Some(quota) => self.tenancy.quotas.insert(key.clone(), Arc::new(quota)),
            None => self.tenancy.quotas.remove(key),
        };
    }

    /// Replaces the policies that carry out `staticAssignments`. They are rows like those of users, with names that no
    /// object of the hub can have.
    fn set_assigned(
        &mut self,
        before: Option<&Assigned>,
        assigned: Option<&Assigned>,
        touched: &mut Touched,
    ) {
        let key = |assigned: &Assigned| PolicyKey {
            namespace: assigned.policy.metadata.namespace.clone(),
            name: assigned.policy.name_any(),
        };
        let Some(key) = assigned.or(before).map(key) else { return };
        // Our own types always serialise, and can be read.
        let policy = assigned.and_then(|assigned| Policy::read(&json!(assigned.policy)).ok());
        self.set_policy(&key, policy, touched);
        let overrides = assigned.map(|assigned| Arc::new(json!(assigned.overrides)));
        let _: Result<(), RowError> = self.set_override(&key, overrides, touched);
    }
}
