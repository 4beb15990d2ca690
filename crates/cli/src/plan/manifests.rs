//! Manifests of members that a change renders differently.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use atoll_customize::Customizations;
use atoll_scheduler::offline::Fate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use similar::TextDiff;

use super::compare::Side;
use crate::print;
use crate::render::members::{self, Copies};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// One object on one member, before and after.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) object: String,
    pub(super) cluster: String,
    /// `None` if the member does not have it.
    #[serde(default)]
    pub(super) before: Option<Value>,
    /// `None` if the member loses it.
    #[serde(default)]
    pub(super) after: Option<Value>,
}

/// The manifests that differ, and what cannot be rendered. A member keeps what it has of an object that cannot be
/// rendered, so such a copy is in no difference.
pub(super) fn compare(
    before: (&Side<'_>, &Customizations),
    after: (&Side<'_>, &Customizations),
) -> (Vec<Manifest>, Vec<String>) {
    let (mut old, new) = (Copied::of(before), Copied::of(after));
    let mut all = Vec::new();
    for ((object, cluster), after) in new.manifests {
        let before = old.manifests.remove(&(object.clone(), cluster.clone()));
        let unknown = old.failed.contains_key(&(object.clone(), cluster.clone()));
        if !unknown && before.as_ref() != Some(&after) {
            all.push(Manifest { object, cluster, before, after: Some(after) });
        }
    }
    for ((object, cluster), before) in old.manifests {
        let stays = new.failed.contains_key(&(object.clone(), cluster.clone()))
            || new.undecided.contains(&object);
        if !stays {
            all.push(Manifest { object, cluster, before: Some(before), after: None });
        }
    }
    all.sort_by(|a, b| (&a.object, &a.cluster).cmp(&(&b.object, &b.cluster)));
    let repaired = old.failed.into_iter().filter(|(copy, _)| !new.failed.contains_key(copy));
    let repaired: Vec<String> = repaired
        .map(|((object, _), problem)| format!("without the change: {object} {problem}"))
        .collect();
    let problems =
        new.failed.into_iter().map(|((object, _), problem)| format!("{object} {problem}"));
    (all, problems.chain(repaired).collect())
}

/// The copies of one side, by object and member.
#[derive(Default)]
struct Copied {
    manifests: BTreeMap<(String, String), Value>,
    /// Why a copy could not be rendered.
    failed: BTreeMap<(String, String), String>,
    /// Objects with a binding on which nothing could be decided: what members have stays.
    undecided: BTreeSet<String>,
}

impl Copied {
    fn of((side, rules): (&Side<'_>, &Customizations)) -> Self {
        // What is not claimed or unusable is among the changes.
        let Copies { copies, problems: _ } = members::copies(side.world, side.answers, rules, None);
        let mut all = Self::default();
        for answer in side.answers {
            let bound = side.world.bindings.contains_key(&answer.object.binding());
            match answer.fate {
                Fate::Decided(_) | Fate::Attached(_) => {}
                Fate::NotClaimed(_) if !bound => {}
                Fate::NotClaimed(_) | Fate::Unusable(_) => {
                    all.undecided.insert(answer.object.to_string());
                }
            }
        }
        for copy in copies {
            match copy.result {
                Ok(rendered) => {
                    all.manifests.insert((copy.object, copy.cluster), rendered.manifest);
                }
                Err(problem) => {
                    let problem = format!("on {}: {problem}", copy.cluster);
                    all.failed.insert((copy.object, copy.cluster), problem);
                }
            }
        }
        all
    }
}

/// What stands for a value of a Secret.
const HIDDEN: &str = "***";
/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values of Secrets, as `kubectl diff` does: a plan is made to be shown to others.
pub(super) fn hide_secrets(manifests: &mut [Manifest]) {
    for manifest in manifests {
        for field in ["data", "stringData"] {
            let values = |side: &Option<Value>| -> Map<String, Value> {
                side.as_ref().and_then(|m| m[field].as_object()).cloned().unwrap_or_default()
            };
            let (before, after) = (values(&manifest.before), values(&manifest.after));
            hide(&mut manifest.before, field, &after, "*** (before)");
            hide(&mut manifest.after, field, &before, "*** (after)");
        }
    }
}

/// Hides the values of a field if it is a Secret. `differs` stands for values that the other side has too, but not equal.
fn hide(side: &mut Option<Value>, field: &str, other: &Map<String, Value>, differs: &str) {
    let Some(manifest) = side.as_mut().filter(|m| m["kind"] == "Secret" && m["apiVersion"] == "v1")
    else {
        return;
    };
    for (key, value) in manifest.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten()
    {
        let changed = other.get(key).is_some_and(|other| other != value);
        *value = if changed { differs } else { HIDDEN }.into();
    }
    if let Some(annotation) =
        manifest.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED))
    {
        *annotation = HIDDEN.into();
    }
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
