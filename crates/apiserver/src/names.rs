//! The syntax of names, labels and qualified keys (apimachinery `util/validation`). Errors are upstream's
//! sentences without their regular expressions' examples.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

fn alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn ends_with(text: &str, ok: impl Fn(char) -> bool) -> bool {
    text.chars().next().is_some_and(&ok) && text.chars().next_back().is_some_and(ok)
}

/// RFC 1123 label, at most 63 characters.
pub(crate) fn dns_label(text: &str) -> Result<(), String> {
    if text.len() > LABEL_MAX {
        return Err(format!("must be no more than {LABEL_MAX} characters"));
    }
    let ok = ends_with(text, alphanumeric) && text.chars().all(|c| alphanumeric(c) || c == '-');
    ok.then_some(()).ok_or_else(|| {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character".to_owned()
    })
}

/// RFC 1035 label: as above, but it starts with a letter.
pub(crate) fn dns_1035_label(text: &str) -> Result<(), String> {
    if text.len() > LABEL_MAX {
        return Err(format!("must be no more than {LABEL_MAX} characters"));
    }
    let ok = dns_label(text).is_ok() && text.starts_with(|c: char| c.is_ascii_lowercase());
    ok.then_some(()).ok_or_else(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character".to_owned()
    })
}

/// RFC 1123 subdomain, at most 253 characters.
pub(crate) fn dns_subdomain(text: &str) -> Result<(), String> {
    if text.len() > SUBDOMAIN_MAX {
        return Err(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    let ok = text.split('.').all(|part| {
        ends_with(part, alphanumeric) && part.chars().all(|c| alphanumeric(c) || c == '-')
    });
    ok.then_some(()).ok_or_else(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character".to_owned()
    })
}

/// A name that fits one path segment; RBAC objects may have almost any name.
pub(crate) fn path_segment(text: &str) -> Result<(), String> {
    if matches!(text, "." | "..") {
        return Err(format!("may not be '{text}'"));
    }
    match text.chars().find(|c| matches!(c, '/' | '%')) {
        Some(c) => Err(format!("may not contain '{c}'")),
        None => Ok(()),
    }
}

fn name_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= LABEL_MAX
        && ends_with(text, |c| c.is_ascii_alphanumeric())
        && text.chars().all(inner)
}

/// Label keys, annotation keys, finalizers: `[prefix/]name`.
pub(crate) fn qualified_name(text: &str) -> Result<(), String> {
    let ok = match text.split_once('/') {
        None => name_part(text),
        Some((prefix, name)) => dns_subdomain(prefix).is_ok() && name_part(name),
    };
    ok.then_some(()).ok_or_else(|| {
        "a qualified name must consist of alphanumeric characters, '-', '_' or '.', at most 63 of them, starting and ending with an alphanumeric character, with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')".to_owned()
    })
}

/// Label values: empty, or like the name part of a qualified name.
pub(crate) fn label_value(text: &str) -> Result<(), String> {
    (text.is_empty() || name_part(text)).then_some(()).ok_or_else(|| {
        "a valid label must be an empty string or consist of at most 63 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character".to_owned()
    })
}

/// Keys of ConfigMaps and Secrets.
pub(crate) fn config_key(text: &str) -> Result<(), String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ok = !text.is_empty()
        && text.len() <= SUBDOMAIN_MAX
        && text.chars().all(inner)
        && text != "."
        && !text.starts_with("..");
    ok.then_some(()).ok_or_else(|| {
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.', at most 253 of them, and must not be '.' or start with '..'".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_rules_agree_with_apimachinery_validation() {
        assert!(dns_subdomain("a.b-c.d1").is_ok());
        for bad in ["", "A", "a..b", "-a", "a-", "a_b", "a/b"] {
            assert!(dns_subdomain(bad).is_err(), "{bad}");
        }
        assert!(dns_1035_label("1a").is_err() && dns_label("1a").is_ok());
        assert!(path_segment("system:node").is_ok() && path_segment("a/b").is_err());
        assert!(qualified_name("example.com/My_Name").is_ok());
        for bad in ["", "a/b/c", "/a", "a/", "Ex.com/a"] {
            assert!(qualified_name(bad).is_err(), "{bad}");
        }
        assert!(label_value("").is_ok() && label_value("a b").is_err());
        assert!(config_key("a.b_C").is_ok() && config_key("..a").is_err());
    }
}
