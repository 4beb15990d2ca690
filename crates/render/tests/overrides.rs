//! Overrides agree with the recorded answers of Karmada's own packages, except for the listed differences.
#![allow(clippy::unwrap_used)]

use atoll_render::overrides::{ClusterProperties, Division, Policies, Policy, apply};
use atoll_vectors::Case;
use serde_json::{Value, json};

/// The answer to a case: `manifest` and `applied`, or `error`.
fn answer(case: &Case) -> Value {
    let input = &case.input;
    let each = |field: &str| input[field].as_array().into_iter().flatten();
    let policies = each("clusterOverridePolicies").chain(each("overridePolicies"));
    let policies: Policies = policies.map(|policy| Policy::read(policy).unwrap()).collect();
    let cluster = ClusterProperties::read(&input["cluster"]).unwrap();
    match apply(input["template"].clone(), &cluster, &policies, Division::default()) {
        Ok((manifest, applied)) => json!({"manifest": manifest, "applied": applied}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

/// Texts that a fieldOverrider may have edited are compared as the values that they contain.
fn texts_parsed(_: &Case, mut answer: Value) -> Value {
    let manifest = &mut answer["manifest"];
    let kind = manifest["kind"].as_str().unwrap_or_default().to_owned();
    let texts: Vec<&mut Value> = match kind.as_str() {
        "ConfigMap" => manifest["data"]
            .as_object_mut()
            .into_iter()
            .flat_map(|data| data.values_mut())
            .collect(),
        _ => manifest.pointer_mut("/spec/config").into_iter().collect(),
    };
    for text in texts {
        let parsed = text.as_str().and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
        if let Some(parsed) = parsed.filter(|parsed| parsed.is_object() || parsed.is_array()) {
            *text = parsed;
        }
    }
    answer
}

#[test]
fn overrides_agree_with_every_vector_but_the_listed_ones() {
    atoll_vectors::check("overrides", texts_parsed, answer);
}
