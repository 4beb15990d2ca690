//! Reads and writes `metadata.managedFields`, and limits its length.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fieldset::{FieldSet, FieldSetError};

/// Update entries beyond this number are merged into one, oldest first, as in the API server. Otherwise every
/// controller that ever wrote an object would keep an entry.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that gets the fields of the oldest update entries.
const ANCIENT: &str = "ancient-changes";

/// How a manager wrote the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update and every other patch.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an owner. The same manager is a separate owner for each operation, subresource and, for updates,
/// version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The field manager's name.
    pub manager: String,
    /// How it wrote.
    pub operation: Operation,
    /// The version of the fields. Empty for appliers, which keep their entry across versions.
    pub api_version: String,
    /// The subresource that it wrote through; empty for the object itself.
    pub subresource: String,
}

/// The fields of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) api_version: String,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// Every owner of an object's fields.
pub(super) type Owners = BTreeMap<Owner, Owned>;

/// Invalid `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata.managedFields[{index}]: {cause}")]
pub struct EntryError {
    /// Position of the entry.
    pub index: usize,
    /// The problem with it.
    pub cause: EntryProblem,
}

/// The problem with an entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// The operation is neither of the two.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The entry has no version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The form of the fields is unknown.
    #[error("fieldsType must be `FieldsV1`")]
    FieldsType,
    /// The fields are invalid.
    #[error(transparent)]
    Fields(#[from] FieldSetError),
}

/// The raw entries of an object.
pub(super) fn raw(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get("managedFields")?.as_array()
}

pub(super) fn decode(entries: &[Value]) -> Result<Owners, EntryError> {
    let mut owners = Owners::new();
    for (index, entry) in entries.iter().enumerate() {
        let (owner, owned) = decode_entry(entry).map_err(|cause| EntryError { index, cause })?;
        owners.insert(owner, owned);
    }
    Ok(owners)
}

fn decode_entry(entry: &Value) -> Result<(Owner, Owned), EntryProblem> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(EntryProblem::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(EntryProblem::ApiVersion);
    }
    if text("fieldsType") != "FieldsV1" {
        return Err(EntryProblem::FieldsType);
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => FieldSet::from_json(fields)?,
    };
    let owner = owner(&text("manager"), operation, &api_version, &text("subresource"));
    let time = Some(text("time")).filter(|t| !t.is_empty());
    Ok((owner, Owned { api_version, time, fields }))
}

/// The identity of an owner.
pub(super) fn owner(
    manager: &str,
    operation: Operation,
    api_version: &str,
    subresource: &str,
) -> Owner {
    let api_version = match operation {
        Operation::Apply => "",
        Operation::Update => api_version,
    };
    Owner {
        manager: manager.to_owned(),
        operation,
        api_version: api_version.to_owned(),
        subresource: subresource.to_owned(),
    }
}

/// Writes the owners into the object, in the API server's order: appliers first, older first.
pub(super) fn write(object: &mut Value, owners: &Owners) {
    let mut sorted: Vec<(&Owner, &Owned)> = owners.iter().collect();
    sorted.sort_by_key(|(owner, owned)| {
        let Owner { manager, operation, subresource, .. } = owner;
        (operation, &owned.time, manager, &owned.api_version, subresource)
    });
    put(object, sorted.into_iter().map(|(owner, owned)| encode(owner, owned)).collect());
}

/// Replaces the entries of the object.
pub(super) fn put(object: &mut Value, entries: Vec<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn encode(owner: &Owner, owned: &Owned) -> Value {
    let mut entry = json!({
        "manager": owner.manager,
        "operation": owner.operation.as_str(),
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.fields.to_json(),
    });
    if let Some(time) = &owned.time {
        entry["time"] = json!(time);
    }
    if !owner.subresource.is_empty() {
        entry["subresource"] = json!(owner.subresource);
    }
    entry
}

/// Merges the oldest update entries until the limit is met.
pub(super) fn cap(owners: &mut Owners) {
    let mut updaters: Vec<Owner> =
        owners.keys().filter(|o| o.operation == Operation::Update).cloned().collect();
    updaters.sort_by(|a, b| owners[a].time.cmp(&owners[b].time).then_with(|| a.cmp(b)));
    let mut length = updaters.len();
    // The first merged entry of a version only changes its name; each further one shortens the list.
    for old in updaters {
        if length <= MAX_UPDATE_MANAGERS {
            return;
        }
        let Some(mut owned) = owners.remove(&old) else { continue };
        let bucket = owner(ANCIENT, Operation::Update, &owned.api_version, "");
        if let Some(bucketed) = owners.get(&bucket) {
            owned.fields = owned.fields.union(&bucketed.fields);
            length -= 1;
        }
        owners.insert(bucket, owned);
    }
}
