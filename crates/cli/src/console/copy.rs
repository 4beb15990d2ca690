//! The page of a workload on one member: its manifest beside the template, status and events.

use atoll_console::Fault;
use atoll_console::data::{Copy, Event, Line, Tone, Word, WorkloadId};
use jiff::Timestamp;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::workload::text;
use super::{Reader, missing, named, rows};
use crate::cluster;
use crate::print::causes;
use crate::reach::{Member, with_query};
use crate::read::workload::Workload;

/// Events that are shown.
const EVENTS: usize = 50;
/// Longest manifest that is compared and shown, in bytes of YAML.
const MANIFEST: usize = 512 << 10;
/// What stands for a value of a Secret.
const HIDDEN: &str = "***";

impl Reader {
    pub(super) async fn read_copy(&self, of: &WorkloadId, member: &str) -> Result<Copy, Fault> {
        named("a member", member)?;
        let (hub, resolved) = self.resolved(of).await?;
        cluster::get(&hub, member).await.map_err(missing)?;
        let mut page = Copy { id: of.clone(), member: member.to_owned(), ..Copy::default() };
        let place = Member::of(&hub, member);
        let resource = resolved.kind.resource();
        let api: Api<DynamicObject> = match &resolved.namespace {
            Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
            None => Api::all_with(hub.client.clone(), &resource),
        };
        let doing = format!("get {of} from the hub");
        let path = resolved.path();
        let (template, copy, events) = tokio::join!(
            hub.call(&doing, api.get_opt(&of.name)),
            place.get(&path, None),
            events(&place, &resolved, Timestamp::now()),
        );
        let template = match template {
            Ok(found) => found.and_then(|object| serde_json::to_value(object).ok()),
            Err(error) => {
                page.notes.push(format!("the template is not shown: {}", causes(&error)));
                None
            }
        };
        let copy = copy.map_err(|why| format!("the object on {member} is not shown: {why}"));
        match copy {
            Ok(copy) => show(&mut page, template, copy),
            Err(why) => page.notes.push(why),
        }
        match events {
            Ok(found) => page.events = found,
            Err(why) => page.notes.push(format!("events are not shown: {why}")),
        }
        Ok(page)
    }
}

fn show(page: &mut Copy, template: Option<Value>, mut copy: Value) {
    let status = copy.as_object_mut().and_then(|copy| copy.remove("status"));
    page.status = status.and_then(|status| serde_saphyr::to_string(&status).ok());
    let written = |object: Option<Value>| {
        object.map_or(Ok(String::new()), |object| serde_saphyr::to_string(&plain(object)))
    };
    match (written(template), written(Some(copy))) {
        (Ok(before), Ok(after)) if before.len() + after.len() <= MANIFEST => {
            page.lines = lines(&before, &after);
        }
        (Ok(_), Ok(_)) => page.notes.push("the manifest is too long to be shown".to_owned()),
        (Err(error), _) | (_, Err(error)) => {
            page.notes.push(format!("the manifest cannot be written as YAML: {error}"));
        }
    }
}

fn lines(before: &str, after: &str) -> Vec<Line> {
    let line = |change: similar::Change<&str>| Line {
        added: match change.tag() {
            ChangeTag::Equal => None,
            ChangeTag::Delete => Some(false),
            ChangeTag::Insert => Some(true),
        },
        text: change.value().trim_end_matches('\n').to_owned(),
    };
    TextDiff::from_lines(before, after).iter_all_changes().map(line).collect()
}

/// An object without what API servers add, and without the values of Secrets.
fn plain(mut object: Value) -> Value {
    const ADDED: [&str; 7] = [
        "managedFields",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "selfLink",
        "ownerReferences",
    ];
    let secret = object["kind"] == "Secret";
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        ADDED.iter().for_each(|name| _ = metadata.remove(*name));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if secret {
        let values = ["data", "stringData"].into_iter().filter_map(|name| {
            let hidden = fields.get(name)?.as_object()?.keys();
            let hidden: Map<String, Value> =
                hidden.map(|key| (key.clone(), HIDDEN.into())).collect();
            Some((name, hidden))
        });
        let values: Vec<_> = values.collect();
        values
            .into_iter()
            .for_each(|(name, hidden)| _ = fields.insert(name.to_owned(), hidden.into()));
    }
    object
}

async fn events(member: &Member, of: &Workload, now: Timestamp) -> Result<Vec<Event>, String> {
    let namespace = of.namespace.as_deref().unwrap_or("default");
    let selector = format!("involvedObject.kind={},involvedObject.name={}", of.kind.kind, of.name);
    let path = format!("/api/v1/namespaces/{}/events", crate::reach::encode(namespace));
    let path =
        with_query(&path, &[("fieldSelector", Some(selector)), ("limit", Some("500".to_owned()))]);
    let list = member.get(&path, None).await.map_err(|why| why.to_string())?;
    let mut found: Vec<Event> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        // A server that knows no such selector answers with all.
        .filter(|event| {
            text(event, "/involvedObject/kind") == of.kind.kind
                && text(event, "/involvedObject/name") == of.name
        })
        .map(|event| {
            let last = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
            let at = last.iter().find_map(|field| text(event, field).parse::<Timestamp>().ok());
            let kind = text(event, "/type");
            let tone = if kind == "Warning" { Tone::Warn } else { Tone::Plain };
            Event {
                at: at.map(|at| rows::when(at, now)),
                reason: Word::new(text(event, "/reason"), tone),
                message: text(event, "/message"),
                count: event["count"].as_i64().unwrap_or(1),
            }
        })
        .collect();
    found.sort_by_key(|event| std::cmp::Reverse(event.at.as_ref().map(|when| when.at)));
    found.truncate(EVENTS);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_and_what_servers_add_are_not_shown() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "s", "uid": "1", "managedFields": [],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"data\": \"aGlkZGVu\"}", "a": "b"}},
            "data": {"password": "aGlkZGVu"}, "stringData": {"other": "open"}, "status": {}});
        let shown = plain(secret);
        assert_eq!(
            shown,
            json!({"kind": "Secret", "metadata": {"name": "s", "annotations": {"a": "b"}},
                "data": {"password": "***"}, "stringData": {"other": "***"}})
        );
    }

    #[test]
    fn overrides_are_marked() {
        let marked: Vec<_> = lines("a: 1\nb: 2\n", "a: 1\nb: 3\n")
            .into_iter()
            .map(|line| (line.added, line.text))
            .collect();
        let line = |added, text: &str| (added, text.to_owned());
        assert_eq!(
            marked,
            [line(None, "a: 1"), line(Some(false), "b: 2"), line(Some(true), "b: 3")]
        );
    }
}
