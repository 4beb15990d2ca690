//! Schedules of CronJobs, with the rules of the library that Kubernetes reads them with (robfig/cron v3, the standard
//! parser): five fields or a descriptor, in a time zone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Longest schedule that is read. The longest useful one, every value of every field, is shorter.
const MAX_LENGTH: usize = 1024;
/// How far the next or the last time is looked for: the 29th of February on a given weekday comes once in 28 years, and
/// once in 40 around a year such as 2100.
const HORIZON: SignedDuration = SignedDuration::from_hours(41 * 366 * 24);

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Why a schedule is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Nothing is there, or too much.
    #[error("expected exactly 5 fields, found {0}")]
    Fields(usize),
    /// A field says what it cannot.
    #[error("{field} {text:?}: {problem}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it says.
        text: String,
        /// Why that is wrong.
        problem: &'static str,
    },
    /// An unknown word after `@`.
    #[error("unrecognized descriptor {0:?}")]
    Descriptor(String),
    /// A time zone within the schedule.
    #[error("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")]
    ZoneWithin,
    /// Longer than any schedule needs.
    #[error("is longer than {MAX_LENGTH} bytes")]
    TooLong,
}

/// When a CronJob runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Rule);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// At every minute whose civil time is in all fields.
    Fields(Box<Fields>),
    /// So long after the time before.
    Every(SignedDuration),
}

/// The values of each field, a bit for each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the two is `*`: the other decides. Where both are restricted, one of them is enough.
    any_day: bool,
}

impl std::str::FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        if text.len() > MAX_LENGTH {
            return Err(ScheduleError::TooLong);
        }
        if text.contains("TZ=") {
            return Err(ScheduleError::ZoneWithin);
        }
        if text.starts_with('@') {
            return descriptor(text);
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            return Err(ScheduleError::Fields(parts.len()));
        };
        // A star with a step is a restriction like any other.
        let starred =
            |text: &str| text.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"));
        Ok(Self(Rule::Fields(Box::new(Fields {
            minutes: field("minute", minutes, 0, 59, &[])?,
            hours: field("hour", hours, 0, 23, &[])?,
            days: field("day of month", days, 1, 31, &[])?,
            months: field("month", months, 1, 12, &MONTHS)?,
            weekdays: field("day of week", weekdays, 0, 6, &DAYS)?,
            any_day: starred(days) || starred(weekdays),
        }))))
    }
}

fn descriptor(text: &str) -> Result<Schedule, ScheduleError> {
    if let Some(every) = text.strip_prefix("@every ") {
        let error =
            |problem| ScheduleError::Field { field: "@every", text: every.to_owned(), problem };
        let duration =
            go_duration(every.trim()).ok_or_else(|| error("is not a duration such as 1h30m"))?;
        // The library rounds to seconds and runs at most once in one.
        let seconds = duration.as_secs().max(1);
        return Ok(Schedule(Rule::Every(SignedDuration::from_secs(seconds))));
    }
    match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return Err(ScheduleError::Descriptor(text.to_owned())),
    }
    .parse()
}

/// A duration of Go, in whole seconds and above: `1h30m`, `90s`.
#[must_use]
pub fn go_duration(mut text: &str) -> Option<SignedDuration> {
    let mut total = 0_i64;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = text[..digits].parse().ok()?;
        let (unit, seconds) = [("h", 3600), ("m", 60), ("s", 1)]
            .into_iter()
            .find(|(unit, _)| text[digits..].starts_with(unit))?;
        total = number.checked_mul(seconds).and_then(|part| total.checked_add(part))?;
        text = &text[digits + unit.len()..];
    }
    Some(SignedDuration::from_secs(total))
}

/// A field's values as bits: parts between commas, each `*`, a value, a range, any of them with a step.
fn field(
    name: &'static str,
    text: &str,
    min: u32,
    max: u32,
    words: &[&str],
) -> Result<u64, ScheduleError> {
    let error = |problem| ScheduleError::Field { field: name, text: text.to_owned(), problem };
    let value = |text: &str| -> Result<u32, ScheduleError> {
        let word = words.iter().position(|word| text.eq_ignore_ascii_case(word));
        let word = word.and_then(|at| u32::try_from(at).ok()).map(|at| at + min);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = word.or_else(|| digits.then(|| text.parse().ok()).flatten());
        number.ok_or_else(|| error("is not a number"))
    };
    let mut bits = 0_u64;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => (range, Some(value(step)?)),
        };
        let (low, high) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (min, max),
            Some((low, high)) => (value(low)?, value(high)?),
            // A value with a step goes on to the end of the field.
            None if step.is_some() => (value(range)?, max),
            None => (value(range)?, value(range)?),
        };
        let step = step.unwrap_or(1);
        if low < min {
            return Err(error("begins below the field's smallest value"));
        }
        if high > max {
            return Err(error("ends above the field's largest value"));
        }
        if low > high {
            return Err(error("ends before it begins"));
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        if step == 0 {
            return Err(error("has a step of 0"));
        }
        (low..=high).step_by(step).for_each(|value| bits |= 1 << value);
    }
    match bits {
        0 => Err(error("has no value")),
        bits => Ok(bits),
    }
}

impl Schedule {
    /// The first time after this one; `None` when there is none within some decades, as on the 30th of February.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let fields = match &self.0 {
            Rule::Every(duration) => return after.checked_add(*duration).ok(),
            Rule::Fields(fields) => fields,
        };
        let end = after.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
        let minute = after.as_second().div_euclid(60).checked_add(1)?;
        let mut at = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
        while at <= end {
            let local = at.to_zoned(zone.clone());
            let later = match fields.mismatch(&local) {
                None => return Some(at),
                Some(Part::Month) => start(local.date().last_of_month().tomorrow().ok()?, zone)?,
                Some(Part::Day) => start(local.date().tomorrow().ok()?, zone)?,
                Some(Part::Hour) => at.checked_add(minutes(60 - i64::from(local.minute()))).ok()?,
                Some(Part::Minute) => at.checked_add(minutes(1)).ok()?,
            };
            // A zone that goes back over midnight must not stop the search.
            at = later.max(at.checked_add(minutes(1)).ok()?);
        }
        None
    }

    /// The last time that is after one and not after the other.
    #[must_use]
    pub fn last(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let fields = match &self.0 {
            Rule::Every(duration) => {
                let times = until.duration_since(after).as_secs().div_euclid(duration.as_secs());
                let passed = duration.as_secs().checked_mul(times)?;
                return (times > 0)
                    .then(|| after.checked_add(SignedDuration::from_secs(passed)).ok())
                    .flatten();
            }
            Rule::Fields(fields) => fields,
        };
        let end = after.max(until.checked_sub(HORIZON).unwrap_or(Timestamp::MIN));
        let mut at =
            Timestamp::from_second(until.as_second().div_euclid(60).checked_mul(60)?).ok()?;
        while at > end {
            let local = at.to_zoned(zone.clone());
            let before = match fields.mismatch(&local) {
                None => return Some(at),
                Some(Part::Month) => {
                    start(local.date().first_of_month(), zone)?.checked_sub(minutes(1)).ok()?
                }
                Some(Part::Day) => start(local.date(), zone)?.checked_sub(minutes(1)).ok()?,
                Some(Part::Hour) => at.checked_sub(minutes(1 + i64::from(local.minute()))).ok()?,
                Some(Part::Minute) => at.checked_sub(minutes(1)).ok()?,
            };
            at = before.min(at.checked_sub(minutes(1)).ok()?);
        }
        None
    }
}

/// The coarsest part of a civil time that does not fit.
enum Part {
    Month,
    Day,
    Hour,
    Minute,
}

impl Fields {
    fn mismatch(&self, local: &Zoned) -> Option<Part> {
        let has = |bits: u64, value: i8| bits >> value & 1 == 1;
        let day = has(self.days, local.day());
        let weekday = has(self.weekdays, local.weekday().to_sunday_zero_offset());
        let day = if self.any_day { day && weekday } else { day || weekday };
        match () {
            () if !has(self.months, local.month()) => Some(Part::Month),
            () if !day => Some(Part::Day),
            () if !has(self.hours, local.hour()) => Some(Part::Hour),
            () if !has(self.minutes, local.minute()) => Some(Part::Minute),
            () => None,
        }
    }
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// When a day begins in a zone.
fn start(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    Some(date.to_zoned(zone.clone()).ok()?.start_of_day().ok()?.timestamp())
}

/// The zone that a CronJob names; without a name it is UTC, as kube-controller-manager's usually is.
///
/// # Errors
/// The reason, when there is no such zone.
pub fn zone(name: Option<&str>) -> Result<TimeZone, String> {
    match name {
        None => Ok(TimeZone::UTC),
        Some("") => Err("unknown time zone \"\"".to_owned()),
        // Go calls the machine's own zone so; a CronJob may not depend on it.
        Some(local) if local.eq_ignore_ascii_case("local") => Err(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
                .to_owned(),
        ),
        Some(name) => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(schedule: &str, after: &str, zone_name: &str) -> String {
        let schedule: Schedule = schedule.parse().unwrap();
        let zone = zone(Some(zone_name)).unwrap();
        schedule.next(at(after), &zone).map_or_else(|| "never".to_owned(), |at| at.to_string())
    }

    #[test]
    fn the_next_time_follows_the_five_fields() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:14:59Z", "2026-01-01T00:15:00Z"),
            ("5/20 * * * *", "2026-01-01T00:06:00Z", "2026-01-01T00:25:00Z"),
            ("0 9-17/4 * * *", "2026-01-01T10:00:00Z", "2026-01-01T13:00:00Z"),
            ("30 4 1,15 * *", "2026-01-02T00:00:00Z", "2026-01-15T04:30:00Z"),
            // Both days restricted: one of them is enough. 2026-01-05 is a Monday.
            ("0 0 10 * mon", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"),
            ("0 0 */2 * MON", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"),
            // One of them is a star: the other decides.
            ("0 0 * * MON", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"),
            ("0 0 29 feb ?", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "never"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, after, "UTC"), expected, "{schedule}");
        }
    }

    #[test]
    fn zones_and_their_summer_time_are_kept() {
        let berlin = "Europe/Berlin";
        assert_eq!(next("0 9 * * *", "2026-01-01T00:00:00Z", berlin), "2026-01-01T08:00:00Z");
        assert_eq!(next("0 9 * * *", "2026-07-01T00:00:00Z", berlin), "2026-07-01T07:00:00Z");
        // 02:30 does not exist on 2026-03-29 and exists twice on 2026-10-25.
        assert_eq!(next("30 2 * * *", "2026-03-28T12:00:00Z", berlin), "2026-03-30T00:30:00Z");
        assert_eq!(next("30 2 * * *", "2026-10-24T12:00:00Z", berlin), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", "2026-10-25T00:30:00Z", berlin), "2026-10-25T01:30:00Z");
        assert!(zone(Some("Europe/Atlantis")).is_err() && zone(Some("Local")).is_err());
    }

    #[test]
    fn the_last_time_is_the_one_that_next_leads_to() {
        let berlin = zone(Some("Europe/Berlin")).unwrap();
        let start = at("2026-03-20T00:00:00Z");
        for text in ["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 3 * * sun", "@every 50m"] {
            let schedule: Schedule = text.parse().unwrap();
            let mut expected = None;
            let mut step = start;
            let until = at("2026-04-03T12:34:56Z");
            while let Some(found) = schedule.next(step, &berlin).filter(|found| *found <= until) {
                expected = Some(found);
                step = found;
            }
            assert!(expected.is_some(), "{text}");
            assert_eq!(schedule.last(start, until, &berlin), expected, "{text}");
            assert_eq!(schedule.last(until, until, &berlin), None, "{text}");
        }
        let never: Schedule = "0 0 30 2 *".parse().unwrap();
        assert_eq!(never.last(Timestamp::MIN, start, &TimeZone::UTC), None);
    }

    #[test]
    fn what_is_no_schedule_is_refused_by_field() {
        for (text, part) in [
            ("", "found 0"),
            ("* * * *", "found 4"),
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * * 7", "day of week"),
            ("5-1 * * * *", "ends before it begins"),
            ("*/0 * * * *", "step of 0"),
            ("a * * * *", "not a number"),
            (", * * * *", "has no value"),
            ("99999999999999999999 * * * *", "not a number"),
            ("@often", "descriptor"),
            ("@every soon", "duration"),
            ("@every 9223372036854775807h", "duration"),
            ("TZ=UTC * * * * *", "timeZone"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn schedules_of_any_text_are_read_in_time_and_their_times_agree(
            parts in proptest::collection::vec("[*?,/0-9a-z@-]{0,6}", 0..7),
            text in "\\PC{0,40}",
            after in -10_000_000_000_i64..10_000_000_000,
        ) {
            let berlin = zone(Some("Europe/Berlin")).unwrap();
            let after = Timestamp::from_second(after).unwrap();
            for text in [parts.join(" "), text, format!("@every {}", parts.concat())] {
                let Ok(schedule) = text.parse::<Schedule>() else { continue };
                let Some(next) = schedule.next(after, &berlin) else { continue };
                proptest::prop_assert!(next > after, "{}", text);
                if let Some(last) = schedule.last(after, next, &berlin) {
                    proptest::prop_assert_eq!(last, next, "{}", text);
                }
            }
        }
    }
}
