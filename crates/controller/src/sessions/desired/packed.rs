//! A manifest in the form that is stored while a member should hold it.

use std::sync::Arc;

use atoll_api::{BindingUid, ManifestHash, marks};
use atoll_render::{Key, Rendered};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::delta::DeltaText;

/// A manifest with its metadata, as the difference from its template if that is known. The text takes a tenth of the memory
/// of a value, and the difference a tenth of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The object.
    pub(crate) key: Key,
    /// For example `apps/v1`.
    pub(crate) api_version: String,
    /// Hash of the manifest without its marks.
    pub(crate) hash: ManifestHash,
    text: DeltaText,
    /// Whether it has a claim; one without is only a prerequisite of others (a namespace).
    pub(super) claimed: bool,
    /// Whether it stays when its binding is deleted.
    pub(super) preserve: bool,
}

impl Packed {
    /// `near`: the text of the template.
    pub(crate) fn of(rendered: &Rendered, near: Option<&DeltaText>) -> Self {
        let annotation =
            |name: &str| rendered.manifest.get("metadata")?.get("annotations")?.get(name)?.as_str();
        Self {
            key: rendered.key.clone(),
            api_version: rendered.api_version.clone(),
            hash: rendered.hash.clone(),
            text: match near {
                Some(near) => DeltaText::near(&text(&rendered.manifest), near),
                None => DeltaText::whole(&text(&rendered.manifest)),
            },
            claimed: annotation(marks::CLAIMS).is_some_and(|claims| !claims.is_empty()),
            preserve: annotation(marks::PRESERVE) == Some("true"),
        }
    }

    /// The manifest as JSON.
    pub(crate) fn manifest(&self) -> Bytes {
        self.text.text().into_owned().into()
    }

    /// The same manifest with the marks of several claims.
    pub(super) fn marked(&self, claims: &[BindingUid], preserve: bool) -> Arc<Self> {
        let mut manifest: Value =
            serde_json::from_slice(&self.text.text()).expect("it was serialized from a JSON value");
        if let Some(annotations) =
            manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.insert(marks::CLAIMS.to_owned(), json!(claims.join(",")));
            if preserve {
                annotations.insert(marks::PRESERVE.to_owned(), json!("true"));
            }
        }
        Arc::new(Self { text: DeltaText::near(&text(&manifest), &self.text), ..self.clone() })
    }
}

fn text(manifest: &Value) -> Vec<u8> {
    serde_json::to_vec(manifest).expect("a JSON value has string keys and finite numbers")
}
