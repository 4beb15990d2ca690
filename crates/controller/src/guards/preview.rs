//! What guards say about a change that nobody has made yet, for `atoll plan`. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_decision::Decision;
use atoll_scheduler::detect::TemplateKey;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::case::{self, Case};
use super::room::Room;
use super::waiting::Waiting;
use crate::detect;
use crate::index::key::BindingKey;
use crate::index::{Index, Source};

/// Why a ChangeGuard would hold these decisions, which one edit causes; `None` if no guard would. `objects` are those of the hub
/// after the edit, with the ChangeGuards; `namespaces` are the labels of all namespaces.
#[must_use]
pub fn held_by<'a>(
    objects: impl IntoIterator<Item = Value>,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    decisions: impl IntoIterator<Item = (&'a TemplateKey, &'a Decision)>,
    now: Timestamp,
) -> Option<String> {
    let mut index = Index::default();
    for object in objects {
        if let Some(source) = Source::of_object(&object) {
            index.apply(&source, Arc::new(object));
        }
    }
    for (name, labels) in namespaces {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        index.apply(&Source::Namespaces, Arc::new(object));
    }
    let mut moves = Moves::default();
    for (key, decision) in decisions {
        let binding_key = key.binding();
        let (Some(template), Some(binding)) = (index.template(key), index.binding(&binding_key))
        else {
            continue; // a first placement moves nothing
        };
        let claim = detect::claim(&index, template, binding.policy().as_ref());
        let case = Case { key: &binding_key, claim: &claim, template, binding: Some(binding) };
        moves.add(&index, case, decision, now);
    }
    moves.held_by(&index, now)
}

/// What a change moves that guards select.
#[derive(Default)]
pub(crate) struct Moves(BTreeMap<BindingKey, Waiting>);

impl Moves {
    /// Adds a decision, unless an earlier one on the same binding is there.
    pub(crate) fn add(
        &mut self,
        index: &Index,
        case: Case<'_>,
        decision: &Decision,
        now: Timestamp,
    ) {
        if self.0.contains_key(case.key) {
            return;
        }
        let Some((change, guards, _)) = case::guarded(index, case, decision) else { return };
        let cause = case::cause(index, case, decision);
        let waiting = Waiting { change, guards, cause, since: now, plan: None };
        self.0.insert(case.key.clone(), waiting);
    }

    /// Why a ChangeGuard would hold them; `None` if none would.
    pub(crate) fn held_by(&self, index: &Index, now: Timestamp) -> Option<String> {
        let members: Vec<_> = self.0.iter().collect();
        Room::new(index, now).take(("", now), &members, &[]).err()
    }
}
