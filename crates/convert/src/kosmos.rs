//! Kosmos' `WorkloadPolicy`. Its fields are Atoll's; its domains are values of node labels, Atoll's of Cluster labels.

use crate::Converter;
use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When};

const RULES: Rules<'static> = Rules(&[("spec", SPEC)]);

const SPEC: Table = &[
    (
        "topologyKey",
        When::Always,
        Rule::Note(
            "Kosmos reads the labels of nodes, Atoll those of Clusters (or topology.kubernetes.io/region and zone, cluster, \
             region, zone, provider): label the Clusters",
        ),
    ),
    (
        "allocationType",
        When::Always,
        Rule::Words(
            &[("required", "Required"), ("require", "Required"), ("preferred", "Preferred")],
            "renamed",
        ),
    ),
    (
        "allocationMethod",
        When::Always,
        Rule::Words(&[("fill", "Fill"), ("balance", "Balance")], "renamed"),
    ),
];

pub(crate) fn convert(converter: &Converter, draft: &mut Draft) -> bool {
    let kind = draft.source().kind.clone();
    let schema = if kind == "WorkloadPolicy" { converter.kind("policy", &kind) } else { None };
    let Some((schema, api_version)) = schema else {
        let note = match kind.as_str() {
            "DistributionPolicy" | "ClusterDistributionPolicy" => {
                "Atoll has no such kind: select the objects in a PropagationPolicy with a clusterAffinity"
            }
            "PodConvertPolicy" => "Atoll has no such kind: members schedule their pods themselves",
            "Cluster" => "not converted: register the member with `atoll join NAME`",
            _ => "Atoll has no such kind",
        };
        draft.line(&Path::default(), Class::NoEquivalent, note);
        return false;
    };
    let spec = Path::of("spec");
    if draft.text("spec.allocationType").is_none_or(|word| word.eq_ignore_ascii_case("preferred")) {
        let note = "Preferred: beyond the targets, and on clusters without the label, Atoll places the remaining replicas; \
                    Kosmos leaves them pending";
        draft.line(&spec.field("allocationType"), Class::Changed, note);
    }
    let note = "with Fill, Atoll fills the domains in list order; Kosmos starts with the domain that got the first pod";
    if draft.text("spec.allocationMethod").is_some_and(|word| word.eq_ignore_ascii_case("fill")) {
        draft.line(&spec.field("allocationMethod"), Class::Changed, note);
    }
    keys::strip(converter, draft, true);
    keys::convert(draft, false);
    draft.set_api_version(api_version);
    draft.walk(schema, RULES);
    true
}
