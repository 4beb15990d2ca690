//! FederatedResourceQuotas of the hub.

use std::sync::Arc;

use atoll_api::FederatedResourceQuota;

use super::key::NamespacedName;
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
        match quota {
            Some(quota) => self.tenancy.quotas.insert(key.clone(), Arc::new(quota)),
            None => self.tenancy.quotas.remove(key),
        };
    }
}
