//! Converts objects of Karmada, Kosmos' WorkloadPolicy and OpenKruise's WorkloadSpread into Atoll's, with a report.
//!
//! The schemas of Atoll's CRDs are the table of fields: a field that a kind of Atoll has under the same name is taken
//! over. Tables of rules name the fields that differ ([`karmada`], [`kosmos`], [`kruise`]). A field with neither a rule
//! nor a schema is reported as unknown, so no field is lost without a line. Pure: objects in, objects and lines out.

mod draft;
mod karmada;
mod keys;
mod kosmos;
mod kruise;
mod path;
mod report;
mod rules;
mod template;

use std::collections::BTreeMap;

use atoll_merge::schema::{Schema, SchemaError};
use serde_json::Value;

pub use self::report::{Class, Fault, Group, Line, Report, Source, without_indices};
use draft::Draft;

/// What the converted objects are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// They are applied to a hub: without status and without the metadata that API servers set. Bindings are left out,
    /// because Atoll's controller makes them.
    Hub,
    /// They are read without a hub: status, uids and bindings are inputs of the scheduler and stay.
    Offline,
}

/// Settings of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What the objects are for.
    pub purpose: Purpose,
    /// The scheduler profile in place of Karmada's default scheduler.
    pub profile: String,
}

impl Options {
    /// Settings for a purpose, with the profile that divides as Karmada does.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Self { purpose, profile: KARMADA_PROFILE.to_owned() }
    }
}

/// Atoll's scheduler profile with Karmada's rules.
pub const KARMADA_PROFILE: &str = "karmada";

/// A converted object.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// The object; `None` if Atoll has no such kind or does not need the object.
    pub object: Option<Value>,
    /// What happened with its fields.
    pub lines: Vec<Line>,
}

/// The system that an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Atoll,
    Karmada,
    Kosmos,
    WorkloadSpread,
    /// A user's object.
    Template,
}

fn family(group: &str, kind: &str) -> Family {
    match (group, kind) {
        (group, _) if group.ends_with(".atoll.dev") => Family::Atoll,
        (group, _) if group.ends_with(".karmada.io") => Family::Karmada,
        ("kosmos.io", _) => Family::Kosmos,
        ("apps.kruise.io", "WorkloadSpread") => Family::WorkloadSpread,
        _ => Family::Template,
    }
}

/// Whether an object of this group and kind is converted as a whole: it is one of another federation's own kinds, not a
/// user's object.
#[must_use]
pub fn is_foreign(group: &str, kind: &str) -> bool {
    matches!(family(group, kind), Family::Karmada | Family::Kosmos | Family::WorkloadSpread)
}

/// Converts objects.
#[derive(Debug)]
pub struct Converter {
    /// Schemas of Atoll's kinds, by the first label of their group (`policy`) and their kind.
    schemas: BTreeMap<(String, String), (Schema, String)>,
    options: Options,
}

impl Converter {
    /// A converter for all kinds of Atoll.
    ///
    /// # Errors
    /// When the schema of one of Atoll's own kinds is not structural.
    pub fn new(options: Options) -> Result<Self, SchemaError> {
        let mut schemas = BTreeMap::new();
        for crd in atoll_api::crds::all() {
            let Some(version) = crd.spec.versions.first() else { continue };
            let group = crd.spec.group.split('.').next().unwrap_or_default().to_owned();
            let api_version = format!("{}/{}", crd.spec.group, version.name);
            let schema = Schema::from_openapi(&atoll_api::crds::full_schema(&crd))?;
            let schema = (schema, api_version);
            schemas.insert((group, crd.spec.names.kind), schema);
        }
        Ok(Self { schemas, options })
    }

    /// Converts an object. Atoll's own objects are returned unchanged and without lines, and so are values without
    /// apiVersion and kind.
    #[must_use]
    pub fn convert(&self, object: Value) -> Converted {
        let source = Source::of(&object);
        if source.api_version.is_empty() || source.kind.is_empty() {
            return Converted { object: Some(object), lines: Vec::new() };
        }
        let family = family(source.group(), &source.kind);
        if family == Family::Atoll {
            return Converted { object: Some(object), lines: Vec::new() };
        }
        let mut draft = Draft::new(source, object);
        let written = match family {
            Family::Karmada => karmada::convert(self, &mut draft),
            Family::Kosmos => kosmos::convert(self, &mut draft),
            Family::WorkloadSpread => kruise::convert(self, &mut draft),
            Family::Atoll | Family::Template => template::convert(self, &mut draft),
        };
        draft.finish(written)
    }

    /// Schema and apiVersion of Atoll's kind in a group, by the group's first label.
    fn kind(&self, group: &str, kind: &str) -> Option<&(Schema, String)> {
        self.schemas.get(&(group.to_owned(), kind.to_owned()))
    }

    fn is_for_hub(&self) -> bool {
        self.options.purpose == Purpose::Hub
    }
}
