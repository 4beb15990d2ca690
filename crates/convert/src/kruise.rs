//! OpenKruise's `WorkloadSpread`. Its subsets are groups of nodes, Atoll's are groups of Clusters.

use serde_json::{Map, Value};

use crate::Converter;
use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When};

const NODES: &str = "Kruise reads the labels of nodes, Atoll those of Clusters: label the Clusters";
const SELECTOR: &str = "requiredClusterSelector";
const PREFERENCES: &str = "preferredClusterSelectors";

const RULES: Rules<'static> = Rules(&[("spec", SPEC)]);

const SPEC: Table = &[
    (
        "targetFilter",
        When::Lacking,
        Rule::OnlyEmpty("a WorkloadSpread of Atoll places all pods of its workload"),
    ),
    (
        "subsets[].tolerations",
        When::Always,
        Rule::Note(
            "Kruise tolerates taints of nodes, Atoll those of Clusters: put tolerations of nodes into patch",
        ),
    ),
    (
        "scheduleStrategy.adaptive.disableSimulationSchedule",
        When::Lacking,
        Rule::Leave(Class::Changed, "not needed: Kruise does not use it either"),
    ),
];

pub(crate) fn convert(converter: &Converter, draft: &mut Draft) -> bool {
    let Some((schema, api_version)) = converter.kind("policy", "WorkloadSpread") else {
        draft.line(&Path::default(), Class::NoEquivalent, "Atoll has no such kind");
        return false;
    };
    let subsets = Path::of("spec.subsets");
    for at in 0..draft.len(&subsets) {
        let subset = subsets.item(at);
        for theirs in ["requiredNodeSelectorTerm", "requiredNodeSelector"] {
            required(draft, &subset, theirs);
        }
        for theirs in ["preferredNodeSelectorTerms", "preferredNodeSelector"] {
            preferred(draft, &subset, theirs);
        }
    }
    keys::strip(converter, draft, true);
    keys::convert(draft, false);
    draft.set_api_version(api_version);
    draft.walk(schema, RULES);
    true
}

fn required(draft: &mut Draft, subset: &Path, theirs: &str) {
    let path = subset.field(theirs);
    let Some(term) = draft.take(&path, Class::Changed, format!("moved to {SELECTOR}. {NODES}"))
    else {
        return;
    };
    let selector = selector(draft, &path, &term);
    draft.set(&subset.field(SELECTOR), selector);
}

fn preferred(draft: &mut Draft, subset: &Path, theirs: &str) {
    let path = subset.field(theirs);
    let Some(terms) = draft.take(&path, Class::Changed, format!("moved to {PREFERENCES}. {NODES}"))
    else {
        return;
    };
    let Value::Array(terms) = terms else {
        draft.line(&path, Class::NoEquivalent, "not a list: Atoll does not accept the value");
        return;
    };
    let mut ours = Vec::new();
    for (at, mut term) in terms.into_iter().enumerate() {
        let below = path.item(at);
        let Some(fields) = term.as_object_mut() else {
            draft.line(
                &below,
                Class::NoEquivalent,
                "not an object: Atoll does not accept the value",
            );
            continue;
        };
        if let Some(preference) = fields.remove("preference") {
            let preference = selector(draft, &below.field("preference"), &preference);
            fields.insert("preference".to_owned(), preference);
        }
        ours.push(term);
    }
    draft.set(&subset.field(PREFERENCES), ours.into());
}

/// A node selector term as a selector of Clusters. What Cluster selectors lack is reported and left out.
fn selector(draft: &mut Draft, path: &Path, term: &Value) -> Value {
    let mut selector = Map::new();
    for (name, value) in term.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("matchExpressions", Value::Array(expressions)) => {
                let list = path.field(name);
                let kept = expressions.iter().enumerate().filter(|(at, expression)| {
                    let compares = matches!(expression["operator"].as_str(), Some("Gt" | "Lt"));
                    if compares {
                        let note = "left out: selectors of Clusters have In, NotIn, Exists and DoesNotExist";
                        draft.line(&list.item(*at), Class::NoEquivalent, note);
                    }
                    !compares
                });
                let kept: Vec<Value> = kept.map(|(_, expression)| expression.clone()).collect();
                selector.insert(name.clone(), kept.into());
            }
            (_, Value::Null) => {}
            _ => {
                let note = "left out: Clusters are selected by labels only";
                draft.line(&path.field(name), Class::NoEquivalent, note);
            }
        }
    }
    Value::Object(selector)
}
