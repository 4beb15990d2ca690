//! Customizations: the rules of users about the meaning of kinds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use atoll_api::ResourceInterpreterCustomization;
use atoll_api::customization::{
    CustomizationTarget, Operation, ResourceInterpreterCustomizationSpec,
    ResourceInterpreterCustomizationStatus,
};
use atoll_customize::Customizations;
use rustc_hash::FxHasher;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::key::TemplateKey;
use super::meanings::{DECIDING, Meaning};
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
    /// By API version and kind: hashes of the rules whose answers are kept.
    kinds: BTreeMap<(String, String), KindHashes>,
}

/// Hashes of the rules of one kind; `None` without a rule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct KindHashes {
    deciding: Option<u64>,
    revising: Option<u64>,
}

impl Rules {
    fn of(rows: &BTreeMap<String, Arc<Customization>>) -> Self {
        let specs: BTreeMap<_, _> = rows
            .iter()
            .map(|(name, row)| (name.clone(), (row.spec.clone(), row.hash.clone())))
            .collect();
        let named = specs.iter().map(|(name, (spec, _))| (name.as_str(), spec.clone()));
        let compiled = Arc::new(Customizations::of(named));
        let mut kinds: BTreeMap<_, KindHashes> = BTreeMap::new();
        for (name, (spec, hash)) in &specs {
            let target = (spec.target.api_version.clone(), spec.target.kind.clone());
            let hashes = kinds.entry(target).or_default();
            if DECIDING.iter().any(|operation| spec.customizations.rule(*operation).is_some()) {
                hashes.deciding = Some(mix(hashes.deciding, name, hash));
            }
            if spec.customizations.rule(Operation::ReviseReplica).is_some() {
                hashes.revising = Some(mix(hashes.revising, name, hash));
            }
        }
        Self { specs, compiled, kinds }
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

    /// Hash of the rules that must answer before a template of this object's kind is decided on; `None` without one.
    #[must_use]
    pub fn deciding(&self, object: &Value) -> Option<u64> {
        self.of_kind(object).deciding
    }

    /// Hash of the rules that write replicas into objects of this kind; `None` without one.
    #[must_use]
    pub fn revising(&self, object: &Value) -> Option<u64> {
        self.of_kind(object).revising
    }

    fn of_kind(&self, object: &Value) -> KindHashes {
        if self.kinds.is_empty() {
            return KindHashes::default();
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        self.kinds.get(&(text("apiVersion"), text("kind"))).copied().unwrap_or_default()
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
    /// Answers of the rules.
    pub(super) meanings: BTreeMap<TemplateKey, Meaning>,
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
        self.customizations.rules = Arc::new(Rules::of(&self.customizations.rows));
        for version in before.iter().chain(&row) {
            let target = &version.spec.target;
            self.touch_customized(target, touched);
            self.touch_kind(&target.api_version, &target.kind, touched);
        }
    }

    /// Which customization answers may have changed for every other one of the kind.
    fn touch_customized(&self, target: &CustomizationTarget, touched: &mut Touched) {
        let of_kind = self.customizations.rows.iter().filter(|(_, row)| row.spec.target == *target);
        touched.customizations.extend(of_kind.map(|(name, _)| name.clone()));
    }
}

fn mix(before: Option<u64>, name: &str, hash: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (before, name, hash).hash(&mut hasher);
    hasher.finish()
}

/// SHA-256 of a spec as JSON, in hex. The order of its fields is that of the type, so it does not depend on the text.
fn hash(spec: &ResourceInterpreterCustomizationSpec) -> Result<String, RowError> {
    let text = serde_json::to_vec(spec).map_err(|error| RowError::Shape(error.to_string()))?;
    Ok(Sha256::digest(&text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}
