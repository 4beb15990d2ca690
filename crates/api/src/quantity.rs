//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`), exactly.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A quantity as its author wrote it. [`Quantity::milli`] parses it and reports an invalid text. Deserialization
/// accepts any text, so that one bad quantity does not make its whole list unreadable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantity(String);

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with one of the known suffixes.
    #[error("quantity {0:?} is not a number with an optional suffix such as m, k, M, Gi")]
    Syntax(String),
    /// Larger than 10^33 in thousandths, far beyond any real cluster.
    #[error("quantity {0:?} is out of range")]
    Range(String),
}

/// Quantities by resource name, as in `requests` or `allocatable`.
pub type ResourceList = std::collections::BTreeMap<String, Quantity>;

/// Upper limit of a result, in thousandths. Leaves room to sum over any number of nodes in an `i128`.
const MAX_MILLI: i128 = 1_000_000_000_000_000_000_000_000_000_000_000;

impl Quantity {
    /// Wraps the text without parsing it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A quantity from thousandths, in the shortest plain form.
    #[must_use]
    pub fn from_milli(milli: i128) -> Self {
        if milli % 1000 == 0 { Self((milli / 1000).to_string()) } else { Self(format!("{milli}m")) }
    }

    /// A quantity from thousandths in the canonical form of an API server: the largest decimal suffix without a
    /// fraction (`1250m`, `2`, `100M`).
    #[must_use]
    pub fn from_milli_canonical(milli: i128) -> Self {
        let mut value = milli;
        let mut suffixes = ["m", "", "k", "M", "G", "T", "P", "E"].into_iter();
        let mut suffix = suffixes.next().unwrap_or_default();
        if value == 0 {
            return Self("0".to_owned());
        }
        for larger in suffixes {
            if value % 1000 != 0 {
                break;
            }
            value /= 1000;
            suffix = larger;
        }
        Self(format!("{value}{suffix}"))
    }

    /// A quantity from a number of bytes in the canonical form of an API server: the largest binary suffix without a
    /// fraction (`1536Mi`).
    #[must_use]
    pub fn from_bytes(bytes: i128) -> Self {
        let mut value = bytes;
        let mut suffix = "";
        for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            if value == 0 || value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = larger;
        }
        Self(format!("{value}{suffix}"))
    }

    /// The canonical form that an API server's structures write; the text itself if it is no quantity.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let text = self.0.as_str();
        let Ok(milli) = self.milli() else { return self.clone() };
        if text.ends_with('i') {
            if milli % 1000 == 0 && milli.abs() >= 1_024_000 {
                return Self::from_bytes(milli / 1000);
            }
            return Self::from_milli_canonical(milli);
        }
        // A suffix `E` means exa, an `e` or `E` with digits an exponent.
        let exponent = text.find(['e', 'E']).filter(|at| at + 1 < text.len());
        if exponent.is_none() {
            return Self::from_milli_canonical(milli);
        }
        let (mut value, mut power) = (milli, -3);
        while value != 0 && value % 1000 == 0 {
            value /= 1000;
            power += 3;
        }
        // Without an exponent where it is zero.
        if value == 0 || power == 0 {
            Self(value.to_string())
        } else {
            Self(format!("{value}e{power}"))
        }
    }

    /// An amount of a resource, of `cpu` in thousandths and of everything else in whole units.
    #[must_use]
    pub fn of_resource(resource: &str, amount: i128) -> Self {
        match resource {
            "cpu" => Self::from_milli(amount),
            "memory" | "ephemeral-storage" => Self::from_bytes(amount),
            _ => Self::from_units(amount),
        }
    }

    /// A quantity from a whole number.
    #[must_use]
    pub fn from_units(units: i128) -> Self {
        Self(units.to_string())
    }

    /// The text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value in thousandths. Smaller fractions are rounded away from zero, as in Kubernetes.
    ///
    /// # Errors
    /// The text is not a quantity, or is out of range.
    pub fn milli(&self) -> Result<i128, QuantityError> {
        parse_milli(&self.0)
    }

    /// The value in whole units, rounded up.
    ///
    /// # Errors
    /// See [`Quantity::milli`].
    pub fn units(&self) -> Result<i128, QuantityError> {
        Ok(div_ceil_away(self.milli()?, 1000))
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Text(String),
            Integer(i64),
            Float(f64),
        }
        Ok(Self(match Raw::deserialize(deserializer)? {
            Raw::Text(text) => text,
            Raw::Integer(number) => number.to_string(),
            Raw::Float(number) => number.to_string(),
        }))
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        })
    }
}

/// Digits of the greatest power of ten that fits an `i128`.
const MOST_DIGITS: u32 = 38;

/// Value of a suffix as (numerator, denominator) of one unit.
fn suffix_factor(suffix: &str) -> Option<(i128, i128)> {
    let factor = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let (below_one, digits) = match exponent.as_bytes().first()? {
                b'-' => (true, &exponent[1..]),
                b'+' => (false, &exponent[1..]),
                _ => (false, exponent),
            };
            if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            // Larger exponents are out of range in any case, so they are capped.
            let exponent = digits.parse::<u32>().unwrap_or(u32::MAX).min(MOST_DIGITS);
            let power = 10_i128.pow(exponent);
            if below_one { (1, power) } else { (power, 1) }
        }
    };
    Some(factor)
}

fn parse_milli(text: &str) -> Result<i128, QuantityError> {
    let syntax = || QuantityError::Syntax(text.to_owned());
    let range = || QuantityError::Range(text.to_owned());
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(syntax());
    }
    let (numerator, denominator) = suffix_factor(suffix).ok_or_else(syntax)?;
    // Digits beyond the 9th are below a nano. They can only round up, for which one more digit suffices.
    let (kept, dropped) = fraction.split_at(fraction.len().min(9));
    let mut digits: i128 = 0;
    for digit in whole.bytes().chain(kept.bytes()) {
        digits = digits
            .checked_mul(10)
            .and_then(|digits| digits.checked_add(i128::from(digit - b'0')))
            .filter(|digits| *digits <= MAX_MILLI)
            .ok_or_else(range)?;
    }
    let mut scale = 10_i128.pow(u32::try_from(kept.len()).map_err(|_| range())?);
    if dropped.bytes().any(|digit| digit != b'0') {
        digits = digits * 10 + 1;
        scale *= 10;
    }
    let top =
        digits.checked_mul(1000).and_then(|top| top.checked_mul(numerator)).ok_or_else(range)?;
    let milli = match scale.checked_mul(denominator) {
        Some(bottom) => div_ceil_away(top, bottom),
        // Far below a thousandth, so rounded away from zero.
        None => i128::from(top > 0),
    };
    if milli > MAX_MILLI {
        return Err(range());
    }
    Ok(if negative { -milli } else { milli })
}

/// Division rounded away from zero, for a positive divisor.
fn div_ceil_away(top: i128, bottom: i128) -> i128 {
    let quotient = top / bottom;
    match top % bottom {
        0 => quotient,
        rest if rest > 0 => quotient + 1,
        _ => quotient - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_quantities_are_those_that_an_api_server_writes() {
        for (text, canonical) in [
            ("1.25", "1250m"),
            ("0.5", "500m"),
            ("100000000", "100M"),
            ("2e9", "2e9"),
            ("2e0", "2"),
            ("0e3", "0"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("0", "0"),
            ("-2000", "-2k"),
            ("1E", "1E"),
            ("lots", "lots"),
        ] {
            assert_eq!(Quantity::new(text).canonical().as_str(), canonical, "{text}");
        }
        assert_eq!(Quantity::from_bytes(100_921_600).as_str(), "100921600");
        assert_eq!(Quantity::from_bytes(1 << 30).as_str(), "1Gi");
    }

    #[test]
    fn quantities_parse_as_kubernetes_does() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("2e3", 2_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("5e-3", 5),
            ("1n", 1),
            ("100u", 1),
            ("0.0001", 1),
            ("-1500m", -1500),
            ("+3k", 3_000_000),
            ("1.00000000001", 1001),
            ("0e99", 0),
            ("3.7e-99", 1),
        ] {
            assert_eq!(Quantity::new(text).milli(), Ok(milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_by_name() {
        for text in ["", "m", "1.2.3", "1Q", "1 Gi", "e3", "0x10", "1ee3", "١"] {
            assert_eq!(
                Quantity::new(text).milli(),
                Err(QuantityError::Syntax(text.into())),
                "{text}"
            );
        }
        for text in [
            "9999999999999999999999999999999999999999",
            "1e38",
            "1e40",
            "1e99999999999",
            "999999999999999999E",
        ] {
            let range = QuantityError::Range(text.into());
            assert_eq!(Quantity::new(text).milli(), Err(range), "{text}");
        }
    }

    #[test]
    fn json_numbers_are_taken_and_text_is_kept() {
        let list: ResourceList =
            serde_json::from_str(r#"{"cpu":2,"memory":"1Gi","x":0.5}"#).unwrap();
        assert_eq!(list["cpu"].milli(), Ok(2000));
        assert_eq!(list["x"].milli(), Ok(500));
        assert_eq!(serde_json::to_string(&list["memory"]).unwrap(), "\"1Gi\"");
    }

    proptest::proptest! {
        #[test]
        fn quantities_of_any_text_are_read_or_refused_and_come_back(
            text in "\\PC{0,60}",
            number in "[+-]{0,2}[0-9.]{0,50}[eEinumkKMGTPQ0-9+-]{0,12}",
            milli in -MAX_MILLI..=MAX_MILLI,
        ) {
            for text in [text, number] {
                if let Ok(milli) = Quantity::new(text).milli() {
                    proptest::prop_assert!((-MAX_MILLI..=MAX_MILLI).contains(&milli));
                    proptest::prop_assert_eq!(Quantity::from_milli(milli).milli(), Ok(milli));
                }
            }
            proptest::prop_assert_eq!(Quantity::from_milli(milli).milli(), Ok(milli));
        }
    }
}
