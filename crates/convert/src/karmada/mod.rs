//! Karmada's kinds.

mod binding;
mod cluster;
mod overrides;
mod placement;
mod policy;
mod quota;
mod webhooks;

use crate::Converter;
use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::Rules;

/// Domain of Karmada's groups.
const DOMAIN: &str = ".karmada.io";

/// Kinds without a counterpart, and what to use instead.
const INSTEAD: &[(&str, &str)] = &[
    (
        "FederatedHPA",
        "scale the template on the hub, or select a HorizontalPodAutoscaler in a policy, so that each member scales its own copy",
    ),
    ("CronFederatedHPA", "change spec.replicas of the template by a CronJob or a pipeline"),
    (
        "MultiClusterService",
        "use the members' own multi-cluster services (a mesh, Submariner, Cilium)",
    ),
    ("MultiClusterIngress", "use a load balancer or DNS in front of the members' Ingresses"),
    ("Remedy", "act on the Cluster's conditions with your own automation"),
    ("OverridePolicy", "use a WorkloadSpread's patch, or a template for each group of members"),
    (
        "ClusterOverridePolicy",
        "use a WorkloadSpread's patch, or a template for each group of members",
    ),
    ("ResourceRegistry", "query the members themselves"),
    ("Karmada", "install Atoll with the manifests in deploy/"),
];

/// Converts an object of one of Karmada's groups. Returns whether the output has it.
pub(crate) fn convert(converter: &Converter, draft: &mut Draft) -> bool {
    let source = draft.source();
    let group = source.group().strip_suffix(DOMAIN).unwrap_or_default().to_owned();
    let kind = source.kind.clone();
    if group == "work" && kind == "Work" {
        return work(draft);
    }
    let Some((schema, api_version)) = converter.kind(&group, &kind) else {
        return no_equivalent(draft, &kind);
    };
    match (group.as_str(), kind.as_str()) {
        ("work", _) if converter.is_for_hub() => {
            let note = "left out: Atoll's controller makes its own bindings";
            draft.line(&Path::default(), Class::Changed, note);
            return false;
        }
        ("work", _) => binding::prepare(converter, draft, schema),
        ("policy", "PropagationPolicy" | "ClusterPropagationPolicy") => {
            policy::prepare(converter, draft);
        }
        ("policy", "OverridePolicy" | "ClusterOverridePolicy") => overrides::prepare(draft),
        ("cluster", "Cluster") => cluster::prepare(draft),
        ("config", "ResourceInterpreterWebhookConfiguration") => webhooks::prepare(draft),
        _ => {}
    }
    keys::strip(converter, draft, true);
    keys::convert(draft, group == "work");
    draft.set_api_version(api_version);
    draft.walk(schema, rules(converter, &group, &kind));
    true
}

fn rules(converter: &Converter, group: &str, kind: &str) -> Rules<'static> {
    match (group, kind) {
        ("policy", "PropagationPolicy" | "ClusterPropagationPolicy") => policy::RULES,
        ("cluster", "Cluster") => cluster::rules(converter.is_for_hub()),
        ("work", _) => binding::RULES,
        ("policy", "FederatedResourceQuota") => quota::RULES,
        _ => Rules(&[]),
    }
}

fn no_equivalent(draft: &mut Draft, kind: &str) -> bool {
    let instead = INSTEAD.iter().find(|(known, _)| *known == kind).map(|(_, instead)| *instead);
    let note = instead.map_or_else(
        || "Atoll has no such kind".to_owned(),
        |instead| format!("Atoll has no such kind: {instead}"),
    );
    draft.line(&Path::default(), Class::NoEquivalent, note);
    false
}

/// Works are made from bindings. One without the marks of a binding was written by a user.
fn work(draft: &mut Draft) -> bool {
    let metadata = Path::of("metadata");
    let of_binding = ["labels", "annotations"].iter().any(|map| {
        let marks = draft.get(&metadata.field(map)).and_then(serde_json::Value::as_object);
        marks.into_iter().flatten().any(|(key, _)| {
            key.starts_with("resourcebinding.karmada.io/")
                || key.starts_with("clusterresourcebinding.karmada.io/")
        })
    });
    let (class, note) = if of_binding {
        (
            Class::Changed,
            "left out: Atoll sends members their objects over a session, without Works",
        )
    } else {
        let note = "Atoll has no Works: apply the manifests to the hub and select them in a policy";
        (Class::NoEquivalent, note)
    };
    draft.line(&Path::default(), class, note);
    false
}
