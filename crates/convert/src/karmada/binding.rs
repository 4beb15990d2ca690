//! `ResourceBinding` and `ClusterResourceBinding`, as inputs of the scheduler.

use atoll_api::marks;
use atoll_merge::schema::Schema;
use serde_json::Value;

use super::{placement, policy};
use crate::Converter;
use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When};

const OF_TASKS: &str = "the scheduler uses only the cluster of an eviction task";
const REPORT: &str = "a report of Karmada's controllers; no decision uses it";
const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";

pub(super) const RULES: Rules<'static> = Rules(&[
    ("spec", SPEC),
    ("spec.placement", placement::TABLE),
    ("spec.failover", policy::FAILOVER),
    ("spec.gracefulEvictionTasks[]", TASK),
    ("", STATUS),
]);

/// Why components are left out.
const ONE_POD_TEMPLATE: &str = "Atoll schedules one pod template in each object";

const SPEC: Table = &[
    ("resource.resourceVersion", When::Always, Rule::Leave(Class::Changed, "Atoll compares uids")),
    ("components", When::Lacking, Rule::OnlyEmpty(ONE_POD_TEMPLATE)),
    ("clusters[].components", When::Lacking, Rule::OnlyEmpty(ONE_POD_TEMPLATE)),
    (
        "replicaRequirements.namespace",
        When::Lacking,
        Rule::Leave(Class::Changed, "the namespace of the resource is used"),
    ),
    (
        "workloadAffinityGroups",
        When::Lacking,
        Rule::Leave(Class::Changed, "Atoll derives the groups from placement and labels"),
    ),
];

const TASK: Table = &[
    ("reason", When::Always, Rule::Map(reason)),
    ("purgeMode", When::Always, policy::PURGE_MODE),
    ("message", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
    ("producer", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
    ("gracePeriodSeconds", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
    ("suppressDeletion", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
    ("preservedLabelState", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
    ("clustersBeforeFailover", When::Lacking, Rule::Leave(Class::Changed, OF_TASKS)),
];

const STATUS: Table = &[("status", When::Always, Rule::Report(REPORT))];

/// Time of an eviction task that has none. Only the task's cluster counts.
const UNKNOWN_TIME: &str = "1970-01-01T00:00:00Z";

fn reason(draft: &mut Draft, path: &Path, value: Value) -> Option<Value> {
    let ours = if value == "ApplicationFailure" { "ApplicationFailure" } else { "Failover" };
    draft.line(path, Class::Changed, format!("renamed: {ours}"));
    Some(ours.into())
}

pub(super) fn prepare(converter: &Converter, draft: &mut Draft, schema: &Schema) {
    let spec = Path::of("spec");
    policy::scheduler_name(converter, draft, &spec);
    placement::prepare(draft, &spec.field("placement"));
    applied_placement(draft, schema);
    let tasks = spec.field("gracefulEvictionTasks");
    for at in 0..draft.len(&tasks) {
        let task = tasks.item(at);
        for (name, value) in [("reason", "Failover"), ("creationTimestamp", UNKNOWN_TIME)] {
            let path = task.field(name);
            if draft.get(&task).is_some_and(Value::is_object) && draft.get(&path).is_none() {
                draft.fill(&path, value.into(), Class::Changed, "filled in: Atoll requires it");
            }
        }
    }
}

/// The annotation holds a placement as text. It is converted like the placement itself, so that a policy that did not
/// change does not look changed.
fn applied_placement(draft: &mut Draft, schema: &Schema) {
    let annotations = Path::of("metadata.annotations");
    let path = annotations.field(APPLIED_PLACEMENT);
    let text = draft.get(&path).and_then(Value::as_str).map(str::to_owned);
    let Some(text) = text else { return };
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        let note = "left out: it is not JSON, so it cannot be compared with the placement";
        draft.take(&path, Class::NoEquivalent, note);
        return;
    };
    draft.take(&path, Class::Changed, format!("renamed: {}", marks::APPLIED_PLACEMENT));
    let schema = schema.property("spec").and_then(|spec| spec.property("placement"));
    let rules = Rules(&[("", placement::TABLE)]);
    // Its fields are those of the placement: their lines would repeat the lines of spec.placement.
    let mut inner =
        Draft::new(draft.source().clone(), serde_json::json!({"spec": {"placement": value}}));
    let inner_path = Path::of("spec.placement");
    placement::prepare(&mut inner, &inner_path);
    let value = inner.get(&inner_path).cloned().unwrap_or_default();
    if let Some(value) = inner.field(value, schema, &Path::default(), rules) {
        let ours = annotations.field(marks::APPLIED_PLACEMENT);
        draft.set(&ours, value.to_string().into());
    }
    for mut line in
        inner.finish(false).lines.into_iter().filter(|line| line.class == Class::NoEquivalent)
    {
        line.field = format!("{path}: {}", line.field);
        draft.push(line);
    }
}
