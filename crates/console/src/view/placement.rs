//! The page Placement: workloads by members.

use maud::{Markup, html};

use super::decisions::{input, select};
use super::timeline::heat;
use super::{Chrome, page, parts};
use crate::data::{Cell, MapRow, Placement, PlacementFilter, member_path};
use crate::query::pairs;

/// States that the filter offers.
const STATES: [&str; 5] = ["Failing", "Waiting", "Held", "Moving", "Fine"];

fn address(filter: &PlacementFilter, page: usize, columns: usize) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let fields = [
        ("namespace", text(&filter.namespace)),
        ("name", text(&filter.name)),
        ("kind", text(&filter.kind)),
        ("policy", text(&filter.policy)),
        ("state", text(&filter.state)),
        ("label", text(&filter.label)),
        ("page", page.to_string()),
        ("columns", columns.to_string()),
    ];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    format!("/placement{}", pairs(&fields))
}

/// The heat map.
#[must_use]
pub fn placement(chrome: &Chrome, filter: &PlacementFilter, placement: &Placement) -> String {
    let (rows, columns) = (&placement.rows, &placement.members);
    let states = STATES.map(str::to_owned);
    let body = html! {
        (parts::notes(&placement.notes))
        form.filters method="get" action="/placement" role="search" {
            (input("namespace", "Namespace", filter.namespace.as_deref()))
            (input("name", "Name contains", filter.name.as_deref()))
            (input("kind", "Kind", filter.kind.as_deref()))
            (input("policy", "Policy", filter.policy.as_deref()))
            (input("label", "Label (key=value)", filter.label.as_deref()))
            (select("state", "State", filter.state.as_deref(), &states))
            button type="submit" { "Filter" }
            a href="/placement" { "Clear" }
        }
        @if rows.all == 0 { p { "No workload matches." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Replicas of workloads by member" {
                table.map {
                    caption.hidden { "Replicas of workloads by member" }
                    thead { tr {
                        th scope="col" { "Workload" } th scope="col" { "State" } th.number scope="col" { "Replicas" }
                        @for name in &columns.rows { th.member scope="col" { a href=(member_path(name)) { (name) } } }
                        @if columns.pages() > 1 { th scope="col" { "Other members" } }
                    } }
                    tbody { @for row in &rows.rows { (map_row(row, placement.most, columns.pages() > 1)) } }
                }
            }
            (parts::pager(rows, "workloads", |page| address(filter, page, columns.page + 1)))
            (parts::pager(columns, "members", |page| address(filter, rows.page + 1, page)))
        }
    };
    page(chrome, "Placement", body)
}

fn map_row(row: &MapRow, most: i64, elsewhere: bool) -> Markup {
    html! {
        tr {
            th scope="row" { (parts::workload(&row.workload)) }
            td { (parts::word(&row.state)) }
            td.number { (parts::count(row.replicas)) }
            @for cell in &row.cells { (map_cell(*cell, most)) }
            @if elsewhere { td.number { @if row.elsewhere > 0 { (row.elsewhere) } } }
        }
    }
}

fn map_cell(cell: Option<Cell>, most: i64) -> Markup {
    html! {
        @match cell {
            None => { td.cell {} }
            Some(cell) => {
                td class={"cell heat" (heat(cell.replicas.or(Some(1)), Some(most))) " " (parts::class(cell.tone))} {
                    @match cell.replicas { Some(replicas) => { (replicas) } None => { "✓" } }
                    @match parts::class(cell.tone) { "bad" => { span.hidden { " unhealthy" } } _ => {} }
                }
            }
        }
    }
}
