//! Texts that are kept as their difference from another one (delta encoding). The manifests of a workload's members, and
//! its template with a newer status, have almost all of their text in common with the template: each takes a tenth of it.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Shortest run of bytes that is looked for in the base. A reference to a run takes up to 5 bytes.
const BLOCK: usize = 16;

/// A text. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct DeltaText {
    base: Arc<[u8]>,
    /// `None`: it is the base itself.
    delta: Option<Arc<[u8]>>,
}

impl DeltaText {
    /// A text that others may be near to.
    pub(crate) fn whole(text: &[u8]) -> Self {
        Self { base: text.into(), delta: None }
    }

    /// A text that is probably near to `base`. If it is not, it is kept whole: a difference of more than half of it saves
    /// little, and a much longer base may have no other user.
    pub(crate) fn near(text: &[u8], base: &Self) -> Self {
        if base.base.len() > 2 * text.len() {
            return Self::whole(text);
        }
        match encode(&base.base, text, text.len() / 2) {
            Some(delta) => Self { base: base.base.clone(), delta: Some(delta.into()) },
            None => Self::whole(text),
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match &self.delta {
            None => Cow::Borrowed(&self.base),
            Some(delta) => Cow::Owned(decode(&self.base, delta)),
        }
    }
}

impl PartialEq for DeltaText {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for DeltaText {}

fn block(text: &[u8], at: usize) -> Option<u128> {
    let bytes = text.get(at..at + BLOCK)?;
    Some(u128::from_le_bytes(bytes.try_into().ok()?))
}

/// The difference: each step is the length of a literal, the literal, and start and length of a run of the base. `None` if
/// it is longer than `limit`.
fn encode(base: &[u8], text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut known: FxHashMap<u128, usize> = FxHashMap::default();
    known.reserve(base.len() / BLOCK);
    for at in (0..base.len()).step_by(BLOCK) {
        if let Some(block) = block(base, at) {
            known.entry(block).or_insert(at);
        }
    }
    let mut delta = Vec::new();
    // Everything before `done` is encoded, and no run begins between `done` and `at`.
    let (mut done, mut at) = (0, 0);
    while let Some(wanted) = block(text, at) {
        let Some(found) = known.get(&wanted) else {
            at += 1;
            continue;
        };
        let before = text[done..at].iter().rev().zip(base[..*found].iter().rev());
        let before = before.take_while(|(a, b)| a == b).count();
        let after = text[at..].iter().zip(&base[*found..]).take_while(|(a, b)| a == b).count();
        push(&mut delta, &text[done..at - before], (found - before, before + after));
        done = at + after;
        at = done;
        if delta.len() > limit {
            return None;
        }
    }
    push(&mut delta, &text[done..], (0, 0));
    (delta.len() <= limit).then_some(delta)
}

fn push(delta: &mut Vec<u8>, literal: &[u8], (start, length): (usize, usize)) {
    push_number(delta, literal.len());
    delta.extend_from_slice(literal);
    push_number(delta, start);
    push_number(delta, length);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_number(delta: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        delta.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    delta.push(number as u8);
}

fn decode(base: &[u8], mut delta: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(base.len() + delta.len());
    while !delta.is_empty() {
        let literal = take_number(&mut delta);
        let (literal, rest) = delta.split_at(literal);
        text.extend_from_slice(literal);
        delta = rest;
        let start = take_number(&mut delta);
        let length = take_number(&mut delta);
        text.extend_from_slice(&base[start..start + length]);
    }
    text
}

fn take_number(delta: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = delta.split_first() {
        *delta = rest;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn stored(text: &DeltaText) -> usize {
        text.delta.as_ref().map_or(text.base.len(), |delta| delta.len())
    }

    #[test]
    fn a_manifest_takes_a_tenth_of_its_template_and_is_the_same_text() {
        let env: Vec<_> = (0..40)
            .map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("{}", at * 7919)}))
            .collect();
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "12", "uid": "u"},
            "spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "c", "env": env}]}}},
            "status": {"replicas": 5, "conditions": [{"type": "Available", "status": "True"}]},
        });
        let template = DeltaText::whole(object.to_string().as_bytes());
        object.as_object_mut().unwrap().remove("status");
        object["spec"]["replicas"] = json!(2);
        object["metadata"] = json!({"name": "web", "namespace": "shop", "annotations": {
            "claims": "5a5f2c1e-8e0d-4c0b-9b1e-5d1f0f4d9a11", "hash": "ab".repeat(32),
        }});
        let text = object.to_string();
        let manifest = DeltaText::near(text.as_bytes(), &template);
        assert_eq!(manifest.text(), text.as_bytes());
        assert!(text.len() > 1_800 && stored(&manifest) < text.len() / 5, "{}", stored(&manifest));
        let same = DeltaText::near(text.as_bytes(), &manifest);
        assert!(Arc::ptr_eq(&same.base, &template.base), "a base of a base is not needed");
    }

    #[test]
    fn what_has_little_in_common_or_is_much_shorter_is_kept_whole() {
        let base = DeltaText::whole("abcdefghijklmnopqrstuvwxyz".repeat(4).as_bytes());
        for text in ["", "a", &"0123456789".repeat(30), "abcdefghijklmnopqrstuvwxyz"] {
            let kept = DeltaText::near(text.as_bytes(), &base);
            assert!(kept.delta.is_none(), "{text}");
            assert_eq!(kept.text(), text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back(
            pieces in prop::collection::vec("[ab]{0,40}|[a-z]{0,60}|[\\u{0}-\\u{ffff}]{0,9}", 0..8),
            base in prop::collection::vec(0..8_usize, 0..12),
            text in prop::collection::vec(0..8_usize, 0..12),
        ) {
            let of = |numbers: &[usize]| -> String {
                numbers.iter().filter_map(|at| pieces.get(*at).map(String::as_str)).collect()
            };
            let (base, text) = (of(&base), of(&text));
            let encoded = encode(base.as_bytes(), text.as_bytes(), usize::MAX).unwrap();
            prop_assert_eq!(decode(base.as_bytes(), &encoded), text.as_bytes());
            let kept = DeltaText::near(text.as_bytes(), &DeltaText::whole(base.as_bytes()));
            prop_assert_eq!(&kept.text()[..], text.as_bytes());
        }
    }
}
