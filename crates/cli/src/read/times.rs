//! Times as users type them.

use jiff::{SignedDuration, Timestamp};

/// Hours of a day: jiff's durations have no days, because days differ in length.
const DAY: i64 = 24;

/// Parses a time, or a duration before now.
///
/// # Errors
/// When it is neither; the text says what is valid.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_at(text, Timestamp::now())
}

fn parse_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let ago = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => days.checked_mul(DAY).and_then(hours),
        _ => text.parse::<SignedDuration>().ok(),
    };
    ago.filter(|ago| !ago.is_negative()).and_then(|ago| now.checked_sub(ago).ok()).ok_or_else(
        || "give a time such as 2026-01-31T10:00:00Z, or how long ago: 30m, 24h, 7d".to_owned(),
    )
}

fn hours(hours: i64) -> Option<SignedDuration> {
    hours.checked_mul(3600).map(SignedDuration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_ago() {
        assert_eq!(parse("2026-01-31T10:00:00Z").unwrap().to_string(), "2026-01-31T10:00:00Z");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 7 * 86_400)] {
            let then = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(parse_at(text, now), Ok(then), "{text}");
        }
        let most = i64::MAX.to_string();
        for bad in ["", "soon", "-3h", "7x", "99999999999999d", &format!("{}d", &most[1..])] {
            assert!(parse_at(bad, now).is_err(), "{bad}");
        }
    }
}
