//! The content hash of a manifest. Equal hashes mean equal manifests.

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{ManifestHash, hex};

/// Part of every hash. Raise it when the rendering of an unchanged template changes, so that members detect the change.
const RENDER_VERSION: u32 = 1;

impl ManifestHash {
    /// The hash of a manifest without Atoll's marks: SHA-256 in hex over a version and the canonical JSON. Controllers compute
    /// it when they render, and agents from what a member holds.
    #[must_use]
    pub fn of(manifest: &Value) -> Self {
        let mut canonical = format!("{RENDER_VERSION}\n").into_bytes();
        write_value(manifest, &mut canonical);
        hex::encode(&Sha256::digest(canonical)).into()
    }
}

/// JSON without white space, keys ascending. Implemented here because a serde_json feature that any crate in the graph
/// can enable would change the order of its maps, and with it every hash.
fn write_map(map: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    out.push(b'{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_scalar(key, out);
        out.push(b':');
        write_value(value, out);
    }
    out.push(b'}');
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => write_map(map, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        scalar => write_scalar(scalar, out),
    }
}

/// A text, a number, a boolean or null.
fn write_scalar(value: &impl Serialize, out: &mut Vec<u8>) {
    // Memory takes everything, and every scalar has a form in JSON.
    let _ = serde_json::to_writer(out, value);
}
