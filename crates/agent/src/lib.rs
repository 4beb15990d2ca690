//! Atoll's agent: one per member, inside it or beside the controller with the member's kubeconfig.
//!
//! It dials the controller, applies what it is told, removes only on an explicit word, watches what it applied, and
//! reports status, health and capacity. The way of the data: [`session`] -> [`engine`] -> [`apply`] -> the member, and back
//! over the watches of [`engine`] and [`capacity`] to [`session`].
//!
//! What should run on a member is decided elsewhere; nothing here knows a policy.

mod apply;
mod backoff;
mod capacity;
mod engine;
mod error;
mod facts;
mod inventory;
mod key;
mod lease;
mod member;
mod observe;
mod options;
mod run;
mod session;
mod terms;

pub use backoff::{Backoff, Jitter};
pub use error::AgentError;
pub use lease::LeaseTimes;
pub use member::client as member_client;
pub use options::{AgentOptions, Connector, IdentityStore, Join, Stream, Timings};
pub use run::run;
pub use session::enrol::EnrolError;
pub use session::identity::IdentityError;

/// What the agent may do on a member, as manifests: namespace, service account, roles. The agent itself only needs the
/// rights; who installs it applies this.
pub const RBAC: &str = include_str!("../../../deploy/agent/rbac.yaml");
