//! Weeks, and the times of standings (snapshots of who has which share): the same on every database.

/// Length of a week in seconds.
const WEEK: i64 = 7 * 24 * 60 * 60;
/// 1970 began on a Thursday; weeks begin on Mondays, 4 days later.
const FIRST_MONDAY: i64 = 4 * 24 * 60 * 60;
/// How long after its time a standing is taken, in microseconds: 10 minutes. A row that arrives later makes it
/// necessary to take it again.
pub(crate) const STANDING_LAG: i64 = 10 * 60 * 1_000_000;
/// Minimum time between two standings within a week, in microseconds: an hour.
const STANDING_LEAST: i64 = 60 * 60 * 1_000_000;
/// Minimum number of decisions between two standings; more where more shares stand. Reading a few hundred changes for
/// each of a hundred members is cheap.
const STANDING_DECISIONS: i64 = 50_000;
/// Limit of standings per run, so that it ends whatever the database returns: a century of weeks. The next run
/// continues.
pub(crate) const MOST_STANDINGS: usize = 5_300;

/// The week of a time in seconds, counted from the first Monday of 1970.
pub(crate) fn week(seconds: i64) -> i64 {
    (seconds - FIRST_MONDAY).div_euclid(WEEK)
}

/// Start of a week, in microseconds.
pub(crate) fn begin(week: i64) -> i64 {
    (week * WEEK + FIRST_MONDAY) * 1_000_000
}

/// Number of decisions after the last standing's from which another is due, if that one had `shares` shares.
pub(crate) fn decisions_between(shares: i64) -> i64 {
    shares.max(STANDING_DECISIONS)
}

/// When the standing after the one at `last` is due: at the start of the next week, or at `busy`, the time at which
/// enough decisions had been made. All in microseconds.
pub(crate) fn next_standing(last: i64, busy: Option<i64>) -> i64 {
    let monday = begin(week(last.div_euclid(1_000_000)) + 1);
    let busy = busy.map(|busy| busy.max(last.saturating_add(STANDING_LEAST)));
    busy.map_or(monday, |busy| busy.min(monday))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn weeks_begin_on_monday() {
        let at = |time: &str| week(time.parse::<Timestamp>().unwrap().as_second());
        assert_eq!(at("2026-11-16T00:00:00Z"), at("2026-11-22T23:59:59Z"));
        assert_eq!(at("2026-11-22T23:59:59Z") + 1, at("2026-11-23T00:00:00Z"));
        assert_eq!(at("1970-01-01T00:00:00Z"), -1);
        let monday = Timestamp::from_microsecond(begin(at("2026-11-20T12:00:00Z"))).unwrap();
        assert_eq!(monday.to_string(), "2026-11-16T00:00:00Z");
    }

    #[test]
    fn standings_are_due_each_week_and_where_much_happens_but_not_twice_in_an_hour() {
        let micros = |time: &str| time.parse::<Timestamp>().unwrap().as_microsecond();
        let last = micros("2026-11-20T12:00:00Z");
        let monday = micros("2026-11-23T00:00:00Z");
        assert_eq!(next_standing(last, None), monday);
        assert_eq!(next_standing(monday, None), micros("2026-11-30T00:00:00Z"));
        assert_eq!(next_standing(last, Some(last + 1)), micros("2026-11-20T13:00:00Z"));
        let later = micros("2026-11-21T01:00:00Z");
        assert_eq!(next_standing(last, Some(later)), later);
        assert_eq!(next_standing(last, Some(monday + 1)), monday);
        assert_eq!(decisions_between(10), 50_000);
        assert_eq!(decisions_between(300_000), 300_000);
    }
}
