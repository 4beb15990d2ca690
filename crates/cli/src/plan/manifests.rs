//! Manifests of members that a change renders differently.

use std::collections::BTreeMap;

use anyhow::Context;
use atoll_customize::Customizations;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::compare::Side;
use crate::print;
use crate::render::members::{self, Copies};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// One object on one member, before and after.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) object: String,
    pub(super) cluster: String,
    /// `None` if the member does not have it.
    pub(super) before: Option<Value>,
    /// `None` if the member loses it.
    pub(super) after: Option<Value>,
}

/// The manifests that differ, and what cannot be rendered after the change.
pub(super) fn compare(
    before: (&Side<'_>, &Customizations),
    after: (&Side<'_>, &Customizations),
) -> (Vec<Manifest>, Vec<String>) {
    let mut problems = Vec::new();
    let mut old = rendered(before, &mut Vec::new());
    let new = rendered(after, &mut problems);
    let mut all = Vec::new();
    for ((object, cluster), after) in new {
        let before = old.remove(&(object.clone(), cluster.clone()));
        if before.as_ref() != Some(&after) {
            all.push(Manifest { object, cluster, before, after: Some(after) });
        }
    }
    for ((object, cluster), before) in old {
        all.push(Manifest { object, cluster, before: Some(before), after: None });
    }
    all.sort_by(|a, b| (&a.object, &a.cluster).cmp(&(&b.object, &b.cluster)));
    (all, problems)
}

fn rendered(
    (side, rules): (&Side<'_>, &Customizations),
    problems: &mut Vec<String>,
) -> BTreeMap<(String, String), Value> {
    // What is not claimed or unusable is among the changes.
    let Copies { copies, problems: _ } = members::copies(side.world, side.answers, rules, None);
    let mut all = BTreeMap::new();
    for copy in copies {
        match copy.result {
            Ok(rendered) => {
                all.insert((copy.object, copy.cluster), rendered.manifest);
            }
            Err(problem) => {
                problems.push(format!("{} on {}: {problem}", copy.object, copy.cluster))
            }
        }
    }
    all
}

/// A unified diff of the two manifests.
///
/// # Errors
/// When a manifest cannot be written as YAML.
pub(super) fn unified(manifest: &Manifest) -> anyhow::Result<String> {
    let text = |side: &Option<Value>| match side {
        Some(manifest) => serde_saphyr::to_string(manifest).context("write a manifest as YAML"),
        None => Ok(String::new()),
    };
    let (before, after) = (text(&manifest.before)?, text(&manifest.after)?);
    let title = format!("{} on {}", print::visible_line(&manifest.object), manifest.cluster);
    let side = |side: &Option<Value>| match side {
        Some(_) => title.clone(),
        None => "/dev/null".to_owned(),
    };
    let diff = TextDiff::from_lines(&before, &after);
    let header = (side(&manifest.before), side(&manifest.after));
    let unified =
        diff.unified_diff().context_radius(CONTEXT).header(&header.0, &header.1).to_string();
    Ok(print::visible(unified.trim_end()).into_owned())
}
