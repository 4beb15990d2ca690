//! The table of field numbers (`table.txt` says how to read it), parsed once.

use std::{collections::BTreeMap, sync::LazyLock};

/// The encoding of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Text,
    Boolean,
    Integer,
    Double,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Raw,
    ManagedFields,
    Texts,
    List(Box<Type>),
    Map(Box<Type>),
    Message(&'static str),
}

/// One field of a message.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// JSON name, `^` for an embedded struct.
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) kind: Type,
    /// A zero value means absent.
    pub(super) drop_zero: bool,
}

struct Table {
    messages: BTreeMap<&'static str, Vec<Field>>,
    /// (apiVersion, kind) to the message.
    roots: BTreeMap<(&'static str, &'static str), &'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("table.txt")));

pub(super) fn message(name: &str) -> Option<&'static [Field]> {
    TABLE.messages.get(name).map(Vec::as_slice)
}

/// The message of a kind.
pub(super) fn root(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    let roots = &TABLE.roots;
    message(roots.get(&(api_version, kind)).or_else(|| roots.get(&("*", kind)))?)
}

fn kind(text: &'static str) -> Type {
    let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    if let Some(item) = inner('[', ']') {
        return Type::List(Box::new(kind(item)));
    }
    if let Some(value) = inner('{', '}') {
        return Type::Map(Box::new(kind(value)));
    }
    match text {
        "s" => Type::Text,
        "b" => Type::Boolean,
        "i" => Type::Integer,
        "f" => Type::Double,
        "y" => Type::Bytes,
        "q" => Type::Quantity,
        "o" => Type::IntOrString,
        "t" => Type::Time,
        "u" => Type::MicroTime,
        "r" => Type::Raw,
        "j" => Type::ManagedFields,
        "x" => Type::Texts,
        name => Type::Message(name),
    }
}

fn field(text: &'static str) -> Option<Field> {
    let (name, rest) = text.split_once('=')?;
    let (number, type_text) = rest.split_once(':')?;
    let (type_text, drop_zero) =
        type_text.strip_suffix('?').map_or((type_text, false), |t| (t, true));
    Some(Field { name, number: number.parse().ok()?, kind: kind(type_text), drop_zero })
}

fn parse(text: &'static str) -> Table {
    let mut table = Table { messages: BTreeMap::new(), roots: BTreeMap::new() };
    let mut current = "";
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split_whitespace().peekable();
        if !line.starts_with(' ') {
            let api_version = words.next_if(|w| w.starts_with('@'));
            current = words.next().unwrap_or("");
            if let Some(api_version) = api_version {
                let kind = current.split_once('.').map_or(current, |(_, kind)| kind);
                table.roots.insert((&api_version[1..], kind), current);
            }
        }
        // Invalid field definitions do not occur: `check` compares the counts.
        table.messages.entry(current).or_default().extend(words.filter_map(field));
    }
    table
}

#[cfg(test)]
pub(super) fn check() {
    let text = include_str!("table.txt");
    let lines = || text.lines().filter(|l| !l.starts_with('#'));
    let written: usize =
        lines().flat_map(str::split_whitespace).filter(|w| w.contains('=')).count();
    let parsed: usize = TABLE.messages.values().map(Vec::len).sum();
    assert_eq!(parsed, written);
    fn known(kind: &Type) -> bool {
        match kind {
            Type::List(inner) | Type::Map(inner) => known(inner),
            Type::Message(name) => message(name).is_some(),
            _ => true,
        }
    }
    for (name, fields) in &TABLE.messages {
        for field in fields {
            assert!(known(&field.kind), "{name}.{}: {:?}", field.name, field.kind);
        }
    }
}
