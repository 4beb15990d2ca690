//! The `format`s that are checked. Others are annotations and pass, as on a real API server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::value::integer;

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    Int64,
    DateTime,
    Date,
    Byte,
    Uuid,
    Ipv4,
    Ipv6,
    Cidr,
}

impl Format {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "date-time" => Self::DateTime,
            "date" => Self::Date,
            "byte" => Self::Byte,
            "uuid" => Self::Uuid,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Byte => "byte",
            Self::Uuid => "uuid",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Cidr => "cidr",
        }
    }

    /// Whether the value has this format. Values of another JSON type pass; the type check reports them.
    pub(crate) fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Int32, Value::Number(n)) => integer(n).is_none_or(|i| i32::try_from(i).is_ok()),
            (Self::Int64, Value::Number(n)) => integer(n).is_none_or(|i| i64::try_from(i).is_ok()),
            (Self::Int32 | Self::Int64, _) => true,
            (_, Value::String(s)) => match self {
                Self::DateTime => is_date_time(s),
                Self::Date => is_date(s),
                Self::Byte => is_base64(s),
                Self::Uuid => is_uuid(s),
                Self::Ipv4 => s.parse::<Ipv4Addr>().is_ok(),
                Self::Ipv6 => s.parse::<Ipv6Addr>().is_ok(),
                Self::Cidr => is_cidr(s),
                Self::Int32 | Self::Int64 => true,
            },
            _ => true,
        }
    }
}

/// RFC 3339: `2024-05-01T10:00:00Z`, with optional fraction and numeric offset.
fn is_date_time(s: &str) -> bool {
    let Some((date, rest)) = s.split_once(['T', 't']) else { return false };
    let Some(at) = rest.find(['Z', 'z', '+', '-']) else { return false };
    let (clock, zone) = rest.split_at(at);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let fraction_fits =
        fraction.is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()));
    let zone_fits = matches!(zone, "Z" | "z")
        || numbers(&zone[1..], ':', &[2, 2]).is_some_and(|n| n[0] < 24 && n[1] < 60);
    // A leap second is written as :60.
    let clock_fits =
        numbers(clock, ':', &[2, 2, 2]).is_some_and(|n| n[0] < 24 && n[1] < 60 && n[2] <= 60);
    is_date(date) && clock_fits && fraction_fits && zone_fits
}

fn is_date(s: &str) -> bool {
    numbers(s, '-', &[4, 2, 2]).is_some_and(|n| {
        let leap = n[0] % 4 == 0 && (n[0] % 100 != 0 || n[0] % 400 == 0);
        let days = match n[1] {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        (1..=days).contains(&n[2])
    })
}

/// Splits into decimal numbers, one per width, each of exactly that width.
fn numbers(s: &str, separator: char, widths: &[usize]) -> Option<Vec<u32>> {
    let parts: Vec<&str> = s.split(separator).collect();
    let fits = parts.len() == widths.len()
        && parts
            .iter()
            .zip(widths)
            .all(|(p, w)| p.len() == *w && p.bytes().all(|b| b.is_ascii_digit()));
    if !fits {
        return None;
    }
    parts.iter().map(|p| p.parse().ok()).collect()
}

fn is_base64(s: &str) -> bool {
    let body = s.trim_end_matches('=');
    s.len().is_multiple_of(4)
        && s.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_uuid(s: &str) -> bool {
    let groups: Vec<&str> = s.split('-').collect();
    groups.len() == 5
        && groups
            .iter()
            .zip([8, 4, 4, 4, 12])
            .all(|(g, len)| g.len() == len && g.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else { return false };
    match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        let cases = [
            (Format::DateTime, json!("2024-02-29T23:59:60.5+02:00"), true),
            (Format::DateTime, json!("2023-02-29T00:00:00Z"), false),
            (Format::DateTime, json!("2024-01-01 00:00:00Z"), false),
            (Format::DateTime, json!("2024-01-01T00:00:00"), false),
            (Format::DateTime, json!("2024-01-01T00:00:00.Z"), false),
            (Format::Date, json!("2024-13-01"), false),
            (Format::Date, json!("2024-12-31"), true),
            (Format::Int32, json!(2_147_483_648_i64), false),
            (Format::Int32, json!(-2_147_483_648_i64), true),
            (Format::Int64, json!(u64::MAX), false),
            (Format::Byte, json!("aGk="), true),
            (Format::Byte, json!("aGk"), false),
            (Format::Uuid, json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), true),
            (Format::Uuid, json!("6ba7b810"), false),
            (Format::Ipv4, json!("10.0.0.256"), false),
            (Format::Ipv6, json!("::1"), true),
            (Format::Cidr, json!("10.0.0.0/33"), false),
            (Format::Cidr, json!("fd00::/8"), true),
        ];
        for (format, value, fits) in cases {
            assert_eq!(format.fits(&value), fits, "{} {value}", format.name());
        }
    }
}
