//! `atoll get -w`: what is there, then every change, of all members.

use std::collections::HashMap;
use std::convert::Infallible;

use serde_json::Value;
use tokio::sync::mpsc;

use super::table::{self, Shape};
use super::{Answer, Collection, mark};
use crate::args::Format;
use crate::bounded;
use crate::print::{Printer, Text, note};
use crate::reach::{Failure, Member, RETRY, with_query};

/// Changes that wait to be printed.
const QUEUED: usize = 64;
/// Limit of one change in bytes: an object has at most 1.5 MiB in etcd, and its table row repeats its metadata.
const EVENT: usize = 8 << 20;
/// Limit of a uid and of a version in bytes, as they are remembered.
const IDENTITY: usize = 128;
/// Status of a version that the member does not have any more.
const GONE: i64 = 410;

/// A change on a member: an object, or a table with one row.
struct Change {
    member: String,
    object: Value,
}

/// Prints until the user ends the program.
pub(super) async fn run(
    collection: &Collection,
    answers: Vec<Answer<'_>>,
    format: Option<Format>,
    shape: &Shape<'_>,
    out: &Printer,
) -> anyhow::Result<()> {
    let mut view = View { format, shape, columns: Vec::new(), widths: Vec::new(), out };
    view.begin(&answers)?;
    let (changes, mut received) = mpsc::channel(QUEUED);
    let watches = answers.into_iter().map(|answer| {
        let watch = Watch::of(collection, answer, changes.clone());
        watch.run()
    });
    let watching = futures::future::join_all(watches);
    let printing = async {
        while let Some(change) = received.recv().await {
            view.print(&change)?;
        }
        Ok(())
    };
    tokio::select! {
        printed = printing => printed,
        _ = watching => Ok(()),
    }
}

/// How changes are printed.
struct View<'a> {
    format: Option<Format>,
    shape: &'a Shape<'a>,
    columns: Vec<String>,
    /// Widths of the columns, from what is there at the beginning.
    widths: Vec<usize>,
    out: &'a Printer,
}

impl View<'_> {
    /// Prints what is there.
    fn begin(&mut self, answers: &[Answer<'_>]) -> anyhow::Result<()> {
        if let Some(format) = self.format {
            for object in super::objects(answers, self.shape.names) {
                super::print(&object, format, self.out)?;
            }
            return Ok(());
        }
        let first = super::each(answers).find_map(|(_, page)| self.shape.columns(page));
        let (_, rows) = table::of(answers, self.shape);
        if let Some(columns) = first {
            self.head(columns, &rows)?;
        }
        rows.into_iter().try_for_each(|row| self.row(row))
    }

    /// Prints the header, once.
    fn head(&mut self, columns: Vec<String>, rows: &[Vec<Text>]) -> anyhow::Result<()> {
        let header = self.shape.header(&columns);
        let width = |at: usize, name: &String| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(Text::width);
            cells.chain([name.chars().count()]).max().unwrap_or_default()
        };
        self.widths = header.iter().enumerate().map(|(at, name)| width(at, name)).collect();
        self.columns = columns;
        self.row(header.into_iter().map(Text::from).collect())
    }

    fn row(&self, row: Vec<Text>) -> anyhow::Result<()> {
        let last = row.len().saturating_sub(1);
        let cells = row.into_iter().zip(&self.widths).enumerate();
        // Two spaces between columns, none at the end of the line.
        let cells =
            cells.map(|(at, (cell, width))| if at == last { cell } else { cell.padded(width + 2) });
        self.out.styled_line(&cells.collect::<Vec<_>>())
    }

    fn print(&mut self, change: &Change) -> anyhow::Result<()> {
        let Change { member, object } = change;
        if let Some(format) = self.format {
            let metadata = &object["metadata"];
            if !metadata.is_object() || !super::named(metadata, self.shape.names) {
                return Ok(());
            }
            let mut object = object.clone();
            mark(&mut object, member);
            return super::print(&object, format, self.out);
        }
        if self.columns.is_empty()
            && let Some(columns) = self.shape.columns(object)
        {
            let rows = self.shape.rows(member, object, &columns);
            self.head(columns, &rows)?;
        }
        let rows = self.shape.rows(member, object, &self.columns);
        rows.into_iter().try_for_each(|row| self.row(row))
    }
}

/// The changes of one member.
struct Watch<'a> {
    member: &'a Member,
    collection: &'a Collection,
    changes: mpsc::Sender<Change>,
    /// The watch goes on after this version; `None`: it begins with what is there.
    version: Option<String>,
    /// Versions of the objects that were printed, by uid.
    printed: HashMap<String, String>,
    /// Column definitions of the member: only the first table of a watch has them.
    columns: Value,
    /// The user knows that the member does not answer.
    silent: bool,
}

impl<'a> Watch<'a> {
    fn of(collection: &'a Collection, answer: Answer<'a>, changes: mpsc::Sender<Change>) -> Self {
        let Answer { member, pages } = answer;
        let mut watch = Self {
            member,
            collection,
            changes,
            version: None,
            printed: HashMap::new(),
            columns: Value::Null,
            silent: pages.is_err(),
        };
        match pages {
            Ok(pages) => {
                // All pages have the version of the first.
                let version =
                    pages.first().and_then(|page| page["metadata"]["resourceVersion"].as_str());
                watch.version = version.map(str::to_owned);
                for page in &pages {
                    let rows = page["rows"].as_array().into_iter().flatten();
                    let items = page["items"].as_array().into_iter().flatten();
                    let all = rows.map(|row| &row["object"]["metadata"]);
                    for metadata in all.chain(items.map(|item| &item["metadata"])) {
                        watch.is_new(metadata);
                    }
                    if watch.columns.is_null() {
                        watch.columns = page["columnDefinitions"].clone();
                    }
                }
            }
            Err(failure) => note(format!("{}: {}", member.name, failure.retried())),
        }
        watch
    }

    async fn run(mut self) -> Infallible {
        let mut failures = 0;
        loop {
            match self.once().await {
                Ok(()) => failures = 0,
                Err(failure) => {
                    failures += 1;
                    if !std::mem::replace(&mut self.silent, true) {
                        note(format!("{}: {}", self.member.name, failure.retried()));
                    }
                }
            }
            // A watch that ends at once is not opened again at once.
            tokio::time::sleep(RETRY.ceiling(failures.max(1))).await;
        }
    }

    /// One watch to its end.
    async fn once(&mut self) -> Result<(), Failure> {
        let path = with_query(
            &self.collection.path,
            &[
                ("watch", Some("true".to_owned())),
                ("allowWatchBookmarks", Some("true".to_owned())),
                ("labelSelector", self.collection.labels.clone()),
                ("resourceVersion", self.version.clone()),
            ],
        );
        let opened = self.member.open(&path, self.collection.accept()).await;
        let mut events = match opened {
            Ok(events) => events,
            Err(failure) => {
                if failure.code == Some(410) {
                    self.version = None;
                }
                return Err(failure);
            }
        };
        if std::mem::take(&mut self.silent) {
            note(format!("{} answers again", self.member.name));
        }
        while let Some(line) = events.line(EVENT).await? {
            if line.cut {
                return Err(Failure::of("a change has more than 8 MiB"));
            }
            let event = bounded::from_slice(&line.bytes).map_err(Failure::of)?;
            self.event(event).await?;
        }
        Ok(())
    }

    async fn event(&mut self, mut event: Value) -> Result<(), Failure> {
        if !event["object"].is_object() {
            return Err(Failure::of("a change is not an object"));
        }
        let mut object = event["object"].take();
        match event["type"].as_str().unwrap_or_default() {
            "BOOKMARK" => {
                let metadata = match object["rows"][0]["object"].get("metadata") {
                    Some(metadata) => metadata,
                    None => &object["metadata"],
                };
                self.version = metadata["resourceVersion"].as_str().map(str::to_owned);
                Ok(())
            }
            "ERROR" => {
                if object["code"] == GONE {
                    self.version = None;
                    return Ok(());
                }
                Err(Failure::of(object["message"].as_str().unwrap_or("the watch failed")))
            }
            "ADDED" | "MODIFIED" | "DELETED" => {
                if self.collection.tables {
                    match object["columnDefinitions"].as_array() {
                        Some(columns) if !columns.is_empty() => {
                            self.columns = object["columnDefinitions"].clone();
                        }
                        _ => object["columnDefinitions"] = self.columns.clone(),
                    }
                }
                let row = object["rows"][0]["object"].get("metadata").cloned();
                let metadata = row.unwrap_or_else(|| object["metadata"].clone());
                self.version = metadata["resourceVersion"].as_str().map(str::to_owned);
                if self.is_new(&metadata) {
                    let member = self.member.name.clone();
                    // The receiver ends with the verb.
                    let _ = self.changes.send(Change { member, object }).await;
                }
                Ok(())
            }
            other => Err(Failure::of(format!("unknown type of change {other:?}"))),
        }
    }

    /// Notes an object's version; whether it is another one than before.
    fn is_new(&mut self, metadata: &Value) -> bool {
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        if self.printed.len() > super::MOST {
            // Then objects may be printed twice after an interruption.
            self.printed.clear();
        }
        let (uid, version) = (text("uid"), text("resourceVersion"));
        if uid.len() > IDENTITY || version.len() > IDENTITY {
            return true;
        }
        self.printed.insert(uid, version.clone()).as_ref() != Some(&version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, uid: &str, version: &str) -> Value {
        json!({"type": kind, "object": {"metadata": {"uid": uid, "resourceVersion": version}}})
    }

    #[tokio::test]
    async fn a_watch_that_begins_again_repeats_nothing_that_was_shown() {
        let member = Member::nowhere("m1");
        let (changes, mut received) = mpsc::channel(16);
        let page = json!({"metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"uid": "a", "resourceVersion": "5"}}]});
        let collection = Collection::default();
        let answer = Answer { member: &member, pages: Ok(vec![page]) };
        let mut watch = Watch::of(&collection, answer, changes);
        assert_eq!(watch.version.as_deref(), Some("7"));
        watch.event(event("MODIFIED", "a", "8")).await.unwrap();
        watch.event(event("BOOKMARK", "", "9")).await.unwrap();
        assert_eq!(watch.version.as_deref(), Some("9"));
        watch.event(json!({"type": "ERROR", "object": {"code": 410}})).await.unwrap();
        assert_eq!(watch.version, None);
        for (kind, uid, version) in
            [("ADDED", "a", "8"), ("ADDED", "b", "3"), ("DELETED", "b", "10")]
        {
            watch.event(event(kind, uid, version)).await.unwrap();
        }
        assert!(watch.event(json!({"type": "ERROR", "object": {"message": "no"}})).await.is_err());
        drop(watch);
        let mut shown = Vec::new();
        while let Some(change) = received.recv().await {
            shown.push(change.object["metadata"]["resourceVersion"].clone());
        }
        assert_eq!(shown, ["8", "3", "10"]);
    }

    #[tokio::test]
    async fn odd_changes_of_a_member_neither_end_the_verb_nor_fill_its_memory() {
        let member = Member::nowhere("m1");
        let (changes, mut received) = mpsc::channel(16);
        let answer = Answer { member: &member, pages: Ok(Vec::new()) };
        let collection = Collection { tables: true, ..Collection::default() };
        let mut watch = Watch::of(&collection, answer, changes);
        assert!(watch.is_new(&json!({"uid": "u".repeat(129), "resourceVersion": "1"})));
        assert!(watch.is_new(&json!({"uid": "u", "resourceVersion": "1".repeat(129)})));
        assert!(watch.printed.is_empty());
        for odd in [json!(null), json!([]), json!("text"), json!({"type": "ADDED", "object": []})] {
            assert!(watch.event(odd).await.is_err());
        }
        for metadata in
            [json!(null), json!("text"), json!({"annotations": "x", "resourceVersion": "2"})]
        {
            let object = json!({"metadata": metadata, "rows": {}, "columnDefinitions": 3});
            watch.event(json!({"type": "ADDED", "object": object})).await.unwrap();
        }
        drop(watch);
        let out = Printer::stdout();
        let shape = Shape { namespaces: true, wide: true, names: &[] };
        for format in [None, Some(Format::Json), Some(Format::Yaml)] {
            let mut view =
                View { format, shape: &shape, columns: Vec::new(), widths: Vec::new(), out: &out };
            while let Ok(change) = received.try_recv() {
                view.print(&change).unwrap();
            }
            let object = json!({"metadata": 1});
            view.print(&Change { member: "m1".to_owned(), object }).unwrap();
        }
        let failed = Failure::of(json!("no\nm2  yes").as_str().unwrap());
        assert_eq!(failed.to_string(), r"no\nm2  yes");
    }
}
