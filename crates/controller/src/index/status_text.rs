//! The status of a binding, as the hub has it. Few readers need it, and not often: it is kept as text, in the difference
//! from another binding's of the same policy. As typed values with their strings it would be half of the binding's row.

use atoll_api::ClusterName;
use atoll_api::binding::ResourceBindingStatus;
use atoll_api::conditions::{self, RECORDED};
use serde_json::Value;

use crate::delta::DeltaText;

/// A status as text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusText {
    text: DeltaText,
    /// The members in it.
    members: Box<[ClusterName]>,
    /// Absent for most statuses.
    rare: Option<Box<Rare>>,
}

/// What few statuses have.
#[derive(Debug, Clone, PartialEq)]
enum Rare {
    /// It says that history has not recorded a decision yet.
    Behind,
    /// What the hub has instead: somebody wrote a status that cannot be read.
    Malformed(Value),
}

impl StatusText {
    pub(crate) fn of(status: &ResourceBindingStatus) -> Self {
        let recorded = conditions::find(&status.conditions, RECORDED);
        let behind = recorded.is_some_and(|condition| condition.status != "True");
        let members = status.aggregated_status.iter();
        Self {
            // Its maps have string keys, so it can be serialized.
            text: DeltaText::whole(&serde_json::to_vec(status).unwrap_or_default()),
            members: members.map(|item| ClusterName::from(&item.cluster_name)).collect(),
            rare: behind.then(|| Box::new(Rare::Behind)),
        }
    }

    /// A status that cannot be read. Each of its fields is a difference from the next status.
    pub(super) fn malformed(status: Value) -> Self {
        let rare = Some(Box::new(Rare::Malformed(status)));
        Self { rare, ..Self::of(&ResourceBindingStatus::default()) }
    }

    /// If it is malformed, its readers get `before`, the status that this binding had.
    pub(super) fn keep(&mut self, before: &Self) {
        if matches!(self.rare.as_deref(), Some(Rare::Malformed(_))) {
            *self = Self { rare: self.rare.take(), ..before.clone() };
        }
    }

    /// Keeps its text as the difference from another binding's. Of several calls the first one that saves enough counts: it is
    /// about the binding with which most others share.
    pub(super) fn share(&mut self, other: &Self) {
        if self.text.is_whole() && !self.text.has_root_of(&other.text) {
            self.text = DeltaText::beside(&self.text.text(), &other.text);
        }
    }

    /// Replaces the names of its members by equal ones, which share their text.
    pub(super) fn share_names(&mut self, known: impl Fn(ClusterName) -> ClusterName) {
        for member in &mut self.members {
            *member = known(member.clone());
        }
    }

    /// Whether both share the text of one status.
    #[cfg(test)]
    pub(super) fn has_root_of(&self, other: &Self) -> bool {
        self.text.has_root_of(&other.text)
    }

    /// The status; the last one that could be read.
    pub(crate) fn read(&self) -> ResourceBindingStatus {
        // `of` wrote it from a status, so it can be parsed.
        serde_json::from_slice(&self.text.text()).unwrap_or_default()
    }

    /// The status as the hub has it.
    pub(crate) fn value(&self) -> Value {
        match self.rare.as_deref() {
            Some(Rare::Malformed(status)) => status.clone(),
            Some(Rare::Behind) | None => {
                serde_json::from_slice(&self.text.text()).unwrap_or_default()
            }
        }
    }

    /// The members in it.
    pub(crate) fn members(&self) -> &[ClusterName] {
        &self.members
    }

    /// Whether it says that history has not recorded a decision yet.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self.rare.as_deref(), Some(Rare::Behind))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_comes_back_as_it_was_also_as_the_difference_from_another() {
        let status = |member: &str, recorded: &str| -> ResourceBindingStatus {
            serde_json::from_value(json!({
                "conditions": [{
                    "type": "Recorded", "status": recorded, "reason": "HistoryBehind", "message": "",
                    "lastTransitionTime": "2026-01-02T00:00:00Z",
                }],
                "aggregatedStatus": [{
                    "clusterName": member, "applied": true, "health": "Healthy",
                    "status": {"readyReplicas": 2, "conditions": [{"type": "Available"}]},
                }],
            }))
            .unwrap()
        };
        let first = StatusText::of(&status("member1", "True"));
        let mut second = StatusText::of(&status("member2", "False"));
        let before = second.clone();
        second.share(&first);
        assert_eq!((second.read(), &second), (status("member2", "False"), &before));
        assert_eq!((second.members(), second.is_behind()), (&["member2".into()][..], true));
        assert!(!first.is_behind() && first != second);
        let (root, newer) = (second.text.clone(), StatusText::of(&status("member3", "True")));
        second.share(&newer);
        assert!(second.text.has_root_of(&root), "it shares with the first one that it can");
        let none = StatusText::of(&ResourceBindingStatus::default());
        assert_eq!(none.read(), ResourceBindingStatus::default());
    }
}
