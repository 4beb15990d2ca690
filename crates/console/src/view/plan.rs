//! The page What-if, and the plan that actions show too.

use maud::{Markup, html};

use super::decisions::input;
use super::{Chrome, page, parts};
use crate::data::{Plan, WhatIf};

/// The form, and the plan of what it asked or why there is none.
#[must_use]
pub fn what_if(chrome: &Chrome, ask: &WhatIf, answer: Option<Result<&Plan, &str>>) -> String {
    let body = html! {
        p { "Nothing is written. The leading controller computes the plan from what it knows now." }
        form.what-if method="post" action="/what-if" {
            input type="hidden" name="csrf" value=(chrome.csrf);
            div.filters {
                (input("without", "This member fails", Some(&ask.without)))
                (input("drain", "This member is drained", Some(&ask.drain)))
                (input("taint", "Taint: MEMBER=KEY:EFFECT", Some(&ask.taint)))
                (input("scale", "Scale: TYPE/NAMESPACE/NAME=N", Some(&ask.scale)))
            }
            label.wide {
                span { "Objects that are applied, as YAML" }
                textarea name="objects" rows="12" spellcheck="false" autocomplete="off" { (ask.objects) }
            }
            button type="submit" { "Plan" }
        }
        @match answer {
            Some(Ok(found)) => { section aria-labelledby="plan" { h2 #plan { "Plan" } (plan(found)) } }
            Some(Err(why)) => { p.fault role="alert" { (why) } }
            None => {}
        }
    };
    page(chrome, "What if", body)
}

/// A plan.
pub(super) fn plan(plan: &Plan) -> Markup {
    html! {
        p.summary role="status" { (plan.summary) }
        (parts::notes(&plan.problems))
        @if !plan.changes.is_empty() {
            (parts::table("Workloads that change", &["Workload", "Change", "Why"], html! {
                @for row in &plan.changes {
                    tr {
                        th scope="row" { (row.object) }
                        td.text { @for (index, step) in row.change.iter().enumerate() { @if index > 0 { br; } (step) } }
                        td.text { (row.why) }
                    }
                }
            }))
            @if plan.more > 0 { p.dim { (plan.more) " more workloads are not listed." } }
        }
        @if !plan.members.is_empty() {
            (parts::table("Members", &["Member", "#Replicas", "#CPU requested", "#Memory requested"], html! {
                @for member in &plan.members {
                    tr {
                        th scope="row" { (parts::member(&member.name)) }
                        td.number { (member.replicas) }
                        td.number { (member.cpu) }
                        td.number { (member.memory) }
                    }
                }
            }))
        }
    }
}
