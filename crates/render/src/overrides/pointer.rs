//! JSON pointers and the three operations on them, with the rules of the peer's JSON patch: a negative index counts from
//! the end of a list, and whatever is before the first slash is ignored.

use serde_json::Value;

/// Most segments of a pointer. It bounds how deep a chain of changes can nest an object.
const MAX_SEGMENTS: usize = 64;
/// Deepest nesting that a change may produce. JSON readers refuse more than 128 levels.
const MAX_DEPTH: usize = 100;

/// The segments of a pointer, unescaped. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// Parses the path of a patch operation.
    pub(super) fn patch(text: &str) -> Result<Self, String> {
        let Some((_, rest)) = text.split_once('/') else {
            return Err(format!("{text:?} is not a path: write it as /spec/paused"));
        };
        Self::segments(rest)
    }

    /// Parses the path of an existing field, which starts with a slash.
    pub(super) fn field(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} must start with a slash, for example /data/config.json"));
        };
        Self::segments(rest)
    }

    fn segments(rest: &str) -> Result<Self, String> {
        let segments = rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
        let segments: Vec<String> = segments.collect();
        if segments.len() > MAX_SEGMENTS {
            return Err(format!("has more than {MAX_SEGMENTS} parts"));
        }
        Ok(Self(segments))
    }

    /// The first segment.
    pub(super) fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The segments, unescaped.
    pub(super) fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether this is a field that identifies an object, or a parent of one.
    pub(super) fn is_identity(&self) -> bool {
        let segments: Vec<&str> = self.0.iter().map(String::as_str).collect();
        matches!(
            segments.as_slice(),
            ["apiVersion" | "kind" | "metadata"] | ["metadata", "name" | "namespace"]
        )
    }

    /// The value at this path.
    pub(super) fn get<'a>(&self, root: &'a mut Value) -> Result<&'a mut Value, String> {
        let mut value = root;
        for (at, segment) in self.0.iter().enumerate() {
            let place = || self.upto(at + 1);
            value = match value {
                Value::Object(fields) => fields.get_mut(segment),
                Value::Array(items) => {
                    let index: usize = segment
                        .parse()
                        .map_err(|_| format!("{}: {segment:?} is no index of a list", place()))?;
                    items.get_mut(index)
                }
                _ => return Err(format!("{} is neither a map nor a list", self.upto(at))),
            }
            .ok_or_else(|| format!("{} does not exist", place()))?;
        }
        Ok(value)
    }

    /// Sets a field, or inserts into a list; `-` appends.
    pub(super) fn add(&self, root: &mut Value, value: Value) -> Result<(), String> {
        self.fits(&value)?;
        let (parent, last) = self.parent(root)?;
        match parent {
            Value::Object(fields) => {
                fields.insert(last.to_owned(), value);
            }
            Value::Array(items) if last == "-" => items.push(value),
            Value::Array(items) => {
                // One position more than there are items.
                let at = position(last, items.len() + 1).ok_or_else(|| self.outside(items))?;
                items.insert(at, value);
            }
            _ => return Err(self.no_container()),
        }
        Ok(())
    }

    /// Sets a field or item that exists.
    pub(super) fn replace(&self, root: &mut Value, value: Value) -> Result<(), String> {
        self.fits(&value)?;
        let (parent, last) = self.parent(root)?;
        match parent {
            Value::Object(fields) => {
                let field = fields.get_mut(last).ok_or_else(|| self.missing("replaced"))?;
                *field = value;
            }
            Value::Array(items) => {
                let at = position(last, items.len()).ok_or_else(|| self.outside(items))?;
                items[at] = value;
            }
            _ => return Err(self.no_container()),
        }
        Ok(())
    }

    /// Removes a field or item that exists.
    pub(super) fn remove(&self, root: &mut Value) -> Result<(), String> {
        let (parent, last) = self.parent(root)?;
        match parent {
            Value::Object(fields) => {
                fields.remove(last).ok_or_else(|| self.missing("removed"))?;
            }
            Value::Array(items) => {
                let at = position(last, items.len()).ok_or_else(|| self.outside(items))?;
                items.remove(at);
            }
            _ => return Err(self.no_container()),
        }
        Ok(())
    }

    /// The map or list that holds the last segment.
    fn parent<'a>(&self, root: &'a mut Value) -> Result<(&'a mut Value, &str), String> {
        let (last, parents) = self.0.split_last().map_or(("", &[][..]), |(l, p)| (l.as_str(), p));
        let mut value = root;
        for (at, segment) in parents.iter().enumerate() {
            value = match value {
                Value::Object(fields) => fields.get_mut(segment),
                Value::Array(items) => {
                    position(segment, items.len()).and_then(|at| items.get_mut(at))
                }
                _ => None,
            }
            .ok_or_else(|| format!("{} does not exist", self.upto(at + 1)))?;
        }
        Ok((value, last))
    }

    fn fits(&self, value: &Value) -> Result<(), String> {
        if self.0.len() + depth(value) > MAX_DEPTH {
            return Err(format!("the object would be nested deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    fn missing(&self, done: &str) -> String {
        format!("{} does not exist, so it cannot be {done}", self.upto(self.0.len()))
    }

    fn outside(&self, items: &[Value]) -> String {
        let last = self.0.last().map_or("", String::as_str);
        format!(
            "{last:?} is no position in {}, a list of {}",
            self.upto(self.0.len() - 1),
            items.len()
        )
    }

    fn no_container(&self) -> String {
        format!("{} is neither a map nor a list", self.upto(self.0.len() - 1))
    }

    /// The first segments as text.
    fn upto(&self, end: usize) -> String {
        if end == 0 {
            return "the whole".to_owned();
        }
        let escaped = |segment: &String| segment.replace('~', "~0").replace('/', "~1");
        self.0[..end].iter().map(|segment| format!("/{}", escaped(segment))).collect()
    }
}

/// The index of a position in a list of so many places; negative positions count from the end.
fn position(text: &str, places: usize) -> Option<usize> {
    let index: i64 = text.parse().ok()?;
    let places_signed = i64::try_from(places).ok()?;
    let index = if index < 0 { index + places_signed } else { index };
    usize::try_from(index).ok().filter(|index| *index < places)
}

/// Levels of maps and lists in a value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(text: &str) -> Pointer {
        Pointer::patch(text).unwrap()
    }

    #[test]
    fn lists_take_indices_from_both_ends_and_maps_any_key() {
        let mut value = json!({"a": [1, 2], "b/c": {}});
        patch("/a/-").add(&mut value, json!(4)).unwrap();
        patch("/a/-2").add(&mut value, json!(3)).unwrap();
        patch("/a/0").remove(&mut value).unwrap();
        patch("/a/-1").replace(&mut value, json!(5)).unwrap();
        patch("ignored/b~1c/").add(&mut value, json!(true)).unwrap();
        assert_eq!(value, json!({"a": [2, 3, 5], "b/c": {"": true}}));
    }

    #[test]
    fn what_does_not_exist_is_an_error_that_names_it() {
        let mut value = json!({"a": [1], "s": "text"});
        let before = value.clone();
        for (result, part) in [
            (patch("/x/y").add(&mut value, json!(1)), "/x does not exist"),
            (patch("/a/2").add(&mut value, json!(1)), "\"2\" is no position in /a"),
            (patch("/a/1").replace(&mut value, json!(1)), "no position"),
            (patch("/a/-2").remove(&mut value), "no position"),
            (patch("/s/t").add(&mut value, json!(1)), "/s is neither a map nor a list"),
            (patch("/b").replace(&mut value, json!(1)), "cannot be replaced"),
            (patch("/b").remove(&mut value), "cannot be removed"),
        ] {
            let error = result.unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(value, before);
        for (path, part) in
            [("/a/x", "no index"), ("/a/7", "/a/7 does not exist"), ("/s/", "neither")]
        {
            let error = Pointer::field(path).unwrap().get(&mut value).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(Pointer::field("a").is_err() && Pointer::patch("a").is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let mut deep = json!(1);
        for _ in 0..60 {
            deep = json!({ "a": deep });
        }
        let mut value = deep.clone();
        let path = "/a".repeat(50);
        assert!(patch(&path).add(&mut value, deep).unwrap_err().contains("nested deeper"));
        assert!(Pointer::patch(&"/a".repeat(65)).is_err());
    }
}
