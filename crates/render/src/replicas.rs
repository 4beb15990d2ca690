//! Sets the replicas of a share.

use serde_json::{Value, json};

use crate::{Key, RenderError, Share, type_of};

/// Writes the share into the manifest. A kind without replicas (`share.replicas` is `None`) is not changed.
pub(crate) fn set(manifest: &mut Value, key: &Key, share: &Share) -> Result<(), RenderError> {
    let Some(replicas) = share.replicas else { return Ok(()) };
    let ordinals = share.ordinals.unwrap_or_default();
    for (field, value) in [("replicas", replicas), ("before", share.before), ("ordinals", ordinals)]
    {
        if value < 0 {
            let cluster = share.cluster.clone();
            return Err(RenderError::NegativeShare { cluster, field, value });
        }
    }
    if share.revised {
        return Ok(());
    }
    if !manifest.get("spec").is_some_and(Value::is_object) {
        return Err(RenderError::Malformed {
            field: "spec".to_owned(),
            expected: "a map",
            found: type_of(manifest.get("spec")),
        });
    }
    let Some(whole) = atoll_interpreter::replicas(manifest) else {
        return Err(RenderError::NoReplicas { cluster: share.cluster.clone(), key: key.clone() });
    };
    if key.group() == "batch" && key.kind() == "Job" {
        divide_completions(&mut manifest["spec"], whole, replicas, share.before);
    }
    if key.group() == "apps" && key.kind() == "StatefulSet" && ordinals > 0 {
        let start = &mut manifest["spec"]["ordinals"]["start"];
        *start = json!(start.as_i64().unwrap_or(0).saturating_add(ordinals));
    }
    atoll_interpreter::set_replicas(manifest, replicas);
    Ok(())
}

/// Divides the completions of a Job. Its replicas are its parallelism P, and its completions C are cut at the same
/// positions: the cluster with replicas `before .. before + replicas` gets the completions from `C * before / P` to
/// `C * (before + replicas) / P`. Contiguous parts then add up to C for every C and P. Without completions (a work
/// queue) every member runs until its own pods finish.
fn divide_completions(spec: &mut Value, parallelism: i64, replicas: i64, before: i64) {
    let Some(completions) = spec["completions"].as_i64().filter(|_| parallelism > 0) else {
        return;
    };
    let cut = |at: i64| {
        let part = i128::from(completions) * i128::from(at) / i128::from(parallelism);
        i64::try_from(part).unwrap_or(i64::MAX)
    };
    let part = cut(before.saturating_add(replicas)).saturating_sub(cut(before));
    spec["completions"] = json!(part);
}
