//! Removing one object, or Atoll's marks on it.

use std::sync::Arc;

use atoll_api::marks::MEMBER_MARKS;
use serde_json::{Value, json};

use super::fields::without_ours;
use super::object::Live;
use super::order::is_never_deleted;
use crate::key::Key;
use crate::member::{Apis, Member, MemberError, Target};

/// An order to withdraw an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Withdrawal {
    /// Delete the object, or only remove the marks.
    pub how: How,
    /// The required uid; empty means the uid that the agent applied.
    pub uid: String,
}

/// The two ways to withdraw an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Delete it.
    Remove,
    /// Remove Atoll's marks and field ownership, keep the object.
    Release,
}

/// Result of a withdrawal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// The object is gone.
    Removed,
    /// The object exists without our marks.
    Released {
        /// Its uid.
        uid: String,
    },
    /// The object exists under another uid, or was never ours.
    NotOurs {
        /// Its uid.
        uid: String,
        /// It has our marks: the member was restored, and the order is for the object before that.
        marked: bool,
    },
    /// Deleted, and waiting for its finalizers.
    Terminating {
        /// Its uid.
        uid: String,
    },
}

/// Removes or releases an object.
///
/// # Errors
/// Any failed call, and a kind of which it is unknown whether the member serves it. A kind that is known not to be
/// served has no objects.
pub(crate) async fn withdraw(
    member: &Member,
    apis: Arc<Apis>,
    key: &Key,
    withdrawal: &Withdrawal,
    applied_uid: Option<&str>,
) -> Result<Withdrawn, MemberError> {
    let target = match apis.resolve(&key.kind, None) {
        Ok(target) => target,
        Err(_) if apis.surely_lacks(&key.kind) => return Ok(Withdrawn::Removed),
        Err(error) => return Err(error),
    };
    let Some(object) = member.get(target, key).await? else { return Ok(Withdrawn::Removed) };
    let live = Live::of(&object);
    let expected = match withdrawal.uid.as_str() {
        "" => applied_uid.unwrap_or_default(),
        uid => uid,
    };
    // Without a given or known uid, only the marks identify the object as ours.
    let ours = if expected.is_empty() { live.marked } else { live.uid == expected };
    if !ours {
        return Ok(Withdrawn::NotOurs { uid: live.uid, marked: live.marked });
    }
    let release = withdrawal.how == How::Release || is_never_deleted(&key.kind);
    if release {
        release_marks(member, target, key, &object).await?;
        return Ok(Withdrawn::Released { uid: live.uid });
    }
    if !live.terminating {
        match member.delete(target, key, &live.uid).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(Withdrawn::Removed),
            Err(error) => return Err(error),
        }
        match member.get(target, key).await? {
            Some(after) if after["metadata"]["uid"] == live.uid.as_str() => {}
            _ => return Ok(Withdrawn::Removed),
        }
    }
    Ok(Withdrawn::Terminating { uid: live.uid })
}

/// Removes label, annotations and our `managedFields` entry in one guarded patch.
async fn release_marks(
    member: &Member,
    target: &Target,
    key: &Key,
    object: &Value,
) -> Result<(), MemberError> {
    let metadata = &object["metadata"];
    let mut operations = Vec::new();
    for (field, names) in MEMBER_MARKS {
        for name in names.iter().filter(|name| metadata[field].get(**name).is_some()) {
            // `/` inside a name is `~1` in a JSON pointer (RFC 6901).
            let path = format!("/metadata/{field}/{}", name.replace('/', "~1"));
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    if operations.is_empty() {
        return Ok(());
    }
    if metadata["managedFields"].is_array() {
        let rest = without_ours(object);
        operations.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": rest}));
    }
    let version = &metadata["resourceVersion"];
    operations
        .push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
    member.json_patch(target, key, &Value::Array(operations)).await.map(drop)
}
