//! Field managers: every write says who it is, so that `managedFields` on the hub tell Atoll's fields from people's.

use kube::api::{PatchParams, PostParams};

/// A create or a replace by this manager.
pub(crate) fn create(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

/// A merge patch by this manager.
pub(crate) fn patch(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}
