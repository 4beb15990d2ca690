//! What enrolment, sessions and health share: the state of each member, its types, and the context of all tasks.

pub(crate) mod cluster_write;
pub(crate) mod context;
pub(crate) mod due;
pub(crate) mod events;
pub(crate) mod gauges;
pub(crate) mod hub;
pub(crate) mod leadership;
pub(crate) mod mailbox;
pub(crate) mod metrics;
pub(crate) mod recent_events;
pub(crate) mod registry;
pub(crate) mod state;
pub(crate) mod token_bucket;
pub(crate) mod types;
