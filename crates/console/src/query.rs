//! Queries of addresses and forms.

use std::fmt::Write as _;

/// Most fields of a query or form.
const FIELDS: usize = 32;

/// Percent encoding of a part of a path or a query.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a String does not fail.
            byte => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// A query of these fields, without empty ones; with its `?` if it has any.
#[must_use]
pub fn pairs(fields: &[(&str, &str)]) -> String {
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// The fields of a query or form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads them; further ones than a page has are ignored.
    pub(crate) fn read(text: &[u8]) -> Self {
        let read = form_urlencoded::parse(text).take(FIELDS);
        Self(read.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The first value of this name; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The value without blanks around it, if it is not empty.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        Some(self.text(name).trim()).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Number of a page, as people count: from 1. 0 where it is absent or no number.
    pub(crate) fn page(&self, name: &str) -> usize {
        self.text(name).parse::<usize>().map_or(0, |page| page.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_bounded() {
        let fields = Fields::read(b"a=x%20y&b=&c=1+2&p=3&q=zero&a=second");
        assert_eq!(fields.text("a"), "x y");
        assert_eq!((fields.given("b"), fields.given("c")), (None, Some("1 2".to_owned())));
        assert_eq!((fields.page("p"), fields.page("q"), fields.page("r")), (2, 0, 0));
        let many = "x=1&".repeat(100) + "last=1";
        assert_eq!(Fields::read(many.as_bytes()).given("last"), None);
        assert_eq!(pairs(&[("a", "x&y"), ("b", "")]), "?a=x%26y");
    }
}
