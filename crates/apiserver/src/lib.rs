//! An embedded Kubernetes API server: kube-apiserver's behaviour for the kinds that a federation needs, as a
//! tower service in this process, in memory or with one redb file behind it.
//!
//! It is meant for one machine: the hub and the simulated members of `atoll up`, and tests on a paused clock.
//! Each module's head names the upstream source that it mirrors; the tests carry the names of the upstream
//! behaviours. It is not a reference for Kubernetes: where it differs from a real API server, it is wrong.
//!
//! ```text
//! request ── http ──▶ verbs ──▶ core ──▶ kinds, crd (what the object must be) ──▶ store ──▶ watch log, disk
//!              │        └─▶ item, table (how the client wants it)
//!              └─▶ discovery (in `atoll-apimachinery`)
//! ```
//!
//! Out of scope: merging and schemas (in `atoll-merge`), admission webhooks (not implemented). RBAC is enforced where
//! [`Options::authorization`] asks for it.

mod body;
mod bootstrap;
mod controllers;
mod core;
mod crd;
mod http;
mod ids;
mod item;
mod kinds;
mod kubelets;
mod names;
mod options;
pub mod pki;
mod protobuf;
mod server;
mod store;
mod table;
mod tokens;
mod verbs;

pub use crate::{
    http::Service,
    kubelets::{Kubelets, PodRequest},
    options::{Authorization, OpenError, Options},
    server::Server,
    table::age::human as human_duration,
};
pub use atoll_apimachinery::{discovery::Version, response::Body};
