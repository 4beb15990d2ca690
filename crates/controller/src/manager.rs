//! Field managers: every write names its manager, so that `managedFields` on the hub separate Atoll's fields from
//! users'.

use kube::api::{PatchParams, PostParams};

/// Parameters of a create or a replace by this manager.
pub(crate) fn create(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

/// Parameters of a merge patch by this manager.
pub(crate) fn patch(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}
