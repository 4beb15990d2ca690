//! Applying one object.
//!
//! Always server-side apply, manager `atoll`: a create or an update would leave an `Update` entry in `managedFields`,
//! and fields dropped from the manifest later would stay. Every apply starts with a read to detect obstacles: an
//! unmanaged object, one that is terminating, one that an autoscaler scales.

use std::sync::Arc;

use atoll_api::marks::{CLAIMS, HASH, MANAGED_BY, MANAGED_BY_VALUE, PRESERVE};
use bytes::Bytes;
use serde_json::{Value, json};

use super::fields::{FieldOwners, Fingerprint, managers, scaled_by, with_others_moved};
use super::retain;
use crate::key::{GroupKind, Key};
use crate::member::{Apis, Member, MemberError, Target};
use crate::rules::UserRules;

/// Desired state of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    /// Hash of the manifest, from the controller.
    pub hash: String,
    /// Claims annotation of the manifest: not covered by the hash.
    pub claims: String,
    /// Preserve annotation of the manifest; not covered by the hash either.
    pub preserve: bool,
    /// For example `apps/v1`.
    pub api_version: String,
    /// The manifest as JSON text: parsed, 500 objects would not fit the agent's memory.
    pub manifest: Bytes,
    /// Take over an existing object that Atoll does not manage.
    pub overwrite: bool,
    /// Create the object if it is missing and accept any existing one: a namespace that others need.
    pub if_absent: bool,
}

/// Atoll's marks on an object of the member, and the data to detect modification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Live {
    /// uid.
    pub uid: String,
    /// Hash annotation; empty where it is missing.
    pub hash: String,
    /// Claims annotation, unparsed.
    pub claims: String,
    /// Preserve annotation.
    pub preserve: bool,
    /// Whether the managed-by label is on it.
    pub marked: bool,
    /// Our fields.
    pub fields: Option<Fingerprint>,
    /// It has a deletionTimestamp.
    pub terminating: bool,
}

impl Live {
    /// Reads an object.
    #[must_use]
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let annotation =
            |name: &str| metadata["annotations"][name].as_str().unwrap_or_default().to_owned();
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            hash: annotation(HASH),
            claims: annotation(CLAIMS),
            preserve: annotation(PRESERVE) == "true",
            marked: metadata["labels"][MANAGED_BY] == MANAGED_BY_VALUE,
            fields: Fingerprint::of(object),
            terminating: metadata["deletionTimestamp"].is_string(),
        }
    }
}

/// What the agent remembers of an object before it applies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// uid of the object that we applied.
    pub uid: Option<String>,
    /// Our fields after our last apply; `None` when the agent cannot tell whether they were modified.
    pub fields: Option<Fingerprint>,
}

/// How an apply ended.
#[derive(Debug)]
pub(crate) enum Applied {
    /// The member holds the manifest. `written` is false when it already did.
    Done {
        /// The object.
        live: Live,
        /// Whether something was written.
        written: bool,
    },
    /// An unmanaged object is in the way.
    Conflict {
        /// Its uid.
        uid: String,
        /// The managers of its fields, for people.
        managers: String,
    },
    /// The object is terminating; it is applied again when this uid is gone.
    Terminating {
        /// Its uid.
        uid: String,
    },
}

/// Applies a manifest.
///
/// # Errors
/// Any failed call, a rule about retained fields that does not answer, and a kind that the member does not serve. A change of an immutable field stays an error: deleting
/// and recreating would stop running workloads.
pub(crate) async fn apply(
    member: &Member,
    apis: Arc<Apis>,
    rules: &UserRules,
    key: &Key,
    desired: &Desired,
    known: &Known,
) -> Result<Applied, MemberError> {
    let target = apis.resolve(&key.kind, Some(&desired.api_version))?;
    let mut manifest: Value = serde_json::from_slice(&desired.manifest).map_err(|error| {
        MemberError::Scope(format!("the manifest of {key} is not JSON: {error}"))
    })?;
    check_identity(&manifest, key, desired)?;
    let Some(mut object) = member.get(target, key).await? else {
        return create(member, target, key, &manifest).await;
    };
    let live = Live::of(&object);
    if live.terminating {
        return Ok(Applied::Terminating { uid: live.uid });
    }
    if desired.if_absent {
        return Ok(Applied::Done { live, written: false });
    }
    let ours = live.marked || known.uid.as_ref() == Some(&live.uid);
    if !ours {
        if !desired.overwrite {
            return Ok(Applied::Conflict { uid: live.uid, managers: managers(&object) });
        }
        if let Some(moved) = take_over(member, target, key, &object).await? {
            object = moved;
        }
    } else if is_in_step(&live, desired, known) {
        return Ok(Applied::Done { live, written: false });
    }
    if let Some(retained) = rules.retain(key, &manifest, &object).await? {
        manifest = retain::manifest(manifest, &retained, &object, &FieldOwners::of(&object));
    }
    let autoscaled = manifest["spec"].get("replicas").is_some()
        && scaled_by(&object).is_some()
        && is_autoscaled(member, key).await;
    if autoscaled {
        if let Some(spec) = manifest["spec"].as_object_mut() {
            spec.remove("replicas");
        }
        let same = known.fields.zip(live.fields).is_some_and(|(ours, now)| {
            ours.lost_only_replicas(&now) && marks_match(&live, desired)
        });
        if same {
            return Ok(Applied::Done { live, written: false });
        }
    }
    // With the uid in the manifest, the server refuses if the object was replaced meanwhile.
    if ours {
        manifest["metadata"]["uid"] = json!(live.uid);
    }
    let after = member.apply(target, key, &manifest, true).await?;
    // An apply that changes nothing leaves the resourceVersion as it is.
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    Ok(Applied::Done { live: Live::of(&after), written: version(&object) != version(&after) })
}

/// Creates an object that does not exist: without force, so that one created meanwhile is not overwritten. A missing
/// namespace is created: it must exist before the controller can learn that it is missing.
async fn create(
    member: &Member,
    target: &Target,
    key: &Key,
    manifest: &Value,
) -> Result<Applied, MemberError> {
    let created = match member.apply(target, key, manifest, false).await {
        Err(error) if error.lacks_namespace() && !key.namespace.is_empty() => {
            ensure_namespace(member, &key.namespace).await?;
            member.apply(target, key, manifest, false).await
        }
        other => other,
    };
    Ok(Applied::Done { live: Live::of(&created?), written: true })
}

/// Creates a namespace without any marks if it does not exist: Atoll will never remove it.
///
/// # Errors
/// Any failed call except "already exists".
pub(crate) async fn ensure_namespace(member: &Member, name: &str) -> Result<(), MemberError> {
    let target = Target::builtin("", "v1", "Namespace", "namespaces", false);
    let key = Key {
        kind: GroupKind::new("", "Namespace"),
        namespace: String::new(),
        name: name.to_owned(),
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match member.create(&target, &key, &namespace).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Moves the fields of client-side appliers and of Karmada to our manager, so that the following apply drops fields that the manifest
/// does not have. Returns the object if it was changed.
async fn take_over(
    member: &Member,
    target: &Target,
    key: &Key,
    object: &Value,
) -> Result<Option<Value>, MemberError> {
    let Some(managed) = with_others_moved(object) else { return Ok(None) };
    let version = &object["metadata"]["resourceVersion"];
    let operations = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]);
    member.json_patch(target, key, &operations).await.map(Some)
}

/// The controller's rendering refuses to change an object's identity; the agent checks it again, because these fields
/// decide what its permissions are used on.
///
/// # Errors
/// Names the object.
pub(crate) fn check_identity(
    manifest: &Value,
    key: &Key,
    desired: &Desired,
) -> Result<(), MemberError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &manifest["metadata"];
    let marked = metadata["labels"][MANAGED_BY] == MANAGED_BY_VALUE
        && metadata["annotations"][HASH].as_str() == Some(&desired.hash);
    let group = desired.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if text(&manifest["apiVersion"]) != desired.api_version
        || group != key.kind.group
        || text(&manifest["kind"]) != key.kind.kind
        || text(&metadata["name"]) != key.name
        || text(&metadata["namespace"]) != key.namespace
        || !marked
    {
        return Err(MemberError::Scope(format!(
            "the manifest sent for {key} has another identity or lacks Atoll's marks"
        )));
    }
    Ok(())
}

fn is_in_step(live: &Live, desired: &Desired, known: &Known) -> bool {
    known.fields.is_some() && known.fields == live.fields && marks_match(live, desired)
}

fn marks_match(live: &Live, desired: &Desired) -> bool {
    live.marked
        && live.hash == desired.hash
        && live.claims == desired.claims
        && live.preserve == desired.preserve
}

/// Whether a HorizontalPodAutoscaler of the namespace targets this object. Where the agent may not list them, the
/// manager that used the scale subresource counts as an autoscaler: fighting one would be worse than leaving a replica
/// count.
async fn is_autoscaled(member: &Member, key: &Key) -> bool {
    let target = Target::builtin(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        true,
    );
    let mut next = None;
    loop {
        let page = match member.list(&target, Some(&key.namespace), None, next).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%key, error = %error.message(), "cannot list HorizontalPodAutoscalers: the object's replicas are not changed");
                return true;
            }
        };
        let found = page.objects.iter().any(|autoscaler| {
            let reference = &autoscaler["spec"]["scaleTargetRef"];
            let group = reference["apiVersion"].as_str().unwrap_or_default();
            let group = group.rsplit_once('/').map_or("", |(group, _)| group);
            reference["name"] == key.name.as_str()
                && key.kind.is(group, reference["kind"].as_str().unwrap_or_default())
        });
        next = page.next;
        if found || next.is_none() {
            return found;
        }
    }
}
