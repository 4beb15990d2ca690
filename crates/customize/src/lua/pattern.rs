//! Lua's patterns, with a budget: a hook cannot interrupt a match in C, and a pattern such as `.*.*.*x` takes time that
//! grows with a power of the text's length.
//!
//! The rules are Karmada's. They differ from C Lua in small things: `%f` is the letter f, and `gmatch` with `^` has at
//! most one match.

use crate::budget::Budget;
use crate::error::Limit;

/// Most captures of a pattern, as in C Lua.
const CAPTURES: usize = 32;

/// Longest pattern, in bytes. It also bounds the memory of a match.
const LENGTH: usize = 10_000;

/// Why a pattern has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The pattern is malformed.
    Malformed(&'static str),
    /// The budget is exhausted.
    Stopped(Limit),
}

impl From<Limit> for PatternError {
    fn from(limit: Limit) -> Self {
        Self::Stopped(limit)
    }
}

/// A set of bytes.
#[derive(Clone, PartialEq, Eq)]
struct Class([u64; 4]);

impl Class {
    const NONE: Self = Self([0; 4]);
    const ANY: Self = Self([u64::MAX; 4]);

    fn of(accepts: impl Fn(u8) -> bool) -> Self {
        let mut class = Self::NONE;
        (0..=u8::MAX).filter(|byte| accepts(*byte)).for_each(|byte| class.add(byte));
        class
    }

    fn one(byte: u8) -> Self {
        let mut class = Self::NONE;
        class.add(byte);
        class
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    fn not(&self) -> Self {
        Self(self.0.map(|bits| !bits))
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    /// The class of `%` and a letter.
    fn escape(letter: u8) -> Self {
        let class = match letter.to_ascii_lowercase() {
            b'a' => Self::of(|b| b.is_ascii_alphabetic()),
            b'c' => Self::of(|b| b.is_ascii_control()),
            b'd' => Self::of(|b| b.is_ascii_digit()),
            b'l' => Self::of(|b| b.is_ascii_lowercase()),
            b'p' => Self::of(|b| b.is_ascii_punctuation()),
            b's' => Self::of(|b| b.is_ascii_whitespace() || b == 0x0b),
            b'u' => Self::of(|b| b.is_ascii_uppercase()),
            b'w' => Self::of(|b| b.is_ascii_alphanumeric()),
            b'x' => Self::of(|b| b.is_ascii_hexdigit()),
            b'z' => Self::one(0),
            _ => return Self::one(letter),
        };
        if letter.is_ascii_uppercase() { class.not() } else { class }
    }
}

/// How often a class repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// `*`: as often as possible.
    Most,
    /// `+`: as often as possible, at least once.
    MostAtLeastOnce,
    /// `-`: as rarely as possible.
    Fewest,
    /// `?`: once if possible.
    Once,
}

#[derive(Clone, PartialEq, Eq)]
enum Item {
    One(Class),
    Many(Class, Repeat),
    Open(usize),
    Close(usize),
    Position(usize),
    /// `%1`: the text of a capture again.
    Again(usize),
    /// `%bxy`: from x to its y.
    Balanced(u8, u8),
}

/// A capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Bytes from start to end.
    Text(usize, usize),
    /// A position, counted from 1.
    Position(usize),
}

/// A match: its bytes and its captures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

/// A parsed pattern.
pub(crate) struct Pattern {
    items: Vec<Item>,
    captures: usize,
    at_start: bool,
    at_end: bool,
}

impl Pattern {
    /// Parses a pattern.
    pub(crate) fn parse(text: &[u8], budget: &Budget) -> Result<Self, PatternError> {
        if text.len() > LENGTH {
            return Err(PatternError::Malformed("longer than 10000 bytes"));
        }
        budget.charge(1 + text.len() as u64)?;
        let mut pattern = Self { items: Vec::new(), captures: 0, at_start: false, at_end: false };
        let mut rest = text;
        if let Some(after) = rest.strip_prefix(b"^") {
            pattern.at_start = true;
            rest = after;
        }
        let mut open = Vec::new();
        while let Some((&byte, after)) = rest.split_first() {
            rest = match byte {
                b'(' => pattern.open(after, &mut open)?,
                b')' => {
                    let index = open.pop().ok_or(PatternError::Malformed("unexpected )"))?;
                    pattern.items.push(Item::Close(index));
                    after
                }
                b'%' => pattern.escape(after)?,
                b'[' => {
                    let (class, after) = set(after)?;
                    pattern.items.push(Item::One(class));
                    after
                }
                b'.' => {
                    pattern.items.push(Item::One(Class::ANY));
                    after
                }
                b'*' | b'+' | b'-' | b'?' => {
                    pattern.repeat(byte);
                    after
                }
                b'$' if after.is_empty() && open.is_empty() => {
                    pattern.at_end = true;
                    after
                }
                byte => {
                    pattern.items.push(Item::One(Class::one(byte)));
                    after
                }
            };
        }
        if open.is_empty() {
            Ok(pattern)
        } else {
            Err(PatternError::Malformed("unfinished capture"))
        }
    }

    fn open<'a>(
        &mut self,
        after: &'a [u8],
        open: &mut Vec<usize>,
    ) -> Result<&'a [u8], PatternError> {
        let index = self.captures;
        self.captures += 1;
        if self.captures > CAPTURES {
            return Err(PatternError::Malformed("more than 32 captures"));
        }
        if let Some(after) = after.strip_prefix(b")") {
            self.items.push(Item::Position(index));
            return Ok(after);
        }
        self.items.push(Item::Open(index));
        open.push(index);
        Ok(after)
    }

    fn escape<'a>(&mut self, after: &'a [u8]) -> Result<&'a [u8], PatternError> {
        match after {
            [] => Err(PatternError::Malformed("ends with %")),
            [b'0', ..] => Err(PatternError::Malformed("invalid capture index %0")),
            [digit @ b'1'..=b'9', after @ ..] => {
                self.items.push(Item::Again(usize::from(digit - b'1')));
                Ok(after)
            }
            [b'b', open, close, after @ ..] => {
                self.items.push(Item::Balanced(*open, *close));
                Ok(after)
            }
            [b'b', ..] => Err(PatternError::Malformed("%b needs two characters")),
            [letter, after @ ..] => {
                self.items.push(Item::One(Class::escape(*letter)));
                Ok(after)
            }
        }
    }

    /// A repetition of the last class; after anything else the character stands for itself.
    fn repeat(&mut self, byte: u8) {
        let repeat = match byte {
            b'*' => Repeat::Most,
            b'+' => Repeat::MostAtLeastOnce,
            b'-' => Repeat::Fewest,
            _ => Repeat::Once,
        };
        match self.items.last_mut() {
            Some(item @ Item::One(_)) => {
                if let Item::One(class) = item {
                    *item = Item::Many(class.clone(), repeat);
                }
            }
            _ => self.items.push(Item::One(Class::one(byte))),
        }
    }

    /// The first match at or after `from`.
    pub(crate) fn find(
        &self,
        text: &[u8],
        from: usize,
        budget: &Budget,
    ) -> Result<Option<Match>, PatternError> {
        let mut at = from;
        while at <= text.len() {
            budget.charge(1)?;
            if let Some(found) = Attempt::new(self, text, at, budget).run()? {
                return Ok(Some(found));
            }
            if self.at_start {
                break;
            }
            at += 1;
        }
        Ok(None)
    }

    /// Where the search goes on after a match; `None` if `^` allows one match only.
    pub(crate) fn after(&self, found: &Match) -> Option<usize> {
        (!self.at_start).then(|| found.end.max(found.start + 1))
    }
}

/// A set in brackets, and what follows it.
fn set(text: &[u8]) -> Result<(Class, &[u8]), PatternError> {
    const UNFINISHED: PatternError = PatternError::Malformed("[ without ]");
    let (not, mut rest) = match text.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut class = Class::NONE;
    let mut empty = true;
    // The character that may begin a range.
    let mut begin = None;
    loop {
        match rest {
            [] => return Err(UNFINISHED),
            [b']', after @ ..] if !empty => {
                return Ok((if not { class.not() } else { class }, after));
            }
            [b'-', b']', ..] | [b'-', ..] if empty => {
                class.add(b'-');
                begin = Some(b'-');
                rest = &rest[1..];
            }
            [b'-', b']', ..] => {
                class.add(b'-');
                rest = &rest[1..];
            }
            [b'-', b'%', _, after @ ..] => {
                // A range to a class contains nothing.
                begin = None;
                rest = after;
            }
            [b'-', end, after @ ..] => {
                if let Some(begin) = begin {
                    class.unite(&Class::of(|byte| begin <= byte && byte <= *end));
                }
                begin = None;
                rest = after;
            }
            [b'%', letter, after @ ..] => {
                class.unite(&Class::escape(*letter));
                begin = None;
                rest = after;
            }
            [b'%'] => return Err(UNFINISHED),
            [byte, after @ ..] => {
                class.add(*byte);
                begin = Some(*byte);
                rest = after;
            }
        }
        empty = false;
    }
}

/// Where a repetition can still try another length.
struct Choice {
    item: usize,
    /// Position before the repetition.
    start: usize,
    /// Position that is tried.
    at: usize,
    captures: [Slot; CAPTURES],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Unset,
    Open(usize),
    Done(Capture),
}

/// One attempt to match at one position. Choices are on a stack of our own, at most one for each item of the pattern.
struct Attempt<'a> {
    pattern: &'a Pattern,
    text: &'a [u8],
    budget: &'a Budget,
    start: usize,
    at: usize,
    item: usize,
    captures: [Slot; CAPTURES],
    choices: Vec<Choice>,
}

impl<'a> Attempt<'a> {
    fn new(pattern: &'a Pattern, text: &'a [u8], start: usize, budget: &'a Budget) -> Self {
        Self {
            pattern,
            text,
            budget,
            start,
            at: start,
            item: 0,
            captures: [Slot::Unset; CAPTURES],
            choices: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Option<Match>, PatternError> {
        loop {
            self.budget.charge(1)?;
            let Some(item) = self.pattern.items.get(self.item) else {
                if !self.pattern.at_end || self.at == self.text.len() {
                    return Ok(Some(self.found()));
                }
                if self.go_back() {
                    continue;
                }
                return Ok(None);
            };
            if self.step(item)? {
                self.item += 1;
            } else if !self.go_back() {
                return Ok(None);
            }
        }
    }

    fn found(&self) -> Match {
        let captures = self.captures[..self.pattern.captures].iter();
        let captures = captures.map(|slot| match slot {
            Slot::Done(capture) => *capture,
            Slot::Unset | Slot::Open(_) => Capture::Text(self.at, self.at),
        });
        Match { start: self.start, end: self.at, captures: captures.collect() }
    }

    fn step(&mut self, item: &Item) -> Result<bool, PatternError> {
        match item {
            Item::One(class) => {
                let matches = self.text.get(self.at).is_some_and(|byte| class.has(*byte));
                self.at += usize::from(matches);
                Ok(matches)
            }
            Item::Many(class, repeat) => self.many(class, *repeat),
            Item::Open(index) => {
                self.captures[*index] = Slot::Open(self.at);
                Ok(true)
            }
            Item::Close(index) => {
                if let Slot::Open(start) = self.captures[*index] {
                    self.captures[*index] = Slot::Done(Capture::Text(start, self.at));
                }
                Ok(true)
            }
            Item::Position(index) => {
                self.captures[*index] = Slot::Done(Capture::Position(self.at + 1));
                Ok(true)
            }
            Item::Again(index) => {
                let Slot::Done(Capture::Text(start, end)) = self.captures[*index] else {
                    return Err(PatternError::Malformed("invalid capture index"));
                };
                self.budget.charge_bytes(end - start)?;
                let matches = self.text[self.at..].starts_with(&self.text[start..end]);
                self.at += if matches { end - start } else { 0 };
                Ok(matches)
            }
            Item::Balanced(open, close) => self.balanced(*open, *close),
        }
    }

    fn many(&mut self, class: &Class, repeat: Repeat) -> Result<bool, PatternError> {
        let rest = &self.text[self.at..];
        let most = match repeat {
            Repeat::Fewest => 0,
            Repeat::Once => usize::from(rest.first().is_some_and(|byte| class.has(*byte))),
            Repeat::Most | Repeat::MostAtLeastOnce => {
                let count = rest.iter().take_while(|byte| class.has(**byte)).count();
                self.budget.charge(count as u64)?;
                count
            }
        };
        if repeat == Repeat::MostAtLeastOnce && most == 0 {
            return Ok(false);
        }
        let start = self.at + usize::from(repeat == Repeat::MostAtLeastOnce);
        self.at += most;
        // A shorter or longer repetition may be tried later.
        if repeat == Repeat::Fewest || self.at > start {
            self.choices.push(Choice {
                item: self.item,
                start,
                at: self.at,
                captures: self.captures,
            });
        }
        Ok(true)
    }

    fn balanced(&mut self, open: u8, close: u8) -> Result<bool, PatternError> {
        if self.text.get(self.at) != Some(&open) {
            return Ok(false);
        }
        let mut depth = 1_usize;
        for (offset, byte) in self.text[self.at + 1..].iter().enumerate() {
            self.budget.charge(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    self.at += offset + 2;
                    return Ok(true);
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(false)
    }

    /// Takes the last choice again with the next length. Returns false if none is left.
    fn go_back(&mut self) -> bool {
        while let Some(choice) = self.choices.last_mut() {
            let Item::Many(class, repeat) = &self.pattern.items[choice.item] else {
                self.choices.pop();
                continue;
            };
            let next = match repeat {
                Repeat::Fewest => {
                    let longer = self.text.get(choice.at).is_some_and(|byte| class.has(*byte));
                    longer.then_some(choice.at + 1)
                }
                Repeat::Most | Repeat::MostAtLeastOnce | Repeat::Once => {
                    (choice.at > choice.start).then(|| choice.at - 1)
                }
            };
            let Some(next) = next else {
                self.choices.pop();
                continue;
            };
            choice.at = next;
            self.at = next;
            self.item = choice.item + 1;
            self.captures = choice.captures;
            return true;
        }
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn find(pattern: &str, text: &str) -> Result<Option<Vec<String>>, PatternError> {
        let budget = Budget::new();
        let found =
            Pattern::parse(pattern.as_bytes(), &budget)?.find(text.as_bytes(), 0, &budget)?;
        Ok(found.map(|found| {
            let mut parts = vec![text[found.start..found.end].to_owned()];
            parts.extend(found.captures.iter().map(|capture| match capture {
                Capture::Text(start, end) => text[*start..*end].to_owned(),
                Capture::Position(at) => format!("@{at}"),
            }));
            parts
        }))
    }

    #[test]
    fn patterns_match_as_in_lua() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("^(%d+)/(%d+)$", "2/13", &["2/13", "2", "13"]),
            ("%d+%.%d+", "a10.25b", &["10.25"]),
            ("a.-b", "xaabab", &["aab"]),
            ("a.*b", "xaabab", &["aabab"]),
            ("a?b", "ab", &["ab"]),
            ("()b()", "abc", &["b", "@2", "@3"]),
            ("%b()", "f(a(b)c)d)", &["(a(b)c)"]),
            ("(%a)%1", "hello", &["ll", "l"]),
            ("[%w_-]+", "--a_1.b", &["--a_1"]),
            ("[^,]*", "ab,c", &["ab"]),
            ("[]x]+", "a]x]", &["]x]"]),
            ("[a-c]+", "xxabcd", &["abc"]),
            ("[a-%d]", "-", &[]),
            ("%s$", "a b ", &[" "]),
            ("a$b", "a$b", &["a$b"]),
            ("*a", "*a", &["*a"]),
            ("(a*(.)%w(%s*))", "aab c", &["aab ", "aab ", "a", " "]),
            ("x*", "abc", &[""]),
            ("(a+)(a+)b", "aaab", &["aaab", "aa", "a"]),
        ];
        for (pattern, text, expected) in cases {
            let found = find(pattern, text).unwrap().unwrap_or_default();
            assert_eq!(found, *expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn malformed_patterns_are_errors() {
        for pattern in ["(a", "a)", "[a", "[", "[]", "%", "%0", "%1", "(%1)", "[%", "%b", "%bx"] {
            assert!(matches!(find(pattern, "aaa"), Err(PatternError::Malformed(_))), "{pattern}");
        }
        assert!(find(&"()".repeat(33), "a").is_err());
    }

    #[test]
    fn a_pattern_that_backtracks_for_ever_is_stopped() {
        let text = "a".repeat(5_000);
        let brackets = "(".repeat(100_000);
        for (pattern, text) in [
            (format!("{}b", "a*".repeat(20)), &text),
            (format!("{}b", "a-".repeat(20)), &text),
            (format!("{}b", ".-".repeat(5)), &text),
            ("%b()".to_owned(), &brackets),
        ] {
            // Steps, or time on a slow machine.
            let outcome = find(&pattern, text);
            assert!(matches!(outcome, Err(PatternError::Stopped(_))), "{pattern}: {outcome:?}");
        }
    }
}
