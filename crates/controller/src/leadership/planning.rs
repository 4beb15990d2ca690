//! Copies what the leader knows, for plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Leading;
use crate::hub_state::HubState;
use crate::planning::{Known, Settings};
use crate::reconcile::Reported;

impl Leading {
    /// What decisions are made from at this moment. Rows are shared; with 100,000 bindings it takes some tenths of a second.
    pub(crate) fn known(&self, hub: &HubState) -> Box<Known> {
        let mut reported = BTreeMap::new();
        for binding in hub.index.bindings() {
            let Some(template) = hub.index.template(&binding.template) else { continue };
            let failover = binding.spec.failover.as_deref();
            let of = Reported::of(&hub.index, &self.placements, binding, template, failover);
            if !of.reports.is_empty() {
                reported.insert(binding.key.clone(), of);
            }
        }
        let waiting = self.queue.all_waiting().map(|(key, on)| (key.clone(), on.to_vec()));
        Box::new(Known {
            settings: Settings::of(&self.env),
            term: self.term,
            index: Arc::new(hub.index.clone()),
            tables: hub.tables.clone(),
            live: hub.live.clone(),
            resources: hub.resources.clone(),
            reported: Arc::new(reported),
            waiting: waiting.collect(),
            due: self.queue.due(),
            gated: self.queue.all_held().cloned().collect(),
        })
    }
}
