//! Requests of the hub's users to members, over the members' tunnels. Only the leader has tunnels: other controllers pass
//! requests on to it.

pub(crate) mod call;
pub(crate) mod forward;
pub(crate) mod forwarded;
pub(crate) mod leader_api;
pub(crate) mod limits;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod sessions;
pub(crate) mod tunnels;
