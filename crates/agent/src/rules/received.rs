//! The customizations that the controller sent: texts by hash, and the list that is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::customization::{ResourceInterpreterCustomizationSpec, Retention};
use atoll_api::hex;
use atoll_customize::Customizations;
use atoll_protocol::transport::{MAX_CUSTOMIZATIONS, MAX_RULE_TEXT, MAX_RULE_TEXTS};
use atoll_protocol::v1;
use ring::digest::{SHA256, digest};
use serde_json::Value;

/// The texts in force, and those that will replace them.
const MAX_TEXTS: usize = 2 * MAX_RULE_TEXTS;

/// A kind in a version, as a customization names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VersionKind {
    /// For example `apps/v1`.
    pub(crate) api_version: String,
    /// For example `Deployment`.
    pub(crate) kind: String,
}

impl VersionKind {
    /// The kind of an object.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }
}

/// Why a text of rules is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextError {
    #[error("it has {0} bytes, at most {MAX_RULE_TEXT} are allowed")]
    TooLarge(usize),
    #[error("all texts of rules together have more than {MAX_TEXTS} bytes")]
    TooMany,
    #[error("its SHA-256 is {0}")]
    OtherHash(String),
    #[error("it is not the spec of a customization: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("{0}")]
    Invalid(String),
}

/// A text, parsed.
#[derive(Debug)]
struct Text {
    spec: Arc<ResourceInterpreterCustomizationSpec>,
    bytes: usize,
}

/// Texts by hash.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<String, Text>);

impl Texts {
    /// Stores a text.
    pub(super) fn add(&mut self, text: &v1::RuleText) -> Result<(), TextError> {
        let bytes = text.spec_json.len();
        if bytes > MAX_RULE_TEXT {
            return Err(TextError::TooLarge(bytes));
        }
        if self.0.contains_key(&text.hash) {
            return Ok(());
        }
        if self.0.values().map(|text| text.bytes).sum::<usize>() + bytes > MAX_TEXTS {
            return Err(TextError::TooMany);
        }
        let hash = hex::encode(digest(&SHA256, &text.spec_json).as_ref());
        if hash != text.hash {
            return Err(TextError::OtherHash(hash));
        }
        let spec: ResourceInterpreterCustomizationSpec = serde_json::from_slice(&text.spec_json)?;
        if let Some(problem) = spec.problems().first() {
            return Err(TextError::Invalid(problem.to_string()));
        }
        self.0.insert(hash, Text { spec: Arc::new(spec), bytes });
        Ok(())
    }

    /// The customizations of a list. Drops the texts that it does not need.
    pub(super) fn in_force(&mut self, list: v1::Customizations) -> InForce {
        let mut entries = list.entries;
        if entries.len() > MAX_CUSTOMIZATIONS {
            tracing::warn!(
                sent = entries.len(),
                "the controller sent more than {MAX_CUSTOMIZATIONS} customizations: the rest is not used"
            );
            entries.truncate(MAX_CUSTOMIZATIONS);
        }
        let needed: BTreeSet<&String> = entries.iter().map(|entry| &entry.hash).collect();
        self.0.retain(|hash, _| needed.contains(hash));
        let mut found = InForce::default();
        let mut specs = BTreeMap::new();
        for v1::Customization { name, hash, api_version, kind } in entries {
            let text = self.0.get(&hash);
            let kind = VersionKind { api_version, kind };
            match text {
                Some(text) => {
                    specs.insert(name.clone(), text.spec.clone());
                }
                None => {
                    tracing::info!(customization = %name, "without the text of its rules: raw statuses are reported");
                    found.raw.insert(kind.clone());
                }
            }
            if let Some(retention) =
                text.and_then(|text| text.spec.customizations.retention.clone())
            {
                let rules = found.retentions.entry(kind.clone()).or_default();
                rules.insert(name.clone(), retention);
            }
            let rules = found.kinds.entry(kind).or_default();
            rules.insert(name.clone(), (hash.clone(), text.is_some()));
            found.hashes.insert(name, hash);
        }
        let named = specs.iter().map(|(name, spec)| (name.as_str(), spec.clone()));
        found.rules = Arc::new(Customizations::of(named));
        found
    }
}

/// The customizations in force.
#[derive(Debug, Default)]
pub(super) struct InForce {
    /// Their rules.
    pub(super) rules: Arc<Customizations>,
    /// Kinds with a customization whose text is missing.
    pub(super) raw: BTreeSet<VersionKind>,
    /// Hashes by name.
    pub(super) hashes: BTreeMap<String, String>,
    /// Of each kind: the customizations, their hashes, and whether the text is there.
    kinds: BTreeMap<VersionKind, BTreeMap<String, (String, bool)>>,
    /// Of each kind: the rules about fields that members keep.
    retentions: BTreeMap<VersionKind, BTreeMap<String, Retention>>,
}

/// Kinds whose rules changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Health and status have to be read again.
    pub(crate) kinds: BTreeSet<VersionKind>,
    /// Fields that were retained may have to be applied.
    pub(crate) retained: BTreeSet<VersionKind>,
}

impl InForce {
    /// What changes when `self` replaces `before`.
    pub(super) fn changed_since(&self, before: &Self) -> Changed {
        let retained = before.retentions.iter();
        let retained = retained.filter(|(kind, rules)| self.retentions.get(kind) != Some(rules));
        Changed {
            kinds: differing(&before.kinds, &self.kinds),
            retained: retained.map(|(kind, _)| kind.clone()).collect(),
        }
    }
}

/// Keys whose values differ.
fn differing<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let all = before.keys().chain(after.keys());
    all.filter(|key| before.get(key) != after.get(key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(spec: &Value) -> v1::RuleText {
        let text = spec.to_string();
        v1::RuleText {
            hash: hex::encode(digest(&SHA256, text.as_bytes()).as_ref()),
            spec_json: text.into(),
        }
    }

    fn spec(rules: &Value) -> Value {
        json!({"target": {"apiVersion": "a/v1", "kind": "A"}, "customizations": rules})
    }

    fn entry(name: &str, hash: &str) -> v1::Customization {
        let (name, hash) = (name.to_owned(), hash.to_owned());
        v1::Customization { name, hash, api_version: "a/v1".to_owned(), kind: "A".to_owned() }
    }

    #[test]
    fn a_text_that_is_too_large_damaged_or_no_customization_is_refused() {
        let mut texts = Texts::default();
        let fine = text(&spec(&json!({"healthInterpretation": {"cel": "true"}})));
        texts.add(&fine).unwrap();
        let damaged = v1::RuleText { hash: "0".repeat(64), ..fine };
        let large =
            v1::RuleText { spec_json: vec![b' '; MAX_RULE_TEXT + 1].into(), ..damaged.clone() };
        for (wrong, part) in [
            (damaged, "SHA-256"),
            (large, "bytes"),
            (text(&json!([])), "not the spec"),
            (
                text(&spec(&json!({"healthInterpretation": {}}))),
                "spec.customizations.healthInterpretation",
            ),
        ] {
            let error = texts.add(&wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn texts_are_bounded_in_bytes_and_those_that_no_list_needs_make_room() {
        let mut texts = Texts::default();
        let script = "-".repeat(atoll_api::customization::MAX_RULE_BYTES);
        let large = |at: usize| {
            let script = json!({"luaScript": format!("{at:09}{}", &script[9..])});
            text(&spec(&json!({"healthInterpretation": script, "statusReflection": script})))
        };
        let refused = (0..1000).find(|at| texts.add(&large(*at)).is_err());
        assert!(matches!(texts.add(&large(1001)), Err(TextError::TooMany)));
        assert!(refused.is_some_and(|at| at * script.len() * 2 > MAX_RULE_TEXTS), "{refused:?}");
        texts.in_force(v1::Customizations { entries: vec![entry("a", &large(0).hash)] });
        texts.add(&large(1001)).unwrap();
    }

    #[test]
    fn a_list_says_which_kinds_changed_and_which_fields_are_no_longer_retained() {
        let mut texts = Texts::default();
        let rules = [
            json!({"retention": {"paths": ["/spec/a"]}, "healthInterpretation": {"cel": "true"}}),
            json!({"retention": {"paths": ["/spec/a"]}, "healthInterpretation": {"cel": "false"}}),
            json!({"healthInterpretation": {"cel": "false"}}),
        ];
        let mut before = InForce::default();
        let kind = BTreeSet::from([VersionKind { api_version: "a/v1".into(), kind: "A".into() }]);
        for (at, (rules, unretained)) in rules.iter().zip([false, false, true]).enumerate() {
            let text = text(&spec(rules));
            texts.add(&text).unwrap();
            let now = texts.in_force(v1::Customizations { entries: vec![entry("a", &text.hash)] });
            let changed = now.changed_since(&before);
            assert_eq!(changed.kinds, kind, "{at}");
            assert_eq!(!changed.retained.is_empty(), unretained, "{at}");
            assert!(now.changed_since(&now).kinds.is_empty() && now.raw.is_empty());
            before = now;
        }
        let unknown = texts.in_force(v1::Customizations { entries: vec![entry("a", "other")] });
        assert_eq!(unknown.raw, kind);
    }
}
