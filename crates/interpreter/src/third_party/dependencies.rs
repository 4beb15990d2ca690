//! What third-party objects need.

use serde_json::Value;

use super::{path, rules, table::Reference};
use crate::{dependencies::Found, read::text};

/// Adds what a third-party object needs. Returns false for other kinds.
pub(crate) fn dependencies(obj: &Value, found: &mut Found<'_>) -> bool {
    let Some(rules) = rules(obj) else { return false };
    for template in rules.templates.iter().flat_map(|at| path::values(obj, at)) {
        found.pod(&template["spec"]);
    }
    for spec in rules.pod_specs.iter().flat_map(|at| path::values(obj, at)) {
        found.pod(spec);
    }
    for reference in rules.references {
        match reference {
            Reference::Named(kind, at) => {
                for name in path::values(obj, at).into_iter().filter_map(Value::as_str) {
                    found.add(kind, name);
                }
            }
            Reference::Typed(at) => {
                for named in path::values(obj, at) {
                    let kind = match text(named, &["kind"]) {
                        "ConfigMap" => "ConfigMap",
                        "Secret" => "Secret",
                        _ => continue,
                    };
                    found.add(kind, text(named, &["name"]));
                }
            }
        }
    }
    true
}
