//! The page of a member.

use maud::html;

use super::overview::uses;
use super::{Chrome, page, parts, timeline};
use crate::data::{Action, Member, member_path};
use crate::query::pairs;

/// One member.
#[must_use]
pub fn member(chrome: &Chrome, member: &Member) -> String {
    let name = &member.name;
    let body = html! {
        (parts::notes(&member.notes))
        @if let Some(tile) = &member.tile {
            p.state {
                @for state in &tile.state { (parts::word(state)) " " }
                (parts::age(tile.since.as_ref())) " "
                @if !tile.reason.is_empty() { span.dim { (tile.reason) } }
            }
            @if !chrome.read_only {
                p.actions {
                    @if member.cordoned {
                        a.button href=(Action::Uncordon(name.clone()).path()) { "Uncordon" }
                    } @else {
                        a.button href=(Action::Cordon(name.clone()).path()) { "Cordon" }
                    }
                    a.button href=(Action::Drain(name.clone()).path()) { "Drain: preview" }
                    a.button href={"/what-if" (pairs(&[("without", name)]))} { "What if it fails" }
                }
            }
            section aria-labelledby="use" {
                h2 #use { "Use" }
                (uses(&tile.use_))
                @for (resource, course) in &member.uses {
                    @let what = format!("{resource} requested, percent");
                    h3 { (what) }
                    (timeline::course(course, &what, Some(100)))
                }
                @if !member.uses.is_empty() {
                    p.dim { "The leader records a sample when the requested part of a resource changed by 5 points." }
                }
                @if let Some(course) = &member.course {
                    h3 { "Replicas over time" }
                    (timeline::course(course, "Replicas that decisions gave it", None))
                    p.dim { "Replicas that decisions gave it, since the oldest of the last " (course.steps.len()) " that changed its share." }
                }
            }
        }
        section aria-labelledby="facts" {
            h2 #facts { "Facts" }
            dl.facts { @for (name, value) in &member.facts { dt { (name) } dd { (value) } } }
            @if !member.taints.is_empty() {
                h3 { "Taints" }
                ul { @for taint in &member.taints { li { code { (taint) } } } }
            }
            @if !member.conditions.is_empty() { h3 { "Conditions" } (parts::conditions(&member.conditions)) }
        }
        section aria-labelledby="work" {
            h2 #work { "What runs here" }
            @if member.shares.all == 0 { p { "No decision gives it work." } }
            @else { (parts::shares(&member.shares.rows, None)) }
            (parts::pager(&member.shares, "workloads", |page| {
                format!("{}{}", member_path(name), pairs(&[("page", &page.to_string())]))
            }))
        }
        section aria-labelledby="events" {
            h2 #events { "What happened" }
            @if member.events.is_empty() { p { "Nothing is recorded." } }
            @else {
                (parts::decisions("Events of the member, and decisions that changed its share", &member.events, true))
                p { a href={"/decisions" (pairs(&[("member", name)]))} { "All decisions about this member" } }
            }
        }
    };
    page(chrome, name, body)
}
