//! Tables of members in one table.

use serde_json::Value;

use super::{Answer, each, named};
use crate::print::{Text, visible_line};

/// What is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<'a> {
    /// With a column for namespaces.
    pub(super) namespaces: bool,
    /// With the columns that are left out otherwise.
    pub(super) wide: bool,
    /// Only objects with these names; empty: all.
    pub(super) names: &'a [String],
}

/// Header and rows of all members. The columns are those of the first member that answered.
pub(super) fn of(answers: &[Answer<'_>], shape: &Shape<'_>) -> (Vec<String>, Vec<Vec<Text>>) {
    let columns = each(answers).find_map(|(_, page)| shape.columns(page)).unwrap_or_default();
    let mut rows = Vec::new();
    for (member, page) in each(answers) {
        rows.extend(shape.rows(member, page, &columns));
    }
    (shape.header(&columns), rows)
}

/// Columns of a table. A member must not fill the screen.
const COLUMNS: usize = 64;

impl Shape<'_> {
    /// The columns of a table that are shown; `None` if it names none, as tables that follow the first in a watch.
    pub(super) fn columns(&self, table: &Value) -> Option<Vec<String>> {
        let all = table["columnDefinitions"].as_array().filter(|all| !all.is_empty())?.iter();
        let shown = all.filter(|column| self.wide || column["priority"].as_i64().unwrap_or(0) == 0);
        let names = shown.filter_map(|column| column["name"].as_str().map(str::to_owned));
        Some(names.take(COLUMNS).collect())
    }

    pub(super) fn header(&self, columns: &[String]) -> Vec<String> {
        let mut header = vec!["CLUSTER".to_owned()];
        if self.namespaces {
            header.push("NAMESPACE".to_owned());
        }
        header.extend(columns.iter().map(|name| name.to_uppercase()));
        header
    }

    /// The rows of a member's table, in these columns.
    pub(super) fn rows(&self, member: &str, table: &Value, columns: &[String]) -> Vec<Vec<Text>> {
        let own = table["columnDefinitions"].as_array();
        let at = |name: &String| {
            own.into_iter().flatten().position(|column| column["name"] == name.as_str())
        };
        let places: Vec<Option<usize>> = columns.iter().map(at).collect();
        let mut rows = Vec::new();
        for row in table["rows"].as_array().into_iter().flatten() {
            let metadata = &row["object"]["metadata"];
            if !named(metadata, self.names) {
                continue;
            }
            let mut cells = vec![Text::from(member)];
            if self.namespaces {
                cells.push(metadata["namespace"].as_str().unwrap_or_default().into());
            }
            cells.extend(places.iter().map(|place| cell(place.map(|at| &row["cells"][at]))));
            rows.push(cells);
        }
        rows
    }
}

fn cell(value: Option<&Value>) -> Text {
    match value {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => visible_line(text).into(),
        Some(other) => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reach::{Failure, Member};

    fn page(columns: &[(&str, i64)], rows: &[(&str, &[Value])]) -> Value {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, priority)| json!({"name": name, "priority": priority}))
            .collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, cells)| json!({"cells": cells, "object": {"metadata": {"name": name, "namespace": "shop"}}}))
            .collect();
        json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})
    }

    #[tokio::test]
    async fn tables_of_members_are_one_table_and_a_member_that_fails_costs_its_own_lines_only() {
        let web = [json!("web"), json!(3), json!("10.0.0.1")];
        let api = [json!("api"), Value::Null];
        let members = ["m1", "m2", "m3"].map(Member::nowhere);
        let pages = [
            Ok(vec![page(&[("Name", 0), ("Ready", 0), ("IP", 1)], &[("web", &web)])]),
            Err(Failure::silent()),
            // Another version has other columns.
            Ok(vec![page(&[("Name", 0), ("New", 0)], &[("api", &api)])]),
        ];
        let answers: Vec<Answer<'_>> =
            members.iter().zip(pages).map(|(member, pages)| Answer { member, pages }).collect();
        let shown = |names: &[String], wide| {
            let (header, rows) = of(&answers, &Shape { namespaces: true, wide, names });
            format!("{header:?} {rows:?}").replace("Plain", "").replace("Text", "")
        };
        assert_eq!(
            shown(&[], false),
            r#"["CLUSTER", "NAMESPACE", "NAME", "READY"] [[("m1", ), ("shop", ), ("web", ), ("3", )], [("m3", ), ("shop", ), ("api", ), ("", )]]"#
        );
        assert!(shown(&[], true).contains("10.0.0.1"));
        let many: Vec<_> = (0..1_000).map(|_| ("More", 0)).collect();
        let shape = Shape { namespaces: false, wide: false, names: &[] };
        assert_eq!(shape.columns(&page(&many, &[])).unwrap().len(), COLUMNS);
        assert_eq!(cell(Some(&json!("a\nb"))).width(), 4, "a cell has one line");
        assert!(!shown(&["api".to_owned()], false).contains("m1"));
    }
}
