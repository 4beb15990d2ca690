//! Converts the controller's upserts to the agent's own types.

use std::collections::BTreeMap;

use atoll_protocol::v1;
use bytes::Bytes;
use serde::Deserialize;

use crate::apply::object::Desired;

/// The marks that a manifest carries; the rest stays unparsed text.
#[derive(Deserialize)]
struct Marks {
    #[serde(default)]
    metadata: MarksMetadata,
}

#[derive(Deserialize, Default)]
struct MarksMetadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The desired state that an upsert asks for.
///
/// # Errors
/// The manifest is not a JSON object, or its annotations are not text.
pub(super) fn desired(upsert: &v1::Upsert) -> Result<Desired, serde_json::Error> {
    let marks: Marks = serde_json::from_slice(&upsert.manifest_json)?;
    let annotation = |name| marks.metadata.annotations.get(name).cloned().unwrap_or_default();
    Ok(Desired {
        hash: upsert.hash.clone(),
        claims: annotation(atoll_api::marks::CLAIMS),
        preserve: annotation(atoll_api::marks::PRESERVE) == "true",
        api_version: upsert.api_version.clone(),
        // A copy: the message's bytes are a slice of a much larger receive buffer and would keep it in memory.
        manifest: Bytes::copy_from_slice(&upsert.manifest_json),
        overwrite: upsert.conflict_resolution() == v1::ConflictResolution::Overwrite,
        if_absent: upsert.if_absent,
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::apply::object::check_identity;
    use crate::inventory::agreement::claims;
    use crate::key::Key;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "\\PC{0,20}", 1 => Just(String::new()), 1 => "[a-z/.%?#\u{0}-\u{20}]{0,30}"]
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ]
    }

    /// Fields of a manifest that take any value.
    const FIELDS: [&str; 6] =
        ["/metadata", "/metadata/annotations", "/metadata/labels", "/spec", "", "/kind"];

    /// An object that is a manifest except for one field, which has any value.
    fn almost_a_manifest() -> impl Strategy<Value = Value> {
        let value = leaf().prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec((text(), inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        (value, proptest::sample::select(&FIELDS[..])).prop_map(|(value, field)| {
            let mut manifest = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "shop", "labels": {}, "annotations": {}},
                "spec": {},
            });
            *manifest.pointer_mut(field).unwrap() = value;
            manifest
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn any_upsert_is_taken_as_it_is_or_refused(
            texts in (text(), text(), text(), text(), text(), text()),
            conflict_resolution in any::<i32>(),
            if_absent in any::<bool>(),
            manifest in prop_oneof![
                vec(any::<u8>(), 0..60),
                Just(b"{\"metadata\":".repeat(100_000)),
                almost_a_manifest().prop_map(|manifest| manifest.to_string().into_bytes()),
            ],
        ) {
            let wire = v1::ObjectKey {
                group: texts.0, kind: texts.1, namespace: texts.2, name: texts.3,
            };
            let upsert = v1::Upsert {
                key: Some(wire.clone()),
                hash: texts.4,
                api_version: texts.5,
                conflict_resolution,
                if_absent,
                manifest_json: manifest.clone().into(),
                traceparent: String::new(),
            };
            let key = Key::from_wire(upsert.key.clone());
            prop_assert_eq!(key.is_some(), !wire.kind.is_empty() && !wire.name.is_empty());
            let Some(key) = key else { return Ok(()) };
            prop_assert_eq!(key.to_wire(), wire);
            let Ok(desired) = desired(&upsert) else { return Ok(()) };
            prop_assert_eq!(&desired.manifest[..], &manifest[..]);
            prop_assert_eq!(&desired.hash, &upsert.hash);
            prop_assert!(claims(&desired.claims).iter().all(|claim| !claim.is_empty()));
            // No such manifest has Atoll's marks, so none is applied.
            let Ok(manifest) = serde_json::from_slice(&manifest) else { return Ok(()) };
            prop_assert!(check_identity(&manifest, &key, &desired).is_err());
        }
    }
}
