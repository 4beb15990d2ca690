//! Ids as types of their own, so that the compiler tells the name of a cluster from the uid of a binding. Clones share
//! the text.
//!
//! Conversions do not check the text: it comes from objects that an API server validated, and from our own records.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the text is empty: an object from a file may have no uid.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<&String> for $name {
            fn from(text: &String) -> Self {
                Self(text.as_str().into())
            }
        }

        impl From<&$name> for String {
            fn from(id: &$name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        /// An id reads as text: this allows `&id` where a function takes `&str`.
        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                *self.0 == *other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                *self.0 == **other
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, other: &String) -> bool {
                *self.0 == **other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                **self == *other.0
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, other: &$name) -> bool {
                *self == *other.0
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, other: &$name) -> bool {
                **self == *other.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

id! {
    /// Name of a Cluster.
    ClusterName
}
id! {
    /// uid of a binding. It distinguishes bindings that had the same name one after the other.
    BindingUid
}
id! {
    /// uid of a template.
    TemplateUid
}
id! {
    /// id of a decision: 128 bits in hex.
    DecisionId
}
id! {
    /// Hash of a rendered manifest: SHA-256 in hex. Orders, reports and inventories repeat it.
    ManifestHash
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_id_is_stored_as_plain_text_and_found_by_it() {
        let name = ClusterName::from("member1");
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""member1""#);
        assert_eq!(serde_json::from_str::<ClusterName>(r#""member1""#).unwrap(), name);
        let map = BTreeMap::from([(name.clone(), 1)]);
        assert_eq!(map.get("member1"), Some(&1));
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"member1":1}"#);
        assert_eq!(format!("{name:>9}|{name:?}"), r#"  member1|"member1""#);
        assert_eq!(name, "member1");
    }
}
