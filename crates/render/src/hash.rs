//! The content hash of a manifest. Equal hashes mean equal manifests.

use std::fmt::Write;

use atoll_api::{ManifestHash, hex};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::RENDER_VERSION;

/// SHA-256 in hex over [`RENDER_VERSION`] and the canonical JSON of the manifest.
pub(crate) fn of(manifest: &Value) -> ManifestHash {
    let mut canonical = format!("{RENDER_VERSION}\n");
    write_value(manifest, &mut canonical);
    hex::encode(&Sha256::digest(canonical.as_bytes())).into()
}

/// JSON without white space, keys ascending. Implemented here because a serde_json feature that any crate in the graph
/// can enable would change the order of its maps, and with it every hash.
fn write_map(map: &Map<String, Value>, out: &mut String) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "{}:", Value::from(key.as_str()));
        write_value(value, out);
    }
    out.push('}');
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_map(map, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}
