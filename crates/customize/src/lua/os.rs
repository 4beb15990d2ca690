//! `os.time` and `os.date`, in UTC. Nothing else of `os` exists.

use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use mlua::{Lua, MultiValue, Table, Value};

use super::args::Args;
use super::{as_number, failure, numbers};

pub(super) fn fill(lua: &Lua) -> mlua::Result<()> {
    let os = lua.create_table()?;
    os.raw_set("time", lua.create_function(|_, args| time(&Args::new("os.time", args)))?)?;
    os.raw_set("date", lua.create_function(|lua, args| date(lua, &Args::new("os.date", args)))?)?;
    lua.globals().raw_set("os", os)
}

/// Seconds since 1970: of now, or of a table with year, month, day, hour, min, sec. Months and days out of range count
/// on, as in C.
fn time(args: &Args) -> mlua::Result<f64> {
    if args.count() == 0 {
        return Ok(numbers::from_integer(Timestamp::now().as_second()));
    }
    let table = args.table(1)?;
    let field = |name: &str, default: i64| -> mlua::Result<i64> {
        let value: Value = table.raw_get(name)?;
        Ok(as_number(&value).map_or(default, numbers::truncated).clamp(-MOST, MOST))
    };
    let month = field("month", -1)? - 1;
    let year = field("year", -1)? + month.div_euclid(12);
    let first = i16::try_from(year)
        .ok()
        .zip(i8::try_from(month.rem_euclid(12) + 1).ok())
        .and_then(|(year, month)| Date::new(year, month, 1).ok())
        .ok_or_else(|| failure("os.time: the year is out of range"))?;
    let start = first
        .to_zoned(TimeZone::UTC)
        .map_err(|error| failure(format!("os.time: {error}")))?
        .timestamp()
        .as_second();
    let seconds = start
        + (field("day", -1)? - 1) * 86_400
        + field("hour", 12)? * 3_600
        + field("min", 0)? * 60
        + field("sec", 0)?;
    Ok(numbers::from_integer(seconds))
}

/// Largest part of a time; keeps sums in range.
const MOST: i64 = 1_000_000_000_000;

/// A time as text after a format of C's `strftime`, or as a table for `*t`.
fn date(lua: &Lua, args: &Args) -> mlua::Result<MultiValue> {
    let format = match args.value(1) {
        Value::Nil => b"%c".to_vec(),
        _ => args.text(1)?,
    };
    let format = String::from_utf8_lossy(&format).into_owned();
    let format = format.trim_start_matches('!');
    let time = match args.value(2) {
        Value::Nil => Timestamp::now(),
        _ => Timestamp::from_second(args.integer(2)?)
            .map_err(|_| failure("os.date: the time is out of range"))?,
    };
    let time = time.to_zoned(TimeZone::UTC);
    let value = if format.starts_with("*t") {
        let table: Table = lua.create_table()?;
        for (name, value) in [
            ("year", i64::from(time.year())),
            ("month", i64::from(time.month())),
            ("day", i64::from(time.day())),
            ("hour", i64::from(time.hour())),
            ("min", i64::from(time.minute())),
            ("sec", i64::from(time.second())),
            ("wday", i64::from(time.weekday().to_sunday_one_offset())),
            ("yday", i64::from(time.day_of_year())),
        ] {
            table.raw_set(name, numbers::from_integer(value))?;
        }
        table.raw_set("isdst", false)?;
        Value::Table(table)
    } else {
        if format.len() > LONGEST {
            return Err(failure(format!("os.date: the format is longer than {LONGEST} bytes")));
        }
        let text = jiff::fmt::strtime::format(format, &time)
            .map_err(|error| failure(format!("os.date: {error}")))?;
        Value::String(lua.create_string(text)?)
    };
    Ok(MultiValue::from_vec(vec![value]))
}

/// Longest format of a date, in bytes.
const LONGEST: usize = 1000;
