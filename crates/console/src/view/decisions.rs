//! The pages Decisions, of one decision, and of the difference of two.

use maud::{Markup, html};

use super::{Chrome, page, parts};
use crate::data::{DecisionFilter, DecisionPage, DecisionRow, Decisions, DiffPage};
use crate::query::pairs;

/// The address of a list of decisions.
fn address(filter: &DecisionFilter, until: Option<&str>) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let until = until.map_or_else(|| text(&filter.until), str::to_owned);
    let fields = [
        ("namespace", text(&filter.namespace)),
        ("kind", text(&filter.kind)),
        ("name", text(&filter.name)),
        ("trigger", text(&filter.trigger)),
        ("outcome", text(&filter.outcome)),
        ("member", text(&filter.member)),
        ("since", text(&filter.since)),
        ("until", until),
    ];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    format!("/decisions{}", pairs(&fields))
}

/// The list of decisions.
#[must_use]
pub fn decisions(chrome: &Chrome, filter: &DecisionFilter, found: &Decisions) -> String {
    let body = html! {
        form.filters method="get" action="/decisions" role="search" {
            (input("namespace", "Namespace", filter.namespace.as_deref()))
            (input("kind", "Kind", filter.kind.as_deref()))
            (input("name", "Name", filter.name.as_deref()))
            (select("trigger", "Trigger", filter.trigger.as_deref(), &found.triggers))
            (select("outcome", "Outcome", filter.outcome.as_deref(), &found.outcomes))
            (input("member", "Member", filter.member.as_deref()))
            (input("since", "Since (24h, 7d or a time)", filter.since.as_deref()))
            (input("until", "Until", filter.until.as_deref()))
            button type="submit" { "Filter" }
            a href="/decisions" { "Clear" }
        }
        @if found.rows.is_empty() { p { "No decision matches." } }
        @else { (parts::decisions("Decisions", &found.rows, true)) }
        @if let Some(older) = &found.older {
            nav.pager aria-label="Pages of decisions" {
                @if filter.until.is_some() { a rel="prev" href=(address(filter, Some(""))) { "Newest" } }
                a rel="next" href=(address(filter, Some(older))) { "Older" }
            }
        }
        section aria-labelledby="compare" {
            h2 #compare { "Compare two decisions" }
            form.filters method="get" action="/diff" {
                (input("from", "Id of the first", None))
                (input("to", "Id of the second", None))
                button type="submit" { "Compare" }
            }
        }
    };
    page(chrome, "Decisions", body)
}

pub(super) fn input(name: &str, label: &str, value: Option<&str>) -> Markup {
    html! {
        label { span { (label) } input type="text" name=(name) value=(value.unwrap_or_default()) maxlength="253" autocomplete="off" spellcheck="false"; }
    }
}

pub(super) fn select(name: &str, label: &str, value: Option<&str>, options: &[String]) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" { "all" }
                @for option in options {
                    option value=(option) selected[value == Some(option.as_str())] { (option) }
                }
            }
        }
    }
}

fn head(row: &DecisionRow) -> Markup {
    html! {
        dl.facts {
            dt { "Id" } dd { code { (row.id) } }
            dt { "Time" } dd { (parts::time(row.at.as_ref())) }
            dt { "Workload" } dd { @if let Some(of) = &row.workload { (parts::workload(of)) } @else { "?" } }
            dt { "Trigger" } dd { (row.trigger) }
            dt { "Outcome" } dd { (parts::word(&row.outcome)) }
            dt { "Shares" } dd { (row.change) }
            dt { "Reason" } dd { (row.reason) }
        }
    }
}

/// One decision.
#[must_use]
pub fn decision(chrome: &Chrome, decision: &DecisionPage) -> String {
    let row = &decision.row;
    let list = |title: &str, lines: &[String]| {
        html! { @if !lines.is_empty() { section { h2 { (title) } pre { @for line in lines { (line) "\n" } } } } }
    };
    let body = html! {
        (head(row))
        @if let Some(parent) = &decision.parent {
            p { a href={"/diff" (pairs(&[("from", parent), ("to", &row.id)]))} { "Compare with the decision before it" } }
        }
        @if decision.verdicts.all > 0 {
            section aria-labelledby="verdicts" {
                h2 #verdicts { "Why and why not, by cluster" }
                (parts::verdicts(&decision.verdicts.rows))
                (parts::pager(&decision.verdicts, "clusters", |page| {
                    format!("{}{}", row.path().unwrap_or_default(), pairs(&[("page", &page.to_string())]))
                }))
            }
        }
        section aria-labelledby="text" {
            h2 #text { "The whole decision" }
            pre tabindex="0" { (decision.text) }
        }
        (list("Made from", &decision.made_from))
        (list("What followed", &decision.followed))
    };
    page(chrome, "Decision", body)
}

/// The difference of two decisions.
#[must_use]
pub fn diff(chrome: &Chrome, diff: &DiffPage) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    let body = html! {
        div.columns {
            section { h2 { "From " (parts::decision_link(&diff.from)) } (head(&diff.from)) }
            section { h2 { "To " (parts::decision_link(&diff.to)) } (head(&diff.to)) }
        }
        (parts::notes(&diff.unknown))
        @if diff.sections.iter().all(|(_, lines)| lines.is_empty()) { p { "They do not differ." } }
        @for (title, lines) in diff.sections.iter().filter(|(_, lines)| !lines.is_empty()) {
            section {
                h2 { (title) }
                (parts::table(title, &["Of", "From", "To"], html! {
                    @for line in lines {
                        tr { th scope="row" { (line.of) } td.text { (side(&line.from)) } td.text { (side(&line.to)) } }
                    }
                }))
            }
        }
    };
    page(chrome, "Difference of two decisions", body)
}
