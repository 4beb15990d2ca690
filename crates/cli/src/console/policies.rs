//! The page Policies: what each claims, what wins over it, and what the linter finds. The first comes from watches; the rest
//! takes longer than a page may, so it is checked beside the pages, which show the last result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::policy::{PropagationPolicySpec, ResourceSelector};
use atoll_console::Fault;
use atoll_console::data::{Finding, Policies, Tone, Word, WorkloadId};
use atoll_scheduler::Profiles;
use atoll_scheduler::detect::selects;
use atoll_scheduler::lint_policy::Severity;
use atoll_scheduler::offline::{Workload, World};
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::index::Index;
use super::{Reader, fault};
use crate::hub::Hub;
use crate::lint;
use crate::plan::hub::{self, Collected, Rules};
use crate::print::causes;

/// Templates that are read, for their labels. What further ones are claimed by is known from their bindings.
pub(super) const TEMPLATES: usize = 1000;
/// Longest time of a check.
const CHECK: Duration = Duration::from_secs(60);
/// How long a page waits for the first check: that of a small federation is done then.
const FIRST: Duration = Duration::from_millis(100);
/// After this time a page has the check made again: workloads and members may have changed.
const AGAIN: Duration = Duration::from_secs(30);

/// A policy, as far as the page shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) priority: i64,
    pub(super) selects: Vec<String>,
}

impl Rule {
    pub(super) fn of(spec: &PropagationPolicySpec) -> Self {
        Self {
            priority: i64::from(spec.priority),
            selects: spec.resource_selectors.iter().map(selector).collect(),
        }
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Number of the policies' state that it saw.
    of: u64,
    pub(super) at: Timestamp,
    pub(super) shadows: Shadows,
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
}

/// For each policy, the policies that win over it, and for how many workloads.
pub(super) type Shadows = BTreeMap<String, BTreeMap<String, usize>>;

/// The last check.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) last: Option<Arc<Check>>,
    running: bool,
}

impl Checks {
    /// Whether a check has to begin; the caller makes it.
    fn begin(&mut self, state: u64, now: Timestamp) -> bool {
        let old = |last: &Arc<Check>| {
            last.of != state || now.duration_since(last.at).unsigned_abs() >= AGAIN
        };
        let begin = !self.running && self.last.as_ref().is_none_or(old);
        self.running |= begin;
        begin
    }

    fn end(&mut self, check: Check) {
        (self.last, self.running) = (Some(Arc::new(check)), false);
    }
}

impl Reader {
    pub(super) async fn read_policies(
        &self,
        page: usize,
        findings: usize,
    ) -> Result<Policies, Fault> {
        let reserved = self.rules.reserved.namespaces().map_err(fault)?;
        let rules = Rules { tenancy: self.rules.tenancy, reserved };
        let now = Timestamp::now();
        let show = move |index: &Index| index.policies(page, findings, now);
        let asked = self.fleet.send(false, move |index| {
            let state = index.policies_state();
            (index.checks.begin(state, now), index.checks.last.is_none(), show(index))
        });
        let (begin, first, shown) = asked.await?;
        if begin {
            let checking = check(self.fleet.clone(), self.hub.clone(), rules, self.token.clone());
            // It ends by itself, or with the console.
            let checking = tokio::spawn(checking);
            if first && tokio::time::timeout(FIRST, checking).await.is_ok() {
                return self.fleet.ask(show).await;
            }
        }
        Ok(shown)
    }
}

/// Checks all policies and stores the result.
async fn check(fleet: Arc<Fleet>, hub: Arc<Hub>, rules: Rules, token: CancellationToken) {
    let checked = tokio::select! {
        () = token.cancelled() => return,
        checked = tokio::time::timeout(CHECK, checked(&fleet, &hub, &rules)) => checked,
    };
    let failed = |why: String| Check {
        at: Timestamp::now(),
        notes: vec![format!("policies were not checked: {why}")],
        ..Check::default()
    };
    let check = match checked {
        Ok(Ok(check)) => check,
        Ok(Err(error)) => failed(causes(&error)),
        Err(_) => failed(format!("it took longer than {} s", CHECK.as_secs())),
    };
    // Nobody waits for it if the watches have ended.
    let _ = fleet.send(true, move |index| index.checks.end(check)).await;
}

async fn checked(fleet: &Fleet, hub: &Hub, rules: &Rules) -> anyhow::Result<Check> {
    let (of, clusters, claimed, all) = fleet
        .ask_complete(|index| {
            let clusters: Vec<_> = index.clusters().cloned().collect();
            (index.policies_state(), clusters, index.claimed(TEMPLATES), index.workloads())
        })
        .await?;
    let mut collected = Collected::default();
    hub::policies(hub, true, &mut collected).await?;
    let references = claimed.iter().map(|(reference, _)| json!(reference)).collect();
    let templates = hub::fetch(hub, references, &mut collected.problems).await?;
    collected.objects.extend(templates);
    let namespaces = collected.namespaces.clone();
    // Templates and policies are compared with each other on a thread for that.
    let rules = Rules { tenancy: rules.tenancy, reserved: rules.reserved.clone() };
    let made = tokio::task::spawn_blocking(move || {
        let (mut world, _, mut notes) = hub::world(collected, &rules);
        for cluster in clusters {
            world.clusters.insert(cluster.metadata.name.clone().unwrap_or_default(), cluster);
        }
        let claims = claimed
            .iter()
            .filter_map(|(of, policy)| Some((super::index::id_of(of), policy.clone()?)));
        let shadows = shadows(&world, &namespaces, &claims.collect());
        let findings = lint::world(&world, &Profiles::default());
        if all > TEMPLATES {
            notes.push(format!(
                "Of {TEMPLATES} workloads it is checked which other policies select them; there are more."
            ));
        }
        (shadows, findings.iter().map(finding).collect(), notes)
    });
    let (shadows, findings, notes) = made.await?;
    Ok(Check { of, at: Timestamp::now(), shadows, findings, notes })
}

fn finding(finding: &atoll_scheduler::lint_policy::Finding) -> Finding {
    Finding {
        severity: match finding.severity {
            Severity::Error => Word::new("Error", Tone::Bad),
            Severity::Warning => Word::new("Warning", Tone::Warn),
        },
        object: finding.object.clone(),
        field: finding.field.clone(),
        problem: finding.problem.clone(),
        fix: finding.fix.clone(),
    }
}

fn selector(selector: &ResourceSelector) -> String {
    let mut text = format!("{} {}", selector.api_version, selector.kind);
    if let Some(namespace) = selector.namespace.as_deref().filter(|n| !n.is_empty()) {
        text.push_str(&format!(" in {namespace}"));
    }
    match (selector.name.as_deref().filter(|n| !n.is_empty()), &selector.label_selector) {
        (Some(name), _) => text.push_str(&format!(" named {name}")),
        (None, Some(labels)) => {
            let labels = serde_json::to_string(labels).unwrap_or_default();
            text.push_str(&format!(" with labels {labels}"));
        }
        (None, None) => {}
    }
    text
}

/// For each policy, the policies that claim what it selects too, and how much.
fn shadows(
    world: &World,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    claimed: &BTreeMap<WorkloadId, String>,
) -> Shadows {
    let mut shadows = Shadows::new();
    for workload in &world.workloads {
        let Some(by) = claimed.get(&id(workload)) else { continue };
        let labels = labels(workload);
        let of_namespace = workload.key.namespace().and_then(|name| namespaces.get(name));
        for policy in world.policies.values() {
            let name = format!("{} {}", policy.key.kind(), policy.key);
            if name != *by
                && policy.is_for_namespace_of(&workload.key, &labels, of_namespace)
                && selects(policy, &workload.key, &labels, workload.is_owned()).is_some()
            {
                *shadows.entry(name).or_default().entry(by.clone()).or_default() += 1;
            }
        }
    }
    shadows
}

fn labels(workload: &Workload) -> BTreeMap<String, String> {
    let labels = workload.object["metadata"]["labels"].as_object();
    let pair = |(key, value): (&String, &serde_json::Value)| {
        Some((key.clone(), value.as_str()?.to_owned()))
    };
    labels.into_iter().flatten().filter_map(pair).collect()
}

fn id(workload: &Workload) -> WorkloadId {
    let key = &workload.key;
    WorkloadId {
        group: key.group_kind().group.to_owned(),
        kind: key.group_kind().kind.to_owned(),
        namespace: key.namespace().map(str::to_owned),
        name: key.name().to_owned(),
    }
}
