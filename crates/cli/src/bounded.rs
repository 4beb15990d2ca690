//! JSON of members, parsed within a limit of memory. As text, `{"":0},` has seven bytes; as a value it takes more than six
//! hundred, so a limit of bytes alone lets a member fill the memory.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What the allocation of an object costs, in values: the smallest node of its map has room for eleven fields.
const OBJECT: usize = 8;
/// Limit of the values in one text. 500 Pods have less than half of it; it takes at most about 160 MiB.
const VALUES: usize = 2_000_000;

/// Parses a text.
///
/// # Errors
/// When it is no JSON, or has too many values.
pub(crate) fn from_slice(text: &[u8]) -> serde_json::Result<Value> {
    within(text, VALUES)
}

fn within(text: &[u8], mut left: usize) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Bounded { left: &mut left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads one value; `left` is how many more there may be.
struct Bounded<'a> {
    left: &'a mut usize,
}

impl Bounded<'_> {
    fn take<E: Error>(&mut self, cost: usize) -> Result<(), E> {
        *self.left = self
            .left
            .checked_sub(cost)
            .ok_or_else(|| E::custom("it has too many fields and items: set a lower limit"))?;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(mut self) -> Result<Value, E> {
        self.take(1).map(|()| Value::Null)
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Value, E> {
        self.take(1).map(|()| value.into())
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Value, E> {
        self.take(1).map(|()| value.into())
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Value, E> {
        self.take(1).map(|()| value.into())
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Value, E> {
        self.take(1).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.take(1).map(|()| value.into())
    }

    fn visit_string<E: Error>(mut self, value: String) -> Result<Value, E> {
        self.take(1).map(|()| value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.take(1)?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Bounded { left: self.left })? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        self.take(OBJECT)?;
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Bounded { left: self.left })?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            let map = prop::collection::btree_map("\\PC{0,4}", inner.clone(), 0..8);
            prop_oneof![
                prop::collection::vec(inner, 0..8).prop_map(Value::from),
                map.prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_within_the_limit_is_what_serde_json_reads(value in json()) {
            prop_assert_eq!(from_slice(value.to_string().as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn small_texts_with_many_values_and_texts_that_go_on_are_refused() {
        assert!(within(b"[1,2,3]", 4).is_ok());
        let error = within(b"[1,2,3,4]", 4).unwrap_err().to_string();
        assert!(error.starts_with("it has too many fields and items"), "{error}");
        assert!(within(b"{\"a\":{}}", 2 * OBJECT).is_ok());
        assert!(within(b"{\"a\":{}}", 2 * OBJECT - 1).is_err());
        assert!(from_slice(b"{} {}").is_err());
        assert!(from_slice("[".repeat(100_000).as_bytes()).is_err(), "nested without end");
    }
}
