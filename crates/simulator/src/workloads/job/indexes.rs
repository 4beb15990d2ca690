//! Sets of completion indexes as Jobs write them: `1,3-5,7`.

use std::collections::BTreeSet;

/// A set of indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(pub(super) BTreeSet<i64>);

impl Indexes {
    /// Parses the text; invalid parts are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let parts = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<i64>().ok()?..=last.parse::<i64>().ok()?)
        });
        Self(parts.flatten().collect())
    }
}

impl std::fmt::Display for Indexes {
    /// Two neighbours are listed separately, three or more as a range, as upstream writes them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        for (number, (first, last)) in runs.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_upstream_does() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "1,3,4,6-9"] {
            assert_eq!(Indexes::parse(text).to_string(), text);
        }
    }
}
