//! What objects mean: the built-in rules, and those of users, which the caller runs.

use serde_json::Value;

/// Says how many replicas an object has, and writes another number into it.
pub trait Meaning {
    /// The replicas of an object; `None` for a kind without.
    ///
    /// # Errors
    /// A rule of a user failed.
    fn replicas(&self, object: &Value) -> Result<Option<i64>, String>;

    /// The object with other replicas; `None` if the built-in rules write them.
    ///
    /// # Errors
    /// A rule of a user failed.
    fn revised(&self, object: &Value, replicas: i64) -> Result<Option<Value>, String>;
}

/// The built-in rules alone.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn;

impl Meaning for BuiltIn {
    fn replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        Ok(atoll_interpreter::replicas(object))
    }

    fn revised(&self, _: &Value, _: i64) -> Result<Option<Value>, String> {
        Ok(None)
    }
}
