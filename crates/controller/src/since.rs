//! Since when something is so, in a third of the room of an `Option<Timestamp>`: there are several of these for each workload on
//! each member.

use std::fmt;

use jiff::Timestamp;

use crate::optional_number::OptionalNumber;

/// A time to the microsecond, or none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Since(OptionalNumber);

impl Since {
    /// The time, if there is one.
    pub(crate) fn time(self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.0.get()?).ok()
    }
}

impl From<Option<Timestamp>> for Since {
    fn from(time: Option<Timestamp>) -> Self {
        Self(time.map(Timestamp::as_microsecond).into())
    }
}

impl fmt::Debug for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_to_the_microsecond_comes_back() {
        let times =
            ["1970-01-01T00:00:00Z", "2026-11-26T12:00:00.123456Z", "-009999-01-02T01:59:59Z"];
        for time in times.map(|text| Some(text.parse().unwrap())).into_iter().chain([None]) {
            assert_eq!(Since::from(time).time(), time);
        }
        assert_eq!((Since::default().time(), size_of::<Since>()), (None, 8));
    }
}
