//! Checks which clusters may have replicas, and how many: affinity, taints, served kinds, capacity.

use atoll_api::placement::{ClusterAffinity, ClusterField, FieldOperator};
use atoll_api::selector::Selector;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::check::{Check, subset_of};
use crate::state::cluster_sets::Reach;
use crate::state::row::Row;
use atoll_decision::ClusterOutcome;

impl Check<'_> {
    /// I8: no cluster outside the ClusterSets of the namespace gets replicas, in no profile; none keeps any, unless
    /// information is missing or there is no result.
    pub(super) fn cluster_sets(&mut self) {
        let reach = self.snapshot.cluster_sets().reach(self.request.key.namespace());
        let Reach::Sets(sets) = &reach else { return };
        for name in self.after.keys().copied().collect::<Vec<_>>() {
            let Some(row) = self.rows.get(name) else { continue };
            if reach.has(&row.labels) {
                continue;
            }
            if !self.did_not_grow(name) {
                self.fault("I8", format!("{name} grows although it {}", sets.outside));
            } else if !sets.uncertain && !self.still {
                self.fault("I8", format!("{name} keeps a share although it {}", sets.outside));
            }
        }
    }

    /// I8: every cluster with a share satisfies the placement, or is kept and has the rule it fails in its verdict.
    pub(super) fn candidates(&mut self) {
        if self.still || self.karmada {
            return;
        }
        let placement = &self.request.placement;
        let affinities: Option<Vec<&ClusterAffinity>> = match &placement.cluster_affinities {
            Some(terms) if !terms.is_empty() => {
                let name = self.decision.affinity_name.as_deref();
                let term = terms.iter().find(|term| Some(term.affinity_name.as_str()) == name);
                term.map(|term| {
                    let tiers = term.overflow_affinities.iter().map(|tier| &tier.affinity);
                    let tiers = tiers.filter(|_| self.decision.desired.is_some());
                    std::iter::once(&term.affinity).chain(tiers).collect()
                })
            }
            _ => Some(placement.cluster_affinity.iter().collect()),
        };
        let Some(affinities) = affinities else {
            self.fault("I8", "no affinity term of that name");
            return;
        };
        for name in self.after.keys().copied().collect::<Vec<_>>() {
            let Some(row) = self.rows.get(name).copied() else { continue };
            let mut broken = Vec::new();
            if !affinities.is_empty() && !affinities.iter().any(|a| chooses(a, row)) {
                broken.push("clusterAffinity");
            }
            if row.terminating {
                broken.push("being deleted");
            }
            let template = &self.request.template;
            let serves = row.apis.serves(&template.api_version, &template.kind);
            if !serves && !self.before.contains_key(name) {
                broken.push("APIEnablement");
            }
            for taint in &row.taints {
                let borne = placement.cluster_tolerations.iter().any(|t| bears(t, taint));
                let wanted = ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str());
                if wanted && !borne && !self.subset_bears(row, taint) {
                    broken.push(if taint.effect == "NoExecute" { "NoExecute" } else { "taint" });
                }
            }
            if broken.is_empty() {
                continue;
            }
            let kept = self.decision.verdict(name).is_some_and(|(v, _)| {
                v.outcome == ClusterOutcome::Kept && !v.rejections.is_empty()
            });
            if !kept || !self.did_not_grow(name) {
                self.fault("I8", format!("{name} breaks {broken:?} and is not kept as it was"));
            }
            let fatal = broken.iter().any(|rule| ["NoExecute", "being deleted"].contains(rule));
            if fatal && !placement.sticky {
                self.fault("I8", format!("{name} keeps a share although {broken:?}"));
            }
        }
    }

    fn subset_bears(&self, row: &Row, taint: &Taint) -> bool {
        let Some(spread) = self.spread() else { return false };
        subset_of(spread, row)
            .is_some_and(|at| spread.spec.subsets[at].tolerations.iter().any(|t| bears(t, taint)))
    }

    /// I7: no cluster gets more replicas than fit next to the reservations.
    pub(super) fn capacity(&mut self) {
        if !self.divided() || !self.by_room() || self.still || self.karmada {
            return;
        }
        for (name, after) in self.after.clone() {
            let before = self.before.get(name).copied().unwrap_or(0);
            let Some((verdict, at)) = self.decision.verdict(name) else { continue };
            let grown = after - before;
            if grown <= 0 {
                continue;
            }
            // Checks only pods, which every replica needs, with the linter's own arithmetic.
            let Some(row) = self.rows.get(name) else { continue };
            if let crate::state::supply::Supply::Summary { free, .. } = &row.supply
                && let Some(pods) = free.get("pods")
            {
                let promised = row.reserved.get("pods").copied().unwrap_or(0);
                if grown > self.pods_with_victims(name, pods - promised).max(0) {
                    self.fault(
                        "I7",
                        format!("{name} grows by {grown}, {pods} pods less {promised} are free"),
                    );
                }
            }
            if verdict.capacity.get(at).is_some_and(|more| grown > more) {
                self.fault("I7", format!("{name} grows by {grown}, more than the capacity shown"));
            }
        }
    }
}

pub(super) fn chooses(affinity: &ClusterAffinity, row: &Row) -> bool {
    let named = |names: &[String]| names.iter().any(|name| *name == *row.name);
    let fields = affinity.field_selector.iter().flat_map(|s| &s.match_expressions).all(|rule| {
        let has: Vec<&str> = match rule.key {
            ClusterField::Provider => row.provider.iter().map(String::as_str).collect(),
            ClusterField::Region => row.region.iter().map(String::as_str).collect(),
            ClusterField::Zone => row.zones.iter().map(String::as_str).collect(),
        };
        let listed = has.iter().any(|value| rule.values.iter().any(|v| v == value));
        match rule.operator {
            FieldOperator::In => listed,
            FieldOperator::NotIn => !listed,
            FieldOperator::Exists => !has.is_empty(),
            FieldOperator::DoesNotExist => has.is_empty(),
        }
    });
    !named(&affinity.exclude_clusters)
        && (affinity.cluster_names.is_empty() || named(&affinity.cluster_names))
        && affinity
            .label_selector
            .as_ref()
            .is_none_or(|s| Selector::parse(s).is_ok_and(|s| s.matches(&row.labels)))
        && fields
}

fn bears(toleration: &Toleration, taint: &Taint) -> bool {
    let is = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let exists = toleration.operator.as_deref() == Some("Exists");
    let equal = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"))
        && toleration.key.as_deref().is_some_and(|key| !key.is_empty())
        && toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default();
    is(&toleration.effect, &taint.effect) && is(&toleration.key, &taint.key) && (exists || equal)
}
