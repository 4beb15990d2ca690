//! WorkloadPolicy: replica targets per domain of clusters.

use std::sync::Arc;

use atoll_api::selector::Selector;
use atoll_api::workload_policy::{AllocationMethod, AllocationType, WorkloadPolicySpec};

use crate::cycle::intent::Strategy;
use crate::cycle::state::{Assignment, Cycle};
use crate::divide::workload_policy::{self as division, Domain};
use crate::framework::plugin::{Plugin, Replicas};
use crate::framework::scores::{MAX, Scores, Values};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::state::domains::DomainColumn;
use atoll_decision::{BitSet, GroupReport};

/// See the module documentation.
#[derive(Debug)]
pub struct WorkloadPolicy;
super::without_args!(WorkloadPolicy);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::WORKLOAD_POLICY;

/// The plugin's state: the domains and the replicas of other bindings in them.
struct Prepared {
    column: Arc<DomainColumn>,
    /// Index in the policy's list, by domain of the column.
    listed: Vec<Option<usize>>,
    /// Replicas of other bindings, by index in the policy's list.
    others: Vec<i64>,
}

impl Prepared {
    fn of(&self, row: usize) -> Option<usize> {
        self.listed.get(self.column.of[row] as usize).copied().flatten()
    }
}

fn policy(cycle: &Cycle<'_>) -> Option<Arc<atoll_api::WorkloadPolicy>> {
    match &cycle.intent.strategy {
        Strategy::WorkloadPolicy(policy) => Some(policy.clone()),
        _ => None,
    }
}

fn prepared<'a>(cycle: &'a Cycle<'_>) -> Option<&'a Prepared> {
    cycle.extras.get(NAME).and_then(|state| state.downcast_ref())
}

/// Changes the replicas of another binding in its domain, if the policy counts them.
fn count_others(cycle: &mut Cycle<'_>, replicas: &Replicas<'_>, count: i64) {
    let Some(policy) = policy(cycle) else { return };
    let facts = replicas.facts;
    let selector = Selector::parse(&policy.spec.label_selector).unwrap_or_default();
    if facts.key.namespace() != cycle.request.key.namespace()
        || !selector.matches(&facts.pod_labels)
    {
        return;
    }
    let state = cycle.extras.get_mut(NAME).and_then(|state| state.downcast_mut::<Prepared>());
    let Some(state) = state else { return };
    if let Some(at) = state.of(replicas.row) {
        state.others[at] = state.others[at].saturating_add(count);
    }
}

impl Plugin for WorkloadPolicy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        if let Strategy::MissingPolicy(name) = &cycle.intent.strategy {
            let reason =
                format!("WorkloadPolicy {name} does not exist: create it, or remove the label");
            return Status::new(Code::UnschedulableAndUnresolvable, reason);
        }
        let Some(policy) = policy(cycle) else { return Status::skip() };
        let spec = &policy.spec;
        // The policy was checked earlier, so that the selector is valid here.
        let selector = Selector::parse(&spec.label_selector).unwrap_or_default();
        if let Some(failing) = selector.first_failing(&cycle.request.template.pod_labels) {
            let reason = format!(
                "the pod labels do not match spec.labelSelector of WorkloadPolicy {}: {failing} does not hold",
                policy.metadata.name.as_deref().unwrap_or_default()
            );
            return Status::new(Code::UnschedulableAndUnresolvable, reason);
        }
        let column = cycle.cache.borrow_mut().domains.get(cycle.snapshot, &spec.topology_key);
        let mut listed = vec![None; column.names.len()];
        for (at, domain) in spec.allocation_policy.iter().enumerate() {
            if let Some(found) = column.find(&domain.name) {
                listed[found as usize] = Some(at);
            }
        }
        let mut others = vec![0_i64; spec.allocation_policy.len()];
        let namespace = cycle.request.template.namespace.as_deref().unwrap_or_default();
        let counted = cycle
            .snapshot
            .bindings(namespace)
            .filter(|facts| facts.key != cycle.request.key && selector.matches(&facts.pod_labels));
        for share in counted.flat_map(|facts| &facts.shares) {
            let Some(row) = cycle.snapshot.find(&share.name) else { continue };
            if let Some(at) = listed.get(column.of[row] as usize).copied().flatten() {
                others[at] = others[at].saturating_add(super::sound(share));
            }
        }
        cycle.extras.insert(NAME, Box::new(Prepared { column, listed, others }));
        Status::success()
    }

    fn remove_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_others(cycle, replicas, replicas.placed.saturating_neg());
    }

    fn add_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_others(cycle, replicas, replicas.placed);
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let (Some(policy), Some(state)) = (policy(cycle), prepared(cycle)) else {
            return Status::skip();
        };
        if policy.spec.allocation_type == AllocationType::Required {
            let mut outside = BitSet::empty(cycle.snapshot.len());
            (0..cycle.snapshot.len())
                .filter(|row| state.of(*row).is_none())
                .for_each(|row| outside.insert(row));
            let reason = format!(
                "its {} is not a listed domain, and allocationType is Required",
                policy.spec.topology_key
            );
            let code = Code::UnschedulableAndUnresolvable;
            verdicts.reject(NAME, code, reason, outside, Hold::UnlessChange);
        }
        Status::success()
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let (Some(policy), Some(state)) = (policy(cycle), prepared(cycle)) else {
            return Status::skip();
        };
        let mut counts = state.others.clone();
        for (row, seats) in &cycle.targets.seats {
            if let Some(at) = state.of(*row as usize) {
                counts[at] = counts[at].saturating_add(*seats);
            }
        }
        let score = |row: &u32| {
            let Some(at) = state.of(*row as usize) else { return 0 };
            let (count, target) = (counts[at], policy.spec.allocation_policy[at].replicas);
            let filled = count.saturating_mul(MAX) / target.max(1);
            match policy.spec.allocation_method {
                _ if count >= target => 0,
                AllocationMethod::Balance => MAX - filled,
                AllocationMethod::Fill => filled,
            }
        };
        scores.values = Values::Each(scores.candidates.iter().map(score).collect());
        Status::success()
    }

    fn assign(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(policy) = policy(cycle) else { return Status::skip() };
        let Some(state) = prepared(cycle) else { return Status::skip() };
        let spec: &WorkloadPolicySpec = &policy.spec;
        let input = cycle.division_input();
        let domains: Vec<Domain> = spec
            .allocation_policy
            .iter()
            .enumerate()
            .map(|(at, target)| Domain {
                name: target.name.clone(),
                target: target.replicas,
                others: state.others[at],
                members: (0..input.len())
                    .filter(|index| state.of(cycle.candidates[*index] as usize) == Some(at))
                    .collect(),
            })
            .collect();
        let rules = division::DomainRules {
            domains: &domains,
            required: spec.allocation_type == AllocationType::Required,
            fill: spec.allocation_method == AllocationMethod::Fill,
            desired: cycle.intent.desired.unwrap_or(0),
            start: cycle.start(),
            recover: cycle.trigger == atoll_api::binding::Trigger::Recover,
        };
        let answer = division::divide(&input, &rules);
        let own = |members: &[usize]| members.iter().map(|at| answer.seats[*at]).sum::<i64>();
        let groups = domains.iter().map(|domain| {
            let here = own(&domain.members);
            let mut free = domain.members.iter().map(|at| match input.room(*at) {
                crate::divide::input::UNBOUNDED => None,
                room => Some(room.saturating_sub(answer.seats[*at]).max(0)),
            });
            let room = free.try_fold(0_i64, |sum, free| Some(sum.saturating_add(free?)));
            let assigned = domain.others.saturating_add(here);
            let blocked_by = (assigned < domain.target && rules.desired > 0)
                .then(|| division::blocked(domain, room))
                .flatten();
            GroupReport {
                name: domain.name.clone(),
                target: Some(domain.target),
                assigned,
                own: here,
                room,
                pending: 0,
                blocked_by,
                unschedulable_since: None,
            }
        });
        cycle.groups = groups.collect();
        cycle.assignment = Some(Assignment {
            seats: answer.seats,
            pending: answer.pending,
            ..Assignment::default()
        });
        Status::success()
    }

    fn reserve(&self, cycle: &mut Cycle<'_>) -> Status {
        // Committed shares count for other bindings through the tables once the commit is in progress. Within the
        // decision, the counts come from the assignment.
        if let (Some(_), Some(assignment)) = (policy(cycle), &cycle.assignment) {
            let placed = assignment.seats.iter().fold(0_i64, |sum, n| sum.saturating_add(*n));
            cycle.extras.insert("WorkloadPolicy/reserved", Box::new(placed));
        }
        Status::success()
    }

    fn unreserve(&self, cycle: &mut Cycle<'_>) {
        cycle.extras.remove("WorkloadPolicy/reserved");
    }
}
