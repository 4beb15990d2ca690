//! `atoll get TYPE`: objects of all members in one table, read through the hub.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use atoll_api::{Cluster, PROXY_GROUP, VERSION};
use futures::StreamExt;
use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::get;
use super::workload;
use crate::args::WideFormat;
use crate::hub::Hub;
use crate::print::{Printer, Text, note};

/// Limit of one page of one member: a slow member costs its own lines only.
const MEMBER: Duration = Duration::from_secs(3);
/// Members that are asked at the same time.
const PARALLEL: usize = 64;
/// Objects of a page.
const PAGE: u32 = 500;
/// Objects of one member. A member must not fill the memory of the user's machine.
const MOST: usize = 100_000;
/// Annotation with the member of an object.
const CLUSTER: &str = "cluster.atoll.dev/name";
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
    pub(crate) output: WideFormat,
}

/// The answer of one member.
struct Answer {
    member: String,
    /// Tables, or lists of objects.
    pages: Result<Vec<Value>, String>,
}

pub(crate) async fn run(hub: &Hub, wanted: &Wanted<'_>, out: &Printer) -> anyhow::Result<()> {
    let kind = workload::kind(hub, wanted.type_).await?;
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let mut members: BTreeSet<String> =
        get::list(hub, &clusters).await?.iter().map(ResourceExt::name_any).collect();
    if let Some(unknown) = wanted.members.iter().find(|name| !members.contains(*name)) {
        bail!("there is no member {unknown:?}: `atoll get members` lists them");
    }
    members.retain(|name| wanted.members.is_empty() || wanted.members.contains(name));
    let namespace = (!wanted.all_namespaces).then_some(hub.namespace.as_str());
    let path = kind.path(namespace);
    let tables = wanted.output.objects().is_none();
    let asked = members.into_iter().map(|member| {
        let path = &path;
        async move {
            let pages = pages(hub, &member, path, wanted.selector, tables).await;
            Answer { member, pages }
        }
    });
    let answers: Vec<Answer> = futures::stream::iter(asked).buffered(PARALLEL).collect().await;
    for Answer { member, pages } in &answers {
        if let Err(why) = pages {
            note(format!("{member}: {why}"));
        }
    }
    if !answers.is_empty() && answers.iter().all(|answer| answer.pages.is_err()) {
        bail!(
            "no member answered: see docs/access.md for what a member's administrator has to allow"
        );
    }
    match wanted.output.objects() {
        Some(format) => out.object(format, &list(&answers, wanted.names)),
        None => {
            let wide = wanted.output == WideFormat::Wide;
            let namespaced = wanted.all_namespaces && kind.is_namespaced();
            let (header, rows) = table(&answers, wanted.names, namespaced, wide);
            if rows.is_empty() {
                return out.line("No resources found.");
            }
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            out.wide_table(&header, rows)
        }
    }
}

/// All pages of one member.
async fn pages(
    hub: &Hub,
    member: &str,
    path: &str,
    selector: Option<&str>,
    tables: bool,
) -> Result<Vec<Value>, String> {
    let url = format!("/apis/{PROXY_GROUP}/{VERSION}/clusters/{member}/proxy{path}");
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = selector.map(str::to_owned);
    let (mut pages, mut count) = (Vec::new(), 0);
    loop {
        let request = Request::new(&url).list(&params).map_err(|error| error.to_string())?;
        let mut request = request;
        if tables {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(TABLE));
        }
        let asked = tokio::time::timeout(MEMBER, hub.client.request::<Value>(request)).await;
        let page = match asked {
            Ok(Ok(page)) => page,
            Ok(Err(kube::Error::Api(status))) => return Err(status.message.clone()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {} s", MEMBER.as_secs())),
        };
        let entries = page["rows"].as_array().or_else(|| page["items"].as_array());
        count += entries.map_or(0, Vec::len);
        let next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        pages.push(page);
        if count > MOST {
            return Err(format!("it has more than {MOST} objects: choose a namespace or labels"));
        }
        if next.is_empty() {
            return Ok(pages);
        }
        params = params.continue_token(&next);
    }
}

/// The objects of all members in one list, each with its member.
fn list(answers: &[Answer], names: &[String]) -> Value {
    let mut items = Vec::new();
    for (member, page) in each(answers) {
        // Lists name the kind of their items once.
        let kind = page["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        for object in page["items"].as_array().into_iter().flatten() {
            if !named(&object["metadata"], names) {
                continue;
            }
            let mut object = object.clone();
            if let Some(kind) = kind
                && object.get("kind").is_none()
            {
                object["apiVersion"] = page["apiVersion"].clone();
                object["kind"] = kind.into();
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            object["metadata"]["annotations"][CLUSTER] = member.into();
            items.push(object);
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Header and rows of all members. The columns are those of the first member that answered.
fn table(
    answers: &[Answer],
    names: &[String],
    namespaced: bool,
    wide: bool,
) -> (Vec<String>, Vec<Vec<Text>>) {
    let columns: Vec<String> = each(answers)
        .find_map(|(_, page)| page["columnDefinitions"].as_array())
        .into_iter()
        .flatten()
        .filter(|column| wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .filter_map(|column| column["name"].as_str().map(str::to_owned))
        .collect();
    let mut header = vec!["CLUSTER".to_owned()];
    if namespaced {
        header.push("NAMESPACE".to_owned());
    }
    header.extend(columns.iter().map(|name| name.to_uppercase()));
    let mut rows = Vec::new();
    for (member, page) in each(answers) {
        let own = page["columnDefinitions"].as_array();
        let at = |name: &String| {
            own.into_iter().flatten().position(|column| column["name"] == name.as_str())
        };
        let places: Vec<Option<usize>> = columns.iter().map(at).collect();
        for row in page["rows"].as_array().into_iter().flatten() {
            let metadata = &row["object"]["metadata"];
            if !named(metadata, names) {
                continue;
            }
            let mut cells = vec![Text::from(member)];
            if namespaced {
                cells.push(metadata["namespace"].as_str().unwrap_or_default().into());
            }
            cells.extend(places.iter().map(|place| cell(place.map(|at| &row["cells"][at]))));
            rows.push(cells);
        }
    }
    (header, rows)
}

fn each(answers: &[Answer]) -> impl Iterator<Item = (&str, &Value)> {
    answers.iter().flat_map(|answer| {
        let pages = answer.pages.iter().flatten();
        pages.map(|page| (answer.member.as_str(), page))
    })
}

fn named(metadata: &Value, names: &[String]) -> bool {
    names.is_empty()
        || metadata["name"].as_str().is_some_and(|name| names.iter().any(|n| n == name))
}

fn cell(value: Option<&Value>) -> Text {
    match value {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => text.as_str().into(),
        Some(other) => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(columns: &[(&str, i64)], rows: &[(&str, &[Value])]) -> Value {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, priority)| json!({"name": name, "priority": priority}))
            .collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, cells)| json!({"cells": cells, "object": {"metadata": {"name": name, "namespace": "shop"}}}))
            .collect();
        json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})
    }

    fn answer(member: &str, pages: Result<Vec<Value>, String>) -> Answer {
        Answer { member: member.to_owned(), pages }
    }

    #[test]
    fn tables_of_members_are_one_table_and_a_member_that_fails_costs_its_own_lines_only() {
        let web = [json!("web"), json!(3), json!("10.0.0.1")];
        let api = [json!("api"), Value::Null];
        let answers = [
            answer("m1", Ok(vec![page(&[("Name", 0), ("Ready", 0), ("IP", 1)], &[("web", &web)])])),
            answer("m2", Err("no answer within 3 s".to_owned())),
            // Another version has other columns.
            answer("m3", Ok(vec![page(&[("Name", 0), ("New", 0)], &[("api", &api)])])),
        ];
        let shown = |names: &[String], wide| {
            let (header, rows) = table(&answers, names, true, wide);
            format!("{header:?} {rows:?}").replace("Plain", "").replace("Text", "")
        };
        assert_eq!(
            shown(&[], false),
            r#"["CLUSTER", "NAMESPACE", "NAME", "READY"] [[("m1", ), ("shop", ), ("web", ), ("3", )], [("m3", ), ("shop", ), ("api", ), ("", )]]"#
        );
        assert!(shown(&[], true).contains("10.0.0.1"));
        assert!(!shown(&["api".to_owned()], false).contains("m1"));
    }

    #[test]
    fn objects_say_from_which_member_they_are() {
        let items = json!({"kind": "PodList", "apiVersion": "v1", "items": [
            {"metadata": {"name": "web-0", "managedFields": [{}]}}, {"metadata": {"name": "other"}},
        ]});
        let answers = [answer("m1", Ok(vec![items]))];
        let listed = list(&answers, &["web-0".to_owned()]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-0", "annotations": {"cluster.atoll.dev/name": "m1"}}});
        assert_eq!(listed["items"], json!([pod]));
    }
}
