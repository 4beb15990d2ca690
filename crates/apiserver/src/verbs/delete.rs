//! delete and deletecollection: finalizers, grace, propagation (apiserver `registry/generic/registry/store.go`
//! and `registry/rest/delete.go`).

use atoll_api::marks;
use atoll_apimachinery::{ApiError, FieldError, meta, response, response::Body, view::ListMeta};
use http::Response;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{call::Call, read, write};
use crate::{
    body,
    core::{Core, IMMORTAL_NAMESPACES},
    item::Item,
    kinds::Kind,
    store::ObjectKey,
};

/// The finalizer of foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps dependents.
pub(crate) const ORPHAN: &str = "orphan";
/// Default grace period of a pod in seconds.
const POD_GRACE: i64 = 30;
/// Maximum grace period in seconds, whatever pod or client request: a hundred years. Beyond that the deletion time is
/// not a valid date.
const MAX_GRACE: i64 = 100 * 366 * 24 * 60 * 60;

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    preconditions: Option<Preconditions>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    pub(crate) grace_period_seconds: Option<i64>,
    dry_run: Vec<String>,
}

impl Options {
    /// Parses the body, or the query if there is no body.
    pub(crate) fn read(call: &Call, bytes: &[u8]) -> Result<Self, ApiError> {
        let mut options = if bytes.is_empty() {
            Options {
                propagation_policy: call.query.propagation_policy.clone(),
                orphan_dependents: call.query.orphan_dependents,
                grace_period_seconds: call.query.grace_period_seconds,
                ..Options::default()
            }
        } else {
            let value = body::decode(&call.headers, bytes)?;
            serde_json::from_value(value)
                .map_err(|e| ApiError::bad_request(format!("DeleteOptions: {e}")))?
        };
        if call.query.dry_run {
            options.dry_run = vec!["All".to_owned()];
        }
        if let Some(other) = options.dry_run.iter().find(|d| *d != "All") {
            let error = FieldError::unsupported("dryRun", &other.as_str().into(), &["All"]);
            return Err(refused(error));
        }
        if options.propagation_policy.is_some() && options.orphan_dependents.is_some() {
            return Err(refused(FieldError::invalid(
                "propagationPolicy",
                &options.propagation_policy.as_deref().into(),
                "orphanDependents and deletionPropagation cannot be both set",
            )));
        }
        Ok(options)
    }

    /// For controllers: exactly this object, with this policy.
    fn of(uid: &str, policy: &str) -> Self {
        Options {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            propagation_policy: Some(policy.to_owned()),
            ..Options::default()
        }
    }

    /// Deletes the object with this uid, dependents later.
    pub(crate) fn background(uid: &str) -> Self {
        Self::of(uid, "Background")
    }

    /// Deletes the object with this uid, dependents first.
    pub(crate) fn foreground(uid: &str) -> Self {
        Self::of(uid, "Foreground")
    }

    fn dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The caller's policy, else that of an earlier deletion, else the kind's default.
    fn propagation(
        &self,
        core: &Core,
        kind: &Kind,
        object: &Value,
    ) -> Result<Propagation, ApiError> {
        if !core.garbage_collection {
            return Ok(Propagation::Background);
        }
        match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some("Background"), _) | (None, Some(false)) => Ok(Propagation::Background),
            (Some("Foreground"), _) => Ok(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Ok(Propagation::Orphan),
            (Some(other), _) => Err(refused(FieldError::unsupported(
                "propagationPolicy",
                &other.into(),
                &["Background", "Foreground", "Orphan"],
            ))),
            // Without a policy, finalizers set by an earlier delete count, then the kind's default, which is background
            // except for batch/v1 Jobs (batch/job/strategy.go keeps their pods).
            (None, None) if meta::finalizers(object).contains(&ORPHAN) => Ok(Propagation::Orphan),
            (None, None) if meta::finalizers(object).contains(&FOREGROUND) => {
                Ok(Propagation::Foreground)
            }
            (None, None) if kind.is("batch", "Job") => Ok(Propagation::Orphan),
            (None, None) => Ok(Propagation::Background),
        }
    }
}

/// A refusal of the options themselves.
fn refused(error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error])
}

/// The object must still match the caller's preconditions.
fn preconditions(kind: &Kind, live: &Value, options: &Options) -> Result<(), ApiError> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let name = meta::name(live);
    let fail = |what: &str, field: &str, want: &str, have: &str| {
        Err(ApiError::conflict(
            &kind.group,
            &kind.plural,
            name,
            format_args!(
                "Precondition failed: {what} in precondition: {want}, {what} in {field}: {have}"
            ),
        ))
    };
    if let Some(uid) = &wanted.uid
        && uid != meta::uid(live)
    {
        return fail("UID", "object meta", uid, meta::uid(live));
    }
    if let Some(version) = &wanted.resource_version {
        let have = meta::resource_version(live).unwrap_or("");
        if version != have {
            return fail("ResourceVersion", "object meta", version, have);
        }
    }
    Ok(())
}

/// Refuses to delete an object that its owner protects (as `deploy/controller/deletion-protection.yaml` on kube-apiserver).
fn unprotected(kind: &Kind, live: &Value) -> Result<(), ApiError> {
    let labels = meta::get(live, "labels");
    let label = labels.and_then(|labels| labels.get(marks::DELETION_PROTECTED));
    if label.is_none_or(|value| value != marks::DELETION_PROTECTED_VALUE) {
        return Ok(());
    }
    let why = format!(
        "it is protected from deletion: first remove the label {}",
        marks::DELETION_PROTECTED
    );
    Err(ApiError::forbidden(&kind.group, &kind.plural, meta::name(live), why))
}

/// The effect of a deletion on an object.
enum Plan {
    /// No further change.
    Nothing,
    /// Marked as deleted; another component has to finish it.
    Mark(Value),
    /// Removed.
    Remove(Value),
}

/// Grace period of a pod in seconds.
fn grace(kind: &Kind, live: &Value, options: &Options) -> i64 {
    if !kind.is("", "Pod") {
        return 0;
    }
    let unscheduled =
        meta::at(live, "spec.nodeName").and_then(Value::as_str).unwrap_or("").is_empty();
    let phase = meta::at(live, "status.phase").and_then(Value::as_str).unwrap_or("");
    if unscheduled || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    let own = meta::at(live, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace_period_seconds.or(own).unwrap_or(POD_GRACE).clamp(0, MAX_GRACE)
}

/// Plans a deletion: `BeforeDelete` and `deletionFinalizersForGarbageCollection` of upstream's store.
fn plan(core: &Core, kind: &Kind, live: &Value, options: &Options) -> Result<Plan, ApiError> {
    let propagation = options.propagation(core, kind, live)?;
    let mut new = live.clone();
    let mut finalizers: Vec<String> = meta::finalizers(live)
        .into_iter()
        .filter(|f| !matches!(*f, FOREGROUND | ORPHAN))
        .map(str::to_owned)
        .collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    meta::set_finalizers(&mut new, finalizers);

    let grace = grace(kind, live, options);
    let now = core.now();
    let earlier = meta::get(live, "deletionGracePeriodSeconds").and_then(Value::as_i64);
    if !meta::is_deleting(live) {
        mark(&mut new, now, grace);
        if meta::generation(live) > 0 {
            meta::set(&mut new, "generation", Some((meta::generation(live) + 1).into()));
        }
        if kind.is("", "Namespace") {
            new["status"]["phase"] = "Terminating".into();
        }
        if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            crate::crd::definition::terminate(&mut new, now);
        }
    } else if earlier.is_some_and(|earlier| grace < earlier) {
        // Grace can only be shortened.
        mark(&mut new, now, grace);
    }
    if super::prepare::is_finished(&new) {
        return Ok(Plan::Remove(new));
    }
    if new == *live {
        return Ok(Plan::Nothing);
    }
    Ok(Plan::Mark(new))
}

/// Marks a deletion that takes effect `grace` seconds from now.
fn mark(object: &mut Value, now: Timestamp, grace: i64) {
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    meta::set(object, "deletionTimestamp", Some(meta::seconds(at).into()));
    meta::set(object, "deletionGracePeriodSeconds", Some(grace.into()));
}

/// Deletes one object. `Ok(None)`: it is gone; otherwise its state while it waits.
pub(crate) async fn one(
    core: &Core,
    kind: &Kind,
    key: &ObjectKey,
    options: &Options,
) -> Result<(Item, bool), ApiError> {
    if kind.is("", "Namespace") && IMMORTAL_NAMESPACES.contains(&key.name.as_str()) {
        return Err(ApiError::forbidden(
            "",
            "namespaces",
            &key.name,
            "this namespace may not be deleted",
        ));
    }
    let record = core.store.step(|step| {
        let live = step.get(&kind.table, key).ok_or_else(|| kind.not_found(&key.name))?.clone();
        let value = live.value();
        preconditions(kind, &value, options)?;
        unprotected(kind, &value)?;
        let plan = plan(core, kind, &value, options)?;
        if options.dry_run() {
            let gone = matches!(plan, Plan::Remove(_));
            return Ok::<_, ApiError>((live, gone));
        }
        Ok(match plan {
            Plan::Nothing => (live, false),
            Plan::Mark(new) => (step.put(&kind.table, key, new), false),
            Plan::Remove(last) => (step.remove(&kind.table, key, last), true),
        })
    });
    let (record, gone) = record?;
    if !options.dry_run() {
        write::settled(core, kind);
        core.store.durable(record.revision).await?;
    }
    Ok((Item::Stored(record), gone))
}

pub(crate) async fn delete(call: &Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let options = Options::read(call, bytes)?;
    let (item, gone) = one(&call.core, &call.kind, &call.key(), &options).await?;
    // Pods and namespaces answer with the object even when it is gone (ReturnDeletedObject).
    let returns = call.kind.is("", "Pod") || call.kind.is("", "Service");
    if !gone || returns {
        let code = if !gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
        return Ok(call.respond(code, call.view()?.object(&item, call.core.now())));
    }
    let uid = match &item {
        Item::Stored(record) => meta::uid(&record.value()).to_owned(),
        Item::Plain(value) => meta::uid(value).to_owned(),
    };
    let mut details = json!({"name": call.name, "kind": call.kind.plural, "uid": uid});
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.as_str().into();
    }
    Ok(response::respond_json(
        200,
        &json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }),
    ))
}

/// Deletes everything that the selectors match; returns the objects.
pub(crate) async fn collection(call: &Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    read::selectable(call)?;
    let options = Options::read(call, bytes)?;
    let (core, kind) = (&call.core, &call.kind);
    let (revision, records) = core.store.list(&kind.table, call.namespace.as_deref());
    core.store.durable(revision).await?;
    let mut items = Vec::new();
    for record in records {
        if !call.query.selectors.matches(&record.value(), &kind.selectable) {
            continue;
        }
        match one(core, kind, &ObjectKey::of(&record.value()), &options).await {
            Ok((item, _)) => items.push(item),
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let meta =
        ListMeta { resource_version: core.store.revision().to_string(), ..ListMeta::default() };
    Ok(call.respond(200, call.view()?.list(&items, &meta, core.now())))
}
