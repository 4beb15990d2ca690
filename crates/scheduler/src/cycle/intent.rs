//! The intent of a request: the desired replicas and the strategy in force, or the reason why the request is invalid.

use std::borrow::Cow;
use std::sync::Arc;

use atoll_api::placement::{
    DynamicWeight, InsufficientCapacity, Placement, ReplicaDivisionPreference, ReplicaScheduling,
    ReplicaSchedulingType, StaticClusterWeight,
};

use atoll_api::text::counted;

use super::parsed_placement::ParsedPlacement;
use super::quota::{Allowance, Withheld};
use crate::framework::profile::{Profile, Semantics};
use crate::request::Request;
use crate::state::needs::Needs;
use crate::state::snapshot::Snapshot;
use atoll_decision::PolicyRef;

/// How replicas are divided.
#[derive(Debug, Clone)]
pub enum Strategy {
    /// A kind without replicas: one copy on every selected cluster.
    Copies,
    /// An object with several pod templates: one copy, on one cluster that has room for all of them.
    WholeSet,
    /// All replicas on every selected cluster.
    Duplicated,
    /// By static weights; no rules = equal weights.
    StaticWeight(Arc<[StaticClusterWeight]>),
    /// By capacity.
    DynamicWeight,
    /// On as few clusters as possible.
    Aggregated,
    /// By a WorkloadPolicy.
    WorkloadPolicy(Arc<atoll_api::WorkloadPolicy>),
    /// By a WorkloadSpread.
    WorkloadSpread(Arc<atoll_api::WorkloadSpread>),
    /// The workload names a WorkloadPolicy that does not exist.
    MissingPolicy(String),
}

impl Strategy {
    /// Whether replicas are divided.
    #[must_use]
    pub fn divides(&self) -> bool {
        !matches!(self, Self::Copies | Self::WholeSet | Self::Duplicated)
    }

    /// Whether a changed placement causes a division from zero.
    #[must_use]
    pub fn replans(&self) -> bool {
        matches!(
            self,
            Self::StaticWeight(_)
                | Self::WorkloadPolicy(_)
                | Self::WorkloadSpread(_)
                | Self::MissingPolicy(_)
        )
    }

    /// A description for people.
    #[must_use]
    pub fn describe(&self) -> Cow<'static, str> {
        let text = match self {
            Self::Copies => return "a copy on every selected cluster".into(),
            Self::WholeSet => return "all components together on one cluster".into(),
            Self::Duplicated => return "Duplicated: all replicas on every selected cluster".into(),
            Self::StaticWeight(rules) if rules.is_empty() => {
                return "Divided by equal weights".into();
            }
            Self::DynamicWeight => {
                return "Divided in proportion to the replicas that still fit on each cluster"
                    .into();
            }
            Self::Aggregated => return "Divided over as few clusters as possible".into(),
            Self::StaticWeight(rules) => {
                format!("Divided by {}", counted(rules.len(), "static weight rule"))
            }
            Self::WorkloadPolicy(policy) => format!(
                "WorkloadPolicy {}: {:?}, {:?} over {}",
                policy.metadata.name.as_deref().unwrap_or_default(),
                policy.spec.allocation_type,
                policy.spec.allocation_method,
                policy.spec.topology_key
            ),
            Self::WorkloadSpread(spread) => format!(
                "WorkloadSpread {}: {:?} over {}",
                spread.metadata.name.as_deref().unwrap_or_default(),
                spread.spec.schedule_strategy.type_,
                counted(spread.spec.subsets.len(), "subset")
            ),
            Self::MissingPolicy(name) => format!("WorkloadPolicy {name}, which does not exist"),
        };
        text.into()
    }

    /// The strategy of a placement, unless another object divides.
    #[must_use]
    pub fn of(placement: &Placement) -> Self {
        placement.replica_scheduling.as_ref().map_or(Self::Duplicated, by_placement)
    }
}

/// A component, and what one of its replicas needs.
#[derive(Debug, Clone)]
pub struct ComponentNeeds {
    /// Its name.
    pub name: String,
    /// Its replicas.
    pub replicas: i64,
    /// Requirements of one replica.
    pub needs: Arc<Needs>,
}

/// What a request wants.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The parsed placement.
    pub parsed: Arc<ParsedPlacement>,
    /// Replicas to place; `None` for kinds without replicas.
    pub desired: Option<i64>,
    /// How they are divided.
    pub strategy: Strategy,
    /// Requirements of one replica.
    pub needs: Arc<Needs>,
    /// The components of an object with several pod templates.
    pub components: Vec<ComponentNeeds>,
    /// Whether to place what fits while the rest stays pending.
    pub partially: bool,
    /// `respectCapacity`.
    pub respect_capacity: bool,
    /// The WorkloadPolicy or WorkloadSpread that the decision is based on, in addition to the request's policies.
    pub policy: Option<PolicyRef>,
    /// Notes on shadowed or ignored fields.
    pub notes: Vec<String>,
    /// What the FederatedResourceQuotas of the namespace allow, if any limits this request.
    pub quota: Option<Allowance>,
    /// Requested replicas of a divided workload that are not part of `desired`, because of a quota.
    pub withheld: Option<Withheld>,
}

/// A mistake in a policy or workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The field to fix.
    pub field: String,
    /// The problem and how to fix it.
    pub problem: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl Mistake {
    /// A mistake in a field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl Intent {
    /// Reads the intent of a request.
    ///
    /// # Errors
    /// The first mistake.
    pub fn read(
        snapshot: &Snapshot,
        request: &Request,
        profile: &Profile,
        parsed: &Arc<ParsedPlacement>,
        needs: Result<Arc<Needs>, (String, String)>,
    ) -> Result<Self, Mistake> {
        let template = &request.template;
        let karmada = profile.semantics == Semantics::Karmada;
        let needs = needs.map_err(super::check::request)?;
        let mut desired = template.replicas;
        super::check::replicas(desired)?;
        needs.countable(desired.unwrap_or(1)).map_err(super::check::request)?;
        if karmada && desired.is_none_or(|n| n == 0) && !needs.given {
            desired = None;
        }
        let replica_scheduling = request.placement.replica_scheduling.as_ref();
        let mut intent = Self {
            parsed: parsed.clone(),
            desired,
            strategy: Strategy::Copies,
            needs,
            components: Vec::new(),
            partially: !karmada,
            respect_capacity: replica_scheduling.is_some_and(|r| r.respect_capacity),
            policy: None,
            notes: Vec::new(),
            quota: None,
            withheld: None,
        };
        if let Some(choice) = replica_scheduling.and_then(|r| r.insufficient_capacity) {
            intent.partially = choice == InsufficientCapacity::PlacePartially;
        }
        if !karmada && !template.components.is_empty() {
            intent.desired = None;
            intent.components = super::check::components(&template.components)?;
            intent.strategy = Self::of_set(replica_scheduling)?;
        } else if desired.is_some() {
            intent.strategy = Self::strategy(snapshot, request, karmada, parsed, &mut intent)?;
        }
        parsed.checked.clone()?;
        super::check::bounds(&request.placement, &intent)?;
        Ok(intent)
    }

    /// The requested replicas, including those that a quota withholds.
    #[must_use]
    pub fn requested(&self) -> Option<i64> {
        let withheld = self.withheld.as_ref().map_or(0, |withheld| withheld.count);
        Some(self.desired?.saturating_add(withheld))
    }

    fn of_set(scheduling: Option<&ReplicaScheduling>) -> Result<Strategy, Mistake> {
        match scheduling.map(|scheduling| scheduling.replica_scheduling_type) {
            None => Ok(Strategy::WholeSet),
            Some(ReplicaSchedulingType::Duplicated) => Ok(Strategy::Copies),
            Some(ReplicaSchedulingType::Divided) => {
                let problem = "the components of the object cannot be divided among clusters: remove \
                               replicaScheduling to place all of them on one cluster, or use Duplicated for a \
                               copy on every selected cluster";
                let field = "placement.replicaScheduling.replicaSchedulingType";
                Err(Mistake::new(field, problem))
            }
        }
    }

    fn strategy(
        snapshot: &Snapshot,
        request: &Request,
        karmada: bool,
        parsed: &ParsedPlacement,
        intent: &mut Self,
    ) -> Result<Strategy, Mistake> {
        let template = &request.template;
        let given = request.placement.replica_scheduling.as_ref();
        if karmada {
            return Ok(parsed.strategy.clone());
        }
        let namespace = template.namespace.as_deref().unwrap_or_default();
        let spread =
            snapshot.workload_spread(namespace, template.group(), &template.kind, &template.name);
        let named = template.workload_policy.as_deref();
        if given.is_some_and(|g| g.replica_scheduling_type == ReplicaSchedulingType::Duplicated)
            && (spread.is_some() || named.is_some())
        {
            let problem = "Duplicated contradicts the workload's WorkloadSpread or WorkloadPolicy, \
                           which divides the replicas: remove one of them";
            return Err(Mistake::new("placement.replicaScheduling.replicaSchedulingType", problem));
        }
        if (spread.is_some() || named.is_some()) && given.is_some() {
            intent.notes.push(
                "placement.replicaScheduling is ignored: a WorkloadSpread or WorkloadPolicy divides the replicas"
                    .to_owned(),
            );
        }
        if let Some(spread) = spread {
            if let Some(name) = named {
                intent.notes.push(format!(
                    "WorkloadPolicy {name} is shadowed by WorkloadSpread {}",
                    spread.metadata.name.as_deref().unwrap_or_default()
                ));
            }
            intent.policy =
                Some(crate::request::objects::policy_ref("WorkloadSpread", &spread.metadata));
            super::check::workload_spread(&spread.spec, &template.kind)?;
            return Ok(Strategy::WorkloadSpread(spread.clone()));
        }
        let Some(name) = named else { return Ok(parsed.strategy.clone()) };
        match snapshot.workload_policy(namespace, name) {
            Some(policy) => {
                intent.policy =
                    Some(crate::request::objects::policy_ref("WorkloadPolicy", &policy.metadata));
                super::check::workload_policy(&policy.spec)?;
                Ok(Strategy::WorkloadPolicy(policy.clone()))
            }
            None => Ok(Strategy::MissingPolicy(name.to_owned())),
        }
    }
}

fn by_placement(scheduling: &ReplicaScheduling) -> Strategy {
    if scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated {
        return Strategy::Duplicated;
    }
    if scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated) {
        return Strategy::Aggregated;
    }
    match &scheduling.weight_preference {
        Some(weights) if weights.dynamic_weight == Some(DynamicWeight::AvailableReplicas) => {
            Strategy::DynamicWeight
        }
        weights => Strategy::StaticWeight(
            weights.iter().flat_map(|weights| weights.static_weight_list.clone()).collect(),
        ),
    }
}
