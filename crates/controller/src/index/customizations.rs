//! Customizations: the rules of users about the meaning of kinds.

use std::sync::Arc;

use atoll_api::ResourceInterpreterCustomization;
use atoll_api::customization::CustomizationTarget;
use atoll_api::hex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::rows::RowError;
use super::rules::{Customization, Rules};
use super::{Index, Touched};

impl Index {
    /// All customizations and webhooks in force; cheap to clone and to compare by pointer.
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
        touched.interpreters.customizations.insert(name.to_owned());
        if before.as_ref().map(|row| &row.hash) == row.as_ref().map(|row| &row.hash) {
            return; // the same rules
        }
        self.customizations.rules =
            Arc::new(Rules::of(&self.customizations.rows, &self.customizations.webhooks));
        for version in before.iter().chain(&row) {
            let target = &version.spec.target;
            self.touch_customized(target, touched);
            self.touch_kind(&target.api_version, &target.kind, touched);
        }
    }

    /// Which customization answers may have changed for every other one of the kind.
    fn touch_customized(&self, target: &CustomizationTarget, touched: &mut Touched) {
        let of_kind = self.customizations.rows.iter().filter(|(_, row)| row.spec.target == *target);
        touched.interpreters.customizations.extend(of_kind.map(|(name, _)| name.clone()));
    }
}

/// SHA-256 of a spec as JSON, in hex. The order of its fields is that of the type, so it does not depend on the text.
pub(super) fn hash(spec: &impl Serialize) -> Result<String, RowError> {
    let text = serde_json::to_vec(spec).map_err(|error| RowError::Shape(error.to_string()))?;
    Ok(hex::encode(&Sha256::digest(&text)))
}
