//! Shared by the scenarios: federations as processes, API servers, clients, and waiting for conditions.

pub(crate) mod aggregation;
pub(crate) mod cli;
pub(crate) mod federation;
pub(crate) mod forwarder;
pub(crate) mod karmada;
pub(crate) mod kubelet;
pub(crate) mod lines;
pub(crate) mod living;
pub(crate) mod manager;
pub(crate) mod plane;
pub(crate) mod process;
pub(crate) mod recorded;
pub(crate) mod recording;
pub(crate) mod servers;
pub(crate) mod wait;
pub(crate) mod webhook;
