//! Which bindings are not processed.

use std::fmt;

use atoll_api::ReservedNamespaces;
use atoll_scheduler::detect::{Excluded, off_limits};

use crate::index::key::{BindingKey, TemplateKey};
use crate::index::rows::Binding;

/// Why nothing of a binding may reach a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Its namespace and name do not match its `spec.resource`: Atoll did not create it.
    Misplaced {
        /// Its `spec.resource`.
        resource: TemplateKey,
        /// The key that a binding of this resource has.
        expected: BindingKey,
    },
    /// Objects like this one are never propagated.
    OffLimits(TemplateKey, Excluded),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced { resource, expected } => write!(
                f,
                "spec.resource is {resource}, whose binding is {expected}: restore spec.resource or delete this binding; \
                 nothing is sent to or removed from members on its word"
            ),
            Self::OffLimits(resource, why) => write!(
                f,
                "spec.resource is {resource}, which is never propagated ({why}): delete this binding; nothing is sent to \
                 or removed from members on its word"
            ),
        }
    }
}

/// Whether a binding must not be processed. Write access to bindings determines what members receive: a binding written
/// by a user could otherwise send any object that the controller can read to any member.
#[must_use]
pub(crate) fn refusal(binding: &Binding, reserved: &ReservedNamespaces) -> Option<Refusal> {
    let resource = &binding.template;
    if let Some(why) = off_limits(resource, reserved) {
        return Some(Refusal::OffLimits(resource.clone(), why));
    }
    binding
        .misplaced
        .then(|| Refusal::Misplaced { resource: resource.clone(), expected: resource.binding() })
}
