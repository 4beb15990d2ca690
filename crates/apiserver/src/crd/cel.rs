//! `x-kubernetes-validations`: compiled when the CRD is served, evaluated on every write
//! (apiextensions `apiserver/schema/cel`).
//!
//! A rule that cannot be evaluated refuses the object, as upstream. Cost limits are not computed: objects are at
//! most 3 MiB and rules come from whoever may install CRDs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use atoll_apimachinery::{FieldError, FieldReason};
use atoll_expression::{Expression, Limits};
use atoll_merge::schema::{self, ListType, Rule, RuleSite, Schema, Type};
use cel::{
    Context,
    objects::{Key, Map},
};
use serde_json::Value;

use super::functions;

/// The compiled expressions of a schema, by their text.
pub(crate) struct Programs(BTreeMap<String, Result<Compiled, String>>);

struct Compiled {
    expression: Expression,
    /// `oldSelf` appears in it.
    transition: bool,
}

impl Compiled {
    fn new(text: &str) -> Result<Self, String> {
        let expression = Expression::compile(text, &Limits::RULE)?;
        let transition = expression.uses("oldSelf");
        Ok(Self { expression, transition })
    }
}

impl Programs {
    /// Compiles every rule of a schema.
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut programs = Programs(BTreeMap::new());
        programs.add(schema);
        programs
    }

    fn add(&mut self, schema: &Schema) {
        for rule in schema.own_rules() {
            self.compile(&rule.rule);
            if let Some(expression) = &rule.message_expression {
                self.compile(expression);
            }
        }
        for (_, property) in schema.properties() {
            self.add(property);
        }
        if let Some(items) = schema.items() {
            self.add(items);
        }
        if let Some(values) = schema.additional() {
            self.add(values);
        }
    }

    fn compile(&mut self, text: &str) {
        if self.0.contains_key(text) {
            return;
        }
        let compiled = Compiled::new(text);
        self.0.insert(text.to_owned(), compiled);
    }

    /// Rules on `oldSelf` below lists whose items have no keys, so that old and new items cannot be matched.
    pub(super) fn uncorrelated<'a>(&self, schema: &'a Schema, found: &mut Vec<&'a str>) {
        for (_, property) in schema.properties() {
            self.uncorrelated(property, found);
        }
        if let Some(values) = schema.additional() {
            self.uncorrelated(values, found);
        }
        if let Some(items) = schema.items() {
            match schema.list_type() {
                ListType::Map(_) => self.uncorrelated(items, found),
                ListType::Atomic | ListType::Set => self.transitions(items, found),
            }
        }
    }

    /// Every rule on `oldSelf` of this schema and below.
    fn transitions<'a>(&self, schema: &'a Schema, found: &mut Vec<&'a str>) {
        let own = schema.own_rules().iter().map(|rule| rule.rule.as_str());
        found.extend(
            own.filter(|rule| matches!(self.0.get(*rule), Some(Ok(rule)) if rule.transition)),
        );
        for (_, property) in schema.properties() {
            self.transitions(property, found);
        }
        for below in schema.additional().into_iter().chain(schema.items()) {
            self.transitions(below, found);
        }
    }

    /// Rules that do not compile, and why.
    pub(super) fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(text, r)| Some((text.as_str(), r.as_ref().err()?.as_str())))
    }
}

/// The violations of an object's rules. `old` is the object before an update.
pub(crate) fn check(
    programs: &Programs,
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let sites = schema::rules(new, old, schema);
    if sites.is_empty() {
        return Vec::new();
    }
    functions::with_all(|functions| evaluate(programs, sites, functions))
}

fn evaluate(
    programs: &Programs,
    sites: Vec<RuleSite<'_>>,
    functions: &Context<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut converted: Option<(*const Value, cel::Value)> = None;
    for site in sites {
        let Some(compiled) = programs.0.get(&site.rule.rule) else { continue };
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(why) => {
                errors.push(refused(&site, format!("rule compile error: {why}")));
                continue;
            }
        };
        let optional = site.rule.optional_old_self == Some(true);
        if compiled.transition && site.old.is_none() && !optional {
            continue;
        }
        // A rule that has `oldSelf` only in a text compares nothing.
        if !compiled.transition && site.unchanged {
            continue;
        }
        // Rules of one field are consecutive: its value is converted once.
        let here: *const Value = site.value;
        let this = match &converted {
            Some((at, value)) if *at == here => value.clone(),
            _ => {
                let value = convert(site.value, site.schema);
                converted = Some((here, value.clone()));
                value
            }
        };
        let mut context = functions.new_inner_scope();
        context.add_variable_from_value("self", this);
        if compiled.transition {
            let before = site.old.map(|old| convert(old, site.schema));
            let value = match (optional, before) {
                (true, before) => functions::optional(before),
                (false, before) => before.unwrap_or(cel::Value::Null),
            };
            context.add_variable_from_value("oldSelf", value);
        }
        match compiled.expression.evaluate(&context) {
            Ok(cel::Value::Bool(true)) => {}
            Ok(cel::Value::Bool(false)) => errors.push(violation(programs, &site, &context)),
            Ok(other) => errors.push(refused(
                &site,
                format!("rule must evaluate to a bool, not {}", other.type_of()),
            )),
            Err(why) => errors.push(refused(&site, format!("rule evaluation error: {why}"))),
        }
    }
    errors
}

fn path(site: &RuleSite<'_>) -> String {
    let below = site.rule.field_path.as_deref().unwrap_or("");
    let path = format!("{}{below}", site.path);
    let path = path.strip_prefix('.').unwrap_or(&path);
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

/// The name of the schema's type, which upstream shows instead of the value.
fn type_name(schema: &Schema) -> &'static str {
    match schema.kind() {
        Type::Object => "object",
        Type::Array => "array",
        Type::String | Type::Quantity => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Any | Type::IntOrString => "",
    }
}

fn refused(site: &RuleSite<'_>, why: String) -> FieldError {
    FieldError::invalid(path(site), &type_name(site.schema).into(), why)
}

fn violation(programs: &Programs, site: &RuleSite<'_>, context: &Context<'_>) -> FieldError {
    let rule: &Rule = site.rule;
    let computed = rule.message_expression.as_ref().and_then(|expression| {
        let compiled = programs.0.get(expression)?.as_ref().ok()?;
        match compiled.expression.evaluate(context) {
            Ok(cel::Value::String(text)) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => None,
        }
    });
    let message = computed
        .or_else(|| rule.message.clone())
        .unwrap_or_else(|| format!("failed rule: {}", rule.rule.trim()));
    let path = path(site);
    let shown = Value::from(type_name(site.schema));
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, message),
        Some("FieldValueRequired") => FieldError::required(path, message),
        Some("FieldValueDuplicate") => FieldError::new(path, FieldReason::Duplicate, shown),
        _ => FieldError::invalid(path, &shown, message),
    }
}

/// Names reserved by CEL; a field with such a name is accessed as `__name__`.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A declared field's name in expressions.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if name.contains("__") || name.contains(['.', '-', '/']) {
        return name
            .replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__");
    }
    name.to_owned()
}

/// A JSON value as CEL sees it under its schema: integers stay integers, `number` is a double even where it
/// has no fraction, absent fields are absent.
fn convert(value: &Value, schema: &Schema) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(b) => cel::Value::Bool(*b),
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Number(number) => match (schema.kind(), number.as_i64()) {
            (Type::Number, _) | (_, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(whole)) => cel::Value::Int(whole),
        },
        Value::Array(items) => {
            let deduced;
            let schema = match schema.items() {
                Some(schema) => schema,
                None => {
                    deduced = Schema::deduced();
                    &deduced
                }
            };
            let items = items.iter().map(|item| convert(item, schema)).collect();
            cel::Value::List(Arc::new(items))
        }
        Value::Object(fields) => {
            let deduced = Schema::deduced();
            let map: HashMap<Key, cel::Value> = fields
                .iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(name, v)| {
                    let key = if schema.declares(name) { escaped(name) } else { name.clone() };
                    let schema = schema.property(name).unwrap_or(&deduced);
                    (Key::String(Arc::new(key)), convert(v, schema))
                })
                .collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}
