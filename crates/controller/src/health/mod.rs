//! Health of members: heartbeats, what follows for their Clusters (conditions, taints), when the controller distrusts
//! itself, and requests of operators.

pub(crate) mod caution;
pub(crate) mod cluster_status;
pub(crate) mod cluster_writer;
mod conditions;
pub(crate) mod health_loop;
pub(crate) mod heartbeats;
pub(crate) mod maintenance;
pub(crate) mod refusals;
pub(crate) mod suspicion;
pub(crate) mod taints;
pub(crate) mod terms;
#[cfg(test)]
mod tests;
pub(crate) mod times;
mod write_due;
