//! The JSONPath of printer columns: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.type=="Ready")]`, which is the part of
//! client-go's `jsonpath` that apiextensions allows there.

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Field(String),
    Index(i64),
    All,
    Filter {
        path: Vec<Segment>,
        equal: bool,
        literal: Value,
    },
    /// `[?(@.a)]`
    Exists(Vec<Segment>),
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Segment>);

impl JsonPath {
    /// Parses a path with or without its leading dot or `$`. The error is a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        segments(text.strip_prefix('$').unwrap_or(text)).map(JsonPath)
    }

    /// The first value that the path finds.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        find(&self.0, value).into_iter().next()
    }
}

/// All values at the path.
fn find<'a>(path: &[Segment], value: &'a Value) -> Vec<&'a Value> {
    let mut current = vec![value];
    for segment in path {
        current = current.into_iter().flat_map(|v| step(segment, v)).collect();
    }
    current
}

fn step<'a>(segment: &Segment, value: &'a Value) -> Vec<&'a Value> {
    let children = || -> Vec<&'a Value> {
        match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        }
    };
    match segment {
        Segment::Field(name) => value.get(name).filter(|v| !v.is_null()).into_iter().collect(),
        Segment::Index(index) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let at = if *index < 0 { index + items.len() as i64 } else { *index };
            usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
        }
        Segment::All => children(),
        Segment::Filter { path, equal, literal } => {
            let holds = |item: &&Value| find(path, item).contains(&literal) == *equal;
            children().into_iter().filter(holds).collect()
        }
        Segment::Exists(path) => {
            children().into_iter().filter(|item| !find(path, item).is_empty()).collect()
        }
    }
}

/// Parses the steps. client-go's other features (recursion, slices, unions) are refused by name.
fn segments(mut rest: &str) -> Result<Vec<Segment>, String> {
    let fail = |why: &str, at: &str| Err(format!("{why} at {at:?}"));
    let mut all = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some(end) = closing(inner) else { return fail("unterminated array", rest) };
            all.push(bracket(&inner[..end])?);
            rest = &inner[end + 1..];
            continue;
        }
        let name = rest.strip_prefix('.').unwrap_or(rest);
        if name.starts_with('.') {
            return fail("recursive descent is not supported", rest);
        }
        if name.is_empty() || name.starts_with('[') {
            // `.` alone is the root.
            rest = name;
            continue;
        }
        let (field, tail) = field(name);
        all.push(if field == "*" { Segment::All } else { Segment::Field(field) });
        rest = tail;
    }
    Ok(all)
}

/// A field name, in which a backslash escapes the next character (`.metadata.labels.app\.io/x`).
fn field(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// Position of the closing bracket, honouring quotes and nested brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0_u32);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))
}

/// The content of brackets: an index, a quoted name, `*` or a filter.
fn bracket(inner: &str) -> Result<Segment, String> {
    let inner = inner.trim();
    if inner == "*" {
        return Ok(Segment::All);
    }
    if let Some(name) = unquote(inner) {
        return Ok(Segment::Field(name.to_owned()));
    }
    if let Ok(index) = inner.parse() {
        return Ok(Segment::Index(index));
    }
    let filter = inner
        .strip_prefix("?(")
        .and_then(|f| f.strip_suffix(')'))
        .ok_or_else(|| format!("unsupported array selector [{inner}]"))?;
    let split = ["==", "!="].iter().find_map(|op| filter.split_once(op).map(|(l, r)| (l, *op, r)));
    let path = |text: &str| {
        let text = text.trim();
        text.strip_prefix('@')
            .ok_or_else(|| format!("a filter must start with @ in [{inner}]"))
            .and_then(segments)
    };
    match split {
        None => Ok(Segment::Exists(path(filter)?)),
        Some((left, operator, right)) => {
            let right = right.trim();
            let literal = match unquote(right) {
                Some(text) => text.into(),
                None => serde_json::from_str(right)
                    .map_err(|_| format!("{right:?} is not a literal in [{inner}]"))?,
            };
            Ok(Segment::Filter { path: path(left)?, equal: operator == "==", literal })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn printer_column_paths_find_what_client_go_finds() {
        let object = json!({
            "metadata": {"labels": {"a.io/b": "x"}},
            "spec": {"list": [1, 2, 3]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"},
            ]},
        });
        for (path, expected) in [
            (".spec.list[1]", json!(2)),
            ("spec.list[-1]", json!(3)),
            (".spec['list'][0]", json!(1)),
            (".metadata.labels.a\\.io/b", json!("x")),
            (".metadata.labels['a.io/b']", json!("x")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (r#"{.status.conditions[?(@.type != 'Ready')].status}"#, json!("False")),
            (".status.conditions[*].type", json!("Ready")),
            (".status.conditions[?(@.type)].type", json!("Ready")),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), Some(&expected), "{path}");
        }
        assert_eq!(JsonPath::parse(".spec.none.x").unwrap().first(&object), None);
        for bad in [".a[", ".a[x]", "..a", ".a[?(b==1)]"] {
            assert!(JsonPath::parse(bad).is_err(), "{bad}");
        }
    }
}
