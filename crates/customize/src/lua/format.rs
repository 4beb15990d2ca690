//! `string.format`, with Karmada's notation: its Lua formats as Go does. A value that does not fit its verb is an error
//! here, where Karmada writes `%!d(string=x)` into the result.

use super::numbers;
use crate::limits;

/// An argument.
pub(crate) enum Arg {
    Number(f64),
    Text(Vec<u8>),
    /// Text of any other value. Fits `%s`, `%v` and `%q` only.
    Other(Vec<u8>),
    Bool(bool),
}

impl Arg {
    fn text(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => numbers::text(*number).into_bytes(),
            Self::Text(text) => text.clone(),
            Self::Other(text) => text.clone(),
            Self::Bool(value) => value.to_string().into_bytes(),
        }
    }

    fn number(&self, verb: char) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => {
                let text = String::from_utf8_lossy(text);
                text.trim().parse().map_err(|_| format!("%{verb} needs a number, not {text:?}"))
            }
            Self::Other(_) | Self::Bool(_) => Err(format!("%{verb} needs a number")),
        }
    }
}

/// Widest field and longest precision.
const WIDEST: usize = 1000;

#[derive(Default)]
struct Spec {
    minus: bool,
    plus: bool,
    space: bool,
    zero: bool,
    sharp: bool,
    width: usize,
    precision: Option<usize>,
}

/// The text of a format with its arguments. Arguments without a verb are ignored.
pub(crate) fn format(pattern: &[u8], args: &[Arg]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut args = args.iter();
    let mut rest = pattern;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        if let Some(after) = rest.strip_prefix(b"%") {
            out.push(b'%');
            rest = after;
            continue;
        }
        let (spec, verb, after) = parse(rest)?;
        rest = after;
        let arg = args.next().ok_or_else(|| format!("%{verb} has no argument"))?;
        let text = one(&spec, verb, arg)?;
        pad(&mut out, &spec, &text, !matches!(verb, 's' | 'q' | 'v'));
        if out.len() > limits::STRING {
            return Err(format!("the result is longer than {} bytes", limits::STRING));
        }
    }
    Ok(out)
}

fn parse(text: &[u8]) -> Result<(Spec, char, &[u8]), String> {
    let mut spec = Spec::default();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'-' => spec.minus = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'0' => spec.zero = true,
            b'#' => spec.sharp = true,
            _ => break,
        }
        rest = after;
    }
    (spec.width, rest) = digits(rest)?;
    if let Some(after) = rest.strip_prefix(b".") {
        let (precision, after) = digits(after)?;
        spec.precision = Some(precision);
        rest = after;
    }
    match rest.split_first() {
        Some((verb, rest)) => Ok((spec, char::from(*verb), rest)),
        None => Err("the format ends with an unfinished %".to_owned()),
    }
}

fn digits(text: &[u8]) -> Result<(usize, &[u8]), String> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    if digits.is_empty() {
        return Ok((0, rest));
    }
    let number = String::from_utf8_lossy(digits).parse::<usize>().ok();
    match number.filter(|number| *number <= WIDEST) {
        Some(number) => Ok((number, rest)),
        None => Err(format!("a width or precision is larger than {WIDEST}")),
    }
}

fn one(spec: &Spec, verb: char, arg: &Arg) -> Result<Vec<u8>, String> {
    let signed = |text: String| {
        let sign = match text.starts_with(['-', '+']) {
            true if text == "+Inf" && !spec.plus => return text,
            true => "",
            false if spec.plus => "+",
            false if spec.space => " ",
            false => "",
        };
        format!("{sign}{text}")
    };
    let text = match verb {
        's' | 'v' => cut(arg.text(), spec.precision),
        'q' => quoted(&cut(arg.text(), spec.precision)),
        'd' | 'i' => {
            let integer = numbers::truncated(arg.number(verb)?);
            let digits = integer.unsigned_abs().to_string();
            let digits = format!("{digits:0>0$}", spec.precision.unwrap_or(0));
            let sign = if integer < 0 { "-" } else { "" };
            signed(format!("{sign}{digits}")).into_bytes()
        }
        'x' | 'X' if matches!(arg, Arg::Text(_)) => hex(&cut(arg.text(), spec.precision), verb),
        'x' | 'X' | 'o' | 'b' => {
            let integer = numbers::truncated(arg.number(verb)?);
            let (sign, size) = (if integer < 0 { "-" } else { "" }, integer.unsigned_abs());
            let (prefix, digits) = match verb {
                'x' => ("0x", format!("{size:x}")),
                'X' => ("0X", format!("{size:X}")),
                'o' => ("0", format!("{size:o}")),
                _ => ("0b", format!("{size:b}")),
            };
            let prefix = if spec.sharp { prefix } else { "" };
            let digits = format!("{digits:0>0$}", spec.precision.unwrap_or(0));
            signed(format!("{sign}{prefix}{digits}")).into_bytes()
        }
        'c' => {
            let code = u32::try_from(numbers::truncated(arg.number(verb)?)).unwrap_or(u32::MAX);
            let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            letter.to_string().into_bytes()
        }
        'e' | 'E' => float(
            arg.number(verb)?,
            verb,
            |n| numbers::exponential(n, Some(spec.precision.unwrap_or(6))),
            signed,
        ),
        'f' | 'F' => float(
            arg.number(verb)?,
            verb,
            |n| numbers::fixed(n, Some(spec.precision.unwrap_or(6))),
            signed,
        ),
        'g' | 'G' => {
            float(arg.number(verb)?, verb, |n| numbers::general(n, spec.precision), signed)
        }
        't' if matches!(arg, Arg::Bool(_)) => arg.text(),
        other => return Err(format!("%{other} is not supported, or does not fit its argument")),
    };
    Ok(text)
}

fn float(
    number: f64,
    verb: char,
    text: impl Fn(f64) -> String,
    signed: impl Fn(String) -> String,
) -> Vec<u8> {
    let text = signed(text(number));
    let text =
        if verb.is_ascii_uppercase() && number.is_finite() { text.to_uppercase() } else { text };
    text.into_bytes()
}

/// At most so many characters.
fn cut(text: Vec<u8>, precision: Option<usize>) -> Vec<u8> {
    let Some(precision) = precision else { return text };
    match std::str::from_utf8(&text) {
        Ok(valid) => valid.chars().take(precision).collect::<String>().into_bytes(),
        Err(_) => text.into_iter().take(precision).collect(),
    }
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = String::from("\"");
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out.into_bytes()
}

fn hex(text: &[u8], verb: char) -> Vec<u8> {
    let digits: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
    if verb == 'X' { digits.to_uppercase() } else { digits }.into_bytes()
}

fn pad(out: &mut Vec<u8>, spec: &Spec, text: &[u8], number: bool) {
    let length = String::from_utf8_lossy(text).chars().count();
    let missing = spec.width.saturating_sub(length);
    if spec.minus {
        out.extend_from_slice(text);
        out.extend(std::iter::repeat_n(b' ', missing));
    } else if spec.zero && (!number || spec.precision.is_none() || text.contains(&b'.')) {
        let sign = usize::from(number && text.first().is_some_and(|byte| b"+- ".contains(byte)));
        out.extend_from_slice(&text[..sign]);
        out.extend(std::iter::repeat_n(b'0', missing));
        out.extend_from_slice(&text[sign..]);
    } else {
        out.extend(std::iter::repeat_n(b' ', missing));
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(pattern: &str, args: &[Arg]) -> String {
        String::from_utf8(format(pattern.as_bytes(), args).unwrap()).unwrap()
    }

    #[test]
    fn values_are_formatted_as_in_go() {
        let one = |pattern: &str, number: f64| text(pattern, &[Arg::Number(number)]);
        assert_eq!(text("%d/%d ready", &[Arg::Number(1.0), Arg::Number(2.9)]), "1/2 ready");
        assert_eq!(one("%5.1f|", 2.25), "  2.2|");
        assert_eq!(one("%-5d|", 3.0), "3    |");
        assert_eq!(one("%05d", -42.0), "-0042");
        assert_eq!(one("%+d", 3.0), "+3");
        assert_eq!(one("%s%%", 33.3), "33.3%");
        assert_eq!(one("%x", 255.0), "ff");
        assert_eq!(one("%g", 1e20), "1e+20");
        assert_eq!(one("%E", 12.5), "1.250000E+01");
        assert_eq!(text("%s %v", &[Arg::Bool(true), Arg::Other(b"nil".to_vec())]), "true nil");
        assert_eq!(
            text("%.2s|%4s", &[Arg::Text(b"abc".to_vec()), Arg::Text(b"x".to_vec())]),
            "ab|   x"
        );
        assert_eq!(text("%q", &[Arg::Text(b"a\"b".to_vec())]), "\"a\\\"b\"");
        assert_eq!(text("%d", &[Arg::Text(b"7".to_vec()), Arg::Bool(true)]), "7");
    }

    #[test]
    fn what_cannot_be_formatted_is_an_error() {
        for (pattern, arg) in [
            ("%d", Arg::Text(b"x".to_vec())),
            ("%d%d", Arg::Number(1.0)),
            ("%y", Arg::Number(1.0)),
            ("%99999d", Arg::Number(1.0)),
            ("%", Arg::Number(1.0)),
            ("%d", Arg::Bool(true)),
        ] {
            assert!(format(pattern.as_bytes(), &[arg]).is_err(), "{pattern}");
        }
        assert!(format(&b"%1000d".repeat(1100), &[]).is_err());
    }
}
