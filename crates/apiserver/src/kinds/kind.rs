//! One served version of a kind, whether built in, defined by a CRD or mounted.

use std::{
    borrow::Cow,
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use atoll_apimachinery::{
    ApiError, kind::KindNames, read_only::ReadOnlyKind, selector::SelectableField,
};
use atoll_merge::schema::Schema;
use serde_json::Value;

use super::{builtin::Builtin, event};
use crate::{crd::custom::Custom, store::TableId};

/// The origin of a kind.
pub(crate) enum Origin {
    Builtin(&'static Builtin),
    Custom(Custom),
    /// Mounted: its objects are stored elsewhere.
    Virtual(Arc<ReadOnlyKind>),
}

/// How objects of this version differ from the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Only `apiVersion`, if at all (CRD conversion strategy `None`).
    ApiVersion,
    /// `events.k8s.io` Events, stored as core Events.
    Event,
}

/// Where `/scale` finds its fields: dotted paths without a leading dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    /// Path of the selector in its string form; `None` when there is none.
    pub(crate) selector: Option<String>,
}

/// One served version of a kind.
pub(crate) struct Kind {
    pub(crate) names: KindNames,
    pub(crate) table: TableId,
    /// `apiVersion` and kind of stored objects.
    pub(crate) stored_api_version: String,
    pub(crate) conversion: Conversion,
    /// Whether `/status` exists.
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// Selectable fields in addition to name and namespace.
    pub(crate) selectable: Vec<SelectableField>,
    pub(crate) origin: Origin,
    pub(crate) schema: OnceLock<Schema>,
}

/// Paths, errors and messages name a kind everywhere.
impl Deref for Kind {
    type Target = KindNames;

    fn deref(&self) -> &KindNames {
        &self.names
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// Whether `text` is this group and version.
fn is_api_version(text: &str, group: &str, version: &str) -> bool {
    match text.split_once('/') {
        None => group.is_empty() && text == version,
        Some((found, rest)) => found == group && rest == version,
    }
}

impl Kind {
    /// Whether objects of this kind are in the store.
    pub(crate) fn is_stored(&self) -> bool {
        match &self.origin {
            Origin::Builtin(b) => !b.review,
            Origin::Custom(_) => true,
            Origin::Virtual(_) => false,
        }
    }

    pub(crate) fn builtin(&self) -> Option<&'static Builtin> {
        match &self.origin {
            Origin::Builtin(b) => Some(b),
            Origin::Custom(_) | Origin::Virtual(_) => None,
        }
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::Custom(c) => Some(c),
            Origin::Builtin(_) | Origin::Virtual(_) => None,
        }
    }

    /// Whether this is the built-in kind `kind` of `group`.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.builtin().is_some() && self.group == group && self.kind == kind
    }

    /// Whether changes outside metadata and status increment `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        match &self.origin {
            Origin::Builtin(b) => b.generation,
            Origin::Custom(_) => true,
            Origin::Virtual(_) => false,
        }
    }

    /// The schema for merging, pruning and type checks.
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| match &self.origin {
            Origin::Builtin(_) => Schema::builtin(&self.group, &self.version, &self.kind)
                .unwrap_or_else(Schema::deduced),
            Origin::Custom(_) | Origin::Virtual(_) => Schema::deduced(),
        })
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.group, &self.plural, name)
    }

    /// Converts a stored object to this version.
    pub(crate) fn outgoing<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        if self.shows_as_is(stored.get("apiVersion").and_then(Value::as_str).unwrap_or("")) {
            return Cow::Borrowed(stored);
        }
        match self.conversion {
            Conversion::ApiVersion => {
                let mut value = stored.clone();
                value["apiVersion"] = self.api_version().into();
                Cow::Owned(value)
            }
            Conversion::Event => Cow::Owned(event::to_events_group(stored)),
        }
    }

    /// Whether a stored object is returned byte for byte. Objects keep the version that was the storage version when
    /// they were written, so this depends on the object's `apiVersion`.
    pub(crate) fn shows_as_is(&self, api_version: &str) -> bool {
        self.conversion == Conversion::ApiVersion
            && is_api_version(api_version, &self.group, &self.version)
    }

    /// Whether new objects are stored in this version.
    pub(crate) fn is_storage_version(&self) -> bool {
        self.conversion == Conversion::ApiVersion
            && is_api_version(&self.stored_api_version, &self.group, &self.version)
    }

    /// Converts an object of this version to its stored form.
    pub(crate) fn incoming(&self, mut value: Value) -> Value {
        match self.conversion {
            Conversion::ApiVersion => {
                value["apiVersion"] = self.stored_api_version.as_str().into();
                value
            }
            Conversion::Event => event::to_core(&value),
        }
    }
}
