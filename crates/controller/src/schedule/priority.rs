//! What a policy's `schedulePriority` comes to.
//!
//! As in Karmada the class is looked up when the policy is applied to an object, and the value stays in the binding until
//! that happens again: a PriorityClass that comes, changes or goes touches no binding that has its value. A class that is
//! not there is an error for who needs it first (there is no default: `globalDefault` is for Pods), and Karmada's other
//! sources are declared but refused.

use atoll_api::binding::BindingPriority;
use atoll_api::policy::PriorityClassSource;
use atoll_scheduler::detect::Policy;

use crate::index::{Index, Source};

/// The priority that a policy gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priority {
    /// This; nothing where the policy does not say.
    Known(Option<BindingPriority>),
    /// Nobody can say, and why. What a binding has stays in force.
    Unknown(String),
}

impl Priority {
    /// Why nobody can say.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(why) => Some(why),
        }
    }
}

/// Looks up what a policy says.
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
