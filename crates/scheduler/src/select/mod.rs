//! Choosing the set of clusters under constraints on groups of them.

pub mod groups;
pub mod karmada;
