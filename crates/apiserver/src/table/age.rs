//! Human-readable durations, as in `k8s.io/apimachinery/pkg/util/duration`.

use atoll_apimachinery::meta;
use jiff::Timestamp;
use serde_json::Value;

/// Shown for an empty value.
pub(crate) const NONE: &str = "<none>";
/// Shown for a missing required value.
pub(crate) const UNKNOWN: &str = "<unknown>";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// `5m`, `2d3h`: at most two units, fewer for longer durations.
pub fn human(seconds: i64) -> String {
    let pair = |big: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{rest}{small}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

pub(crate) fn parse(value: Option<&Value>) -> Option<Timestamp> {
    value?.as_str()?.parse().ok()
}

/// How long ago a timestamp was, `<unknown>` without one.
pub(crate) fn since(value: Option<&Value>, now: Timestamp) -> String {
    parse(value).map_or_else(|| UNKNOWN.to_owned(), |t| human(now.as_second() - t.as_second()))
}

/// The AGE cell.
pub(crate) fn of(object: &Value, now: Timestamp) -> Value {
    since(meta::get(object, "creationTimestamp"), now).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_as_human_duration_writes_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (50 * HOUR, "2d2h"),
            (9 * DAY, "9d"),
            (3 * YEAR, "3y"),
            (3 * YEAR + 5 * DAY, "3y5d"),
            (9 * YEAR, "9y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
