//! Checks `placement.workloadAffinity` against the other bindings of the namespace, without the index of groups.

use atoll_api::binding::Mode;
use atoll_api::workload_affinity::WorkloadGroup;

use super::check::Check;
use crate::state::affinity_group::{AffinityGroup, Side};
use crate::state::cluster_sets::Reach;
use crate::state::row::Row;
use crate::state::tables::BindingFacts;

impl Check<'_> {
    /// I8: every new cluster satisfies the required affinity and anti-affinity. In a division from zero, all are new.
    pub(super) fn affinity(&mut self) {
        let Some(rules) = self.request.placement.workload_affinity.clone() else { return };
        if self.still {
            return;
        }
        self.affinity_by(Side::Affinity, rules.affinity.as_ref());
        self.affinity_by(Side::AntiAffinity, rules.anti_affinity.as_ref());
    }

    fn affinity_by(&mut self, side: Side, term: Option<&WorkloadGroup>) {
        let labels = &self.request.template.labels;
        let Some(group) = term.and_then(|term| AffinityGroup::by(side, term, labels)) else {
            return;
        };
        let namespace = self.request.template.namespace.as_deref().unwrap_or_default();
        let snapshot = self.snapshot;
        let others: Vec<&BindingFacts> = snapshot
            .bindings(namespace)
            .map(|facts| &**facts)
            .filter(|facts| facts.key != self.request.key && !facts.shares.is_empty())
            .filter(|facts| facts.groups.iter().any(|of| of.required && of.group == group))
            .collect();
        let fresh = self.decision.mode == Mode::Fresh && !self.karmada;
        let new = self.after.keys().filter(|name| fresh || !self.before.contains_key(*name));
        for name in new.copied().collect::<Vec<_>>() {
            for other in &others {
                let there = other.shares.iter().any(|share| share.name == name);
                let broken = match side {
                    Side::AntiAffinity => there,
                    Side::Affinity => !there && other.shares.iter().any(|s| self.lasts(&s.name)),
                };
                if broken {
                    let what = format!("{name} breaks {side:?} to {} of group {group}", other.key);
                    self.fault("I8", what);
                }
            }
        }
    }

    /// Whether a cluster exists and nothing forces all work of the namespace off it.
    fn lasts(&self, name: &str) -> bool {
        let reach = self.snapshot.cluster_sets().reach(self.request.key.namespace());
        let outside = |row: &Row| match &reach {
            Reach::All => false,
            Reach::Sets(sets) => !sets.uncertain && !sets.has(&row.labels),
        };
        let forced = |row: &Row| {
            row.terminating || row.taints.iter().any(|t| t.effect == "NoExecute") || outside(row)
        };
        self.rows.get(name).is_some_and(|row| !forced(row))
    }
}
