//! Atoll's agent: one per member, inside it or beside the controller with the member's kubeconfig.
//!
//! It dials the controller, applies the manifests it receives, removes an object only on an explicit order, watches
//! what it applied, and reports status, health and capacity. Data flow: [`session`] -> [`engine`] -> [`apply`] -> the
//! member, and back over the watches of [`engine`] and [`capacity`] to [`session`].
//!
//! Placement is decided by the controller; the agent does not read policies.

mod apply;
mod capacity;
mod engine;
mod error;
mod facts;
mod inventory;
mod key;
mod lease;
mod member;
mod metrics;
mod observe;
mod options;
mod rules;
mod run;
mod session;
mod terms;

pub use atoll_access::identity::Passed;
pub use error::AgentError;
pub use lease::LeaseTimes;
pub use member::client as member_client;
pub use metrics::AgentMetrics;
pub use options::{AgentOptions, Connector, IdentityStore, Join, Stream, Timings};
pub use run::{run, run_measured};
pub use session::enrol::EnrolError;
pub use session::identity::IdentityError;

/// The agent's permissions on a member as manifests: namespace, service account, roles. Whoever installs the agent
/// applies them.
pub const RBAC: &str = include_str!("../../../deploy/agent/rbac.yaml");
/// Further permissions: the other built-in namespaced kinds.
pub const RBAC_NAMESPACED: &str = include_str!("../../../deploy/agent/rights-namespaced.yaml");
/// Further permissions: every kind.
pub const RBAC_ALL: &str = include_str!("../../../deploy/agent/rights-all.yaml");
/// Further permissions: to impersonate users of the hub ([`AgentOptions::proxy`]).
pub const RBAC_PROXY: &str = include_str!("../../../deploy/agent/rights-proxy.yaml");
