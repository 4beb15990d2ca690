//! Parts that pages share.

use maud::{Markup, html};

use crate::data::{
    Concern, Condition, DecisionRow, Paged, Share, Tone, Verdict, When, Word, WorkloadId,
    member_path,
};

/// Characters of an id in tables.
const SHORT_ID: usize = 8;

/// The class of a tone.
pub(super) fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
        Tone::Plain => "plain",
    }
}

/// A word with its tone. The sign before it says the same as the colour.
pub(super) fn word(word: &Word) -> Markup {
    let sign = match word.tone {
        Tone::Good => "●",
        Tone::Warn => "▲",
        Tone::Bad => "■",
        Tone::Plain => "",
    };
    html! {
        @if !word.text.is_empty() {
            span class={"word " (class(word.tone))} {
                @if !sign.is_empty() { span aria-hidden="true" { (sign) " " } }
                (word.text)
            }
        }
    }
}

/// How long ago, with the time itself for whoever points at it.
pub(super) fn age(when: Option<&When>) -> Markup {
    html! {
        @match when {
            Some(when) => { time datetime=(when.at) title=(when.at) { (when.age) } }
            None => { "–" }
        }
    }
}

/// A time.
pub(super) fn time(when: Option<&When>) -> Markup {
    html! {
        @match when {
            Some(when) => {
                time datetime=(when.at) { (when.at.strftime("%Y-%m-%d %H:%M:%S")) }
                " " span.dim { (when.age) " ago" }
            }
            None => { "–" }
        }
    }
}

pub(super) fn workload(of: &WorkloadId) -> Markup {
    html! { a href=(of.path()) { (of) } }
}

pub(super) fn member(name: &str) -> Markup {
    html! { a href=(member_path(name)) { (name) } }
}

pub(super) fn count(replicas: Option<i64>) -> String {
    replicas.map_or_else(|| "–".to_owned(), |replicas| replicas.to_string())
}

/// What is not shown, and why.
pub(super) fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            ul.notes aria-label="Notes" { @for note in notes { li { (note) } } }
        }
    }
}

/// A table in a region that scrolls sideways on narrow screens. The names of columns with numbers begin with `#`.
pub(super) fn table(caption: &str, head: &[&str], body: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption.hidden { (caption) }
                thead { tr { @for name in head { (column(name)) } } }
                tbody { (body) }
            }
        }
    }
}

fn column(name: &str) -> Markup {
    html! {
        @match name.strip_prefix('#') {
            Some(name) => { th.number scope="col" { (name) } }
            None => { th scope="col" { (name) } }
        }
    }
}

/// Links to the other pages of a list. `address` makes the address of a page from its number, as people count.
pub(super) fn pager<T>(paged: &Paged<T>, what: &str, address: impl Fn(usize) -> String) -> Markup {
    let (page, pages) = (paged.page + 1, paged.pages());
    html! {
        @if pages > 1 {
            nav.pager aria-label={"Pages of " (what)} {
                @if page > 1 { a rel="prev" href=(address(page - 1)) { "Previous" } }
                span { "page " (page) " of " (pages) ", " (paged.all) " " (what) }
                @if page < pages { a rel="next" href=(address(page + 1)) { "Next" } }
            }
        }
    }
}

pub(super) fn concerns(concerns: &[Concern], with_workload: bool) -> Markup {
    let head: &[&str] = match with_workload {
        true => &["State", "Since", "Workload", "Members", "Why"],
        false => &["State", "Since", "Members", "Why"],
    };
    let rows = html! {
        @for concern in concerns {
            tr {
                td { (word(&concern.state)) }
                td { (age(concern.since.as_ref())) }
                @if with_workload { td { @if let Some(of) = &concern.workload { (workload(of)) } } }
                td { (members(&concern.members)) }
                td.text { (concern.why) }
            }
        }
    };
    table("What needs attention", head, rows)
}

/// Links to members; of many, the first.
fn members(names: &[String]) -> Markup {
    const SHOWN: usize = 4;
    html! {
        @for (index, name) in names.iter().take(SHOWN).enumerate() {
            @if index > 0 { ", " }
            (member(name))
        }
        @if names.len() > SHOWN { " and " (names.len() - SHOWN) " more" }
    }
}

pub(super) fn decisions(caption: &str, rows: &[DecisionRow], with_workload: bool) -> Markup {
    let head: &[&str] = match with_workload {
        true => &["Time", "Decision", "Trigger", "Outcome", "Workload", "Shares and reason"],
        false => &["Time", "Decision", "Trigger", "Outcome", "Shares and reason"],
    };
    let body = html! {
        @for row in rows {
            tr {
                td { (time(row.at.as_ref())) }
                td { (decision_link(row)) }
                td { (row.trigger) }
                td { (word(&row.outcome)) }
                @if with_workload { td { @if let Some(of) = &row.workload { (workload(of)) } } }
                td.text {
                    @if row.change != "-" { (row.change) br; }
                    span.dim { (row.reason) }
                }
            }
        }
    };
    table(caption, head, body)
}

/// A link to a decision by its short id.
pub(super) fn decision_link(row: &DecisionRow) -> Markup {
    let short: String = row.id.chars().take(SHORT_ID).collect();
    html! {
        @match row.path() {
            Some(path) => { a.id href=(path) { (short) } }
            None => { "–" }
        }
    }
}

pub(super) fn verdicts(rows: &[Verdict]) -> Markup {
    let list = |items: &[String]| html! { @if !items.is_empty() { ul { @for item in items { li { (item) } } } } };
    let body = html! {
        @for row in rows {
            tr {
                th scope="row" { (member(&row.cluster)) }
                td { (word(&row.fate)) }
                td.number { (count(row.before)) " → " (count(row.after)) }
                td { (row.room) }
                td.text { (list(&row.refused)) @if !row.scores.is_empty() { span.dim { (row.scores.join(", ")) } } }
                td.text { (list(&row.remedies)) }
            }
        }
    };
    let head = ["Cluster", "Result", "#Replicas", "Room for more", "Why", "What would change it"];
    table("Why and why not, by cluster", &head, body)
}

pub(super) fn conditions(conditions: &[Condition]) -> Markup {
    let body = html! {
        @for condition in conditions {
            tr {
                th scope="row" { (condition.kind) }
                td { (word(&condition.status)) }
                td { (condition.reason) }
                td { (age(condition.since.as_ref())) }
                td.text { (condition.message) }
            }
        }
    };
    table("Conditions", &["Condition", "Status", "Reason", "Since", "Message"], body)
}

/// What runs where. `of` is the workload of a page about one.
pub(super) fn shares(shares: &[Share], of: Option<&WorkloadId>) -> Markup {
    let first = if of.is_some() { "Member" } else { "Workload" };
    let body = html! {
        @for share in shares {
            tr {
                th scope="row" {
                    @match (&share.workload, of) {
                        (Some(id), _) => { (workload(id)) }
                        (None, Some(id)) => { a href={(id.path()) "/on/" (crate::encode(&share.member))} { (share.member) } }
                        (None, None) => { (share.member) }
                    }
                }
                td.number { (count(share.replicas)) }
                td.number { (count(share.ready)) }
                td { (share.standing) }
                td.text { (word(&share.applied)) }
                td.text { (word(&share.health)) }
            }
        }
    };
    table("Shares", &[first, "#Replicas", "#Ready", "Role", "Applied", "Health"], body)
}
