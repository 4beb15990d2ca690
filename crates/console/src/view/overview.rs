//! The page Overview.

use maud::{Markup, html};

use super::{Chrome, page, parts};
use crate::data::{Action, MemberTile, Overview, Tone, Use, member_path};
use crate::query::pairs;

/// The federation at a glance.
#[must_use]
pub fn overview(chrome: &Chrome, overview: &Overview) -> String {
    let address = |members: usize, concerns: usize| {
        format!(
            "/{}",
            pairs(&[("members", &members.to_string()), ("concerns", &concerns.to_string())])
        )
    };
    let (at_members, at_concerns) = (overview.members.page + 1, overview.concerns.page + 1);
    let body = html! {
        (parts::notes(&overview.notes))
        (figures(overview))
        section aria-labelledby="members" {
            h2 #members { "Members" }
            @if overview.members.all == 0 { p { "There are no members. `atoll join NAME` adds one." } }
            div.tiles { @for member in &overview.members.rows { (tile(member)) } }
            (parts::pager(&overview.members, "members", |page| address(page, at_concerns)))
        }
        section aria-labelledby="concerns" {
            h2 #concerns { "What needs attention" }
            @if overview.concerns.all == 0 { p { "Nothing: all workloads are as they should be." } }
            @else { (parts::concerns(&overview.concerns.rows, true)) }
            (parts::pager(&overview.concerns, "rows", |page| address(at_members, page)))
            @if !chrome.read_only && overview.members.rows.iter().any(|m| m.session.tone == Tone::Bad) {
                p { "A member is silent. If the controller suspects its own network, "
                    a href=(Action::ConfirmLost.path()) { "confirm that silent members are lost" } "." }
            }
        }
        @if !overview.held.is_empty() { (held(chrome, overview)) }
        section aria-labelledby="recent" {
            h2 #recent { "Decisions of the last hour" }
            @if overview.recent.is_empty() { p { "None." } }
            @else {
                (parts::decisions("Decisions of the last hour", &overview.recent, true))
                p { a href="/decisions" { "All decisions" } }
            }
        }
    };
    page(chrome, "Overview", body)
}

fn figures(overview: &Overview) -> Markup {
    html! {
        dl.figures {
            div { dt { "Leader" } dd { @match &overview.leader {
                Some(leader) => { (leader) }
                None => { span.word.bad { "■ none: nothing is decided" } }
            } } }
            div { dt { "Members ready" } dd { (overview.ready) " of " (overview.members.all) } }
            div { dt { "Workloads" } dd { (overview.workloads) } }
            @for count in &overview.counts {
                div { dt { (count.state.text) } dd {
                    a class={"word " (parts::class(count.state.tone))}
                        href={"/placement" (pairs(&[("state", &count.state.text)]))} { (count.count) }
                } }
            }
        }
    }
}

/// Plans that ChangeGuards hold.
fn held(chrome: &Chrome, overview: &Overview) -> Markup {
    let rows = html! {
        @for plan in &overview.held {
            tr {
                td {
                    @if chrome.read_only { (plan.plan) }
                    @else { a href=(Action::Approve(plan.plan.clone()).path()) { (plan.plan) } }
                }
                td { (parts::age(Some(&plan.since))) }
                td { (plan.guards.join(", ")) }
                td.number { (plan.workloads) }
                td.number { (plan.replicas) }
                td.text { (plan.causes.join(", ")) }
                td.text { @for (index, why) in plan.why.iter().enumerate() { @if index > 0 { br; } (why) } }
            }
        }
    };
    let head = ["Plan", "Since", "Guards", "#Workloads", "#Moves", "What changed", "Why it waits"];
    html! {
        section aria-labelledby="held" {
            h2 #held { "Changes that wait for a guard" }
            (parts::table("Changes that wait for a guard", &head, rows))
            @if overview.more_held > 0 { p.dim { (overview.more_held) " more plans are not listed." } }
        }
    }
}

fn tile(member: &MemberTile) -> Markup {
    let worst = member.state.iter().map(|word| word.tone).find(|tone| *tone != Tone::Good);
    html! {
        article class={"tile " (parts::class(worst.unwrap_or(Tone::Good)))} {
            h3 { a href=(member_path(&member.name)) { (member.name) } }
            p { @for state in &member.state { (parts::word(state)) " " } (parts::age(member.since.as_ref())) }
            @if !member.reason.is_empty() { p.dim { (member.reason) } }
            p {
                (member.replicas) @if member.replicas == 1 { " replica, " } @else { " replicas, " }
                (member.workloads) @if member.workloads == 1 { " workload" } @else { " workloads" }
            }
            (uses(&member.use_))
            p.dim { "session " (parts::word(&member.session)) }
        }
    }
}

/// Bars of what is requested of each resource.
pub(super) fn uses(uses: &[Use]) -> Markup {
    html! {
        @if !uses.is_empty() {
            dl.uses {
                @for use_ in uses {
                    dt { (use_.resource) }
                    dd {
                        @match use_.percent {
                            Some(percent) => {
                                (bar(percent)) " " (percent) " % " span.dim { (use_.text) }
                            }
                            None => { span.dim { "unknown" } }
                        }
                    }
                }
            }
        }
    }
}

/// A bar; the number is beside it.
fn bar(percent: u8) -> Markup {
    let tone = match percent {
        0..=79 => "plain",
        80..=94 => "warn",
        _ => "bad",
    };
    html! {
        svg.bar viewBox="0 0 100 8" width="100" height="8" preserveAspectRatio="none" aria-hidden="true" {
            rect.track x="0" y="0" width="100" height="8" {}
            rect class={"fill " (tone)} x="0" y="0" width=(percent.min(100)) height="8" {}
        }
    }
}
