//! A member cluster that behaves: nodes, Pod scheduler, kubelets and workload controllers over any API server.
//!
//! A [`Member`] is one task that watches the member's objects, keeps them in a synchronous index, asks pure functions
//! what the real components would write next, and writes it. It draws no random numbers and reads no clock but the one
//! it is given, so on a current-thread runtime with paused time a run repeats itself exactly. When nothing happens it
//! sleeps: there is no polling.
//!
//! Storage, admission, garbage collection and namespaces are the API server's matter (`atoll-apiserver`). What users
//! and tests can steer is listed in [`annotations`].

mod clock;
mod engine;
mod index;
mod kubelet;
mod member;
mod network;
pub mod random;
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
