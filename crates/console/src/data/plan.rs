//! Plans and actions.

use super::{NO_NAMESPACE, WorkloadId, member_path};
use crate::query::encode;

/// What the page What-if asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WhatIf {
    /// This member fails.
    pub without: String,
    /// This member is drained.
    pub drain: String,
    /// A member gets a taint: `MEMBER=KEY[=VALUE]:EFFECT`, or loses it with `-` at the end.
    pub taint: String,
    /// A workload gets other replicas: `TYPE/NAMESPACE/NAME=N`.
    pub scale: String,
    /// Objects that are applied, as YAML.
    pub objects: String,
}

impl WhatIf {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let all = [&self.without, &self.drain, &self.taint, &self.scale, &self.objects];
        all.iter().all(|text| text.trim().is_empty())
    }
}

/// What a change would move.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The result in a sentence.
    pub summary: String,
    /// What moves.
    pub changes: Vec<PlanRow>,
    /// Changes that are not in the list.
    pub more: usize,
    /// Members before and after.
    pub members: Vec<PlanMember>,
    /// What could not be read; the plan may be incomplete.
    pub problems: Vec<String>,
}

/// A workload in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanRow {
    /// The workload.
    pub object: String,
    /// What moves, one step a line.
    pub change: Vec<String>,
    /// Why.
    pub why: String,
}

/// A member in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanMember {
    /// Its name.
    pub name: String,
    /// Replicas before and after.
    pub replicas: String,
    /// Requested CPU before and after.
    pub cpu: String,
    /// Requested memory before and after.
    pub memory: String,
}

/// Something that the console does on request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// No new work on a member.
    Cordon(String),
    /// New work on a member again.
    Uncordon(String),
    /// All work off a member.
    Drain(String),
    /// A workload is divided again.
    Rebalance(WorkloadId),
    /// The silent members are really lost.
    ConfirmLost,
    /// A plan that ChangeGuards hold goes.
    Approve(String),
}

impl Action {
    /// Its name in addresses.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Cordon(_) => "cordon",
            Self::Uncordon(_) => "uncordon",
            Self::Drain(_) => "drain",
            Self::Rebalance(_) => "rebalance",
            Self::ConfirmLost => "confirm-lost",
            Self::Approve(_) => "approve",
        }
    }

    /// The address of its preview.
    #[must_use]
    pub fn path(&self) -> String {
        let subject = match self {
            Self::Cordon(member) | Self::Uncordon(member) | Self::Drain(member) => {
                format!("?member={}", encode(member))
            }
            Self::Rebalance(of) => format!(
                "?namespace={}&type={}&name={}",
                encode(of.namespace.as_deref().unwrap_or(NO_NAMESPACE)),
                encode(&of.type_()),
                encode(&of.name)
            ),
            Self::ConfirmLost => String::new(),
            Self::Approve(plan) => format!("?plan={}", encode(plan)),
        };
        format!("/act/{}{subject}", self.verb())
    }

    /// The page to go back to.
    #[must_use]
    pub fn back(&self) -> String {
        match self {
            Self::Cordon(member) | Self::Uncordon(member) | Self::Drain(member) => {
                member_path(member)
            }
            Self::Rebalance(of) => of.path(),
            Self::ConfirmLost | Self::Approve(_) => "/".to_owned(),
        }
    }

    /// What the user types to confirm it.
    #[must_use]
    pub fn confirmation(&self) -> &str {
        match self {
            Self::Cordon(member) | Self::Uncordon(member) | Self::Drain(member) => member,
            Self::Rebalance(of) => &of.name,
            Self::ConfirmLost => "lost",
            Self::Approve(plan) => plan,
        }
    }

    /// What it does, in a sentence.
    #[must_use]
    pub fn says(&self) -> String {
        match self {
            Self::Cordon(member) => {
                format!("Cordon {member}: its work stays, and no new work is placed on it.")
            }
            Self::Uncordon(member) => {
                format!("Uncordon {member}: it accepts new work, and a drain of it ends.")
            }
            Self::Drain(member) => format!(
                "Drain {member}: its work moves to other members. An old copy goes when its replacement is healthy."
            ),
            Self::Rebalance(of) => format!(
                "Rebalance {of}: it is divided again from zero. Nothing leaves before its replacement is healthy."
            ),
            Self::ConfirmLost => {
                "Confirm that the silent members are really lost, so that their work may move."
                    .to_owned()
            }
            Self::Approve(plan) => format!(
                "Approve {plan}: exactly these changes go, also during a freeze. A change that becomes another one needs its own approval."
            ),
        }
    }
}
