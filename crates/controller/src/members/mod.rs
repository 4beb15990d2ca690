//! Members: enrolment, sessions, what each should hold, and their health.
//!
//! The hub's side of the controller says what each binding wants on which member ([`Members`]) and hears what members
//! report ([`MemberEvent`]). What a binding wants, and why it no longer does, is not decided here.

mod desired;
mod metrics;
mod times;
mod types;

pub use atoll_render::{Key, Rendered};

pub use self::metrics::Metrics;
pub use self::times::{HealthTimes, TimesError};
pub use self::types::{
    ApplyResult, HeldObject, LostReason, MemberEvent, MemberFacts, NodeClass, ObjectHealth, Oracle,
    Proof, Report, Verdict, Withdrawal,
};
