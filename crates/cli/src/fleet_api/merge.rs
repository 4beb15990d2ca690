//! Pages and events of members in one form: each object names its member, and tables have a first column for it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::ask::Failure;
use crate::bounded;

/// Annotation with the member of an object.
const CLUSTER: &str = "cluster.atoll.dev/name";
/// Columns of a table. A member must not fill a screen.
pub(super) const COLUMNS: usize = 64;
/// The error about an answer that is no list.
const NO_LIST: &str =
    "the answer is no list: name one member for a single object, with clusters/NAME/proxy";

/// Notes on an object from which member it is.
pub(crate) fn annotate(object: &mut Value, member: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[CLUSTER] = member.into();
}

/// What all pages of an answer have in common: the first one decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Form {
    pub(super) kind: String,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    /// Names of the columns; `None` for a list of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<Vec<String>>,
}

/// A page of a member.
#[derive(Debug)]
pub(super) struct Page {
    form: Form,
    definitions: Vec<Value>,
    entries: Vec<Value>,
    /// Where the member continues.
    pub(super) next: Option<String>,
    pub(super) version: String,
}

impl Page {
    pub(super) fn read(text: &[u8]) -> Result<Self, Failure> {
        let mut page = bounded::from_slice(text)
            .map_err(|error| Failure::of(format!("its answer is not JSON: {error}")))?;
        if !page.is_object() {
            return Err(Failure::no_list(NO_LIST));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_table = page["kind"] == "Table";
        let entries = if is_table { page["rows"].take() } else { page["items"].take() };
        let entries = match entries {
            Value::Array(entries) => entries,
            // Go writes an empty list as null.
            Value::Null if is_table || text(&page["kind"]).ends_with("List") => Vec::new(),
            _ => return Err(Failure::no_list(NO_LIST)),
        };
        if !entries.iter().all(Value::is_object) {
            return Err(Failure::of("an entry of its list is no object"));
        }
        let definitions = definitions(&mut page);
        let columns = is_table.then(|| names(&definitions));
        Ok(Self {
            form: Form {
                kind: text(&page["kind"]),
                api_version: text(&page["apiVersion"]),
                columns,
            },
            definitions,
            entries,
            next: page["metadata"]["continue"]
                .as_str()
                .filter(|next| !next.is_empty())
                .map(str::to_owned),
            version: text(&page["metadata"]["resourceVersion"]),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The column definitions of a table, as many as are shown.
pub(super) fn definitions(table: &mut Value) -> Vec<Value> {
    match table["columnDefinitions"].take() {
        Value::Array(mut all) => {
            all.truncate(COLUMNS);
            all
        }
        _ => Vec::new(),
    }
}

pub(super) fn names(definitions: &[Value]) -> Vec<String> {
    let name = |column: &Value| column["name"].as_str().unwrap_or_default().to_owned();
    definitions.iter().map(name).collect()
}

/// The columns of a merged table, as its clients see them.
pub(super) fn merged_definitions(columns: &[String], known: &[Value]) -> Value {
    let own = json!({"name": "Cluster", "type": "string", "format": "", "priority": 0,
        "description": "The member that the object is on."});
    let others = columns.iter().map(|name| {
        let known = known.iter().find(|column| column["name"] == name.as_str());
        let unknown =
            || json!({"name": name, "type": "string", "format": "", "priority": 0, "description": ""});
        known.cloned().unwrap_or_else(unknown)
    });
    std::iter::once(own).chain(others).collect()
}

/// A row with the merged table's cells. Members of another version may have other columns.
pub(super) fn merged_row(row: &mut Value, member: &str, own: &[String], columns: &[String]) {
    let Some(row) = row.as_object_mut() else { return };
    let cells = match row.remove("cells") {
        Some(Value::Array(cells)) => cells,
        _ => Vec::new(),
    };
    let at = |name: &String| own.iter().position(|column| column == name);
    let others = columns.iter().map(|name| {
        let cell = at(name).and_then(|at| cells.get(at)).filter(|cell| !cell.is_null());
        cell.cloned().unwrap_or_else(|| "".into())
    });
    let cells = std::iter::once(Value::from(member)).chain(others).collect();
    row.insert("cells".to_owned(), cells);
    if let Some(object) = row.get_mut("object") {
        annotate(object, member);
    }
}

/// Writes the entries of pages as one JSON array.
pub(super) struct Merger {
    form: Option<Form>,
    definitions: Vec<Value>,
    written: bool,
}

impl Merger {
    /// Continues an answer of this form, if there were pages before.
    pub(super) fn new(form: Option<Form>) -> Self {
        Self { form, definitions: Vec::new(), written: false }
    }

    pub(super) fn form(&self) -> Option<&Form> {
        self.form.as_ref()
    }

    pub(super) fn has_written(&self) -> bool {
        self.written
    }

    /// Entries were removed from the text; whether there are still some.
    pub(super) fn take_back(&mut self, written: bool) {
        self.written = written;
    }

    /// Adds a page's entries to a text.
    ///
    /// # Errors
    /// When the page has another form than those before.
    pub(super) fn add(
        &mut self,
        member: &str,
        page: Page,
        text: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let form = self.form.get_or_insert_with(|| page.form.clone());
        if self.definitions.is_empty() {
            self.definitions = page.definitions;
        }
        // An empty list of another version of the API may have another kind.
        let fits = form.columns.is_some() == page.form.columns.is_some()
            && (form.kind == page.form.kind || page.entries.is_empty());
        if !fits {
            let why = format!("it answered with {}, others with {}", page.form.kind, form.kind);
            return Err(Failure::of(why));
        }
        for mut entry in page.entries {
            match (&form.columns, &page.form.columns) {
                (Some(columns), Some(own)) => merged_row(&mut entry, member, own, columns),
                _ => annotate(&mut entry, member),
            }
            if std::mem::replace(&mut self.written, true) {
                text.push(b',');
            }
            text.extend(entry.to_string().into_bytes());
        }
        Ok(())
    }

    /// The text before the entries.
    pub(super) fn begin(&self, form: &Form) -> String {
        let mut head = Map::new();
        head.insert("kind".to_owned(), form.kind.as_str().into());
        head.insert("apiVersion".to_owned(), form.api_version.as_str().into());
        if let Some(columns) = &form.columns {
            let all = merged_definitions(columns, &self.definitions);
            head.insert("columnDefinitions".to_owned(), all);
        }
        let head = Value::Object(head).to_string();
        let entries = if form.columns.is_some() { "rows" } else { "items" };
        format!("{},\"{entries}\":[", &head[..head.len() - 1])
    }

    /// The text after the entries.
    pub(super) fn end(version: &str, next: Option<&str>) -> String {
        let mut metadata = json!({"resourceVersion": version});
        if let Some(next) = next {
            metadata["continue"] = next.into();
        }
        format!("],\"metadata\":{metadata}}}")
    }
}
