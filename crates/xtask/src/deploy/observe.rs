//! Alerts and dashboards: their metrics exist, each alert has an entry in the runbook, and fires and resolves in a test.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::run::say;

const PAGE: &str = include_str!("../../../../docs/metrics.md");
const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");
const RULES: &str = include_str!("../../../../deploy/observe/rules.yaml");
const TESTS: &str = include_str!("../../../../deploy/observe/tests.yaml");
/// What each entry of the runbook has.
const PARTS: [&str; 3] = ["**Meaning.**", "**Look at.**", "**Do.**"];

fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(RULES).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(alert: &Value) -> String {
    alert["alert"].as_str().unwrap().to_owned()
}

/// The metrics that docs/metrics.md describes. A test of each crate compares it with what the programs show.
fn documented() -> BTreeSet<&'static str> {
    PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// The metrics that an expression names, as documented.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("atoll_"));
    ours.map(|word| {
        let ends = ["_seconds_bucket", "_seconds_count", "_seconds_sum"];
        match ends.iter().find_map(|end| word.strip_suffix(end)) {
            Some(histogram) => format!("{histogram}_seconds"),
            None => word.to_owned(),
        }
    })
    .collect()
}

fn check(place: &str, expression: &str) {
    let (named, documented) = (metrics(expression), documented());
    assert!(!named.is_empty(), "{place}: {expression} names no metric of Atoll");
    for metric in named {
        assert!(documented.contains(metric.as_str()), "{place}: docs/metrics.md has no {metric}");
    }
}

#[test]
fn every_metric_of_an_alert_or_a_dashboard_exists() {
    for alert in alerts() {
        check(&name(&alert), alert["expr"].as_str().unwrap());
    }
    let mut ids = BTreeSet::new();
    for (file, dashboard) in atoll_install::dashboards() {
        assert!(ids.insert(dashboard["uid"].to_string()), "{file} has the uid of another one");
        assert!(dashboard["title"].as_str().unwrap().starts_with("Atoll: "), "{file}");
        let panels = dashboard["panels"].as_array().unwrap();
        let places: BTreeSet<String> = panels.iter().map(|p| p["gridPos"].to_string()).collect();
        assert_eq!(places.len(), panels.len(), "{file}: two panels have one place");
        for panel in panels {
            for target in panel["targets"].as_array().unwrap() {
                let place = format!("{file}: {}", panel["title"]);
                check(&place, target["expr"].as_str().unwrap());
            }
        }
    }
    // Whatever an alert needs is on a dashboard.
    let shown: BTreeSet<String> = atoll_install::dashboards()
        .iter()
        .flat_map(|(_, dashboard)| metrics(&dashboard.to_string()))
        .collect();
    for alert in alerts() {
        for metric in metrics(alert["expr"].as_str().unwrap()) {
            assert!(shown.contains(&metric), "no dashboard shows {metric} of {}", name(&alert));
        }
    }
}

#[test]
fn every_alert_has_an_entry_in_the_runbook_and_every_entry_an_alert() {
    let alerts = alerts();
    let entries: Vec<(&str, &str)> = RUNBOOK
        .split("\n## ")
        .skip(1)
        .map(|entry| entry.split_once('\n').unwrap())
        .filter(|(title, _)| title.starts_with("Atoll"))
        .collect();
    let titles: BTreeSet<String> = entries.iter().map(|(title, _)| (*title).to_owned()).collect();
    assert_eq!(titles, alerts.iter().map(name).collect());
    assert_eq!(titles.len(), entries.len(), "an entry is there twice");
    for (title, text) in entries {
        for part in PARTS {
            assert!(text.contains(part), "{title} has no {part}");
        }
    }
    for alert in alerts {
        let name = name(&alert);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        let runbook = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], runbook.as_str(), "{name}");
        assert!(alert["annotations"]["summary"].as_str().unwrap().ends_with('.'), "{name}");
    }
}

#[test]
fn every_alert_fires_and_resolves_in_the_tests_for_promtool() {
    let tests: Value = serde_saphyr::from_str(TESTS).unwrap();
    let mut tested = BTreeSet::new();
    for test in tests["tests"].as_array().unwrap() {
        let expected = test["alert_rule_test"].as_array().unwrap();
        let fires: Vec<bool> =
            expected.iter().map(|t| !t["exp_alerts"].as_array().unwrap().is_empty()).collect();
        assert_eq!(fires, [false, true, false], "{}", test["name"]);
        assert!(expected.iter().all(|t| t["alertname"] == test["name"]), "{}", test["name"]);
        tested.insert(test["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(tested, alerts().iter().map(name).collect());
}

#[test]
fn promtool_agrees() {
    let folder = crate::root().unwrap().join("deploy/observe");
    for args in [["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]] {
        let ran = Command::new("promtool").args(args).current_dir(&folder).output();
        let Ok(ran) = ran else {
            say("promtool is not installed (Debian: package prometheus): the alerts are not run");
            return;
        };
        let text = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}
