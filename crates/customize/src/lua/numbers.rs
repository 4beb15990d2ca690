//! Numbers as text, in Karmada's notation: its Lua is written in Go.

/// The text of a number: an integer without a fraction, anything else with the fewest digits that give the same number.
pub(crate) fn text(number: f64) -> String {
    match integer(number) {
        Some(integer) => integer.to_string(),
        None => general(number, None),
    }
}

/// The number as an integer, if it is one.
#[allow(clippy::cast_possible_truncation, clippy::float_cmp)]
pub(crate) fn integer(number: f64) -> Option<i64> {
    // 2^63 itself is out of range.
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    (in_range && number.trunc() == number).then_some(number as i64)
}

/// The number's integer part, as Go converts it.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn truncated(number: f64) -> i64 {
    number as i64
}

/// An integer as a number. Lua 5.1 has no integers, so the value came from a number without loss.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn from_integer(integer: i64) -> f64 {
    integer as f64
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

/// `%e`: one digit before the point, an exponent of at least two digits.
pub(crate) fn exponential(number: f64, precision: Option<usize>) -> String {
    if let Some(text) = special(number) {
        return text.to_owned();
    }
    let text = match precision {
        Some(precision) => format!("{number:.precision$e}"),
        None => format!("{number:e}"),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%f`.
pub(crate) fn fixed(number: f64, precision: Option<usize>) -> String {
    match (special(number), precision) {
        (Some(text), _) => text.to_owned(),
        (None, Some(precision)) => format!("{number:.precision$}"),
        (None, None) => format!("{number}"),
    }
}

/// Exponent from which on the fewest digits are written with an exponent.
const SHORTEST: i32 = 6;

/// `%g`: `%e` for large and small exponents, else `%f`; without zeros at the end.
pub(crate) fn general(number: f64, precision: Option<usize>) -> String {
    if let Some(text) = special(number) {
        return text.to_owned();
    }
    let precision = precision.map(|precision| precision.max(1));
    let text = exponential(number, precision.map(|precision| precision - 1));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit =
        precision.map_or(SHORTEST, |precision| i32::try_from(precision).unwrap_or(i32::MAX));
    if exponent < -4 || exponent >= limit {
        let mantissa = trimmed(mantissa);
        let rest = &text[text.find('e').unwrap_or(text.len())..];
        return format!("{mantissa}{rest}");
    }
    match precision {
        None => format!("{number}"),
        Some(precision) => {
            let decimals = i32::try_from(precision).unwrap_or(i32::MAX) - 1 - exponent;
            let fixed = fixed(number, Some(usize::try_from(decimals).unwrap_or(0)));
            trimmed(&fixed).to_owned()
        }
    }
}

/// Without zeros after the point.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_go() {
        for (number, expected) in [
            (3.0, "3"),
            (-0.0, "0"),
            (33.3, "33.3"),
            (0.1 + 0.2, "0.30000000000000004"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e20, "1e+20"),
            (1e-7, "1e-07"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(text(number), expected);
        }
        assert_eq!(text(123_456.5), "123456.5");
        assert_eq!(text(1_234_567.5), "1.2345675e+06");
        assert_eq!(general(1234567.0, Some(5)), "1.2346e+06");
        assert_eq!(general(100.0, Some(3)), "100");
        assert_eq!(exponential(12.5, Some(6)), "1.250000e+01");
        assert_eq!(fixed(2.5, Some(2)), "2.50");
    }
}
