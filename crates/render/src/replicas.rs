//! Sets a share's replicas.

use serde_json::{Map, Value, json};

use crate::{Key, RenderError, Share, type_of};

/// Writes the share into the manifest. A kind without replicas (`share.replicas` is `None`) stays as it is.
pub(crate) fn set(
    manifest: &mut Map<String, Value>,
    key: &Key,
    share: &Share,
) -> Result<(), RenderError> {
    let Some(replicas) = share.replicas else { return Ok(()) };
    for (field, value) in [("replicas", replicas), ("before", share.before)] {
        if value < 0 {
            return Err(RenderError::NegativeShare {
                cluster: share.cluster.clone(),
                field,
                value,
            });
        }
    }
    let spec = match manifest.get_mut("spec") {
        Some(Value::Object(spec)) => spec,
        other => {
            return Err(RenderError::Malformed {
                field: "spec".to_owned(),
                expected: "a map",
                found: type_of(other.as_deref()),
            });
        }
    };
    if key.group == "batch" && key.kind == "Job" {
        divide_job(spec, replicas, share.before);
    } else {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    Ok(())
}

/// A Job's replicas are its parallelism. Its completions are cut at the same places: the cluster that holds the
/// replicas `before .. before + replicas` of P gets the completions from `C * before / P` to `C * (before + replicas) / P`,
/// so that the parts of clusters without gaps add up to C, whatever C and P are. Without completions (a work queue) every
/// member runs until its own pods say so.
fn divide_job(spec: &mut Map<String, Value>, replicas: i64, before: i64) {
    let parallelism = spec.get("parallelism").and_then(Value::as_i64).unwrap_or(1);
    if let Some(completions) = spec.get("completions").and_then(Value::as_i64)
        && parallelism > 0
    {
        let cut = |at: i64| {
            let part = i128::from(completions) * i128::from(at) / i128::from(parallelism);
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        let part = cut(before.saturating_add(replicas)).saturating_sub(cut(before));
        spec.insert("completions".to_owned(), json!(part));
    }
    spec.insert("parallelism".to_owned(), json!(replicas));
}
