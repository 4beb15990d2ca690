//! Selects clusters under constraints on groups of clusters.

pub mod groups;
pub mod karmada;
