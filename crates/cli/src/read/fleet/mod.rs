//! Objects of all members in one answer, read through the hub: `atoll get TYPE`, and the parts that other verbs share.

mod table;
mod watch;

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::workload;
use crate::args::{Format, ListFormat};
use crate::fleet_api::annotate;
use crate::hub::Hub;
use crate::print::{Printer, named as named_as, note};
use crate::reach::{self, Budget, Failure, Member, with_query};

/// Objects of a page.
const PAGE: usize = 500;
/// Objects of one member. A member must not fill the memory of the user's machine.
const MOST: usize = 100_000;
/// Pages of one member, also when they are not full.
const PAGES: usize = 2 * MOST / PAGE;
/// Limit of the time for all pages of one member.
const LIMIT: Duration = Duration::from_secs(60);
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What to list.
pub(crate) struct Wanted<'a> {
    /// As users name types: `pods`, `deploy`, `widgets.example.com`.
    pub(crate) type_: &'a str,
    /// Only these; empty: all.
    pub(crate) names: &'a [String],
    pub(crate) all_namespaces: bool,
    pub(crate) selector: Option<&'a str>,
    /// Only these members; empty: all.
    pub(crate) members: &'a [String],
    /// Continue with changes.
    pub(crate) watch: bool,
    pub(crate) output: ListFormat,
}

/// The answer of one member.
pub(crate) struct Answer<'a> {
    pub(crate) member: &'a Member,
    /// Tables, or lists of objects.
    pub(crate) pages: Result<Vec<Value>, Failure>,
}

/// A collection on members.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collection {
    pub(crate) path: String,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    /// As tables.
    pub(crate) tables: bool,
}

pub(crate) async fn run(hub: &Hub, wanted: &Wanted<'_>, out: &Printer) -> anyhow::Result<()> {
    let kind = workload::kind(hub, wanted.type_).await?;
    let members = reach::members(hub, wanted.members).await?;
    let namespace = (!wanted.all_namespaces).then_some(hub.namespace.as_str());
    let only_names = wanted.output == ListFormat::Name;
    if only_names && wanted.watch {
        bail!("-o name prints what there is now: leave out --watch");
    }
    let collection = Collection {
        path: kind.path(namespace),
        labels: wanted.selector.map(str::to_owned),
        fields: None,
        tables: wanted.output.objects().is_none() && !only_names,
    };
    let answers = collection.of(&members).await;
    if !wanted.watch {
        report(&answers)?;
    }
    let shape = table::Shape {
        namespaces: wanted.all_namespaces && kind.is_namespaced(),
        wide: wanted.output == ListFormat::Wide,
        names: wanted.names,
    };
    if only_names {
        return objects(&answers, wanted.names).iter().try_for_each(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let version = text(&object["apiVersion"]);
            let group = version.split_once('/').map_or("", |(group, _)| group);
            out.line(named_as(&text(&object["kind"]), group, &text(&object["metadata"]["name"])))
        });
    }
    match (wanted.output.objects(), wanted.watch) {
        (format, true) => watch::run(&collection, answers, format, &shape, out).await,
        (Some(format), false) => out.object(format, &list_of(objects(&answers, wanted.names))),
        (None, false) => {
            let (header, rows) = table::of(&answers, &shape);
            if rows.is_empty() {
                return out.line("No resources found.");
            }
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            out.wide_table(&header, rows)
        }
    }
}

impl Collection {
    /// All pages of all members.
    pub(crate) async fn of<'a>(&self, members: &'a [Member]) -> Vec<Answer<'a>> {
        let budget = Budget::of_a_read();
        let answers = reach::each(members, |member| async {
            let pages = tokio::time::timeout(LIMIT, self.pages(member, &budget)).await;
            pages.unwrap_or_else(|_| Err(Failure::slow(LIMIT)))
        });
        let answers = answers.await;
        answers.into_iter().map(|(member, pages)| Answer { member, pages }).collect()
    }

    /// How it is represented.
    fn accept(&self) -> Option<&'static str> {
        self.tables.then_some(TABLE)
    }

    /// All pages of one member.
    async fn pages(&self, member: &Member, budget: &Budget) -> Result<Vec<Value>, Failure> {
        let (mut pages, mut count, mut next) = (Vec::new(), 0, None);
        loop {
            let limit = Some(PAGE.to_string());
            let path = with_query(
                &self.path,
                &[
                    ("labelSelector", self.labels.clone()),
                    ("fieldSelector", self.fields.clone()),
                    ("limit", limit),
                    ("continue", next),
                ],
            );
            let page = member.get_within(&path, self.accept(), Some(budget)).await?;
            let entries = page["rows"].as_array().or_else(|| page["items"].as_array());
            count += entries.map_or(0, Vec::len);
            let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            pages.push(page);
            if count > MOST {
                let why = format!("it has more than {MOST} objects: choose a namespace or labels");
                return Err(Failure::of(why));
            }
            if token.is_empty() {
                return Ok(pages);
            }
            if pages.len() >= PAGES {
                return Err(Failure::of(format!("its answer has more than {PAGES} pages")));
            }
            next = Some(token);
        }
    }
}

/// Names the members that could not be read.
///
/// # Errors
/// When none could be read.
pub(crate) fn report(answers: &[Answer<'_>]) -> anyhow::Result<()> {
    for Answer { member, pages } in answers {
        if let Err(failure) = pages {
            note(format!("{}: {failure}", member.name));
        }
    }
    if answers.iter().all(|answer| answer.pages.is_err()) {
        bail!(
            "no member could be read; docs/access.md says what a member's administrator has to allow"
        );
    }
    Ok(())
}

/// The objects of all members, each with its member.
pub(crate) fn objects(answers: &[Answer<'_>], names: &[String]) -> Vec<Value> {
    let mut all = Vec::new();
    for (member, page) in each(answers) {
        for object in items(page) {
            if object["metadata"].is_object() && named(&object["metadata"], names) {
                all.push(marked(object, page, member));
            }
        }
    }
    all
}

/// The objects of a page.
pub(crate) fn items(page: &Value) -> impl Iterator<Item = &Value> {
    page["items"].as_array().into_iter().flatten()
}

/// A list of objects.
pub(crate) fn list_of(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// An object of a list with its kind and its member.
fn marked(object: &Value, page: &Value, member: &str) -> Value {
    let mut object = object.clone();
    // Lists name the kind of their items once.
    let kind = page["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    if let Some(kind) = kind
        && object.get("kind").is_none()
    {
        object["apiVersion"] = page["apiVersion"].clone();
        object["kind"] = kind.into();
    }
    mark(&mut object, member);
    object
}

/// Notes on an object from which member it is.
fn mark(object: &mut Value, member: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    annotate(object, member);
}

fn each<'a>(answers: &'a [Answer<'_>]) -> impl Iterator<Item = (&'a str, &'a Value)> {
    answers.iter().flat_map(|answer| {
        let pages = answer.pages.iter().flatten();
        pages.map(|page| (answer.member.name.as_str(), page))
    })
}

fn named(metadata: &Value, names: &[String]) -> bool {
    names.is_empty()
        || metadata["name"].as_str().is_some_and(|name| names.iter().any(|n| n == name))
}

/// Prints one of the objects that follow one another.
fn print(object: &Value, format: Format, out: &Printer) -> anyhow::Result<()> {
    match format {
        Format::Yaml => {
            let text = serde_saphyr::to_string(object).context("write the answer as YAML")?;
            out.line(format!("---\n{}", text.trim_end()))
        }
        Format::Json | Format::Table => {
            let text = serde_json::to_string(object);
            out.json(&text.context("write the answer as JSON")?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_member_whose_pages_never_end_is_left() {
        let endless = Member::answering("m1", |_| {
            (200, json!({"items": [], "metadata": {"continue": "more"}}).to_string())
        });
        let members = [endless];
        let answers = Collection::default().of(&members).await;
        let failure = answers[0].pages.as_ref().unwrap_err().to_string();
        assert!(failure.contains("pages"), "{failure}");
    }

    #[tokio::test]
    async fn objects_say_from_which_member_they_are() {
        let items = json!({"kind": "PodList", "apiVersion": "v1", "items": [
            {"metadata": {"name": "web-0", "managedFields": [{}]}}, {"metadata": {"name": "other"}},
        ]});
        let member = Member::nowhere("m1");
        let answers = [Answer { member: &member, pages: Ok(vec![items]) }];
        let listed = list_of(objects(&answers, &["web-0".to_owned()]));
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-0", "annotations": {"cluster.atoll.dev/name": "m1"}}});
        assert_eq!(listed["items"], json!([pod]));
    }
}
