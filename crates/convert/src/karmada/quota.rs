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
        When::Lacking,
        Rule::OnlyEmpty(
            "select a ResourceQuota in a policy, and set its amounts per member with an OverridePolicy",
        ),
    ),
];

const STATUS: Table =
    &[("status", When::Always, Rule::Report("a report of Karmada's controllers"))];
