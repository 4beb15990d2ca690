//! A number, or none, in half of the space of an `Option<i64>`: there are several of these for each workload on each member.

use std::fmt;

/// A number, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OptionalNumber(i64);

/// Stands for no number. Numbers of replicas are not negative, and no timestamp is as early.
const NONE: i64 = i64::MIN;

impl OptionalNumber {
    /// The number, if there is one.
    pub(crate) fn get(self) -> Option<i64> {
        (self.0 != NONE).then_some(self.0)
    }
}

impl Default for OptionalNumber {
    fn default() -> Self {
        Self(NONE)
    }
}

impl From<Option<i64>> for OptionalNumber {
    fn from(number: Option<i64>) -> Self {
        Self(number.unwrap_or(NONE))
    }
}

impl fmt::Debug for OptionalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for number in [None, Some(-1), Some(0), Some(3), Some(i64::MAX)] {
            assert_eq!(OptionalNumber::from(number).get(), number);
        }
        let none = OptionalNumber::default();
        assert_eq!((none.get(), size_of::<OptionalNumber>()), (None, 8));
    }
}
