//! The last steps of writes: one atomic step on the store, then the wait until it is durable.

use std::sync::Arc;

use atoll_apimachinery::{ApiError, meta};
use serde_json::Value;

use super::{
    call::{Call, Written},
    prepare::{self, Draft, Outcome, Part},
    rbac, services,
};
use crate::{
    core::Core,
    crd,
    item::Item,
    kinds::Kind,
    store::{Content, ObjectKey, Record, Step, Unread},
};

/// Retries of a write without a resourceVersion after conflicts with other writers. Upstream stops after five; here a
/// try costs microseconds.
const TRIES: usize = 64;
/// Generated names to try before a create fails (upstream: 8).
const NAME_TRIES: usize = 8;

/// The result of a step.
enum Act {
    Done(Arc<Record>),
    DryRun(Value),
    Retry,
}

/// Refuses objects in missing or terminating namespaces.
pub(super) fn namespace_accepts(
    step: &Step<'_>,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    if !kind.namespaced {
        return Ok(());
    }
    let Some(found) = step.get(&Core::namespaces(), &ObjectKey::new("", namespace)) else {
        return Err(ApiError::not_found("", "namespaces", namespace));
    };
    if !meta::is_deleting(&found.value()) {
        return Ok(());
    }
    let mut error = ApiError::forbidden(
        &kind.group,
        &kind.plural,
        name,
        format_args!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
    );
    if let Some(details) = &mut error.details {
        details["causes"] = serde_json::json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(error)
}

/// A draft whose managed fields are still to be computed.
pub(crate) fn draft(object: Value) -> Draft {
    Draft { object, managed: false }
}

/// Creates the drafted object.
pub(crate) async fn create(call: &Call, draft: Draft) -> Result<Written, ApiError> {
    let mut warnings = Vec::new();
    let (core, kind) = (&call.core, &call.kind);
    let generated = meta::name(&draft.object).is_empty();
    rbac::check_create(call)?;
    let object = prepare::create(call, draft, &mut warnings)?;
    rbac::check_grant(call, &object)?;
    let mut stored = kind.incoming(object);
    for attempt in 1..=NAME_TRIES {
        let key = ObjectKey::of(&stored);
        let result = core.store.step(|step| {
            namespace_accepts(step, kind, &key.namespace, &key.name)?;
            if step.get(&kind.table, &key).is_some() {
                if generated && attempt < NAME_TRIES {
                    return Ok(Act::Retry);
                }
                return Err(ApiError::already_exists(&kind.group, &kind.plural, &key.name));
            }
            let mut value = stored.clone();
            services::allocate(step, kind, &mut value, None, &core.ids)?;
            if call.query.dry_run {
                return Ok(Act::DryRun(value));
            }
            Ok(Act::Done(step.put(&kind.table, &key, value)))
        })?;
        match result {
            Act::Retry => {
                let name = core.ids.name(meta::text(&stored, "generateName"));
                meta::set(&mut stored, "name", Some(name.into()));
            }
            done => return finish(call, done, 201, warnings).await,
        }
    }
    Err(ApiError::internal("no free name was found"))
}

/// Changes an existing object: `work` gets it in the request's version and returns the new state. Runs again if another
/// write intervened.
pub(crate) async fn modify(
    call: &Call,
    part: Part,
    work: impl Fn(&Value) -> Result<Draft, ApiError>,
) -> Result<Written, ApiError> {
    modify_around(call, part, Unread::default(), work).await
}

/// Like [`modify`], but `work` gets the object with empty values instead of its unread parts. It must leave those of open
/// parts as they are.
pub(super) async fn modify_around(
    call: &Call,
    part: Part,
    mut unread: Unread<'_>,
    work: impl Fn(&Value) -> Result<Draft, ApiError>,
) -> Result<Written, ApiError> {
    let (core, kind, key) = (&call.core, &call.kind, call.key());
    if call.query.dry_run {
        // Its answer is not made from a record.
        unread = Unread::default();
    }
    for _ in 0..TRIES {
        let live = core.store.get(&kind.table, &key).ok_or_else(|| kind.not_found(&call.name))?;
        let mut warnings = Vec::new();
        let (stored, parts) = live.split(&unread);
        let shown = kind.outgoing(&stored);
        let outcome = prepare::update(call, &shown, work(&shown)?, part, &mut warnings)?;
        if let Outcome::Put(object) | Outcome::Remove(object) = &outcome
            && !parts.fit(object)
        {
            unread = Unread::default();
            continue;
        }
        if let Outcome::Put(object) = &outcome {
            rbac::check_grant(call, object)?;
        }
        let result = core.store.step(|step| {
            let current = step.get(&kind.table, &key).map(|r| r.revision);
            if current != Some(live.revision) {
                return Ok(Act::Retry);
            }
            match outcome {
                Outcome::Unchanged => Ok(Act::Done(live.clone())),
                Outcome::Remove(last) | Outcome::Put(last) if call.query.dry_run => {
                    Ok(Act::DryRun(last))
                }
                Outcome::Remove(last) => {
                    Ok(Act::Done(step.remove(&kind.table, &key, Content::new(last, parts))))
                }
                Outcome::Put(mut value) => {
                    services::allocate(step, kind, &mut value, Some(&stored), &core.ids)?;
                    Ok(Act::Done(step.put(&kind.table, &key, Content::new(value, parts))))
                }
            }
        })?;
        match result {
            Act::Retry => {}
            done => return finish(call, done, 200, warnings).await,
        }
    }
    Err(ApiError::modified(&kind.group, &kind.plural, &call.name))
}

/// Waits until a write is durable and returns the result.
async fn finish(
    call: &Call,
    act: Act,
    code: u16,
    warnings: Vec<String>,
) -> Result<Written, ApiError> {
    let item = match act {
        Act::Done(record) => {
            // Before the wait: if the caller is cancelled there, the catalogue must not lag behind the store.
            settled(&call.core, &call.kind);
            call.core.store.durable(record.revision).await?;
            Item::Stored(record)
        }
        Act::DryRun(mut value) => {
            // Nothing was written, so there is no new version.
            if code == 201 {
                meta::set(&mut value, "resourceVersion", None);
            }
            Item::plain(call.kind.outgoing(&value).into_owned())
        }
        Act::Retry => return Err(ApiError::internal("a write ended half way")),
    };
    Ok(Written { item, code, warnings })
}

/// The immediate effects of a write: a changed CRD changes the served kinds.
pub(super) fn settled(core: &Core, kind: &Kind) {
    if kind.table == crd::table() {
        core.sync_catalog();
    }
}
