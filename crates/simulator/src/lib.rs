//! A simulated member cluster: nodes, Pod scheduler, kubelets and workload controllers over any API server.
//!
//! A [`Member`] is one task that watches the member's objects, keeps them in a synchronous index, asks pure functions
//! what the real components would write next, and writes it. It draws no random numbers and reads only the clock it is
//! given, so on a current-thread runtime with paused time a run repeats exactly. It does not poll; when nothing happens
//! it sleeps.
//!
//! Storage, admission, garbage collection and namespaces belong to the API server (`atoll-apiserver`). [`annotations`]
//! lists what users and tests can control.

mod clock;
mod engine;
mod index;
mod kubelet;
mod member;
mod network;
pub mod random;
pub mod runtime;
mod scheduler;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;
#[cfg(feature = "world")]
pub mod world;
mod writes;

pub use clock::simulated_clock;
pub use engine::SyncError;
pub use kubelet::annotations;
pub use member::{
    JOB_DURATION, Member, MemberOptions, NodeCapacity, NodeOptions, READY_AFTER, RegisterError,
    STANDARD_NODES, STOP_AFTER, StartError,
};
