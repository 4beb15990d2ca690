//! Texts that are kept as their difference from another one (delta encoding). The manifests of a workload's members, and
//! its template with a newer status, have almost all of their text in common with the template: each takes a tenth of it.
//! Templates of one namespace have their structure and many values in common.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Shortest run of bytes that is looked for in the base. A reference to a run takes up to 5 bytes.
const BLOCK: usize = 16;

/// A text. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct DeltaText(Arc<Node>);

/// A text, or its difference from another one, which may itself be the difference from a third: a manifest from its template,
/// and the template from another template.
#[derive(Debug)]
enum Node {
    Whole(Box<[u8]>),
    Difference { base: DeltaText, delta: Box<[u8]> },
}

impl DeltaText {
    /// A text that others may be near to.
    pub(crate) fn whole(text: &[u8]) -> Self {
        Self(Arc::new(Node::Whole(text.into())))
    }

    /// A text made from `origin`, with almost all of it in common.
    pub(crate) fn near(text: &[u8], origin: &Self) -> Self {
        Self::on(origin.as_base(), text)
    }

    /// What texts made from this one are differences from.
    fn as_base(&self) -> &Self {
        match &*self.0 {
            // A difference from a difference from a difference would take longer to read, and save nothing.
            Node::Difference { base, .. } if !base.is_whole() => base,
            _ => self,
        }
    }

    /// A text that may have much in common with `other`, but was not made from it.
    pub(crate) fn beside(text: &[u8], other: &Self) -> Self {
        Self::on(other.root(), text)
    }

    /// The difference from `base`, or the whole text if that saves less than half.
    fn on(base: &Self, text: &[u8]) -> Self {
        let known = base.text();
        if !is_worth_keeping(&known, text) {
            return Self::whole(text);
        }
        match encode(&known, text, text.len() / 2) {
            Some(delta) => {
                Self(Arc::new(Node::Difference { base: base.clone(), delta: delta.into() }))
            }
            None => Self::whole(text),
        }
    }

    /// Whether both are kept as differences from the same whole text, or are that text.
    pub(crate) fn has_root_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root().0, &other.root().0)
    }

    /// Whether it is no difference from another text.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(*self.0, Node::Whole(_))
    }

    fn root(&self) -> &Self {
        match &*self.0 {
            Node::Whole(_) => self,
            Node::Difference { base, .. } => base.root(),
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match &*self.0 {
            Node::Whole(text) => Cow::Borrowed(text),
            Node::Difference { base, delta } => Cow::Owned(decode(&base.text(), delta)),
        }
    }
}

impl PartialEq for DeltaText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
    }
}

impl Eq for DeltaText {}

/// The difference of a text from the one that it was made from, and from bytes that its owner knows anyway, which it gives again to
/// read the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnedDelta {
    base: Option<DeltaText>,
    delta: Box<[u8]>,
}

impl OwnedDelta {
    /// A text made from `origin`, if that is given.
    pub(crate) fn of(text: &[u8], origin: Option<&DeltaText>, known: &[u8]) -> Self {
        let base = origin.map(DeltaText::as_base).map(|base| (base, base.text()));
        let base = base.filter(|(_, base)| is_worth_keeping(base, text));
        let (base, of_base) = base.unzip();
        let delta = encode(&joined(of_base, known), text, usize::MAX);
        let delta = delta.expect("no difference is longer than the limit").into();
        Self { base: base.cloned(), delta }
    }

    /// Bytes that it takes itself.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.delta.len()
    }

    /// A text with almost all of this one in common.
    pub(crate) fn beside(&self, text: &[u8], known: &[u8]) -> Self {
        Self::of(text, self.base.as_ref(), known)
    }

    /// The text.
    pub(crate) fn text(&self, known: &[u8]) -> Vec<u8> {
        decode(&joined(self.base.as_ref().map(DeltaText::text), known), &self.delta)
    }
}

/// Whether a difference may keep this base alive. A much longer one may have no other user.
fn is_worth_keeping(base: &[u8], text: &[u8]) -> bool {
    base.len() <= 2 * text.len()
}

fn joined(base: Option<Cow<'_, [u8]>>, known: &[u8]) -> Vec<u8> {
    let mut joined = base.unwrap_or_default().into_owned();
    joined.extend_from_slice(known);
    joined
}

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
        match &*text.0 {
            Node::Whole(text) => text.len(),
            Node::Difference { delta, .. } => delta.len(),
        }
    }

    fn depth(text: &DeltaText) -> usize {
        match &*text.0 {
            Node::Whole(_) => 0,
            Node::Difference { base, .. } => 1 + depth(base),
        }
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
    }

    #[test]
    fn a_template_is_kept_as_the_difference_from_another_one_and_its_manifests_from_it() {
        let object = |name: &str, replicas: u32| {
            let env: Vec<_> = (0..20)
                .map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("{name}-{at}")}))
                .collect();
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {"replicas": replicas, "template": {"spec": {"containers": [{
                    "name": "main", "image": "registry.example/shop:1.2.3", "env": env,
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }]}}},
            })
            .to_string()
        };
        let text = |name, replicas| object(name, replicas).into_bytes();
        let web = DeltaText::whole(&text("web", 3));
        let api = DeltaText::beside(&text("api", 3), &web);
        let newer = DeltaText::near(&text("api", 9), &api);
        let manifest = DeltaText::near(&text("api", 2), &newer);
        let jobs = DeltaText::beside(&text("jobs", 1), &manifest);
        for (kept, whole, layers) in [
            (&web, text("web", 3), 0),
            (&api, text("api", 3), 1),
            (&newer, text("api", 9), 2),
            (&manifest, text("api", 2), 2),
            (&jobs, text("jobs", 1), 1),
        ] {
            assert_eq!((kept.text(), depth(kept)), (Cow::Borrowed(&whole[..]), layers));
            assert!(kept.has_root_of(&web));
        }
        assert!(stored(&api) < stored(&web) / 2 && stored(&manifest) < stored(&api) / 10);
        let other = DeltaText::whole(&text("web", 3));
        assert!(other == web && !other.has_root_of(&web));
    }

    #[test]
    fn what_has_little_in_common_or_is_much_shorter_is_kept_whole() {
        let base = DeltaText::whole("abcdefghijklmnopqrstuvwxyz".repeat(4).as_bytes());
        for text in ["", "a", &"0123456789".repeat(30), "abcdefghijklmnopqrstuvwxyz"] {
            let kept = DeltaText::near(text.as_bytes(), &base);
            assert!(kept.is_whole(), "{text}");
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
            let whole = DeltaText::whole(base.as_bytes());
            let kept = DeltaText::near(text.as_bytes(), &whole);
            prop_assert_eq!(&kept.text()[..], text.as_bytes());
            let back = DeltaText::near(base.as_bytes(), &kept);
            prop_assert_eq!(&back.text()[..], base.as_bytes());
            for origin in [None, Some(&whole), Some(&kept), Some(&back)] {
                let owned = OwnedDelta::of(text.as_bytes(), origin, base.as_bytes());
                prop_assert_eq!(owned.text(base.as_bytes()), text.as_bytes());
                let beside = owned.beside(base.as_bytes(), text.as_bytes());
                prop_assert_eq!(beside.text(text.as_bytes()), base.as_bytes());
            }
        }
    }
}
