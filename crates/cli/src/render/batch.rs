//! `atoll render --batch`: a template, a cluster and override policies a line, the manifest a line.

use std::path::Path;

use anyhow::Context;
use atoll_render::overrides::{ClusterProperties, Division, Policies, Policy, apply};
use serde_json::{Value, json};

use crate::interpret::batch;
use crate::print::Printer;

/// Answers every case.
pub(super) fn run(path: &Path, out: &Printer) -> anyhow::Result<()> {
    batch::run(path, |input| answer(input).map_err(|error| format!("{error:#}")), out)
}

/// The manifest for the case's cluster, and the applied rules.
fn answer(input: &Value) -> anyhow::Result<Value> {
    let template = input.get("template").context("template is missing")?;
    let cluster = input.get("cluster").context("cluster is missing")?;
    let cluster = ClusterProperties::read(cluster)?;
    let mut policies = Policies::default();
    for (list, namespaced) in [("clusterOverridePolicies", false), ("overridePolicies", true)] {
        let items = input[list].as_array().into_iter().flatten();
        for (at, policy) in items.enumerate() {
            let at = || format!("{list}[{at}]");
            let policy = Policy::read(policy).with_context(at)?;
            anyhow::ensure!(
                policy.namespace.is_some() == namespaced,
                "{}.metadata.namespace {}",
                at(),
                if namespaced { "is missing" } else { "must be absent" }
            );
            policies.insert(policy);
        }
    }
    let (manifest, applied) = apply(template.clone(), &cluster, &policies, Division::default())?;
    Ok(json!({"manifest": manifest, "applied": applied}))
}
