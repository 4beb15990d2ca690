//! `FederatedResourceQuota`.

use crate::rules::{Rule, Rules, Table, When};

pub(super) const RULES: Rules<'static> = Rules(&[("spec", SPEC), ("", STATUS)]);

const SPEC: Table = &[
    (
        "overall",
        When::Always,
        Rule::Note("enforced without a feature gate: it blocks growth, and never a failover"),
    ),
    (
        "staticAssignments",
        When::Always,
        Rule::Note("each member gets a ResourceQuota named static-NAME; at most 64 members"),
    ),
];

const STATUS: Table =
    &[("status", When::Always, Rule::Report("a report of Karmada's controllers"))];
