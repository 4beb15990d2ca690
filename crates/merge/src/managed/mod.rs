//! Server-side apply: ownership of fields, and the changes of an applied configuration.
//!
//! The behavior is that of structured-merge-diff under the API server's field manager, with one exception: entries of
//! another version are not converted. Their fields are assumed to have the same names in all versions of a kind.

mod entries;
mod fieldset;
mod merge;
mod path;
#[cfg(test)]
mod tests;
mod typed;

use std::{fmt, sync::LazyLock};

use serde_json::{Map, Value};

pub use self::{
    entries::{EntryError, EntryProblem, Operation, Owner},
    fieldset::{FieldSet, FieldSetError, display_path},
    path::{Atom, PathElement},
};
use self::{
    entries::{Owned, Owners},
    typed::Comparison,
};
use crate::{schema::Schema, value::same};

/// The identity and time of a write.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The `fieldManager` of the request.
    pub manager: &'a str,
    /// The version of the written object, such as `apps/v1`.
    pub api_version: &'a str,
    /// The subresource, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// Time of the write, RFC 3339 with seconds.
    pub now: &'a str,
}

impl Writer<'_> {
    fn owner(&self, operation: Operation) -> Owner {
        entries::owner(
            self.manager,
            operation,
            self.api_version,
            self.subresource.unwrap_or_default(),
        )
    }
}

/// The part of an object that a request may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The object itself; its status too, unless the kind has a status subresource.
    Object {
        /// Whether the kind has the `status` subresource.
        status_subresource: bool,
    },
    /// The `status` subresource.
    Status,
}

impl Endpoint {
    /// Removes from an applied configuration the fields that this endpoint may not write, so that [`apply`] neither
    /// changes nor owns them.
    pub fn restrict(self, config: &mut Value) {
        let Some(fields) = config.as_object_mut() else { return };
        match self {
            Self::Object { status_subresource: false } => {}
            Self::Object { status_subresource: true } => {
                fields.remove("status");
            }
            Self::Status => {
                fields.retain(|name, _| {
                    matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                });
                if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                    // Keeps only identity and preconditions.
                    metadata.retain(|name, _| {
                        matches!(name.as_str(), "name" | "namespace" | "uid" | "resourceVersion")
                    });
                }
            }
        }
    }
}

/// A field of another manager to which the applied configuration gives a different value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner of the field.
    pub owner: Owner,
    /// When it last wrote, if known.
    pub time: Option<String>,
    /// The field, such as `.spec.containers[name="a"].image`.
    pub field: String,
    path: Vec<PathElement>,
}

impl Conflict {
    /// Whether both objects have the field, with equal values.
    #[must_use]
    pub fn is_equal_in(&self, a: &Value, b: &Value) -> bool {
        match (path::at(a, &self.path), path::at(b, &self.path)) {
            (Some(a), Some(b)) => same(a, b),
            _ => false,
        }
    }

    /// The message of a cause in the details of a `Status`: `conflict with "kubectl" using apps/v1`.
    #[must_use]
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.who())
    }

    fn who(&self) -> String {
        let Owner { manager, operation, api_version, subresource } = &self.owner;
        let mut who = format!("{manager:?}");
        if !subresource.is_empty() {
            who += &format!(" with subresource {subresource:?}");
        }
        if *operation == Operation::Update {
            who += &format!(" using {api_version}");
            if let Some(time) = &self.time {
                who += &format!(" at {time}");
            }
        }
        who
    }
}

/// All conflicts of an apply. Displays like the API server's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [conflict] = &self.0[..] {
            return write!(
                f,
                "Apply failed with 1 conflict: {}: {}",
                conflict.cause(),
                conflict.field
            );
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for (i, conflict) in self.0.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            if last != Some(&conflict.owner) {
                write!(f, "{newline}conflicts with {}:", conflict.who())?;
            }
            last = Some(&conflict.owner);
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

/// Why an apply was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that would change: a 409. `force` takes these fields over.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The configuration does not match the kind: a 400.
    #[error("failed to create typed patch object: {}", .0.join(", "))]
    Misfit(Vec<String>),
    /// The configuration contains `managedFields`: a 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    /// The live object's `managedFields` are invalid.
    #[error("the live object has unreadable managed fields")]
    Entry(#[from] EntryError),
}

/// Fields without an owner: the identity of the object, and fields that the API server maintains.
const UNOWNED_METADATA: [&str; 11] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Metadata for which the live object takes precedence over a configuration. Clients send it as a precondition, which
/// the caller checks, or as an empty leftover of their encoder.
const SERVER_METADATA: [&str; 7] = [
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Owner of all fields that an object without managed fields had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies a configuration and returns the new object, with its `metadata.managedFields`.
///
/// Fields that the manager applied before and no longer applies are removed, unless another manager owns them. Without
/// `force`, a change to another manager's field is rejected. Applying a configuration without changes modifies nothing,
/// not even the time of the manager's entry. `live` is `None` to create.
///
/// # Errors
/// [`ApplyError`]; then nothing is changed.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    let config = configuration(live, applied, schema)?;
    let nothing = Value::Object(Map::new());
    let before = live.map(without_managed_fields).unwrap_or_else(|| nothing.clone());
    let mut owners = match live.and_then(entries::raw) {
        Some(entries) => fitted(entries::decode(entries)?, schema),
        None => Owners::new(),
    };
    if owners.is_empty() && live.is_some() {
        let first = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let comparison = typed::compare(&nothing, &before, schema);
        capture(&mut owners, &comparison, &first);
    }

    let me = writer.owner(Operation::Apply);
    let previous = owners.remove(&me);
    let fields = typed::field_set(&config, schema);
    let merged = merge::merge(&before, &config, schema);
    let mut after = match &previous {
        Some(previous) if !previous.fields.is_empty() => {
            let others = owners.values().fold(fields.clone(), |all, o| all.union(&o.fields));
            prune(&merged, &previous.fields, &others, schema)
        }
        _ => merged,
    };

    let comparison = typed::compare(&before, &after, schema);
    let conflicts = conflicts(&owners, &comparison);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(Conflicts(conflicts)));
    }
    yield_changed(&mut owners, &comparison);

    let fields = fields.difference(&UNOWNED);
    if !fields.is_empty() {
        let untouched = live.is_some() && same(&before, &after);
        let time = match previous {
            Some(previous) if untouched && previous.fields == fields => previous.time,
            _ => Some(writer.now.to_owned()),
        };
        owners.insert(me, Owned { api_version: writer.api_version.to_owned(), time, fields });
    }
    entries::write(&mut after, &owners);
    Ok(after)
}

/// Returns `new` with its `metadata.managedFields`, for every write that is not an apply: the writer owns the fields
/// that it added or changed, and removed fields lose their owners.
///
/// The caller has already restored the fields that the endpoint may not write. `managedFields` from the writer take
/// effect as in the API server: `[]` or `[{}]` resets them; through a subresource they are ignored. An object without
/// managed fields has none until its first apply. `live` is `None` to create.
#[must_use]
pub fn update(live: Option<&Value>, new: Value, writer: &Writer<'_>, schema: &Schema) -> Value {
    let mut after = new;
    let metadata = after.get_mut("metadata").and_then(Value::as_object_mut);
    let sent = metadata.and_then(|metadata| metadata.remove("managedFields"));
    let sent = sent.as_ref().and_then(Value::as_array).filter(|_| writer.subresource.is_none());
    let held = live.and_then(entries::raw);
    let reset = sent.is_some_and(|sent| is_reset(sent));
    if live.is_some() && (reset || sent.is_none() && held.is_none_or(Vec::is_empty)) {
        // The owners of its fields are not tracked, or not any more: nothing to compare.
        return after;
    }
    let nothing = Value::Object(Map::new());
    let mut comparison = typed::compare(live.unwrap_or(&nothing), &after, schema);
    // This includes the object's previous managedFields.
    comparison.removed.subtract(&UNOWNED);
    if let Some(held) = held
        && sent.is_none_or(|sent| sent == held)
        && !held.is_empty()
        && comparison.is_empty()
    {
        entries::put(&mut after, held.clone());
        return after;
    }
    let kept = || held.and_then(|raw| entries::decode(raw).ok());
    let owners = match sent {
        _ if reset => Owners::new(),
        Some(sent) => match entries::decode(sent) {
            Ok(owners) => owners,
            // Clients that do not support the field must not destroy it.
            Err(_) => kept().unwrap_or_default(),
        },
        None => kept().unwrap_or_default(),
    };
    if live.is_some() && owners.is_empty() {
        return after;
    }
    let mut owners = fitted(owners, schema);
    capture(&mut owners, &comparison, writer);
    entries::cap(&mut owners);
    entries::write(&mut after, &owners);
    after
}

/// Whether a client that sends these entries wants the owners of all fields to be forgotten.
#[must_use]
pub fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [only] => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The configuration without fields that it cannot set.
fn configuration(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    let mut config = applied.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        if metadata.remove("managedFields").is_some_and(|given| !given.is_null()) {
            return Err(ApplyError::ManagedFieldsGiven);
        }
        if live.is_some() {
            metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        }
    }
    let misfits = typed::misfits(&config, schema);
    if misfits.is_empty() { Ok(config) } else { Err(ApplyError::Misfit(misfits)) }
}

/// Removes the fields that were applied before (`last`) and have no owner now. `owned` are the fields of all owners,
/// including the ones applied now.
fn prune(merged: &Value, last: &FieldSet, owned: &FieldSet, schema: &Schema) -> Value {
    let named = |set: &FieldSet| set.with_named_parents(schema);
    let all = named(&typed::field_set(merged, schema));
    let last = named(last);

    let without_last = typed::without(merged, &last, schema);
    let kept = named(&typed::field_set(&without_last, schema)).union(&named(owned));
    let without_unowned = typed::without(merged, &all.difference(&kept), schema);
    // Restores fields below a removed field that were never applied through it.
    let removed = all.difference(&named(&typed::field_set(&without_unowned, schema)));
    typed::without(merged, &removed.intersection(&last), schema)
}

fn conflicts(others: &Owners, comparison: &Comparison) -> Vec<Conflict> {
    let changed = comparison.added.union(&comparison.modified);
    let per_owner = others.iter().flat_map(|(owner, owned)| {
        let paths = owned.fields.intersection(&changed).paths();
        paths.into_iter().map(|path| Conflict {
            owner: owner.clone(),
            time: owned.time.clone(),
            field: display_path(&path),
            path,
        })
    });
    per_owner.collect()
}

/// Removes changed and deleted fields from every owner.
fn yield_changed(owners: &mut Owners, comparison: &Comparison) {
    owners.retain(|_, owned| {
        for lost in [&comparison.added, &comparison.modified, &comparison.removed] {
            owned.fields.subtract(lost);
        }
        !owned.fields.is_empty()
    });
}

/// Makes the writer the owner of the fields that it added and changed.
fn capture(owners: &mut Owners, comparison: &Comparison, writer: &Writer<'_>) {
    let me = writer.owner(Operation::Update);
    let mut fields = comparison.added.union(&comparison.modified);
    fields.subtract(&UNOWNED);
    if fields.is_empty() {
        return yield_changed(owners, comparison);
    }
    // The writer keeps its earlier fields if they still exist.
    let before = owners.remove(&me);
    yield_changed(owners, comparison);
    if let Some(mut before) = before {
        before.fields.subtract(&comparison.removed);
        before.fields.subtract(&UNOWNED);
        fields.add(&before.fields);
    }
    let owned = Owned {
        api_version: writer.api_version.to_owned(),
        time: Some(writer.now.to_owned()),
        fields,
    };
    owners.insert(me, owned);
}

fn fitted(mut owners: Owners, schema: &Schema) -> Owners {
    for owned in owners.values_mut() {
        owned.fields.fit_to(schema);
    }
    owners
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let field = |name: &str| PathElement::Field(name.to_owned());
    let mut set = FieldSet::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[field(name)]);
    }
    for name in UNOWNED_METADATA {
        set.insert(&[field("metadata"), field(name)]);
    }
    set
});
