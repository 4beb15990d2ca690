//! The verbs: one file for each, plus the code that writes share.

pub(crate) mod access;
mod apply;
mod call;
pub(crate) mod create;
pub(crate) mod delete;
mod identity;
mod managed;
pub(crate) mod patch;
mod prepare;
pub(crate) mod rbac;
pub(crate) mod read;
pub(crate) mod scale;
mod services;
pub(crate) mod subresource;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use self::{call::Call, prepare::Part};
