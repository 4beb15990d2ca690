//! Parses text into objects: YAML or JSON, several documents per file, with lists expanded.

use serde_json::Value;

/// Maximum nesting of `kind: List`. Deeper nesting is a mistake or an attack.
const MAX_LIST_DEPTH: usize = 8;

/// An object and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// File and position, for example `app.yaml#2`.
    pub origin: String,
    /// The object.
    pub object: Value,
}

/// Invalid input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct InputError {
    /// File and position.
    pub origin: String,
    /// The field, its problem, and how to fix it.
    pub problem: String,
}

impl InputError {
    pub(super) fn new(origin: &str, problem: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), problem: problem.into() }
    }
}

/// Reads all objects from a text and skips empty documents. Objects before a mistake are kept.
#[must_use]
pub fn read(name: &str, text: &str) -> (Vec<Document>, Vec<InputError>) {
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    let values = if text.trim_start().starts_with(['{', '[']) {
        let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        stream.collect::<Result<Vec<_>, _>>().map_err(|error| format!("not JSON: {error}"))
    } else {
        serde_saphyr::from_multiple::<Value>(text).map_err(|error| format!("not YAML: {error}"))
    };
    match values {
        Ok(values) => {
            for (at, value) in values.into_iter().enumerate() {
                take_apart(&format!("{name}#{}", at + 1), value, 0, &mut documents, &mut errors);
            }
        }
        Err(problem) => errors.push(InputError::new(name, problem)),
    }
    (documents, errors)
}

fn take_apart(
    origin: &str,
    mut value: Value,
    depth: usize,
    documents: &mut Vec<Document>,
    errors: &mut Vec<InputError>,
) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match &mut value {
        Value::Null => {}
        Value::Array(items) => each(origin, std::mem::take(items), depth, documents, errors),
        Value::Object(object) if is_list && object.get("items").is_some_and(Value::is_array) => {
            if let Some(Value::Array(items)) = object.remove("items") {
                each(&format!("{origin}.items"), items, depth, documents, errors);
            }
        }
        Value::Object(_) => documents.push(Document { origin: origin.to_owned(), object: value }),
        _ => errors.push(InputError::new(
            origin,
            "is not an object: every document needs apiVersion, kind and metadata",
        )),
    }
}

fn each(
    origin: &str,
    items: Vec<Value>,
    depth: usize,
    documents: &mut Vec<Document>,
    errors: &mut Vec<InputError>,
) {
    if depth >= MAX_LIST_DEPTH {
        let problem = format!("lists are nested more than {MAX_LIST_DEPTH} deep");
        return errors.push(InputError::new(origin, problem));
    }
    for (at, item) in items.into_iter().enumerate() {
        take_apart(&format!("{origin}[{at}]"), item, depth + 1, documents, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<String>, usize) {
        let (documents, errors) = read("f", text);
        let name = |d: Document| format!("{} {}", d.origin, d.object["metadata"]["name"]);
        (documents.into_iter().map(name).collect(), errors.len())
    }

    #[test]
    fn documents_lists_and_json_are_taken_apart() {
        let yaml = "metadata: {name: a}\n---\n---\nkind: List\nitems:\n- metadata: {name: b}\n- metadata: {name: c}\n";
        let (found, errors) = names(yaml);
        assert_eq!(errors, 0);
        assert!(found[0].ends_with(r#""a""#) && found[2].ends_with(r#"items[1] "c""#), "{found:?}");
        let json = r#"{"metadata":{"name":"a"}} {"kind":"ClusterList","items":[{"metadata":{"name":"b"}}]}"#;
        assert_eq!(names(json).0, [r#"f#1 "a""#, r#"f#2.items[0] "b""#]);
        assert_eq!(names("just a word"), (vec![], 1));
        assert_eq!(names("a: [unclosed"), (vec![], 1));
    }
}
