//! A number of replicas, or none, in half of the room of an `Option<i64>`: there are several of these for each workload on each
//! member.

use std::fmt;

/// A number of replicas, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(i64);

/// No number: the API allows no negative ones.
const NONE: i64 = i64::MIN;

impl Count {
    /// The number, if there is one.
    pub(crate) fn get(self) -> Option<i64> {
        (self.0 != NONE).then_some(self.0)
    }
}

impl Default for Count {
    fn default() -> Self {
        Self(NONE)
    }
}

impl From<Option<i64>> for Count {
    fn from(number: Option<i64>) -> Self {
        Self(number.unwrap_or(NONE))
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for number in [None, Some(0), Some(3), Some(i64::MAX)] {
            assert_eq!(Count::from(number).get(), number);
        }
        assert_eq!((Count::default().get(), size_of::<Count>()), (None, 8));
    }
}
