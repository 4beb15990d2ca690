//! Health of members: heartbeats, the resulting taints and conditions, and when to distrust them.

pub(super) mod draft;
pub(super) mod suspicion;
mod times;
pub(super) mod vitals;

pub use self::times::{HealthTimes, TimesError};
