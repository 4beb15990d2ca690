//! Protobuf request bodies. Typed Go clients, and `kubectl create` through them, write built-in kinds as
//! `application/vnd.kubernetes.protobuf` and do not fall back; answers are JSON, which they accept.
//!
//! A body is four magic bytes and a `runtime.Unknown` message around the object. Decoding is driven by a table of
//! field numbers and returns the JSON form. Go writes zero values of fields that JSON omits; the table marks
//! those fields.

mod table;
mod wire;

use atoll_apimachinery::meta;
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::{
    table::{Field, Type},
    wire::{Reader, Wire},
};

/// The content type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting that is read; the deepest type of the table needs about fifteen.
const MAX_DEPTH: u32 = 64;

/// Decodes a body. The error is a sentence.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let unknown =
        body.strip_prefix(MAGIC).ok_or("the body does not start with the bytes \"k8s\\0\"")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(unknown);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut type_meta = Reader::new(bytes);
                while let Some((number, wire)) = type_meta.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?.to_owned(),
                        (2, Wire::Bytes(text)) => kind = utf8(text)?.to_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(format!("content encoding {:?} is not supported", utf8(encoding)?));
            }
            _ => {}
        }
    }
    let root = table::root(&api_version, &kind).ok_or_else(|| {
        format!("{api_version}, Kind={kind} cannot be read as protobuf: send JSON")
    })?;
    let mut object = message(raw, root, MAX_DEPTH)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|e| format!("a string is not UTF-8: {e}"))
}

/// The fields of one message that are in the table.
fn message(bytes: &[u8], fields: &[Field], depth: u32) -> Result<Map<String, Value>, String> {
    let depth = depth.checked_sub(1).ok_or("messages are nested too deeply")?;
    let mut out = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        // Unknown fields of newer versions are skipped, as by any protobuf reader.
        let Some(field) = fields.iter().find(|f| f.number == number) else { continue };
        if field.name == "^" {
            if let Value::Object(embedded) = value(&field.kind, &wire, depth)? {
                out.extend(embedded);
            }
            continue;
        }
        match &field.kind {
            Type::List(item) => {
                let list = out.entry(field.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(value(item, &wire, depth)?);
                }
            }
            Type::Map(of) => {
                let (key, v) = entry(of, &wire, depth)?;
                let map = out.entry(field.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, v);
                }
            }
            kind => {
                let v = value(kind, &wire, depth)?;
                if !(field.drop_zero && is_zero(&v)) {
                    out.insert(field.name.to_owned(), v);
                }
            }
        }
    }
    Ok(out)
}

/// Go's zero values, which its JSON leaves out under `omitempty`.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// A map is a list of messages with a key and a value.
fn entry(of: &Type, wire: &Wire<'_>, depth: u32) -> Result<(String, Value), String> {
    let mut reader = Reader::new(wire.bytes()?);
    let (mut key, mut found) = (String::new(), None);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = utf8(wire.bytes()?)?.to_owned(),
            2 => found = Some(value(of, &wire, depth)?),
            _ => {}
        }
    }
    // An absent value is the type's zero.
    let found = match (found, of) {
        (Some(v), _) => v,
        (None, Type::Text | Type::Bytes) => "".into(),
        (None, _) => Value::Null,
    };
    Ok((key, found))
}

/// One value by its type.
fn value(kind: &Type, wire: &Wire<'_>, depth: u32) -> Result<Value, String> {
    Ok(match kind {
        Type::Text => utf8(wire.bytes()?)?.into(),
        Type::Boolean => (wire.varint()? != 0).into(),
        Type::Integer => (wire.varint()? as i64).into(),
        Type::Double => json!(wire.double()?),
        Type::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Type::Quantity => single(wire.bytes()?, 1)?,
        Type::IntOrString => int_or_string(wire.bytes()?)?,
        Type::Time => time(wire.bytes()?, false)?,
        Type::MicroTime => time(wire.bytes()?, true)?,
        Type::Raw | Type::ManagedFields => {
            let mut reader = Reader::new(wire.bytes()?);
            let mut raw = Value::Null;
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    raw = serde_json::from_slice(wire.bytes()?)
                        .map_err(|e| format!("an embedded object is not JSON: {e}"))?;
                }
            }
            raw
        }
        Type::Texts => {
            let mut reader = Reader::new(wire.bytes()?);
            let mut items = Vec::new();
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    items.push(utf8(wire.bytes()?)?.into());
                }
            }
            Value::Array(items)
        }
        Type::Message(name) => {
            let fields = table::message(name).ok_or_else(|| format!("unknown type {name}"))?;
            Value::Object(message(wire.bytes()?, fields, depth)?)
        }
        Type::List(_) | Type::Map(_) => return Err("a list within a list or map".to_owned()),
    })
}

/// The string at one field number of a message.
fn single(bytes: &[u8], wanted: u32) -> Result<Value, String> {
    let mut reader = Reader::new(bytes);
    let mut text = String::new();
    while let Some((number, wire)) = reader.next()? {
        if number == wanted {
            text = utf8(wire.bytes()?)?.to_owned();
        }
    }
    Ok(text.into())
}

/// `{type, intVal, strVal}`, of which type 1 is a string.
fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader::new(bytes);
    let (mut is_text, mut number_value, mut text) = (false, 0_i64, String::new());
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => is_text = wire.varint()? == 1,
            // int32 on the wire is sign-extended to 64 bits.
            2 => number_value = wire.varint()? as i64,
            3 => text = utf8(wire.bytes()?)?.to_owned(),
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number_value.into() })
}

/// `{seconds, nanos}`; an empty message is the zero time, which JSON writes as null.
fn time(bytes: &[u8], micros: bool) -> Result<Value, String> {
    let mut reader = Reader::new(bytes);
    let (mut seconds, mut nanos) = (None, 0);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = Some(wire.varint()? as i64),
            2 => nanos = wire.varint()? as i32,
            _ => {}
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let time =
        Timestamp::new(seconds, nanos).map_err(|e| format!("a time is out of range: {e}"))?;
    Ok(if micros {
        time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into()
    } else {
        meta::seconds(time).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a length-delimited field.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn protobuf_bodies_of_typed_go_clients_become_json() {
        let metadata = [field(1, b"a"), field(3, b""), field(8, b"")].concat();
        let label = [field(1, b"app"), field(2, b"x")].concat();
        let metadata = [metadata, field(11, &label)].concat();
        let container = [field(1, b"c"), field(2, b"nginx")].concat();
        // replicas=0 is a pointer and stays; minReadySeconds=0 goes.
        let template = field(2, &field(2, &container));
        let spec = [vec![1 << 3, 0], field(3, &template), vec![5 << 3, 0]].concat();
        let raw = [field(1, &metadata), field(2, &spec), field(3, b"")].concat();
        assert_eq!(
            decode(&body("apps/v1", "Deployment", &raw)).unwrap(),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "a", "labels": {"app": "x"}},
                "spec": {"replicas": 0, "template": {"spec": {
                    "containers": [{"name": "c", "image": "nginx"}]}}},
            })
        );
    }

    #[test]
    fn bad_bodies_are_told_apart() {
        assert!(decode(b"{}").unwrap_err().contains("k8s"));
        assert!(decode(&body("example.com/v1", "Widget", b"")).unwrap_err().contains("send JSON"));
        assert!(decode(&body("v1", "Pod", &[0x0a, 0x20, 0x01])).is_err());
        assert!(decode(&body("v1", "Pod", &[0xff; 12])).is_err());
    }

    #[test]
    fn every_type_of_the_table_is_known_and_every_kind_is_in_it() {
        table::check();
        let missing: Vec<_> = crate::kinds::builtin::ALL
            .iter()
            .filter(|b| b.group != "apiextensions.k8s.io")
            .filter(|b| {
                let version = atoll_apimachinery::kind::api_version(b.group, b.version);
                table::root(&version, b.kind).is_none()
            })
            .map(|b| b.kind)
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
