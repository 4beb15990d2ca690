//! Each page from fixed data: its HTML as a golden file, and rules that hold for all of them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_console::Source;
use atoll_console::data::*;
use atoll_console::view::{self, Chrome};

use crate::fixed::{Fixed, HOSTILE, plan, workload};

/// Name and HTML of every page.
async fn pages() -> Vec<(&'static str, String)> {
    let fixed = Fixed::default();
    let chrome = Chrome {
        hub: HOSTILE.to_owned(),
        csrf: "the-csrf-token".to_owned(),
        path: "/".to_owned(),
        live: Some("/events?topic=fleet".to_owned()),
        ..Chrome::default()
    };
    let filter = DecisionFilter { name: Some(HOSTILE.to_owned()), ..DecisionFilter::default() };
    let map = PlacementFilter { name: Some(HOSTILE.to_owned()), ..PlacementFilter::default() };
    let ask = WhatIf { objects: HOSTILE.to_owned(), ..WhatIf::default() };
    let drain = Action::Drain("member1".to_owned());
    let rebalance = Action::Rebalance(WorkloadId { name: HOSTILE.to_owned(), ..workload() });
    let c = &chrome;
    vec![
        ("overview", view::overview(c, &fixed.overview(0, 0).await.unwrap())),
        ("placement", view::placement(c, &map, &fixed.placement(&map).await.unwrap())),
        ("workload", view::workload(c, &fixed.workload(&workload(), 0, 0).await.unwrap())),
        ("copy", view::copy(c, &fixed.copy(&workload(), "member1").await.unwrap())),
        ("member", view::member(c, &fixed.member(HOSTILE, 0).await.unwrap())),
        ("decisions", view::decisions(c, &filter, &fixed.decisions(&filter).await.unwrap())),
        ("decision", view::decision(c, &fixed.decision(None, "0", 0).await.unwrap())),
        ("diff", view::diff(c, &fixed.diff("0", "1").await.unwrap())),
        ("policies", view::policies(c, &fixed.policies(0, 0).await.unwrap())),
        ("what-if", view::what_if(c, &ask, Some(Ok(&plan())))),
        ("what-if-refused", view::what_if(c, &ask, Some(Err(HOSTILE)))),
        ("drain", view::preview(c, &drain, &plan(), Some("type it"))),
        ("rebalance", view::preview(c, &rebalance, &plan(), None)),
        ("approve", view::preview(c, &Action::Approve(HOSTILE.to_owned()), &plan(), None)),
        ("fault", view::fault(c, "Not found", HOSTILE)),
        ("no-session", view::no_session()),
    ]
}

/// A start tag.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: BTreeMap<String, String>,
}

/// The start tags of a page. The templates quote every value, so a small reader is enough.
fn tags(html: &str) -> Vec<Tag> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let mut quoted = false;
        let end = rest.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, after) = rest.split_at(end.expect("a tag ends"));
        rest = after;
        if tag.starts_with(['/', '!']) {
            continue;
        }
        let (name, mut text) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = BTreeMap::new();
        while !text.trim().is_empty() {
            text = text.trim_start();
            let end = text.find(['=', ' ']).unwrap_or(text.len());
            let key = text[..end].to_owned();
            text = &text[end..];
            let value = match text.strip_prefix("=\"") {
                Some(value) => {
                    let (value, after) = value.split_once('"').unwrap();
                    text = after;
                    value
                }
                None => "",
            };
            assert!(attributes.insert(key, value.to_owned()).is_none(), "twice in {tag}");
        }
        found.push(Tag { name: name.to_owned(), attributes });
    }
    found
}

#[tokio::test]
async fn golden_pages() {
    for (name, html) in pages().await {
        // One tag a line, so that differences can be read.
        insta::assert_snapshot!(name, html.replace("><", ">\n<"));
    }
}

#[tokio::test]
async fn nothing_hostile_becomes_markup_and_nothing_is_inline() {
    let known: BTreeSet<&str> = "a article body br button caption circle code dd del div dl dt footer form h1 h2 h3 head header html input \
         ins label li line link main meta nav ol option p path pre rect script section select span svg table tbody td text textarea th \
         thead time title tr ul"
        .split_whitespace()
        .collect();
    for (name, html) in pages().await {
        for tag in tags(&html) {
            assert!(known.contains(tag.name.as_str()), "{name}: <{}>", tag.name);
            for (key, value) in &tag.attributes {
                assert!(!key.starts_with("on") && key != "style", "{name}: {key}={value}");
                if ["href", "src", "action"].contains(&key.as_str()) {
                    assert!(value.starts_with('/') || value == "#main", "{name}: {key}={value}");
                    assert!(!value.starts_with("//"), "{name}: {key}={value}");
                }
            }
            if tag.name == "script" {
                assert_eq!(tag.attributes["src"], "/assets/live.js", "{name}");
            }
        }
        let hostile = html.matches("&lt;script&gt;alert(1)").count();
        assert!(hostile > 0 || name == "no-session", "{name} shows hostile texts as texts");
        assert!(!html.contains("<script>") && !html.contains("<img"), "{name}");
    }
}

#[tokio::test]
async fn pages_can_be_used_without_eyes_and_mouse() {
    for (name, html) in pages().await {
        let tags = tags(&html);
        let count = |wanted: &str| tags.iter().filter(|tag| tag.name == wanted).count();
        assert_eq!((count("h1"), count("main"), count("title") > 0), (1, 1, true), "{name}");
        let mut ids = BTreeSet::new();
        for id in tags.iter().filter_map(|tag| tag.attributes.get("id")) {
            assert!(ids.insert(id), "{name}: id {id} is used twice");
        }
        let mut level = 1;
        let mut in_label = false;
        // Labels contain their fields, and the templates nest nothing else in them.
        let mut rest = html.as_str();
        while let Some(at) = rest.find('<') {
            rest = &rest[at..];
            if rest.starts_with("<label") {
                in_label = true;
            } else if rest.starts_with("</label") {
                in_label = false;
            } else if ["<input", "<select", "<textarea"].iter().any(|t| rest.starts_with(t)) {
                let hidden = rest.starts_with("<input type=\"hidden\"");
                assert!(in_label || hidden, "{name}: a field without a label");
            }
            rest = &rest[1..];
        }
        for tag in &tags {
            let attribute = |key: &str| tag.attributes.get(key).map(String::as_str);
            if let Some(by) = attribute("aria-labelledby") {
                assert!(
                    ids.contains(&by.to_owned()),
                    "{name}: {by} labels something and is not there"
                );
            }
            if let Some(depth) = tag.name.strip_prefix('h').and_then(|n| n.parse::<u32>().ok()) {
                assert!(depth <= level + 1, "{name}: h{depth} after h{level}");
                level = depth;
            }
            match tag.name.as_str() {
                "th" => assert!(attribute("scope").is_some(), "{name}: th without scope"),
                "nav" => assert!(attribute("aria-label").is_some(), "{name}: nav without name"),
                "html" => assert_eq!(attribute("lang"), Some("en"), "{name}"),
                _ => {}
            }
            // What scrolls must be reachable by keyboard and have a name.
            if attribute("class") == Some("scroll") {
                assert!(
                    attribute("tabindex").is_some() && attribute("aria-label").is_some(),
                    "{name}"
                );
            }
        }
        assert_eq!(count("table"), count("caption"), "{name}: every table has a caption");
    }
}

#[tokio::test]
async fn a_read_only_console_offers_no_action() {
    let fixed = Fixed::default();
    let chrome = Chrome { read_only: true, ..Chrome::default() };
    let pages = [
        view::overview(&chrome, &fixed.overview(0, 0).await.unwrap()),
        view::member(&chrome, &fixed.member("member1", 0).await.unwrap()),
        view::workload(&chrome, &fixed.workload(&workload(), 0, 0).await.unwrap()),
    ];
    for page in pages {
        assert!(!page.contains("/act/"), "{page}");
        assert!(page.contains("read-only"));
    }
}

/// Relative luminance of `#rrggbb`, as WCAG 2 defines it.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

#[test]
fn colours_have_the_contrast_that_wcag_asks_for_in_light_and_dark() {
    let style = include_str!("../../assets/style.css");
    let mut checked = 0;
    // The first two blocks of variables with a background: light and dark.
    for block in style.split('{').filter(|block| block.contains("--heat-5: ")) {
        let colours: BTreeMap<&str, &str> = block
            .split(';')
            .filter_map(|line| line.trim().split_once(": "))
            .filter(|(name, value)| name.starts_with("--") && value.len() == 7)
            .collect();
        let pairs = ["text", "dim", "link", "good", "warn", "bad"]
            .iter()
            .flat_map(|front| ["--back", "--panel"].map(|back| (format!("--{front}"), back)))
            .chain([("--text".to_owned(), "--heat-3"), ("--on-heat".to_owned(), "--heat-5")])
            .chain([("--on-heat".to_owned(), "--heat-4")]);
        for (front, back) in pairs {
            let (a, b) = (luminance(colours[front.as_str()]), luminance(colours[back]));
            let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
            assert!(contrast >= 4.5, "{front} on {back}: {contrast:.2}");
            checked += 1;
        }
    }
    assert_eq!(checked, 30, "both themes were read");
}
