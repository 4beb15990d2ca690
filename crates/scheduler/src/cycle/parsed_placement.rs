//! The parsed form of a placement, cached for all bindings that share it: its validity, affinity terms, strategy and
//! JSON form.

use std::sync::Arc;

use atoll_api::placement::Placement;
use atoll_api::{Shared, WorkloadPolicy, WorkloadSpread};
use serde_json::Value;

use super::intent::{Mistake, Strategy};
use super::observe;
use super::state::Term;
use crate::state::cache::RecentlyUsed;
use atoll_decision::Applied;

/// A parsed placement.
#[derive(Debug)]
pub struct ParsedPlacement {
    placement: Shared<Placement>,
    /// Whether the placement is valid on its own.
    pub checked: Result<(), Mistake>,
    /// Its affinity terms, at least one.
    pub terms: Vec<Arc<Term>>,
    /// The strategy, unless another object divides.
    pub strategy: Strategy,
    applied: Applied,
}

impl ParsedPlacement {
    fn read(placement: &Shared<Placement>) -> Self {
        Self {
            placement: placement.clone(),
            checked: super::check::static_placement(placement),
            terms: terms(placement).into_iter().map(Arc::new).collect(),
            strategy: Strategy::of(placement),
            applied: Applied::of(observe::placement_in_force(placement, None)),
        }
    }
}

/// An object that divides in place of the placement.
#[derive(Debug, Clone)]
enum Divider {
    Policy(Arc<WorkloadPolicy>),
    Spread(Arc<WorkloadSpread>),
}

impl Divider {
    fn of(strategy: &Strategy) -> Option<Self> {
        match strategy {
            Strategy::WorkloadPolicy(policy) => Some(Self::Policy(policy.clone())),
            Strategy::WorkloadSpread(spread) => Some(Self::Spread(spread.clone())),
            _ => None,
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Policy(one), Self::Policy(other)) => Arc::ptr_eq(one, other),
            (Self::Spread(one), Self::Spread(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn spec(&self) -> (&'static str, Value) {
        match self {
            Self::Policy(policy) => {
                (observe::WITH_POLICY, serde_json::to_value(&policy.spec).unwrap_or_default())
            }
            Self::Spread(spread) => {
                (observe::WITH_SPREAD, serde_json::to_value(&spread.spec).unwrap_or_default())
            }
        }
    }
}

/// Number of cached placements.
const KEPT: usize = 128;

/// Recently parsed placements.
#[derive(Debug)]
pub struct ParsedPlacements {
    list: RecentlyUsed<Arc<ParsedPlacement>>,
    divided: RecentlyUsed<(Arc<ParsedPlacement>, Divider, Applied)>,
}

impl Default for ParsedPlacements {
    fn default() -> Self {
        Self { list: RecentlyUsed::new(KEPT), divided: RecentlyUsed::new(KEPT) }
    }
}

impl ParsedPlacements {
    /// The parsed form of a placement.
    pub fn get(&mut self, placement: &Shared<Placement>) -> Arc<ParsedPlacement> {
        let make = || Arc::new(ParsedPlacement::read(placement));
        self.list.find(|known| known.placement == *placement, make).clone()
    }

    /// The placement in force under a strategy, for the annotation.
    pub fn applied(&mut self, parsed: &Arc<ParsedPlacement>, strategy: &Strategy) -> Applied {
        let Some(divider) = Divider::of(strategy) else { return parsed.applied.clone() };
        let make = || {
            let applied = observe::placement_in_force(&parsed.placement, Some(divider.spec()));
            (parsed.clone(), divider.clone(), Applied::of(applied))
        };
        let is = |(of, by, _): &(Arc<ParsedPlacement>, Divider, Applied)| {
            Arc::ptr_eq(of, parsed) && by.is(&divider)
        };
        self.divided.find(is, make).2.clone()
    }
}

fn terms(placement: &Placement) -> Vec<Term> {
    match &placement.cluster_affinities {
        Some(terms) if !terms.is_empty() => terms
            .iter()
            .enumerate()
            .map(|(at, term)| Term {
                at,
                name: Some(term.affinity_name.clone()),
                affinity: Some(term.affinity.clone()),
                tiers: term.overflow_affinities.clone(),
            })
            .collect(),
        _ => vec![Term { affinity: placement.cluster_affinity.clone(), ..Term::default() }],
    }
}
