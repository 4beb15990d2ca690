//! Finds policies that contradict themselves or can never take effect, before any decision.
//!
//! [`propagation_policy`], [`workload_policy`] and [`workload_spread`] check one object alone; the controller reports
//! their errors as `Accepted=False`. [`world`] checks objects together, for `atoll lint`: selectors that match nothing,
//! domains without clusters, impossible sums, and shadowed policies. Mistakes that a decision would reject come from
//! the checks of the scheduling cycle, so that both report the same.

mod claims;
mod placement;
mod preservation;
mod quotas;
mod reach;
mod selectors;
mod spreads;
mod targets;

use std::fmt;

pub use self::reach::named_clusters;

use atoll_api::federated_resource_quota::FederatedResourceQuotaSpec;
use atoll_api::workload_policy::WorkloadPolicySpec;
use atoll_api::workload_spread::WorkloadSpreadSpec;
use serde::Serialize;

use crate::cycle::intent::Mistake;
use crate::detect::Policy;
use crate::framework::profile::Profiles;
use crate::offline::World;
use crate::state::row::{LiveCluster, Row};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Severity {
    /// The object cannot work as written.
    Error,
    /// A part of the object has no effect, or none at present.
    Warning,
}

/// One problem to fix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The object, for example `PropagationPolicy default/web`.
    pub object: String,
    /// Path of the field in the object.
    pub field: String,
    /// The problem.
    pub problem: String,
    /// How to fix it.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.problem, self.fix)
    }
}

/// The findings on one object.
struct Page {
    object: String,
    findings: Vec<Finding>,
}

impl Page {
    fn new(object: impl Into<String>) -> Self {
        Self { object: object.into(), findings: Vec::new() }
    }

    fn error(
        &mut self,
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.put(Severity::Error, field.into(), problem.into(), fix.into());
    }

    fn warning(
        &mut self,
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.put(Severity::Warning, field.into(), problem.into(), fix.into());
    }

    fn put(&mut self, severity: Severity, field: String, problem: String, fix: String) {
        let object = self.object.clone();
        self.findings.push(Finding { severity, object, field, problem, fix });
    }

    /// Adds a mistake that a decision would reject.
    fn mistake(&mut self, result: Result<(), Mistake>) {
        let Err(mistake) = result else { return };
        let field = match mistake.field.split_once(' ') {
            Some(("WorkloadPolicy" | "WorkloadSpread", field)) => field.to_owned(),
            _ => format!("spec.{}", mistake.field),
        };
        let fix = fix(&mistake.problem);
        self.error(field, mistake.problem, fix);
    }
}

/// The fix for a mistake whose text has only the problem.
fn fix(problem: &str) -> &'static str {
    if problem.contains("above") {
        "lower one or raise the other"
    } else if problem.contains("twice") || problem.contains("earlier") || problem.contains("unique")
    {
        "give each a name of its own"
    } else if problem.contains("combined") {
        "remove one of the two fields"
    } else {
        "correct the value, or remove the field"
    }
}

/// Checks a PropagationPolicy or ClusterPropagationPolicy alone.
#[must_use]
pub fn propagation_policy(policy: &Policy) -> Vec<Finding> {
    let mut page = Page::new(format!("{} {}", policy.key.kind(), policy.key));
    claims::selectors(&mut page, policy);
    claims::priority(&mut page, policy);
    placement::check(&mut page, &policy.spec.placement);
    if let Some(failover) = &policy.spec.failover {
        preservation::check(&mut page, failover);
    }
    page.findings
}

/// Finds policies that name a scheduler profile other than `profiles`.
#[must_use]
pub fn scheduler_names(world: &World, profiles: &Profiles) -> Vec<Finding> {
    let mut findings = Vec::new();
    for policy in world.policies.values() {
        if let Some(problem) = unknown_profile(&policy.spec.scheduler_name, profiles.names()) {
            let mut page = Page::new(format!("{} {}", policy.key.kind(), policy.key));
            page.error("spec.schedulerName", problem, PROFILE_FIX);
            findings.extend(page.findings);
        }
    }
    findings
}

/// The fix for an unknown scheduler profile.
pub const PROFILE_FIX: &str = "name one of them, or define the profile in the SchedulerConfiguration that the controller is started with";

/// The problem with a policy's `spec.schedulerName`, given the existing profiles. `None` if one has that name.
#[must_use]
pub fn unknown_profile<'a>(
    name: &str,
    profiles: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    // An empty name is the default profile.
    let known: Vec<&str> = profiles.into_iter().collect();
    if name.is_empty() || known.contains(&name) {
        return None;
    }
    Some(format!("there is no scheduler profile {name:?}; there are {}", known.join(", ")))
}

/// Checks a WorkloadPolicy alone; `name` is used in the findings.
#[must_use]
pub fn workload_policy(name: &str, spec: &WorkloadPolicySpec) -> Vec<Finding> {
    let mut page = Page::new(format!("WorkloadPolicy {name}"));
    page.mistake(crate::cycle::check::workload_policy(spec));
    selectors::labels(&mut page, "spec.labelSelector", &spec.label_selector);
    page.findings
}

/// Checks a WorkloadSpread alone; `name` is used in the findings.
#[must_use]
pub fn workload_spread(name: &str, spec: &WorkloadSpreadSpec) -> Vec<Finding> {
    let mut page = Page::new(format!("WorkloadSpread {name}"));
    spreads::check(&mut page, spec);
    page.findings
}

/// Checks a FederatedResourceQuota alone; `name` is used in the findings.
#[must_use]
pub fn quota(name: &str, spec: &FederatedResourceQuotaSpec) -> Vec<Finding> {
    let mut page = Page::new(format!("FederatedResourceQuota {name}"));
    quotas::check(&mut page, spec);
    page.findings
}

/// Checks all objects, alone and together. Kinds that are completely missing cause no findings: without Clusters, no
/// cluster selector is reported to match nothing; the same holds for workloads.
#[must_use]
pub fn world(world: &World) -> Vec<Finding> {
    let rows: Vec<Row> = world
        .clusters
        .values()
        .map(|cluster| Row::read(cluster, LiveCluster::from_status(cluster), None))
        .collect();
    let mut findings = Vec::new();
    for policy in world.policies.values() {
        findings.extend(propagation_policy(policy));
        let mut page = Page::new(format!("{} {}", policy.key.kind(), policy.key));
        reach::placement(&mut page, &policy.spec.placement, &rows);
        findings.extend(page.findings);
    }
    for ((namespace, name), policy) in &world.workload_policies {
        let name = format!("{namespace}/{name}");
        findings.extend(workload_policy(&name, &policy.spec));
        let mut page = Page::new(format!("WorkloadPolicy {name}"));
        targets::reach(&mut page, policy, &rows, world);
        findings.extend(page.findings);
    }
    for ((namespace, name), spread) in &world.workload_spreads {
        let name = format!("{namespace}/{name}");
        findings.extend(workload_spread(&name, &spread.spec));
        let mut page = Page::new(format!("WorkloadSpread {name}"));
        spreads::reach(&mut page, spread, &rows, world);
        findings.extend(page.findings);
    }
    for ((namespace, name), of) in &world.quotas {
        findings.extend(quota(&format!("{namespace}/{name}"), &of.spec));
    }
    findings.extend(claims::workloads(world, &rows));
    findings.sort();
    findings.dedup();
    findings
}
