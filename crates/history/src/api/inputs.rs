//! What decisions read, as objects of the kind `DecisionInput`: the recorded frames, which `atoll replay` reads.
//!
//! The name is the id of the decision, or `ID.EARLIER`: then frames up to those of the earlier decision are left out.
//! Frames of several bindings build on each other, so the kind has no namespace and needs a right of its own.

use atoll_api::{HISTORY_GROUP, VERSION};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Kind;
use crate::inputs::{Chain, Link, chain};
use crate::{FilterError, Frame, Store, StoreError};

pub(super) async fn get(store: &dyn Store, name: &str) -> Result<Option<Value>, StoreError> {
    let (id, after) = match name.split_once('.') {
        Some((id, after)) => (id, Some(after)),
        None => (name, None),
    };
    let spec = match chain(store, id, after).await? {
        Chain::NoDecision => return Ok(None),
        Chain::Missing(why) => json!({"decision": id, "missing": why.to_string()}),
        Chain::Frames(links) => {
            let frame = |link: &Link| json!({"decision": link.decision, "frame": STANDARD.encode(link.frame.as_bytes())});
            json!({"decision": id, "frames": links.iter().map(frame).collect::<Vec<_>>()})
        }
    };
    Ok(Some(json!({
        "apiVersion": format!("{HISTORY_GROUP}/{VERSION}"),
        "kind": Kind::DecisionInput.name(),
        "metadata": {"name": name},
        "spec": spec,
    })))
}

/// Reads such an object.
///
/// # Errors
/// Why the inputs are missing.
pub fn read(object: &Value) -> Result<Vec<Link>, String> {
    let spec = &object["spec"];
    if let Some(missing) = spec["missing"].as_str() {
        return Err(missing.to_owned());
    }
    let frames = spec["frames"].as_array().ok_or("the hub sent no frames")?;
    let read = |item: &Value| {
        let text = |field: &str| item[field].as_str().ok_or(format!("the hub sent no {field}"));
        let bytes = STANDARD.decode(text("frame")?).map_err(|error| format!("frame: {error}"))?;
        let decision = text("decision")?.to_owned();
        Ok(Link { decision, frame: Frame::from_bytes(bytes) })
    };
    frames.iter().map(read).collect()
}

/// The error for lists: frames are only read for one decision.
pub(super) fn no_list() -> FilterError {
    let problem = "inputs are read for one decision: name its id";
    FilterError::new("metadata.name", "", problem)
}
