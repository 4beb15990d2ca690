//! One object in a member's desired set: its claims, what the member holds, what was sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Few, ManifestHash};
use atoll_protocol::digest;
use atoll_render::Key;

use super::object_uid::ObjectUid;
use crate::member::types::{Proof, Withdrawal};
use crate::packed::Packed;

/// The fields of an object that both ends must agree on, which the digest covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Hash of the rendered manifest.
    pub(crate) hash: ManifestHash,
    /// Ascending.
    pub(crate) claims: Vec<BindingUid>,
    /// Whether it stays when its binding is deleted.
    pub(crate) preserve: bool,
}

/// An object as the member holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Shared with the order that it comes from.
    pub(crate) mark: Arc<Mark>,
    pub(crate) uid: ObjectUid,
}

/// How a member leaves the federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Departing {
    /// Workloads stay on the member, without our marks.
    pub(crate) release: bool,
    /// Do not wait for what cannot move: release it as it is.
    pub(crate) force: bool,
}

/// What one claim wants.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) packed: Arc<Packed>,
    pub(super) conflict: ConflictResolution,
}

/// The last order sent about an object in this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastOrder {
    /// With the rule for an unmanaged object in its place.
    Upsert(Arc<Mark>, ConflictResolution),
    /// Remove or release it.
    Leave,
}

/// An object that no claim wants any more, with proof.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    pub(super) how: Withdrawal,
    pub(super) proof: Proof,
    /// Claims whose withdrawal waits for its removal.
    pub(super) claims: BTreeSet<BindingUid>,
    /// Above the limit of its window.
    pub(super) held_back: bool,
}

/// Why an object that no claim wants stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptBecause {
    /// No binding is known for it.
    Orphan,
    /// Its binding cannot be rendered now.
    Frozen,
    /// Its binding will set it.
    Awaited,
}

/// The order to send about an object now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingOrder {
    Nothing,
    Upsert,
    Leave,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    /// By claim.
    pub(super) wants: Few<BindingUid, Want>,
    /// `None` = nothing, or unknown (before the first agreement).
    pub(super) held: Option<Held>,
    pub(super) last_order: Option<LastOrder>,
    /// Boxed: few are.
    pub(super) leaving: Option<Box<Leaving>>,
    pub(super) kept: Option<KeptBecause>,
    /// Claims withdrawn from it that the member's copy may still list.
    pub(super) gone: BTreeSet<BindingUid>,
    /// A claim wants it only since the inventory was agreed: the member's reports of before reached no binding, so the
    /// order is sent even if the member holds the object as wanted.
    pub(super) unreported: bool,
}

impl Object {
    /// What the member should hold because of claims; `None` when no claim wants it.
    pub(super) fn mark(&self) -> Option<Mark> {
        let first = self.wants.first()?;
        Some(Mark {
            hash: first.packed.hash.clone(),
            claims: self.wants.keys().cloned().collect(),
            preserve: self.wants.values().any(|want| want.packed.preserve),
        })
    }

    /// What the member holds. If that is what it should hold, the texts are shared with the order.
    pub(super) fn shared(&self, held: Held) -> Held {
        match self.mark() {
            Some(mark) if mark == *held.mark => Held { mark: Arc::new(mark), ..held },
            _ => held,
        }
    }

    /// What the member should hold once everything sent and pending is carried out.
    pub(super) fn intended(&self) -> Option<Arc<Mark>> {
        if let Some(mark) = self.mark() {
            return Some(Arc::new(mark));
        }
        match &self.leaving {
            Some(leaving) if !leaving.held_back => None,
            _ => self.held.as_ref().map(|held| held.mark.clone()),
        }
    }

    pub(super) fn pending(&self) -> PendingOrder {
        if let Some(mark) = self.mark() {
            let held = self.held.as_ref().map(|held| &held.mark);
            let there = match &self.last_order {
                // An apply that was blocked under another rule is sent again.
                Some(LastOrder::Upsert(mark, rule))
                    if held == Some(mark) || self.rule() == Some(*rule) =>
                {
                    Some(mark)
                }
                Some(_) => None,
                None if self.unreported => None,
                None => held,
            };
            return if there.is_some_and(|there| **there == mark) {
                PendingOrder::Nothing
            } else {
                PendingOrder::Upsert
            };
        }
        match &self.leaving {
            Some(leaving) if !leaving.held_back && self.last_order != Some(LastOrder::Leave) => {
                PendingOrder::Leave
            }
            _ => PendingOrder::Nothing,
        }
    }

    /// The rule for an unmanaged object in its place.
    fn rule(&self) -> Option<ConflictResolution> {
        self.wants.first().map(|first| first.conflict)
    }

    /// Whether the member may hold it.
    pub(super) fn may_be_held(&self) -> bool {
        self.held.is_some() || matches!(self.last_order, Some(LastOrder::Upsert(..)))
    }

    /// Whether the member holds it although no known binding wants it.
    pub(super) fn is_orphan(&self) -> bool {
        self.kept == Some(KeptBecause::Orphan) && self.held.is_some()
    }

    /// Whether the withdrawal of `claim` waits for this object: it is being removed, or the member may still list the
    /// claim. An object kept by other claims is not waited for.
    pub(super) fn waits(&self, claim: &BindingUid) -> bool {
        let listed =
            || self.held.as_ref().is_some_and(|held| held.mark.claims.iter().any(|c| c == claim));
        self.leaving.as_ref().is_some_and(|leaving| leaving.claims.contains(claim))
            || (self.kept.is_none() && self.gone.contains(claim) && listed())
    }

    /// Whether the entry holds no more information.
    pub(super) fn is_done(&self) -> bool {
        self.wants.is_empty() && self.leaving.is_none() && !self.may_be_held()
    }

    /// Claims whose rendering is not the one sent: they get a conflict.
    pub(super) fn conflicting(&self) -> Vec<BindingUid> {
        let Some(first) = self.wants.first() else { return Vec::new() };
        let others = self.wants.iter().filter(|(_, want)| want.packed.hash != first.packed.hash);
        others.map(|(claim, _)| claim.clone()).collect()
    }

    /// The manifest to send. Several claims mostly want the same object of the same template, so the first one's
    /// rendering is used; only the marks are combined.
    pub(super) fn manifest(&self, mark: &Mark) -> Option<(Arc<Packed>, ConflictResolution)> {
        let first = self.wants.first()?;
        let packed = match self.wants.len() {
            1 => first.packed.clone(),
            _ => first.packed.marked(&mark.claims, mark.preserve),
        };
        Some((packed, first.conflict))
    }
}

impl Mark {
    /// Digest entry of the object.
    pub(super) fn entry<'a>(&'a self, key: &'a Key) -> digest::Entry<'a> {
        digest::Entry {
            group: key.group(),
            kind: key.kind(),
            namespace: key.namespace().unwrap_or_default(),
            name: key.name(),
            hash: &self.hash,
            claims: self.claims.iter().map(BindingUid::as_str).collect(),
            preserve: self.preserve,
        }
    }
}

/// Kinds that are never deleted as a side effect: their content would be deleted too.
pub(super) fn is_never_removed(key: &Key) -> bool {
    matches!(
        (key.group(), key.kind()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Order in which objects are created: dependencies first. Removal is in reverse.
pub(super) fn rank(key: &Key) -> u8 {
    match (key.group(), key.kind()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("rbac.authorization.k8s.io" | "storage.k8s.io" | "scheduling.k8s.io", _)
        | (
            "",
            "ConfigMap"
            | "Secret"
            | "ServiceAccount"
            | "PersistentVolumeClaim"
            | "LimitRange"
            | "ResourceQuota",
        ) => 2,
        _ => 3,
    }
}
