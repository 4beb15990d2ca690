//! Requests of the hub's users to members, over the members' tunnels. Only the leader has tunnels.

pub(crate) mod call;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod sessions;
pub(crate) mod tunnels;
