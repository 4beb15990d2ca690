//! The control plane.

pub mod members;
