//! The page that shows what an action would do and asks to confirm it.

use maud::html;

use super::plan::plan;
use super::{Chrome, page};
use crate::data::{Action, NO_NAMESPACE, Plan};

/// The plan of an action, with the form that confirms it. `wrong` says why the last confirmation was refused.
#[must_use]
pub fn preview(chrome: &Chrome, action: &Action, found: &Plan, wrong: Option<&str>) -> String {
    let subject: Vec<(&str, String)> = match action {
        Action::Cordon(member) | Action::Uncordon(member) | Action::Drain(member) => {
            vec![("member", member.clone())]
        }
        Action::Rebalance(of) => vec![
            ("namespace", of.namespace.clone().unwrap_or_else(|| NO_NAMESPACE.to_owned())),
            ("type", of.type_()),
            ("name", of.name.clone()),
        ],
        Action::ConfirmLost => Vec::new(),
        Action::Approve(plan) => vec![("plan", plan.clone())],
    };
    let title = match action {
        Action::Cordon(member) => format!("Cordon {member}"),
        Action::Uncordon(member) => format!("Uncordon {member}"),
        Action::Drain(member) => format!("Drain {member}"),
        Action::Rebalance(of) => format!("Rebalance {of}"),
        Action::ConfirmLost => "Confirm lost members".to_owned(),
        Action::Approve(plan) => format!("Approve {plan}"),
    };
    let body = html! {
        p { (action.says()) }
        section aria-labelledby="plan" { h2 #plan { "What it would do now" } (plan(found)) }
        section aria-labelledby="confirm" {
            h2 #confirm { "Confirm" }
            @if let Some(wrong) = wrong { p.fault role="alert" { (wrong) } }
            form.confirm method="post" action={"/act/" (action.verb())} {
                input type="hidden" name="csrf" value=(chrome.csrf);
                @for (name, value) in &subject { input type="hidden" name=(name) value=(value); }
                label {
                    span { "Type " code { (action.confirmation()) } " to confirm" }
                    input type="text" name="confirm" required autocomplete="off" spellcheck="false";
                }
                button.danger type="submit" { (title) }
                a href=(action.back()) { "Cancel" }
            }
        }
    };
    page(chrome, &title, body)
}

/// What is said after an action of this name; `None` for any other text, so that no address can make a page say
/// something else.
#[must_use]
pub fn done(verb: &str) -> Option<&'static str> {
    match verb {
        "cordon" => Some("The member is cordoned."),
        "uncordon" => Some("The member accepts new work."),
        "drain" => Some("The drain began: the controller moves the work, within its pace."),
        "rebalance" => Some("The rebalance was requested: the controller decides again."),
        "confirm-lost" => Some("The loss is confirmed: the controller moves the work."),
        "approve" => Some("The plan is approved: its workloads move now."),
        _ => None,
    }
}
