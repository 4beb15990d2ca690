//! A number per cluster, with runs of equal numbers stored once.
//!
//! Columns that come from the scheduler's cache are not copied: the decision keeps a reference to the cached figures
//! and the rows it needs, and builds the runs when it is serialized.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bits::BitSet;

/// "Unknown" among cached figures. Counts, scores and capacities are never negative.
pub const UNKNOWN: i64 = i64::MIN;

/// Runs shorter than this are serialized as single numbers.
const RUN: u32 = 3;

type Run = (Option<i64>, u32);

/// Numbers in the order of a set's names. `None` = unknown.
#[derive(Debug, Clone)]
pub struct Column(Repr);

#[derive(Debug, Clone)]
enum Repr {
    /// One number for every cluster, and the count of clusters.
    Same(Option<i64>, u32),
    /// Runs of equal numbers.
    Runs(Vec<Run>),
    /// Cached figures of some rows.
    Picked {
        figures: Figures,
        /// The rows that the figures cover, in order. `None` = every row.
        of: Option<Arc<BitSet>>,
        rows: Arc<BitSet>,
    },
}

/// Cached figures.
#[derive(Debug, Clone)]
pub enum Figures {
    /// The numbers, each multiplied by a factor. [`UNKNOWN`] stays unknown.
    Numbers(Arc<[i64]>, i64),
    /// Codes, and the number that each code stands for.
    Codes(Arc<[u8]>, Arc<[u8]>),
}

impl Figures {
    fn get(&self, at: usize) -> Option<i64> {
        match self {
            Self::Numbers(numbers, times) => {
                let number = numbers.get(at).copied().filter(|number| *number != UNKNOWN);
                number.map(|number| number.saturating_mul(*times))
            }
            Self::Codes(codes, stands) => {
                let code = *codes.get(at)?;
                stands.get(usize::from(code)).map(|place| i64::from(*place))
            }
        }
    }
}

impl Default for Column {
    fn default() -> Self {
        Self(Repr::Same(None, 0))
    }
}

impl Column {
    /// Adds the number of the next cluster.
    pub fn push(&mut self, value: Option<i64>) {
        match &mut self.0 {
            Repr::Same(last, count) if *count == 0 || (*last == value && *count < u32::MAX) => {
                (*last, *count) = (value, *count + 1);
            }
            Repr::Runs(runs) => match runs.last_mut() {
                Some((last, count)) if *last == value && *count < u32::MAX => *count += 1,
                _ => runs.push((value, 1)),
            },
            _ => {
                let mut runs = self.runs().into_owned();
                runs.push((value, 1));
                self.0 = Repr::Runs(runs);
            }
        }
    }

    /// The same number for `count` clusters.
    #[must_use]
    pub fn constant_of(value: Option<i64>, count: usize) -> Self {
        Self(Repr::Same(value, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// The column of these numbers, all known.
    pub fn of(numbers: impl IntoIterator<Item = i64>) -> Self {
        let mut numbers = numbers.into_iter();
        let Some(mut last) = numbers.next() else { return Self::default() };
        let (mut count, mut runs) = (1_u32, Vec::new());
        for number in numbers {
            if number != last {
                runs.push((Some(last), count));
                (last, count) = (number, 0);
            }
            count += 1;
        }
        if runs.is_empty() {
            return Self(Repr::Same(Some(last), count));
        }
        runs.push((Some(last), count));
        Self(Repr::Runs(runs))
    }

    /// Cached figures of `rows`. `of` are the rows that the figures cover; `None` = every row.
    #[must_use]
    pub fn picked(figures: Figures, of: Option<Arc<BitSet>>, rows: Arc<BitSet>) -> Self {
        Self(Repr::Picked { figures, of, rows })
    }

    fn runs(&self) -> Cow<'_, [Run]> {
        match &self.0 {
            Repr::Same(_, 0) => Cow::Borrowed(&[]),
            Repr::Same(value, count) => Cow::Owned(vec![(*value, *count)]),
            Repr::Runs(runs) => Cow::Borrowed(runs),
            Repr::Picked { figures, of, rows } => {
                let mut runs: Vec<Run> = Vec::new();
                let mut add = |at| match (runs.last_mut(), figures.get(at)) {
                    (Some((last, count)), value) if *last == value => *count += 1,
                    (_, value) => runs.push((value, 1)),
                };
                match of {
                    None => rows.iter().for_each(add),
                    Some(of) => of
                        .iter()
                        .enumerate()
                        .filter(|(_, row)| rows.contains(*row))
                        .for_each(|(at, _)| add(at)),
                }
                Cow::Owned(runs)
            }
        }
    }

    /// The numbers.
    pub fn iter(&self) -> impl Iterator<Item = Option<i64>> + use<> {
        let runs = self.runs().into_owned();
        runs.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count as usize))
    }

    /// The number at an index.
    #[must_use]
    pub fn get(&self, mut at: usize) -> Option<i64> {
        if let Repr::Picked { figures, of, rows } = &self.0 {
            let row = rows.iter().nth(at)?;
            return figures.get(of.as_ref().map_or(row, |of| of.rank(row)));
        }
        for (value, count) in self.runs().iter() {
            match at.checked_sub(*count as usize) {
                Some(rest) => at = rest,
                None => return *value,
            }
        }
        None
    }

    /// Whether every number is zero. True for an empty column.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.runs().iter().all(|(value, _)| *value == Some(0))
    }

    /// Whether the column is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Repr::Same(_, count) => *count == 0,
            Repr::Runs(runs) => runs.is_empty(),
            Repr::Picked { rows, .. } => rows.is_empty(),
        }
    }

    /// The number that all clusters share, if they share one.
    #[must_use]
    pub fn constant(&self) -> Option<i64> {
        match *self.runs() {
            [(value, _)] => value,
            _ => None,
        }
    }
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Column {}

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
        let runs = self.runs();
        serializer.collect_seq(runs.iter().flat_map(|(value, count)| {
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
        let mut runs: Vec<Run> = Vec::new();
        for cell in Vec::<Cell>::deserialize(deserializer)? {
            match cell {
                Cell::One(value) => match runs.last_mut() {
                    Some((last, count)) if *last == value && *count < u32::MAX => *count += 1,
                    _ => runs.push((value, 1)),
                },
                Cell::Run(_, 0) => return Err(D::Error::custom("a run of no numbers")),
                Cell::Run(value, count) => runs.push((value, count)),
            }
        }
        Ok(Self(Repr::Runs(runs)))
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
        let known = [4, 4, 4, 1, 4, 4];
        assert_eq!(Column::of(known), known.into_iter().map(Some).collect());
        assert!(Column::of([]).is_empty());
        assert!(column.iter().eq(values));
        assert!(values.iter().enumerate().all(|(at, value)| column.get(at) == *value));
    }

    #[test]
    fn picked_columns_say_what_written_ones_say() {
        let set = |rows: &[usize]| {
            let mut set = BitSet::empty(200);
            rows.iter().for_each(|row| set.insert(*row));
            Arc::new(set)
        };
        let numbers: Arc<[i64]> = (0..200).map(|n| if n == 7 { UNKNOWN } else { n / 4 }).collect();
        let rows = set(&[1, 2, 3, 7, 130, 131]);
        let plain = Column::picked(Figures::Numbers(numbers, 2), None, rows.clone());
        let written: Column =
            [Some(0), Some(0), Some(0), None, Some(64), Some(64)].into_iter().collect();
        assert_eq!(plain, written);
        assert!((0..7).all(|at| plain.get(at) == written.get(at)));
        let json = |column: &Column| serde_json::to_string(column).unwrap();
        assert_eq!(json(&plain), json(&written));
        // The figures cover four rows only: rows 2 and 130 are the second and the fourth.
        let of = set(&[1, 2, 7, 130, 199]);
        let codes = Figures::Codes([0, 1, 0, 2, 1].into(), [9, 8, 7].into());
        let few = Column::picked(codes, Some(of), set(&[2, 130]));
        assert_eq!(few, [Some(8), Some(7)].into_iter().collect());
        assert_eq!((few.get(1), few.get(2)), (Some(7), None));
    }
}
