//! Health of members: signs of life, what follows from them for taints and conditions, and when not to trust it.

pub(super) mod draft;
pub(super) mod suspicion;
mod times;
pub(super) mod vitals;

pub use self::times::{HealthTimes, TimesError};
