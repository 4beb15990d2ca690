//! Lifecycle of a binding: when its template counts as gone, how it is withdrawn from members, and when the old copy on
//! a cluster that it leaves may be removed; how fast work leaves clusters, and what keeps a member from being empty.

pub mod emptying;
pub mod eviction;
pub mod gone;
pub mod pace;
pub mod withdrawal;
