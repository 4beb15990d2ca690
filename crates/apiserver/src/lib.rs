//! An embedded Kubernetes API server: kube-apiserver's behaviour for the kinds that a federation needs, as a
//! tower service in this process, in memory or with one redb file behind it.
//!
//! It is meant for one machine: the hub and the simulated members of `atoll up`, and tests on a paused clock.
//! Each module's head names the upstream source that it mirrors; the tests carry the names of the upstream
//! behaviours. It is not a reference for Kubernetes: where it differs from a real API server, it is wrong.
//!
//! ```text
//! request ── http ──▶ verbs ──▶ kinds, crd (what the object must be) ──▶ store ──▶ watch log, disk
//!              │        └─▶ view, table (how the client wants it)
//!              └─▶ discovery
//! ```
//!
//! Out of scope: merging and schemas (in `atoll-merge`), admission webhooks and real authorisation (not implemented).

mod controllers;
mod core;
mod crd;
mod discovery;
mod error;
mod gate;
mod http;
mod ids;
mod kinds;
mod meta;
mod options;
pub mod pki;
mod protobuf;
mod selector;
mod serve;
mod server;
mod store;
mod table;
mod verbs;
mod view;
mod virtual_resource;

pub use crate::{
    error::{ApiError, FieldError, FieldReason},
    gate::{Attributes, Gate, Resource},
    http::{Body, Service, auth::Identity},
    options::{Clock, OpenError, Options, Version},
    selector::{FieldRequirement, SelectableField, Selectors},
    server::Server,
    table::age::human as human_duration,
    virtual_resource::{
        Column, VirtualEvent, VirtualKind, VirtualList, VirtualQuery, VirtualResource,
        VirtualStream,
    },
};
