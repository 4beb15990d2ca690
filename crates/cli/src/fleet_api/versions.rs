//! What clients keep between requests: versions of all members, and the place where a list continues. Both are opaque.

use std::collections::BTreeMap;

use atoll_apimachinery::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::merge::{COLUMNS, Form};

/// Members above which an answer has no versions: a watch then begins with what exists.
const MOST: usize = 200;
/// Longest text in bytes: paths have at most 16 KiB together with the query.
const LONGEST: usize = 12 << 10;
/// First letters, which no version of an API server has.
const PREFIX: &str = "fleet.";

/// The version of the list on each member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Notes a member's version. The first one stays: a watch from it repeats what came later, and loses nothing.
    pub(super) fn add(&mut self, member: &str, version: &str) {
        self.0.entry(member.to_owned()).or_insert_with(|| version.to_owned());
    }

    pub(super) fn remove(&mut self, member: &str) {
        self.0.remove(member);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, member: &str) -> Option<&str> {
        self.0.get(member).map(String::as_str)
    }

    /// As `resourceVersion`; empty for too many members.
    pub(super) fn write(&self) -> String {
        if self.0.is_empty() || self.0.len() > MOST {
            return String::new();
        }
        Some(write(self)).filter(|text| text.len() <= LONGEST).unwrap_or_default()
    }

    /// Reads the `resourceVersion` of a watch.
    ///
    /// # Errors
    /// When it is that of one object: the client has to list again.
    pub(super) fn read(text: &str) -> Result<Self, ApiError> {
        if text.is_empty() || text == "0" {
            return Ok(Self::default());
        }
        read(text).ok_or_else(|| {
            ApiError::expired("resourceVersion is not that of a list of the fleet: list again")
        })
    }
}

/// The place in a list after a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Continue {
    /// The member that follows.
    pub(super) member: String,
    /// Its own place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// The form of the pages before.
    pub(super) form: Form,
    /// The versions of the first page.
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub(super) versions: Versions,
}

impl Continue {
    /// Without the versions if there is no room for them.
    pub(super) fn write(&self) -> String {
        let text = write(self);
        if self.versions.0.len() <= MOST && text.len() <= LONGEST {
            return text;
        }
        write(&Self { versions: Versions::default(), ..self.clone() })
    }

    /// # Errors
    /// When it is not a place of a list of the fleet.
    pub(super) fn read(text: &str) -> Result<Self, ApiError> {
        let fits =
            |found: &Self| found.form.columns.as_ref().is_none_or(|all| all.len() <= COLUMNS);
        read(text).filter(fits).ok_or_else(|| {
            ApiError::bad_request("continue is not a token of a list of the fleet: begin again")
        })
    }
}

fn write(value: &impl Serialize) -> String {
    let json = serde_json::to_vec(value).expect("texts and maps of texts are JSON");
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    let text = text.strip_prefix(PREFIX).filter(|text| text.len() <= LONGEST)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
