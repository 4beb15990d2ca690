//! The OpenAPI v2 document in kubectl's format: the protobuf form of gnostic (`openapiv2/OpenAPIv2.proto`).
//!
//! Only definitions are written. kubectl reads operations from the v3 documents since 1.27, and looks up only the kinds'
//! definitions in this one (to check a `kind: List`).

use serde_json::Value;

/// The media type of answers. Go's clients cannot parse one with an `@`.
pub(super) const ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The media types that clients request.
pub(super) const MEDIA_TYPES: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", ANSWER];

/// Encodes a v2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    text(&mut out, 1, &document["swagger"]);
    out.message(2, |info| {
        text(info, 1, &document["info"]["title"]);
        text(info, 2, &document["info"]["version"]);
    });
    out.message(9, |definitions| named_schemas(definitions, &document["definitions"]));
    out.into_bytes()
}

fn text(out: &mut Writer, number: u32, value: &Value) {
    if let Some(text) = value.as_str() {
        out.text(number, text);
    }
}

/// `repeated NamedSchema additional_properties = 1`.
fn named_schemas(out: &mut Writer, schemas: &Value) {
    for (name, of) in schemas.as_object().into_iter().flatten() {
        out.message(1, |named| {
            named.text(1, name);
            named.message(2, |out| schema(out, of));
        });
    }
}

/// A value of any type: as YAML, of which JSON is a part.
fn any(out: &mut Writer, number: u32, value: &Value) {
    out.message(number, |any| any.text(2, &value.to_string()));
}

/// One schema. Keywords that version 2 lacks (`anyOf`, `nullable`) are omitted, as by kube-apiserver.
fn schema(out: &mut Writer, of: &Value) {
    let Some(fields) = of.as_object() else { return };
    for (name, value) in fields {
        match name.as_str() {
            "$ref" => text(out, 1, value),
            "format" => text(out, 2, value),
            "title" => text(out, 3, value),
            "description" => text(out, 4, value),
            "default" => any(out, 5, value),
            "multipleOf" => number(out, 6, value),
            "maximum" => number(out, 7, value),
            "minimum" => number(out, 9, value),
            "maxLength" => integer(out, 11, value),
            "minLength" => integer(out, 12, value),
            "pattern" => text(out, 13, value),
            "maxItems" => integer(out, 14, value),
            "minItems" => integer(out, 15, value),
            "uniqueItems" => boolean(out, 16, value),
            "maxProperties" => integer(out, 17, value),
            "minProperties" => integer(out, 18, value),
            "required" => each(value, |name| text(out, 19, name)),
            "enum" => each(value, |value| any(out, 20, value)),
            "additionalProperties" => out.message(21, |item| match value {
                Value::Bool(_) => boolean(item, 2, value),
                _ => item.message(1, |out| schema(out, value)),
            }),
            "type" => out.message(22, |kind| text(kind, 1, value)),
            "items" => out.message(23, |items| items.message(1, |out| schema(out, value))),
            "properties" => out.message(25, |properties| named_schemas(properties, value)),
            extension if extension.starts_with("x-") => out.message(31, |named| {
                named.text(1, extension);
                any(named, 2, value);
            }),
            _ => {}
        }
    }
}

fn each(list: &Value, write: impl FnMut(&Value)) {
    list.as_array().into_iter().flatten().for_each(write);
}

fn number(out: &mut Writer, at: u32, value: &Value) {
    if let Some(number) = value.as_f64() {
        out.double(at, number);
    }
}

fn integer(out: &mut Writer, at: u32, value: &Value) {
    if let Some(number) = value.as_u64() {
        out.varint(at, number);
    }
}

fn boolean(out: &mut Writer, at: u32, value: &Value) {
    if let Some(truth) = value.as_bool() {
        out.varint(at, u64::from(truth));
    }
}

/// Writes the fields of one message.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn raw(&mut self, mut value: u64) {
        while value > 0x7f {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, number: u32, wire: u64) {
        self.raw(u64::from(number) << 3 | wire);
    }

    fn delimited(&mut self, number: u32, content: &[u8]) {
        self.tag(number, 2);
        self.raw(content.len() as u64);
        self.bytes.extend_from_slice(content);
    }

    fn varint(&mut self, number: u32, value: u64) {
        self.tag(number, 0);
        self.raw(value);
    }

    fn double(&mut self, number: u32, value: f64) {
        self.tag(number, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, number: u32, text: &str) {
        self.delimited(number, text.as_bytes());
    }

    fn message(&mut self, number: u32, write: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        write(&mut inner);
        self.delimited(number, &inner.bytes);
    }
}
