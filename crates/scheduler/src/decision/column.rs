//! A number per cluster, with runs of equal numbers stored once.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers in the order of a set's names. `None` = unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Column(Vec<(Option<i64>, u32)>);

/// Runs shorter than this are written out.
const RUN: u32 = 3;

impl Column {
    /// Adds the number of the next cluster.
    pub fn push(&mut self, value: Option<i64>) {
        match self.0.last_mut() {
            Some((last, count)) if *last == value && *count < u32::MAX => *count += 1,
            _ => self.0.push((value, 1)),
        }
    }

    /// The same number for so many clusters.
    #[must_use]
    pub fn constant_of(value: Option<i64>, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self(if count == 0 { Vec::new() } else { vec![(value, count)] })
    }

    /// The numbers.
    pub fn iter(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        self.0.iter().flat_map(|(value, count)| std::iter::repeat_n(*value, *count as usize))
    }

    /// The number at a place.
    #[must_use]
    pub fn get(&self, mut at: usize) -> Option<i64> {
        for (value, count) in &self.0 {
            match at.checked_sub(*count as usize) {
                Some(rest) => at = rest,
                None => return *value,
            }
        }
        None
    }

    /// Whether every number is zero, or there is none.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|(value, _)| *value == Some(0))
    }

    /// Whether there is no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one number that all have, if it is one.
    #[must_use]
    pub fn constant(&self) -> Option<i64> {
        match self.0.as_slice() {
            [(value, _)] => *value,
            _ => None,
        }
    }
}

impl FromIterator<Option<i64>> for Column {
    fn from_iter<I: IntoIterator<Item = Option<i64>>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Cell {
    One(Option<i64>),
    Run(Option<i64>, u32),
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(|(value, count)| {
            let (cell, times) = if *count < RUN {
                (Cell::One(*value), *count as usize)
            } else {
                (Cell::Run(*value, *count), 1)
            };
            std::iter::repeat_with(move || match &cell {
                Cell::One(value) => Cell::One(*value),
                Cell::Run(value, count) => Cell::Run(*value, *count),
            })
            .take(times)
        }))
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut column = Self::default();
        for cell in Vec::<Cell>::deserialize(deserializer)? {
            match cell {
                Cell::One(value) => column.push(value),
                Cell::Run(_, 0) => return Err(D::Error::custom("a run of no numbers")),
                Cell::Run(value, count) => column.0.push((value, count)),
            }
        }
        Ok(column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back_whole() {
        let values = [Some(1), Some(0), Some(0), Some(0), Some(0), None, Some(7), Some(7)];
        let column: Column = values.into_iter().collect();
        let json = serde_json::to_string(&column).unwrap();
        assert_eq!(json, "[1,[0,4],null,7,7]");
        assert_eq!(serde_json::from_str::<Column>(&json).unwrap(), column);
        assert!(column.iter().eq(values));
        assert!(values.iter().enumerate().all(|(at, value)| column.get(at) == *value));
    }
}
