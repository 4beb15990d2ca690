//! Why an operation has no answer.

use crate::Operation;

/// Why an operation has no answer for an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    /// No rule exists for this kind and operation.
    #[error(
        "operation {operation} has no built-in rule for {kind} of {api_version:?}: write a \
         ResourceInterpreterCustomization for it"
    )]
    NotSupported {
        /// The operation.
        operation: Operation,
        /// The API version of the object.
        api_version: String,
        /// The kind of the object.
        kind: String,
    },
    /// A field that the operation reads has the wrong type or value.
    #[error("field {field} must be {expected}, it is {found}")]
    Field {
        /// Path of the field.
        field: String,
        /// What the field must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The object does not have the types that its kind defines.
    #[error("the object is no valid {kind}: {problem}")]
    Schema {
        /// The kind.
        kind: &'static str,
        /// The field type that was expected and the one that was found.
        problem: String,
    },
}

impl InterpretError {
    pub(crate) fn field(
        field: impl Into<String>,
        expected: &'static str,
        found: Option<&serde_json::Value>,
    ) -> Self {
        let found = match found {
            None => "absent".to_owned(),
            Some(value) => {
                let text = value.to_string();
                match text.char_indices().nth(MOST_SHOWN) {
                    Some((end, _)) => format!("{}...", &text[..end]),
                    None => text,
                }
            }
        };
        Self::Field { field: field.into(), expected, found }
    }
}

/// Characters of a wrong value that an error shows.
const MOST_SHOWN: usize = 80;
