//! Resolves a policy's `schedulePriority`.
//!
//! As in Karmada the class is looked up when the policy is applied to an object, and the value stays in the binding
//! until that happens again: creating, changing or deleting a PriorityClass does not affect bindings that have its
//! value. A missing class is an error for the first object that needs it (there is no default: `globalDefault` is for
//! Pods), and Karmada's other sources are declared but rejected.

use atoll_api::binding::{BindingPriority, ResourceBindingSpec};
use atoll_api::policy::PriorityClassSource;
use atoll_scheduler::PriorityClass;
use atoll_scheduler::detect::Policy;

use crate::detect::Claim;
use crate::index::{Index, Source};

/// The priority from a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priority {
    /// The value; `None` if the policy sets none.
    Known(Option<BindingPriority>),
    /// Unknown, and why. A binding keeps its value.
    Unknown(String),
}

impl Priority {
    /// Why it is unknown.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(why) => Some(why),
        }
    }
}

/// The priority of an object for a decision: the one that the decision's commit writes, with its class.
#[must_use]
pub fn in_decision(
    index: &Index,
    claim: &Claim,
    binding: Option<&ResourceBindingSpec>,
) -> atoll_scheduler::Priority {
    let held = binding.and_then(|spec| spec.schedule_priority).unwrap_or_default().priority;
    let policy = claim.policy().map(|policy| &**policy);
    if !claim.holds() {
        return atoll_scheduler::Priority { value: held, class: None };
    }
    let value = match priority(index, policy) {
        Priority::Known(priority) => priority.unwrap_or_default().priority,
        Priority::Unknown(_) => held,
    };
    let asked = policy.and_then(|policy| policy.spec.schedule_priority.as_ref());
    let class = asked.map(|asked| PriorityClass {
        name: asked.priority_class_name.clone(),
        never_preempts: index.never_preempts(&asked.priority_class_name),
    });
    atoll_scheduler::Priority { value, class }
}

/// Resolves a policy's priority.
#[must_use]
pub fn priority(index: &Index, policy: Option<&Policy>) -> Priority {
    let Some(asked) = policy.and_then(|policy| policy.spec.schedule_priority.as_ref()) else {
        return Priority::Known(None);
    };
    const FIELD: &str = "spec.schedulePriority";
    let class = &asked.priority_class_name;
    match (asked.priority_class_source, index.priority_class(class)) {
        (PriorityClassSource::KubePriorityClass, Some(priority)) => {
            Priority::Known(Some(BindingPriority { priority }))
        }
        (PriorityClassSource::KubePriorityClass, None) => {
            let unread = index.reading(&Source::PriorityClasses).unreadable;
            Priority::Unknown(match unread {
                Some(why) => format!("{FIELD}: PriorityClasses cannot be read: {why}"),
                None => format!("{FIELD}.priorityClassName: PriorityClass {class:?} is not there"),
            })
        }
        (other, _) => Priority::Unknown(format!(
            "{FIELD}.priorityClassSource: {other:?} is not supported; use KubePriorityClass"
        )),
    }
}
