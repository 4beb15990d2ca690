//! Checks `statePreservation`: valid labels, valid paths, each label once.

use atoll_api::policy::{Failover, StatePreservationRule};
use atoll_api::{marks, names};

use super::Page;
use crate::cycle::preserve;

pub(super) fn check(page: &mut Page, failover: &Failover) {
    let application = failover.application.as_ref();
    let of = [
        ("application", application.and_then(|rules| rules.state_preservation.as_ref())),
        ("cluster", failover.cluster.as_ref().and_then(|rules| rules.state_preservation.as_ref())),
    ];
    for (part, preservation) in of {
        if let Some(preservation) = preservation {
            let field = format!("spec.failover.{part}.statePreservation.rules");
            check_rules(page, &field, &preservation.rules);
        }
    }
}

fn check_rules(page: &mut Page, all: &str, rules: &[StatePreservationRule]) {
    for (at, rule) in rules.iter().enumerate() {
        let label = &rule.alias_label_name;
        let field = format!("{all}[{at}].aliasLabelName");
        if let Some(problem) = names::label_key_problem(label) {
            let problem = format!("{label:?} is not a label key: {problem}");
            page.error(&field, problem, "write one like example.io/job");
        } else if marks::is_own(label) {
            let problem = format!("{label:?} is reserved by Atoll and is never set");
            page.error(&field, problem, "use a label of your own, for example example.io/job");
        }
        if let Some(first) = rules[..at].iter().position(|other| other.alias_label_name == *label) {
            let problem =
                format!("{label:?} is also the label of rules[{first}]: only one value can be set");
            page.error(&field, problem, "give each rule a label of its own");
        }
        if let Err(error) = preserve::parse(&rule.json_path) {
            page.error(
                format!("{all}[{at}].jsonPath"),
                error.to_string(),
                "name one field of the workload's status, as in {.jobStatus.jobID}",
            );
        }
    }
}
