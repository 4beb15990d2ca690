//! One element of a field path, in the notation of `fieldsV1`.

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Value};

use crate::{
    schema::{ListType, Schema},
    value,
};

/// A JSON value in a path: ordered, and equal by value.
#[derive(Debug, Clone)]
pub struct Atom(pub Value);

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        value::compare(&self.0, &other.0)
    }
}

/// One element of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A field of an object or a key of a map (`f:`).
    Field(String),
    /// The item of a keyed list with these values in its key fields (`k:`), sorted by field.
    Key(Vec<(String, Atom)>),
    /// The item of a set (`v:`).
    Value(Atom),
    /// The list item at an index (`i:`). Accepted, but never created here.
    Index(u64),
}

impl PathElement {
    /// Encodes the element as a key of `fieldsV1`.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Map<String, Value> =
                    fields.iter().map(|(name, v)| (name.clone(), v.0.clone())).collect();
                format!("k:{}", Value::Object(fields))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Decodes a key of `fieldsV1`; `None` if it is invalid.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::Key(fields.into_iter().map(|(name, v)| (name, Atom(v))).collect()))
            }
            "v" => Some(Self::Value(Atom(serde_json::from_str(rest).ok()?))),
            "i" => Some(Self::Index(rest.parse().ok()?)),
            _ => None,
        }
    }

    /// The identity of an item of a list with the schema `list`. Missing key fields take their default.
    ///
    /// # Errors
    /// Why the item has no identity.
    pub(super) fn of_item(item: &Value, list: &Schema) -> Result<Self, String> {
        match (list.list_type(), item) {
            (ListType::Map(keys), Value::Object(fields)) => {
                let schema = list.items_or_untyped();
                let value_of = |key: &String| {
                    let default = || schema.property(key)?.default_value();
                    let value = fields.get(key).or_else(default)?;
                    Some((key.clone(), Atom(value.clone())))
                };
                let mut identity: Vec<(String, Atom)> = keys.iter().filter_map(value_of).collect();
                if identity.is_empty() {
                    let keys = keys.join(", ");
                    return Err(format!("an item of a list with keys omits all of them ({keys})"));
                }
                identity.sort();
                Ok(Self::Key(identity))
            }
            (ListType::Map(_), _) => Err("an item of a list with keys is not an object".to_owned()),
            (_, Value::Object(_) | Value::Array(_) | Value::Null) => {
                let found = value::type_name(item);
                Err(format!("an item of a set is of type {found}; sets hold scalars"))
            }
            (_, scalar) => Ok(Self::Value(Atom(scalar.clone()))),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", value.0)?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The value at a path of an object.
pub(super) fn at<'a>(object: &'a Value, path: &[PathElement]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, element| match element {
        PathElement::Field(name) => value.get(name),
        PathElement::Key(fields) => value.as_array()?.iter().find(|item| {
            fields.iter().all(|(name, wanted)| {
                item.get(name).is_some_and(|found| value::same(found, &wanted.0))
            })
        }),
        PathElement::Value(wanted) => {
            value.as_array()?.iter().find(|item| value::same(item, &wanted.0))
        }
        PathElement::Index(index) => value.get(usize::try_from(*index).ok()?),
    })
}
