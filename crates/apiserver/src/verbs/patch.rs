//! patch: JSON patch, merge patch, strategic merge patch and server-side apply.

use atoll_apimachinery::{ApiError, response::Body};
use atoll_merge::{patch as patches, strategic};
use http::Response;
use serde_json::Value;

use super::{
    call::Call,
    prepare::{Draft, Part},
    write,
};
use crate::{body, store::Unread};

/// A decoded patch.
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The patch by its content type. Strategic merge is for built-in kinds: custom ones have no merge keys.
pub(super) fn decode(call: &Call, bytes: &[u8]) -> Result<Patch, ApiError> {
    match body::content_type(&call.headers) {
        JSON_PATCH => Ok(Patch::Json(body::json(bytes)?)),
        MERGE_PATCH => Ok(Patch::Merge(body::json(bytes)?)),
        STRATEGIC_PATCH if call.kind.builtin().is_some() => {
            Ok(Patch::Strategic(body::json(bytes)?))
        }
        APPLY_PATCH => Ok(Patch::Apply(body::yaml(bytes)?)),
        _ => {
            let mut supported = vec![JSON_PATCH, MERGE_PATCH];
            if call.kind.builtin().is_some() {
                supported.push(STRATEGIC_PATCH);
            }
            supported.push(APPLY_PATCH);
            Err(ApiError::unsupported_media_type(&supported.join(", ")))
        }
    }
}

/// A malformed patch is a bad request; one that does not fit the object is unprocessable.
fn refused(error: &patches::PatchError) -> ApiError {
    match error {
        patches::PatchError::TooLarge(why) => ApiError::patch_too_large(why),
        patches::PatchError::Malformed(_) => ApiError::bad_request(error.to_string()),
        _ => ApiError::unprocessable(error.to_string()),
    }
}

impl Patch {
    /// What it does not read. Other patches than merge patches may read what they do not change, and a subresource does not
    /// reset managed fields.
    fn unread<'a>(&self, call: &'a Call) -> Unread<'a> {
        match (self, call.kind.custom(), &call.subresource) {
            (Patch::Merge(patch), Some(kind), None) => Unread::by(patch, &kind.open),
            (Patch::Merge(patch), Some(kind), Some(_)) => Unread::open(patch, &kind.open),
            _ => Unread::default(),
        }
    }

    /// The object after a patch other than apply.
    pub(super) fn onto(&self, call: &Call, live: &Value) -> Result<Value, ApiError> {
        match self {
            Patch::Json(ops) => patches::json_patch(live, ops).map_err(|e| refused(&e)),
            Patch::Merge(patch) => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request("a merge patch must be a JSON object"));
                }
                let mut new = live.clone();
                patches::json_merge(&mut new, patch);
                Ok(new)
            }
            Patch::Strategic(patch) => {
                strategic::merge(live, patch, call.kind.schema()).map_err(|e| refused(&e))
            }
            Patch::Apply(_) => Err(ApiError::internal("apply is not a plain patch")),
        }
    }
}

/// PATCH to an object or its status. Without a resourceVersion, the patch is recomputed on the newest object until no
/// other write intervenes.
pub(crate) async fn patch(
    call: &Call,
    bytes: &[u8],
    part: Part,
) -> Result<Response<Body>, ApiError> {
    let patch = decode(call, bytes)?;
    if let Patch::Apply(applied) = patch {
        return super::apply::apply(call, applied, part).await;
    }
    if call.query.force {
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "PatchOptions",
            "",
            &[atoll_apimachinery::FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            )],
        ));
    }
    let unread = patch.unread(call);
    let written = write::modify_around(call, part, unread, |live| {
        Ok(Draft { object: patch.onto(call, live)?, managed: false })
    })
    .await?;
    call.respond_written(&written)
}
