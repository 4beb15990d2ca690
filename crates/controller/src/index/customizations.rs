//! Customizations: the rules of users about the meaning of kinds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use atoll_api::ResourceInterpreterCustomization;
use atoll_api::customization::{
    CustomizationTarget, ResourceInterpreterCustomizationSpec,
    ResourceInterpreterCustomizationStatus,
};
use atoll_customize::Customizations;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::rows::RowError;
use super::{Index, Touched};

/// A customization.
#[derive(Debug, Clone, PartialEq)]
pub struct Customization {
    /// uid.
    pub uid: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Its rules.
    pub spec: Arc<ResourceInterpreterCustomizationSpec>,
    /// SHA-256 of the spec, in hex. The same for all controllers, so agents can compare it.
    pub hash: Arc<str>,
    /// As last written by a leader.
    pub status: ResourceInterpreterCustomizationStatus,
}

/// All customizations in force. Immutable: a change makes a new one.
#[derive(Debug, Default)]
pub struct Rules {
    specs: BTreeMap<String, (Arc<ResourceInterpreterCustomizationSpec>, Arc<str>)>,
    compiled: Arc<Customizations>,
}

impl Rules {
    fn of(rows: &BTreeMap<String, Arc<Customization>>) -> Self {
        let specs: BTreeMap<_, _> = rows
            .iter()
            .map(|(name, row)| (name.clone(), (row.spec.clone(), row.hash.clone())))
            .collect();
        let named = specs.iter().map(|(name, (spec, _))| (name.as_str(), spec.clone()));
        let compiled = Arc::new(Customizations::of(named));
        Self { specs, compiled }
    }

    /// Names, specs and hashes of the specs, in order of names.
    pub fn specs(
        &self,
    ) -> impl Iterator<Item = (&str, &Arc<ResourceInterpreterCustomizationSpec>, &Arc<str>)> {
        self.specs.iter().map(|(name, (spec, hash))| (name.as_str(), spec, hash))
    }

    /// Hash of a customization's spec.
    #[must_use]
    pub fn hash(&self, name: &str) -> Option<&Arc<str>> {
        self.specs.get(name).map(|(_, hash)| hash)
    }

    /// The rules, for a [`atoll_customize::Pool`].
    #[must_use]
    pub fn compiled(&self) -> &Arc<Customizations> {
        &self.compiled
    }
}

/// The customizations. `rules` is a function of `rows`.
#[derive(Debug, Default)]
pub(super) struct CustomizationTable {
    rows: BTreeMap<String, Arc<Customization>>,
    rules: Arc<Rules>,
}

impl PartialEq for CustomizationTable {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl Index {
    /// All customizations in force; cheap to clone and to compare by pointer.
    #[must_use]
    pub fn rules(&self) -> &Arc<Rules> {
        &self.customizations.rules
    }

    /// A customization.
    #[must_use]
    pub fn customization(&self, name: &str) -> Option<&Arc<Customization>> {
        self.customizations.rows.get(name)
    }

    /// Names of all customizations.
    pub fn customizations(&self) -> impl Iterator<Item = &String> {
        self.customizations.rows.keys()
    }

    pub(super) fn put_customization(
        &mut self,
        name: &str,
        object: &Value,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let read = ResourceInterpreterCustomization::deserialize(object);
        let read = read.map_err(|error| RowError::Shape(error.to_string()))?;
        let row = Customization {
            uid: read.metadata.uid.unwrap_or_default(),
            generation: read.metadata.generation,
            hash: hash(&read.spec)?.into(),
            spec: Arc::new(read.spec),
            status: read.status.unwrap_or_default(),
        };
        self.set_customization(name, Some(row), touched);
        Ok(())
    }

    pub(super) fn set_customization(
        &mut self,
        name: &str,
        row: Option<Customization>,
        touched: &mut Touched,
    ) {
        let rows = &mut self.customizations.rows;
        let row = row.map(Arc::new);
        let before = match &row {
            Some(row) => rows.insert(name.to_owned(), row.clone()),
            None => rows.remove(name),
        };
        let version =
            |row: &Arc<Customization>| (row.uid.clone(), row.generation, row.hash.clone());
        if before.as_ref().map(version) == row.as_ref().map(version) {
            return; // only its status or its metadata changed
        }
        touched.customizations.insert(name.to_owned());
        if before.as_ref().map(|row| &row.hash) == row.as_ref().map(|row| &row.hash) {
            return; // the same rules
        }
        for version in before.iter().chain(&row) {
            self.touch_customized(&version.spec.target, touched);
        }
        self.customizations.rules = Arc::new(Rules::of(&self.customizations.rows));
    }

    /// Which customization answers may have changed for every other one of the kind.
    fn touch_customized(&self, target: &CustomizationTarget, touched: &mut Touched) {
        let of_kind = self.customizations.rows.iter().filter(|(_, row)| row.spec.target == *target);
        touched.customizations.extend(of_kind.map(|(name, _)| name.clone()));
    }
}

/// SHA-256 of a spec as JSON, in hex. The order of its fields is that of the type, so it does not depend on the text.
fn hash(spec: &ResourceInterpreterCustomizationSpec) -> Result<String, RowError> {
    let text = serde_json::to_vec(spec).map_err(|error| RowError::Shape(error.to_string()))?;
    Ok(Sha256::digest(&text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}
