//! The conditions of a Cluster that follow from its member's health. Pure.

use std::collections::BTreeMap;

use atoll_api::conditions;
use atoll_render::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::heartbeats::HealthState;
use crate::member::types::{LimitReason, MemberFacts};

/// Condition: the member may have objects of ours that its agent cannot see.
pub(super) const INVENTORY_INCOMPLETE: &str = "InventoryIncomplete";
/// Limit of kinds named in [`INVENTORY_INCOMPLETE`]; the others are counted.
const KINDS_NAMED: usize = 10;

/// The conditions of a Cluster while they are changed.
pub(super) struct ConditionList<'a> {
    pub(super) list: &'a mut Vec<Condition>,
    /// Generation of the Cluster.
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
}

impl ConditionList<'_> {
    pub(super) fn set(
        &mut self,
        type_: &str,
        holds: conditions::Status,
        reason: &str,
        message: &str,
    ) {
        conditions::set(self.list, type_, holds, reason, message, self.generation, self.now);
    }

    pub(super) fn remove(&mut self, type_: &str) {
        self.list.retain(|condition| condition.type_ != type_);
    }

    pub(super) fn has(&self, type_: &str) -> bool {
        conditions::find(self.list, type_).is_some()
    }
}

/// Status, reason and message of `Ready`.
pub(super) fn ready(
    health: &HealthState,
    connected: bool,
) -> (conditions::Status, &'static str, String) {
    use conditions::Status::{False, True, Unknown};
    match health {
        HealthState::NotJoined { .. } => {
            (Unknown, "NotJoined", "no agent has connected yet".to_owned())
        }
        HealthState::Joining | HealthState::Disconnected => {
            (Unknown, "Joining", "the agent has not reported the member's state yet".to_owned())
        }
        HealthState::Healthy => {
            (True, "MemberReady", "the agent is connected and the member's API answers".to_owned())
        }
        HealthState::ApiUnhealthy { message, .. } => (False, "MemberApiUnhealthy", message.clone()),
        HealthState::Lost { .. } if connected => (
            Unknown,
            "Settling",
            "the agent is connected again; the member is ready once the session has been stable for a while"
                .to_owned(),
        ),
        HealthState::Lost { .. } => {
            (Unknown, "SessionLost", "the agent sends no heartbeats".to_owned())
        }
    }
}

/// Reason and message of held back removals, if any.
pub(super) fn removals_held(
    cluster: &str,
    held: &BTreeMap<Key, LimitReason>,
) -> Option<(&'static str, String)> {
    let reason = held.values().min()?;
    let (subject, their, them) = match held.len() {
        1 => ("1 object that no longer belongs here is".to_owned(), "its", "it"),
        count => (format!("{count} objects that no longer belong here are"), "their", "them"),
    };
    let message = format!(
        "{subject} still on the member: {their} removal is limited to the larger of 100 objects and 30 % of the member's in \
         10 minutes, because {reason}; `atoll orphans {cluster}` lists {them}, `atoll prune --confirm {cluster}` removes \
         {them} now"
    );
    Some((reason.name(), message))
}

/// Sets or removes [`INVENTORY_INCOMPLETE`]. Without a report from the agent, the condition stays.
pub(super) fn show_unlisted(conditions: &mut ConditionList<'_>, facts: Option<&MemberFacts>) {
    let Some(facts) = facts else { return };
    if facts.unlisted.is_empty() {
        return conditions.remove(INVENTORY_INCOMPLETE);
    }
    let named: Vec<_> = facts.unlisted.iter().take(KINDS_NAMED).cloned().collect();
    let others = match facts.unlisted.len() - named.len() {
        0 => String::new(),
        1 => " and 1 other kind".to_owned(),
        others => format!(" and {others} other kinds"),
    };
    let message = format!(
        "the agent cannot list {}{others}: it neither reports nor removes objects of these kinds that it applied earlier; \
         give it the right to list them, or see its log",
        named.join(", "),
    );
    let holds = conditions::Status::True;
    conditions.set(INVENTORY_INCOMPLETE, holds, "KindsNotListed", &message);
}
