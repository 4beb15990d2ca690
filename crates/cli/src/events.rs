//! `atoll events`: Events of all members.

use anyhow::bail;
use atoll_history::api::text::age;
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use crate::args::{HubFlags, WideFormat};
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone};
use crate::reach;
use crate::read::decisions::escape;
use crate::read::fleet::{self, Answer, Collection, items};
use crate::read::workload;

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only about this object, for example pod/web-0
    #[arg(long = "for", value_name = "TYPE/NAME", conflicts_with = "all_namespaces")]
    about: Option<String>,
    /// On this member only; may be given several times
    #[arg(long = "cluster", value_name = "MEMBER")]
    members: Vec<String>,
    /// How to print the answer; wide adds who reported and how often
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: WideFormat,
}

pub(crate) async fn run(flags: &HubFlags, args: EventsArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let about = match &args.about {
        None => None,
        Some(text) => Some(about(&hub, text).await?),
    };
    let members = reach::members(&hub, &args.members).await?;
    let path = match args.all_namespaces {
        true => "/api/v1/events".to_owned(),
        false => format!("/api/v1/namespaces/{}/events", hub.namespace),
    };
    let collection = Collection { path, fields: about, ..Collection::default() };
    let answers = collection.of(&members).await;
    fleet::report(&answers)?;
    if let Some(format) = args.output.objects() {
        return out.object(format, &fleet::list_of(fleet::objects(&answers, &[])));
    }
    let rows = rows(&answers, &args, Timestamp::now());
    if rows.is_empty() {
        return out.line("No events found.");
    }
    let mut header = vec!["CLUSTER", "LAST SEEN", "TYPE", "REASON", "OBJECT"];
    if args.all_namespaces {
        header.insert(1, "NAMESPACE");
    }
    if args.output == WideFormat::Wide {
        header.extend(["SOURCE", "COUNT", "MESSAGE"]);
        return out.wide_table(&header, rows);
    }
    header.push("MESSAGE");
    out.table_keeping(header.len() - 1, &header, rows)
}

/// The field selector for Events about an object.
async fn about(hub: &Hub, text: &str) -> anyhow::Result<String> {
    let object = workload::resolve(hub, &[text.to_owned()]).await;
    let object = match object {
        Ok(object) => object,
        Err(error) => bail!("--for {text}: {error:#}"),
    };
    let (kind, name) = (escape(&object.kind.kind), escape(&object.name));
    Ok(format!("involvedObject.kind={kind},involvedObject.name={name}"))
}

/// When an Event was last seen.
fn last_seen(event: &Value) -> Option<Timestamp> {
    let at = |value: &Value| value.as_str()?.parse().ok();
    at(&event["series"]["lastObservedTime"])
        .or_else(|| at(&event["lastTimestamp"]))
        .or_else(|| at(&event["eventTime"]))
        .or_else(|| at(&event["metadata"]["creationTimestamp"]))
}

/// The Events of all members, oldest first.
fn rows(answers: &[Answer<'_>], args: &EventsArgs, now: Timestamp) -> Vec<Vec<Text>> {
    let mut events = Vec::new();
    for Answer { member, pages } in answers {
        for page in pages.iter().flatten() {
            events.extend(items(page).map(|event| (last_seen(event), member.name.as_str(), event)));
        }
    }
    events.sort_by_key(|(at, member, _)| (*at, *member));
    let row = |(at, member, event): &(Option<Timestamp>, &str, &Value)| {
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let involved = |field: &str| event["involvedObject"][field].as_str().unwrap_or_default();
        let mut cells: Vec<Text> = vec![(*member).into()];
        if args.all_namespaces {
            cells.push(event["metadata"]["namespace"].as_str().unwrap_or_default().into());
        }
        let tone = if text("type") == "Warning" { Tone::Warn } else { Tone::Plain };
        cells.push(at.map_or_else(|| "?".to_owned(), |at| age(at, now)).into());
        cells.extend([Text::toned(text("type"), tone), text("reason").into()]);
        cells.push(format!("{}/{}", involved("kind").to_lowercase(), involved("name")).into());
        if args.output == WideFormat::Wide {
            let source = [
                text("reportingComponent"),
                event["source"]["component"].as_str().unwrap_or_default(),
            ];
            let source = source.into_iter().find(|source| !source.is_empty()).unwrap_or("-");
            let count = event["series"]["count"].as_i64().or_else(|| event["count"].as_i64());
            cells.extend([source.into(), count.unwrap_or(1).into()]);
        }
        cells.push(Text::from(text("message")).trimmed());
        cells
    };
    events.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reach::Member;

    #[tokio::test]
    async fn events_of_all_members_are_ordered_by_time() {
        let members = ["m1", "m2"].map(Member::nowhere);
        let event = |reason: &str, times: Value| {
            let mut event = json!({"reason": reason, "type": "Warning", "message": "text\n",
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "involvedObject": {"kind": "Pod", "name": "web-0"}});
            event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
            event
        };
        let page = |items: &[Value]| Ok(vec![json!({"items": items})]);
        let repeated = json!({"eventTime": "2026-01-01T00:00:01Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:09:00.000000Z"}});
        let first = [event("C", repeated), event("A", json!({"lastTimestamp": null}))];
        let second = [event("B", json!({"lastTimestamp": "2026-01-01T00:05:00Z"}))];
        let answers = [
            Answer { member: &members[0], pages: page(&first) },
            Answer { member: &members[1], pages: page(&second) },
        ];
        let args = EventsArgs {
            all_namespaces: false,
            about: None,
            members: Vec::new(),
            output: WideFormat::Wide,
        };
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown: Vec<String> =
            rows(&answers, &args, now).iter().map(|row| format!("{row:?}")).collect();
        assert_eq!(shown.len(), 3);
        for (row, parts) in shown.iter().zip([["\"A\"", "m1"], ["\"B\"", "m2"], ["\"C\"", "\"3\""]])
        {
            assert!(parts.iter().all(|part| row.contains(part)), "{row}");
        }
        assert!(shown[2].contains("pod/web-0") && shown[2].contains("Warn"), "{}", shown[2]);
    }
}
