//! The placement in force at a decision, in its JSON form.

use std::sync::{Arc, OnceLock};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A placement in the form of its annotation, shared by the decisions made under it. The text is parsed only when
/// needed: most comparisons are between equal texts.
#[derive(Debug, Clone)]
pub struct Applied {
    text: Arc<str>,
    value: OnceLock<Arc<Value>>,
}

impl Applied {
    /// Wraps a parsed placement.
    #[must_use]
    pub fn of(value: Value) -> Self {
        Self { text: value.to_string().into(), value: OnceLock::from(Arc::new(value)) }
    }

    /// Reads the text of the annotation.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(text)?;
        Ok(Self { text: text.into(), value: OnceLock::new() })
    }

    /// The placement as JSON text.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The parsed placement.
    #[must_use]
    pub fn value(&self) -> &Value {
        // `read` checked the syntax. Numbers out of `Value`'s range pass that check, but placements have no such
        // fields.
        self.value.get_or_init(|| Arc::new(serde_json::from_str(&self.text).unwrap_or_default()))
    }
}

impl PartialEq for Applied {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text || self.value() == other.value()
    }
}

impl Serialize for Applied {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Applied {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_of_one_value_are_equal_and_what_is_no_json_is_refused() {
        let one = Applied::read(r#"{"a": 1, "b": [2]}"#).unwrap();
        let value = serde_json::json!({"b": [2], "a": 1});
        assert_eq!(one, Applied::of(value.clone()));
        assert_eq!(*one.value(), value);
        assert_ne!(one, Applied::read(r#"{"a": 1}"#).unwrap());
        assert!(Applied::read(r#"{"a": 1"#).is_err());
    }
}
