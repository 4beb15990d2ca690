//! A value that many objects have in common. Copies share it until one is changed.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Serializes like the value itself. Cloning and comparing clones is cheap; changing a clone copies the value.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<T>);

/// Takes over another value if it is equal. For values whose clones share their memory, so that one copy is freed.
pub fn share_equal<T: PartialEq + Clone>(own: &mut T, other: &T) {
    if own == other {
        own.clone_from(other);
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

impl<T: JsonSchema> JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_copy_leaves_the_others_as_they_are() {
        let mut one: Shared<Vec<u8>> = serde_json::from_str("[1]").unwrap();
        let other = one.clone();
        one.push(2);
        assert_eq!((&**one, &**other), (&[1, 2][..], &[1][..]));
        assert_ne!(one, other);
        assert_eq!(serde_json::to_string(&one).unwrap(), "[1,2]");
    }

    #[test]
    fn equal_values_become_one() {
        let one: Shared<Vec<u8>> = vec![1].into();
        let (mut same, mut different): (Shared<_>, Shared<_>) = (vec![1].into(), vec![2].into());
        share_equal(&mut same, &one);
        share_equal(&mut different, &one);
        assert!(Arc::ptr_eq(&same.0, &one.0));
        assert_eq!(*different, [2]);
    }
}
