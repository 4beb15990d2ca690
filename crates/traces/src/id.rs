//! Identities of traces and spans, and which traces are recorded.

use std::fmt;
use std::str::FromStr;

use atoll_api::hex;
use sha2::{Digest, Sha256};

/// A trace: 16 bytes, those of the decision's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// The trace of a decision; `None` if the text is not 32 hexadecimal digits, or all of them are zero.
    #[must_use]
    pub fn of_decision(id: &str) -> Option<Self> {
        let bytes = hex::decode::<16>(id)?;
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// The span of this trace at a place, for example `["dispatch", "member1"]`.
    #[must_use]
    pub fn span(self, place: &[&str]) -> SpanId {
        let mut hash = Sha256::new();
        hash.update(self.0);
        for part in place {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let digest = hash.finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        // All zeroes is no valid id.
        bytes[7] |= u8::from(bytes == [0; 8]);
        SpanId(bytes)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// A span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// A recorded trace and the span under which another process continues it, as W3C's `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span under which it continues.
    pub parent: SpanId,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.parent)
    }
}

impl TraceContext {
    /// Reads a `traceparent`; `None` if it is none, or of a trace that is not recorded.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let rest = text.strip_prefix("00-").filter(|_| lower)?;
        let (trace, rest) = rest.split_once('-')?;
        let (parent, flags) = rest.split_once('-')?;
        let [flags] = hex::decode::<1>(flags)?;
        let parent = SpanId(hex::decode::<8>(parent).filter(|bytes| *bytes != [0; 8])?);
        let trace = TraceId::of_decision(trace)?;
        (flags & 1 == 1).then_some(Self { trace, parent })
    }
}

/// The part of all traces that is recorded: of 2^56 equal parts of all ids, those from a threshold on. It is the rule
/// of W3C's trace context for random ids, so a collector that samples by the same rule keeps whole traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u64);

/// Number of different values of the part of an id that decides.
const PARTS: u64 = 1 << 56;

impl Ratio {
    /// Every trace.
    pub const ALL: Self = Self(0);

    /// Whether it has this trace.
    #[must_use]
    pub fn has(self, trace: TraceId) -> bool {
        let mut last = [0; 8];
        last[1..].copy_from_slice(&trace.0[9..]);
        u64::from_be_bytes(last) >= self.0
    }
}

/// The text is no ratio.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a number from 0 (none) to 1 (all)")]
pub struct InvalidRatio;

impl FromStr for Ratio {
    type Err = InvalidRatio;

    fn from_str(text: &str) -> Result<Self, InvalidRatio> {
        let ratio: f64 = text.parse().map_err(|_| InvalidRatio)?;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(InvalidRatio);
        }
        // Exact: 2^56 is a power of two, and the product is between 0 and 2^56.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let kept = (ratio * PARTS as f64) as u64;
        Ok(Self(PARTS - kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_context_passes_between_processes_as_text_and_nothing_else_is_one() {
        let trace = TraceId::of_decision(ID).unwrap();
        assert_eq!(trace.to_string(), ID);
        let parent = trace.span(&["dispatch", "a"]);
        assert_ne!(parent, trace.span(&["dispatch", "b"]));
        assert_ne!(trace.span(&["ab", "c"]), trace.span(&["a", "bc"]));
        let context = TraceContext { trace, parent };
        let text = context.to_string();
        assert_eq!(text, format!("00-{ID}-{parent}-01"));
        assert_eq!(TraceContext::read(&text), Some(context));
        for wrong in [
            String::new(),
            text.replace("-01", "-00"),
            text.replace("00-", "01-"),
            text.to_uppercase(),
            format!("{text}-"),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{ID}-{}-01", "0".repeat(16)),
            format!("00-{ID}ä-{parent}-01"),
        ] {
            assert_eq!(TraceContext::read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_ratio_has_that_part_of_all_traces_and_a_larger_one_has_them_too() {
        for wrong in ["-0.1", "1.1", "NaN", "", "half"] {
            assert_eq!(wrong.parse::<Ratio>(), Err(InvalidRatio), "{wrong}");
        }
        let [none, few, half, all] =
            ["0", "0.05", "0.5", "1"].map(|text| text.parse::<Ratio>().unwrap());
        assert_eq!(all, Ratio::ALL);
        let (mut of_few, mut of_half) = (0, 0);
        for number in 0..2000_u32 {
            let digest = Sha256::digest(number.to_le_bytes());
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&digest[..16]);
            let trace = TraceId(bytes);
            assert!(all.has(trace) && !none.has(trace));
            assert!(half.has(trace) || !few.has(trace));
            of_few += u32::from(few.has(trace));
            of_half += u32::from(half.has(trace));
        }
        assert!((60..140).contains(&of_few), "{of_few}");
        assert!((900..1100).contains(&of_half), "{of_half}");
    }
}
