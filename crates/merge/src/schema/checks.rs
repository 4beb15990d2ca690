//! The limits that a schema sets on values, beyond their type.

use std::fmt;

use regex::Regex;
use serde_json::{Number, Value};

use super::{Schema, formats::Format};

/// All limits of one schema node.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) allowed: Vec<Value>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<Number>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<Format>,
    pub(crate) min_items: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<usize>,
    pub(crate) max_properties: Option<usize>,
    pub(crate) required: Vec<String>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

/// One end of a range of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) value: Number,
    pub(crate) exclusive: bool,
}

/// A compiled `pattern`, matched anywhere in the value as in RE2.
#[derive(Clone)]
pub(crate) struct Pattern(pub(crate) Regex);

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Checks {
    /// Whether nothing is checked at all.
    pub(crate) fn is_empty(&self) -> bool {
        let numbers =
            self.minimum.is_none() && self.maximum.is_none() && self.multiple_of.is_none();
        let strings = self.min_length.is_none()
            && self.max_length.is_none()
            && self.pattern.is_none()
            && self.format.is_none();
        let lists = self.min_items.is_none() && self.max_items.is_none() && !self.unique_items;
        let objects = self.min_properties.is_none()
            && self.max_properties.is_none()
            && self.required.is_empty();
        let junctions = self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none();
        self.allowed.is_empty() && numbers && strings && lists && objects && junctions
    }
}
