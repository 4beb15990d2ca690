//! The pages of a workload, and of a workload on one member.

use maud::html;

use super::{Chrome, page, parts, timeline};
use crate::data::{Action, Copy, Workload};
use crate::query::pairs;

/// One workload.
#[must_use]
pub fn workload(chrome: &Chrome, workload: &Workload) -> String {
    let id = &workload.id;
    let address = |shares: usize, verdicts: usize| {
        let (shares, verdicts) = (shares.to_string(), verdicts.to_string());
        format!("{}{}", id.path(), pairs(&[("shares", &shares), ("verdicts", &verdicts)]))
    };
    let (at_shares, at_verdicts) = (workload.shares.page + 1, workload.verdicts.page + 1);
    let body = html! {
        (parts::notes(&workload.notes))
        dl.facts {
            dt { "Kind" } dd { (id.type_()) }
            @if let Some(namespace) = &id.namespace { dt { "Namespace" } dd { (namespace) } }
            dt { "Policy" } dd { (workload.policy.as_deref().unwrap_or("none")) }
            dt { "Replicas" } dd { (parts::count(workload.replicas)) }
        }
        @if !chrome.read_only {
            p.actions { a.button href=(Action::Rebalance(id.clone()).path()) { "Rebalance: preview" } }
        }
        @if !workload.concerns.is_empty() {
            section aria-labelledby="concerns" {
                h2 #concerns { "What needs attention" }
                (parts::concerns(&workload.concerns, false))
            }
        }
        section aria-labelledby="split" {
            h2 #split { "Current split" }
            @if workload.shares.all == 0 { p { "It has no share on any member." } }
            @else { (parts::shares(&workload.shares.rows, Some(id))) }
            (parts::pager(&workload.shares, "members", |page| address(page, at_verdicts)))
            @if !workload.conditions.is_empty() { (parts::conditions(&workload.conditions)) }
        }
        @if let Some(found) = &workload.timeline {
            section aria-labelledby="timeline" {
                h2 #timeline { "Timeline" }
                (timeline::draw(found))
                @if found.truncated { p.dim { "Older decisions are left out." } }
            }
        }
        @if let Some(decision) = &workload.decision {
            section aria-labelledby="why" {
                h2 #why { "Why it runs where it runs" }
                p { "By decision " (parts::decision_link(decision)) ", " (decision.trigger) ", " (parts::word(&decision.outcome))
                    ": " (decision.reason) }
                (parts::verdicts(&workload.verdicts.rows))
                (parts::pager(&workload.verdicts, "clusters", |page| address(at_shares, page)))
            }
        }
        section aria-labelledby="decisions" {
            h2 #decisions { "Decisions" }
            @if workload.decisions.is_empty() { p { "Nothing was ever decided about it: does a policy select it?" } }
            @else { (parts::decisions("Decisions about this workload", &workload.decisions, false)) }
        }
    };
    page(chrome, &id.to_string(), body)
}

/// A workload on one member.
#[must_use]
pub fn copy(chrome: &Chrome, copy: &Copy) -> String {
    let body = html! {
        p { (parts::workload(&copy.id)) " on " (parts::member(&copy.member)) }
        (parts::notes(&copy.notes))
        @if !copy.lines.is_empty() {
            section aria-labelledby="manifest" {
                h2 #manifest { "Manifest" }
                p.dim { "The template on the hub beside the object on the member. Lines with − are only in the template, lines with + \
                         only on the member: its share of the replicas, overrides, and what the member set." }
                pre.diff tabindex="0" {
                    @for line in &copy.lines {
                        @match line.added {
                            None => { span.same { "  " (line.text) "\n" } }
                            Some(true) => { ins { "+ " (line.text) "\n" } }
                            Some(false) => { del { "− " (line.text) "\n" } }
                        }
                    }
                }
            }
        }
        @if let Some(status) = &copy.status {
            section aria-labelledby="status" { h2 #status { "Status there" } pre tabindex="0" { (status) } }
        }
        section aria-labelledby="events" {
            h2 #events { "Events there" }
            @if copy.events.is_empty() { p { "None." } }
            @else {
                (parts::table("Events", &["Last seen", "Reason", "#Count", "Message"], html! {
                    @for event in &copy.events {
                        tr {
                            td { (parts::age(event.at.as_ref())) }
                            td { (parts::word(&event.reason)) }
                            td.number { (event.count) }
                            td.text { (event.message) }
                        }
                    }
                }))
            }
        }
    };
    page(chrome, &format!("{} on {}", copy.id, copy.member), body)
}
