//! Input of decisions: the tables that the controller maintains, and immutable snapshots of them.

pub mod affinity;
pub mod affinity_group;
mod binding_tree;
pub mod cache;
pub mod change;
pub mod cluster_sets;
pub mod domains;
pub mod member_quotas;
mod namespace;
pub mod needs;
pub mod quotas;
pub mod row;
pub mod snapshot;
pub mod standing;
pub mod supply;
pub mod tables;
pub mod taints;
pub mod weights;
