//! A manifest in the form that is stored while a member should hold it.

use std::sync::Arc;

use atoll_api::{BindingUid, ManifestHash, marks};
use atoll_render::{Key, Rendered};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::delta::{DeltaText, OwnedDelta};

/// A manifest with its metadata, as the difference from its template if that is known. The text takes a tenth of the memory
/// of a value, and the difference a thirtieth of that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Packed {
    /// The object.
    pub(crate) key: Key,
    /// For example `apps/v1`.
    pub(crate) api_version: Arc<str>,
    /// Hash of the manifest without its marks.
    pub(crate) hash: ManifestHash,
    /// Its claim. An object without one is only a prerequisite of others (a namespace).
    pub(crate) claim: Option<BindingUid>,
    /// Whether it stays when its binding is deleted.
    pub(crate) preserve: bool,
    text: OwnedDelta,
}

impl Packed {
    /// `near`: the text of the template. `claim`: who wants it, if it is not only a prerequisite.
    pub(crate) fn of(
        rendered: &Rendered,
        near: Option<&DeltaText>,
        claim: Option<&BindingUid>,
    ) -> Self {
        let annotation =
            |name: &str| rendered.manifest.get("metadata")?.get("annotations")?.get(name)?.as_str();
        let claimed = annotation(marks::CLAIMS).is_some_and(|claims| !claims.is_empty());
        let claim = claim.filter(|_| claimed).cloned();
        let hash = rendered.hash.clone();
        Self {
            key: rendered.key.clone(),
            api_version: rendered.api_version.clone(),
            text: OwnedDelta::of(&text(&rendered.manifest), near, &known(claim.as_ref(), &hash)),
            hash,
            claim,
            preserve: annotation(marks::PRESERVE) == Some("true"),
        }
    }

    /// What objects of several claims need: nobody claims it.
    pub(crate) fn prerequisite(rendered: &Rendered) -> Self {
        Self::of(rendered, None, None)
    }

    /// The manifest as JSON.
    pub(crate) fn manifest(&self) -> Bytes {
        self.text.text(&self.known()).into()
    }

    fn known(&self) -> Vec<u8> {
        known(self.claim.as_ref(), &self.hash)
    }

    /// The same manifest with the marks of several claims.
    pub(crate) fn marked(&self, claims: &[BindingUid], preserve: bool) -> Arc<Self> {
        let mut manifest: Value =
            serde_json::from_slice(&self.manifest()).expect("it was serialized from a JSON value");
        if let Some(annotations) =
            manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.insert(marks::CLAIMS.to_owned(), json!(claims.join(",")));
            if preserve {
                annotations.insert(marks::PRESERVE.to_owned(), json!("true"));
            }
        }
        let text = self.text.beside(&text(&manifest), &self.known());
        Arc::new(Self { text, ..self.clone() })
    }
}

/// The marks as most manifests have them, for a difference that need not say them.
fn known(claim: Option<&BindingUid>, hash: &ManifestHash) -> Vec<u8> {
    let annotations = match claim {
        Some(claim) => json!({ marks::CLAIMS: claim, marks::HASH: hash }),
        None => json!({ marks::HASH: hash }),
    };
    let labels = json!({ marks::MANAGED_BY: marks::MANAGED_BY_VALUE });
    format!("\"annotations\":{annotations},\"labels\":{labels},\"name\":\"").into_bytes()
}

fn text(manifest: &Value) -> Vec<u8> {
    serde_json::to_vec(manifest).expect("a JSON value has string keys and finite numbers")
}

#[cfg(test)]
mod tests {
    use atoll_render::{Share, render};

    use super::*;

    #[test]
    fn a_manifest_comes_back_and_its_marks_take_no_room() {
        let uid = "5a5f2c1e-8e0d-4c0b-9b1e-5d1f0f4d9a11";
        let variables: Vec<_> = (0..9)
            .map(|at| json!({"name": format!("SETTING_{at}"), "value": (at * 7919).to_string()}))
            .collect();
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": uid, "labels": {"app": "web"}},
            "spec": {
                "replicas": 5, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "shop:1", "env": variables}]},
                },
            },
        });
        let origin = DeltaText::whole(template.to_string().as_bytes());
        let share = Share {
            cluster: "member1".into(),
            replicas: Some(2),
            claim: uid.into(),
            ..Share::default()
        };
        let rendered = render(&template, &share).unwrap();
        let claim = BindingUid::from(uid);
        for (near, of, most) in
            [(Some(&origin), &claim, 110), (None, &claim, 800), (Some(&origin), &"b".into(), 110)]
        {
            let packed = Packed::of(&rendered, near, Some(of));
            assert_eq!(
                serde_json::from_slice::<Value>(&packed.manifest()).unwrap(),
                rendered.manifest
            );
            assert!(packed.text.len() < most, "{} bytes", packed.text.len());
            let both = packed.marked(&["a".into(), "b".into()], true);
            let both: Value = serde_json::from_slice(&both.manifest()).unwrap();
            assert_eq!(both["metadata"]["annotations"][marks::CLAIMS], "a,b");
            assert_eq!(both["metadata"]["annotations"][marks::PRESERVE], "true");
            assert_eq!(both["spec"], rendered.manifest["spec"]);
        }
    }
}
