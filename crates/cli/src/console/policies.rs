//! The page Policies: what each claims, what wins over it, and what the linter finds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_api::binding::ResourceBindingSpec;
use atoll_api::policy::ResourceSelector;
use atoll_console::Fault;
use atoll_console::data::{Finding, Paged, Policies, Policy, ROWS, Tone, Word, WorkloadId};
use atoll_scheduler::Profiles;
use atoll_scheduler::detect::selects;
use atoll_scheduler::lint_policy::Severity;
use atoll_scheduler::offline::{Workload, World};

use super::{Reader, fault};
use crate::lint;
use crate::plan::hub::{self, Rules, WhatIf};

/// Templates that are read, for their labels. What further ones are claimed by is known from their bindings.
const TEMPLATES: usize = 1000;
/// Workloads that are named as examples.
const EXAMPLES: usize = 3;

/// Reads the first templates.
struct FirstTemplates {
    left: AtomicUsize,
}

impl WhatIf for FirstTemplates {
    fn concerns(&self, _: &ResourceBindingSpec) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn renders(&self) -> bool {
        true
    }
}

impl Reader {
    pub(super) async fn read_policies(
        &self,
        page: usize,
        findings: usize,
    ) -> Result<Policies, Fault> {
        let rules = Rules {
            tenancy: self.rules.tenancy,
            reserved: self.rules.reserved.namespaces().map_err(fault)?,
        };
        let change = FirstTemplates { left: AtomicUsize::new(TEMPLATES) };
        let collected = hub::collect(&self.hub, &change).await.map_err(fault)?;
        let namespaces = collected.namespaces.clone();
        let (world, _, problems) = hub::world(collected, &rules);
        let (claims, mut notes) = self.fleet.ask(|index| (index.claims(), index.notes())).await?;
        notes.extend(problems);
        if change.left.load(Ordering::Relaxed) == 0 {
            notes.push(format!(
                "Of {TEMPLATES} workloads it is checked which other policies select them; there are more."
            ));
        }
        let shadows = shadows(&world, &namespaces, &claims);
        let all: Vec<_> = world.policies.values().collect();
        let rows = Paged::of(&all, page, ROWS, |policy| {
            let name = format!("{} {}", policy.key.kind(), policy.key);
            let claimed = claims.get(&name).map(Vec::as_slice).unwrap_or_default();
            Policy {
                priority: i64::from(policy.spec.priority),
                selects: policy.spec.resource_selectors.iter().map(selector).collect(),
                claims: claimed.len(),
                examples: claimed.iter().take(EXAMPLES).cloned().collect(),
                shadowed_by: shadows
                    .get(&name)
                    .into_iter()
                    .flatten()
                    .map(|(by, count)| (by.clone(), *count))
                    .collect(),
                name,
            }
        });
        let found = lint::world(&world, &Profiles::default());
        let findings = Paged::of(&found, findings, ROWS, |finding| Finding {
            severity: match finding.severity {
                Severity::Error => Word::new("Error", Tone::Bad),
                Severity::Warning => Word::new("Warning", Tone::Warn),
            },
            object: finding.object.clone(),
            field: finding.field.clone(),
            problem: finding.problem.clone(),
            fix: finding.fix.clone(),
        });
        Ok(Policies { rows, findings, notes })
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
    claims: &BTreeMap<String, Vec<WorkloadId>>,
) -> BTreeMap<String, BTreeMap<String, usize>> {
    let claimed: BTreeMap<&WorkloadId, &String> =
        claims.iter().flat_map(|(policy, all)| all.iter().map(move |of| (of, policy))).collect();
    let mut shadows: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for workload in &world.workloads {
        let Some(by) = claimed.get(&id(workload)) else { continue };
        let labels = labels(workload);
        let of_namespace = workload.key.namespace.as_ref().and_then(|name| namespaces.get(name));
        for policy in world.policies.values() {
            let name = format!("{} {}", policy.key.kind(), policy.key);
            if name != **by
                && policy.is_for_namespace_of(&workload.key, &labels, of_namespace)
                && selects(policy, &workload.key, &labels, workload.is_owned()).is_some()
            {
                *shadows.entry(name).or_default().entry((*by).clone()).or_default() += 1;
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
        group: key.kind.group.to_string(),
        kind: key.kind.kind.to_string(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}
