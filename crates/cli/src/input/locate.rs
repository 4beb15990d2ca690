//! Line and column of a field in its source text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Where something begins, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl Position {
    fn of(location: Location) -> Option<Self> {
        // 0: unknown to the parser.
        (location.line() > 0).then(|| Self { line: location.line(), column: location.column() })
    }
}

/// The documents of a text, parsed only to find the positions of fields.
pub(super) struct Places(Vec<Node>);

impl Places {
    /// Parses the text again for positions. JSON is parsed as YAML; text that does not parse has no positions.
    pub(super) fn read(text: &str) -> Self {
        if !text.trim_start().starts_with(['{', '[']) {
            return Self(serde_saphyr::from_multiple(text).unwrap_or_default());
        }
        let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
        let mut nodes = Vec::new();
        let mut start = 0;
        while let Some(Ok(_)) = stream.next() {
            let end = stream.byte_offset();
            // Pads with the lines before this document, so that the parser counts from the top of the file.
            let lines = "\n".repeat(text[..start].matches('\n').count());
            let Ok(node) = serde_saphyr::from_str(&(lines + &text[start..end])) else { break };
            nodes.push(node);
            start = end;
        }
        Self(nodes)
    }

    /// Where the field `path` (`spec.list[0].name`) of a document begins; if it is missing, its nearest parent.
    pub(super) fn find(&self, document: usize, path: &str) -> Option<Position> {
        let node = self.0.get(document)?;
        Position::of(search(node, path).unwrap_or(node.0.referenced))
    }
}

/// `None`: no part of the path is below this node.
fn search(node: &Node, path: &str) -> Option<Location> {
    let rest = path.strip_prefix('.').unwrap_or(path);
    match &node.0.value {
        Shape::List(items) => {
            let (at, rest) = rest.strip_prefix('[')?.split_once(']')?;
            let item = items.get(at.parse::<usize>().ok()?)?;
            Some(search(item, rest).unwrap_or(item.0.referenced))
        }
        // Keys may contain dots, so every key that is a prefix of the path may match.
        Shape::Map(fields) => fields.iter().find_map(|(key, value)| {
            let rest = rest.strip_prefix(key.value.as_str())?;
            match rest {
                "" => Some(key.referenced),
                _ if rest.starts_with(['.', '[']) => {
                    Some(search(value, rest).unwrap_or(key.referenced))
                }
                _ => None,
            }
        }),
        Shape::Scalar => None,
    }
}

struct Node(Spanned<Shape>);

enum Shape {
    Scalar,
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        Shape::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Shape::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, document: usize, path: &str) -> Option<(u64, u64)> {
        Places::read(text).find(document, path).map(|found| (found.line, found.column))
    }

    #[test]
    fn fields_of_yaml_and_json_are_found_where_they_stand() {
        let yaml = "# a comment\nkind: A\nspec:\n  list:\n  - name: x\n    typo: 1\n---\nkind: B\nmetadata:\n  labels: {a.b/c: d}\n";
        assert_eq!(at(yaml, 0, "spec.list[0].typo"), Some((6, 5)));
        assert_eq!(at(yaml, 0, "spec.list[0].absent"), Some((5, 5)), "its parent");
        assert_eq!(at(yaml, 1, "metadata.labels.a.b/c"), Some((10, 12)));
        assert_eq!(at(yaml, 1, ""), Some((8, 1)));
        assert_eq!(at(yaml, 7, "kind"), None);
        let json =
            "{\"kind\": \"A\",\n\t\"spec\": {\"typo\": 1}}\n{\"kind\":\"B\",\n \"spec\": null}";
        assert_eq!(at(json, 0, "spec.typo"), Some((2, 11)));
        assert_eq!(at(json, 1, "spec"), Some((4, 2)));
    }
}
