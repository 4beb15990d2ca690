//! The page Policies.

use maud::html;

use super::{Chrome, page, parts};
use crate::data::Policies;
use crate::query::pairs;

/// What each policy claims, what shadows it, and what the linter says.
#[must_use]
pub fn policies(chrome: &Chrome, policies: &Policies) -> String {
    let (at, at_findings) = (policies.rows.page + 1, policies.findings.page + 1);
    let address = |page: usize, findings: usize| {
        format!(
            "/policies{}",
            pairs(&[("page", &page.to_string()), ("findings", &findings.to_string())])
        )
    };
    let rows = html! {
        @for policy in &policies.rows.rows {
            tr {
                th scope="row" { (policy.name) }
                td.number { (policy.priority) }
                td.text { ul { @for selector in &policy.selects { li { (selector) } } } }
                td.number { (policy.claims) }
                td.text { @for (index, of) in policy.examples.iter().enumerate() {
                    @if index > 0 { ", " }
                    (parts::workload(of))
                } @if policy.claims > policy.examples.len() { " …" } }
                td.text { @if !policy.shadowed_by.is_empty() {
                    ul { @for (name, count) in &policy.shadowed_by { li { (name) " for " (count) } } }
                } }
            }
        }
    };
    let head = ["Policy", "#Priority", "Selects", "#Claims", "For example", "Others win"];
    let body = html! {
        (parts::notes(&policies.notes))
        section aria-labelledby="claims" {
            h2 #claims { "What each policy claims" }
            @if policies.rows.all == 0 { p { "There are no policies." } }
            @else { (parts::table("Policies", &head, rows)) }
            (parts::pager(&policies.rows, "policies", |page| address(page, at_findings)))
        }
        section aria-labelledby="lint" {
            h2 #lint { "Findings of the linter" }
            @match &policies.checked {
                None => { p { "The policies are being checked. Load the page again in some seconds, if it does not do so itself." } }
                Some(when) => { p.dim { "Findings, and which other policies win, are of " (parts::age(Some(when))) " ago." } }
            }
            @if policies.checked.is_none() {}
            @else if policies.findings.all == 0 { p { "No problems found." } }
            @else {
                (parts::table("Findings", &["Severity", "Object", "Field", "Problem", "Fix"], html! {
                    @for finding in &policies.findings.rows {
                        tr {
                            td { (parts::word(&finding.severity)) }
                            td { (finding.object) }
                            td { code { (finding.field) } }
                            td.text { (finding.problem) }
                            td.text { (finding.fix) }
                        }
                    }
                }))
            }
            (parts::pager(&policies.findings, "findings", |page| address(at, page)))
        }
    };
    page(chrome, "Policies", body)
}
