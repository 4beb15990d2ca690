//! What stands in the way of a migration, and what changes with it.

use std::collections::BTreeMap;

use atoll_api::ReservedNamespaces;
use atoll_api::start::Start;
use atoll_convert::Converter;
use atoll_render::overrides::{ClusterProperties, Policies, Policy};
use serde::Serialize;
use serde_json::Value;

use crate::compare::{self, Difference};
use crate::estate::{Binding, Estate, PolicyName};
use crate::extras;
use crate::hub;
use crate::karmada::original;
use crate::meaning::Meaning;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Severity {
    /// The migration does not go on before it is settled.
    Blocks,
    /// Something changes, but no pod starts again and no replica moves.
    Changes,
}

/// Something to know or to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The object.
    pub object: String,
    /// The problem and what to do.
    pub problem: String,
}

fn finding(severity: Severity, object: impl ToString, problem: impl Into<String>) -> Finding {
    Finding { severity, object: object.to_string(), problem: problem.into() }
}

/// Everything that can be said from Karmada's side alone.
#[must_use]
pub fn findings(converter: &Converter, estate: &Estate, meaning: &dyn Meaning) -> Vec<Finding> {
    let mut found = extras::findings(estate);
    let converted = hub::prepared(converter, estate);
    let mut overrides = Policies::default();
    for policy in &converted.objects {
        let is_override =
            policy["kind"].as_str().is_some_and(|kind| kind.ends_with("OverridePolicy"));
        match is_override.then(|| Policy::read(policy)) {
            Some(Ok(policy)) => overrides.insert(policy),
            Some(Err(error)) => {
                found.push(finding(Severity::Blocks, title(policy), error.to_string()));
            }
            None => {}
        }
    }
    for policy in estate.claiming() {
        of_policy(estate, policy, &mut found);
    }
    let clusters = properties(converter, estate);
    for binding in estate.moving() {
        of_binding(estate, binding, meaning, &mut found);
        let rendering = Rendering { clusters: &clusters, overrides: &overrides, meaning };
        of_manifests(converter, estate, binding, &rendering, &mut found);
    }
    for line in
        converted.lines.iter().filter(|line| line.class == atoll_convert::Class::NoEquivalent)
    {
        let problem = format!("{}: no equivalent in Atoll: {}", line.field, line.note);
        found.push(finding(Severity::Changes, &line.source, problem));
    }
    found.sort_by(|one, other| (one.severity, &one.object).cmp(&(other.severity, &other.object)));
    found
}

/// The Clusters, as overrides see them.
fn properties(converter: &Converter, estate: &Estate) -> BTreeMap<String, ClusterProperties> {
    let converted = estate.clusters.iter().filter_map(|cluster| {
        let cluster = converter.convert(cluster.clone()).object?;
        ClusterProperties::read(&cluster).ok()
    });
    converted.map(|cluster| (cluster.name.clone(), cluster)).collect()
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", text(&metadata["name"])),
        None => format!("{kind} {}", text(&metadata["name"])),
    }
}

fn of_policy(estate: &Estate, policy: &Value, found: &mut Vec<Finding>) {
    let name = PolicyName::of(policy);
    let suspension = &original(policy)["spec"]["suspension"];
    if suspension["dispatching"] == true || suspension["dispatchingOnClusters"].is_object() {
        found.push(finding(
            Severity::Blocks,
            &name,
            "spec.suspension: members may not have what the Works say; end the suspension first",
        ));
    }
    let mut others: Vec<String> =
        estate.others_of(&name).filter_map(|binding| binding.of.namespace.clone()).collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        let problem = format!(
            "it claims objects in {}, too: while it is suspended, changes of those do not reach members either. Move these \
             namespaces together by leaving --namespace out, or accept the pause with --pause-others",
            others.join(", ")
        );
        found.push(finding(Severity::Blocks, format!("{name} (shared)"), problem));
    }
}

/// Whether a finding is about a policy that claims objects of other namespaces, which a user may accept.
#[must_use]
pub fn is_about_sharing(finding: &Finding) -> bool {
    finding.object.ends_with(" (shared)")
}

fn of_binding(estate: &Estate, binding: &Binding, meaning: &dyn Meaning, found: &mut Vec<Finding>) {
    let of = &binding.of;
    let mut blocks = |problem: String| found.push(finding(Severity::Blocks, of, problem));
    let spec = &binding.object["spec"];
    let has_items = |field: &str| spec[field].as_array().is_some_and(|items| !items.is_empty());
    if of.namespace.as_deref().is_some_and(|name| ReservedNamespaces::default().contains(name)) {
        blocks(
            "its namespace is reserved in Atoll: move it to another, or leave it to Karmada"
                .to_owned(),
        );
    }
    if has_items("gracefulEvictionTasks") {
        blocks(
            "it is leaving a cluster: wait until Karmada has ended its eviction tasks".to_owned(),
        );
    }
    if has_items("components") {
        blocks(
            "it has several pod templates, whose placement is not taken over: leave it to Karmada"
                .to_owned(),
        );
    }
    if !binding.object["metadata"]["deletionTimestamp"].is_null() {
        blocks("its binding is being deleted: wait until it is gone".to_owned());
        return;
    }
    if binding.policy.is_none() && !binding.is_attached() {
        blocks(
            "no policy claims it: create one in Karmada that does, or delete its binding"
                .to_owned(),
        );
    }
    let Some(template) = estate.templates.get(of) else {
        blocks(
            "Karmada has its binding but not the object: create it, or delete the binding"
                .to_owned(),
        );
        return;
    };
    if binding.clusters.is_empty() && binding.policy.is_some() {
        blocks("Karmada has not placed it: its condition Scheduled says why".to_owned());
    } else if binding.policy.is_some() {
        // A rule that fails is found with the manifests.
        let desired = meaning.replicas(template).unwrap_or_default();
        let divided = desired.is_some() && hub::is_divided(estate, binding);
        // Karmada writes no number for kinds without replicas, and the desired one for copies.
        if desired.is_some()
            && let Err(problem) = Start::read(&hub::start(binding).to_string(), desired, divided)
        {
            blocks(format!("its placement is not settled: {problem}"));
        }
    }
    for cluster in binding.holders() {
        match estate.works_of(of).filter(|work| work.cluster == cluster).count() {
            1 => {}
            0 => blocks(format!("{cluster} has no Work of it yet: wait until Karmada has made it")),
            many => blocks(format!(
                "{cluster} has {many} Works of it: delete all but the one of its binding"
            )),
        }
    }
    for work in estate.works_of(of) {
        if !binding.holders().any(|name| name == work.cluster) {
            blocks(format!(
                "{} still has a Work of it: wait until Karmada has removed it",
                work.cluster
            ));
        }
    }
}

/// What decides on manifests beside the objects.
struct Rendering<'a> {
    clusters: &'a BTreeMap<String, ClusterProperties>,
    overrides: &'a Policies,
    meaning: &'a dyn Meaning,
}

fn of_manifests(
    converter: &Converter,
    estate: &Estate,
    binding: &Binding,
    rendering: &Rendering<'_>,
    found: &mut Vec<Finding>,
) {
    let of = &binding.of;
    let Some(template) = estate.templates.get(of) else { return };
    let (Some(template), _) = hub::template(converter, binding, template) else {
        found.push(finding(Severity::Blocks, of, "it is an object of Karmada itself"));
        return;
    };
    for work in estate.works_of(of) {
        let cluster = &work.cluster;
        let object = format!("{of} on {cluster}");
        let Some(properties) = rendering.clusters.get(cluster) else {
            found.push(finding(Severity::Blocks, object, "Karmada has no such Cluster"));
            continue;
        };
        let Rendering { overrides, meaning, .. } = *rendering;
        match hub::rendered(estate, binding, &template, properties, overrides, meaning) {
            Err(problem) => {
                let problem = format!("Atoll could not apply it: {problem}");
                found.push(finding(Severity::Blocks, object, problem));
            }
            Ok(ours) => {
                let all = compare::manifests(work.manifest(), &ours);
                found.extend(all.iter().map(|difference| of_difference(of, &object, difference)));
            }
        }
    }
}

/// Longest value that a finding shows, in characters.
const SHOWN: usize = 60;

fn of_difference(of: &crate::estate::ObjectRef, object: &str, difference: &Difference) -> Finding {
    let shown = |value: &Value| {
        let text = value.to_string();
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None if value.is_null() => "nothing".to_owned(),
            None => text,
        }
    };
    let (theirs, ours) = (shown(&difference.karmada), shown(&difference.atoll));
    let field = &difference.field;
    if difference.concerns_pods(&of.kind) {
        let problem = format!(
            "{field}: Karmada applied {theirs}, Atoll would apply {ours}: pods would start again or change in number. Make them \
             equal in Karmada first"
        );
        return finding(Severity::Blocks, object, problem);
    }
    let problem = format!("{field}: Karmada applied {theirs}, Atoll will apply {ours}");
    finding(Severity::Changes, object, problem)
}
