//! The schema of a kind: types, merge rules, limits.
//!
//! A [`Schema`] comes from a CRD's `openAPIV3Schema` ([`Schema::from_openapi`]), from the table of built-in kinds
//! ([`Schema::builtin`]), or covers only `metadata` ([`Schema::deduced`]). It controls pruning, defaulting and
//! validation here, and strategic merge and server-side apply elsewhere in the crate.

mod builtin;
mod checks;
mod defaults;
mod formats;
mod open;
mod parse;
mod prune;
mod rules;
mod validate;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

pub(crate) use self::checks::Checks;
use self::rules::Within;
pub use self::{
    defaults::default,
    parse::SchemaError,
    prune::prune,
    rules::{Rule, RuleSite, rules},
    validate::{FieldError, FieldReason, validate, validate_update},
};

/// The fields of a kind. A clone costs one reference count.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Node>);

/// The JSON type that a field must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// No type is declared.
    #[default]
    Any,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// A string.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A string or an integer (`x-kubernetes-int-or-string`).
    IntOrString,
    /// A string or any number: a resource quantity.
    Quantity,
}

/// How list items are identified (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are scalars, each at most once.
    Set,
    /// Items are objects, identified by these fields.
    Map(Vec<String>),
}

/// How strategic merge treats a field (`patchStrategy` and `patchMergeKey` of the Go types).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum PatchRule {
    /// Objects merge, lists are replaced.
    #[default]
    Usual,
    /// Objects are replaced too.
    Replace,
    /// Lists merge item by item; items that are objects are matched by this field.
    MergeItems(Option<String>),
}

/// How to treat undeclared fields.
#[derive(Debug, Clone, Default)]
pub(crate) enum Unknown {
    /// Dropped by pruning, rejected by server-side apply.
    #[default]
    Refused,
    /// Kept unchanged (`x-kubernetes-preserve-unknown-fields`).
    Kept,
    /// Values of a map with free keys (`additionalProperties`).
    Values(Schema),
}

#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) unknown: Unknown,
    pub(crate) items: Option<Schema>,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    pub(crate) default: Option<Value>,
    pub(crate) patch: PatchRule,
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Vec<Rule>,
    /// Computed when the node becomes a [`Schema`].
    within: Within,
}

/// A field of an object, according to the schema.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) schema: &'a Schema,
    /// Whether the field is declared by name, as opposed to a key of a map.
    pub(crate) named: bool,
}

static UNTYPED: LazyLock<Schema> =
    LazyLock::new(|| Node { nullable: true, unknown: Unknown::Kept, ..Node::default() }.into());

static DEDUCED: LazyLock<Schema> = LazyLock::new(|| {
    let text = || Schema::from(Node { kind: Type::String, ..Node::default() });
    let properties = BTreeMap::from([
        ("apiVersion".to_owned(), text()),
        ("kind".to_owned(), text()),
        ("metadata".to_owned(), Schema::object_meta()),
    ]);
    Node { kind: Type::Object, properties, unknown: Unknown::Kept, ..Node::default() }.into()
});

/// Group (`""` for the core group) and kind of everything in [`Schema::builtin`], in any version.
pub fn builtin_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    builtin::kinds()
}

impl Schema {
    /// The schema of a kind with unknown fields: maps merge by key, lists are one value each.
    #[must_use]
    pub fn deduced() -> Self {
        DEDUCED.clone()
    }

    /// The schema of a kind that ships with Kubernetes, or `None` if the table does not have it.
    /// `group` is `""` for the core group.
    #[must_use]
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        builtin::lookup(group, version, kind)
    }

    /// Reads a CRD's `openAPIV3Schema`, with the rules for structural schemas of apiextensions.k8s.io/v1. `apiVersion`,
    /// `kind` and `metadata` need not be declared.
    ///
    /// # Errors
    /// [`SchemaError`] lists every part of the schema that is not structural.
    pub fn from_openapi(schema: &Value) -> Result<Self, SchemaError> {
        parse::root(schema)
    }

    /// The JSON type that a value must have.
    #[must_use]
    pub fn kind(&self) -> Type {
        self.0.kind
    }

    /// The schema of the field `name` of an object: a declared field, or the values of a map. `None` if such a field is
    /// rejected.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Self> {
        self.field(name).map(|f| f.schema)
    }

    /// Whether objects have a declared field of this name.
    #[must_use]
    pub fn declares(&self, name: &str) -> bool {
        self.0.properties.contains_key(name)
    }

    /// The declared fields, in order of name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.properties.iter().map(|(name, schema)| (name.as_str(), schema))
    }

    /// The schema of a list's items; `None` if this is not a list.
    #[must_use]
    pub fn items(&self) -> Option<&Self> {
        self.0.items.as_ref()
    }

    /// The schema of the values of a map with free keys (`additionalProperties`); `None` if keys are declared or the
    /// fields are unknown.
    #[must_use]
    pub fn additional(&self) -> Option<&Self> {
        match &self.0.unknown {
            Unknown::Values(schema) => Some(schema),
            Unknown::Refused | Unknown::Kept => None,
        }
    }

    /// How the items of a list are identified.
    #[must_use]
    pub fn list_type(&self) -> &ListType {
        &self.0.list
    }

    /// How strategic merge treats this field, in the words of `x-kubernetes-patch-strategy`; `None` for the usual way.
    #[must_use]
    pub fn patch_strategy(&self) -> Option<&'static str> {
        match &self.0.patch {
            PatchRule::Usual => None,
            PatchRule::Replace => Some("replace"),
            PatchRule::MergeItems(_) => Some("merge"),
        }
    }

    /// The field by which strategic merge matches the items of this list, if it does.
    #[must_use]
    pub fn patch_merge_key(&self) -> Option<&str> {
        match &self.0.patch {
            PatchRule::Usual | PatchRule::Replace => None,
            PatchRule::MergeItems(key) => key.as_deref(),
        }
    }

    /// The default of this field, if it has one.
    #[must_use]
    pub fn default_value(&self) -> Option<&Value> {
        self.0.default.as_ref()
    }

    pub(crate) fn object_meta() -> Self {
        builtin::object_meta()
    }

    pub(crate) fn untyped() -> &'static Self {
        &UNTYPED
    }

    /// Whether it says nothing about what is in a value.
    pub(crate) fn is_open(&self) -> bool {
        let node = &self.0;
        matches!(node.unknown, Unknown::Kept) && node.properties.is_empty() && node.items.is_none()
    }

    pub(crate) fn node(&self) -> &Node {
        &self.0
    }

    pub(crate) fn field(&self, name: &str) -> Option<Field<'_>> {
        if let Some(schema) = self.0.properties.get(name) {
            return Some(Field { schema, named: true });
        }
        match &self.0.unknown {
            Unknown::Refused => None,
            Unknown::Kept => Some(Field { schema: Self::untyped(), named: false }),
            Unknown::Values(schema) => Some(Field { schema, named: false }),
        }
    }

    /// Like [`Schema::items`], for values that may not match the schema: items of an undeclared list are untyped.
    pub(crate) fn items_or_untyped(&self) -> &Self {
        self.0.items.as_ref().unwrap_or_else(|| Self::untyped())
    }
}

impl From<Node> for Schema {
    fn from(node: Node) -> Self {
        Self(Arc::new(Node { within: Within::of(&node), ..node }))
    }
}
