//! Placements, in policies, in bindings, and in the annotation with the placement in force.

use serde_json::Value;

use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Table, When, is_empty};

/// The part of a spread constraint that Karmada's webhooks fill in.
const BY_CLUSTER: &str = "cluster";

pub(super) const TABLE: Table =
    &[("clusterTolerations[].key", When::Always, Rule::Map(keys::taint_key))];

/// Fills in what Karmada's webhooks fill in.
pub(super) fn prepare(draft: &mut Draft, placement: &Path) {
    let constraints = placement.field("spreadConstraints");
    for at in 0..draft.len(&constraints) {
        spread_constraint(draft, &constraints.item(at));
    }
}

fn spread_constraint(draft: &mut Draft, constraint: &Path) {
    let is_object = draft.get(constraint).is_some_and(Value::is_object);
    let lacks = |draft: &Draft, name: &str| draft.get(&constraint.field(name)).is_none_or(is_empty);
    if !is_object {
        return;
    }
    let by = constraint.field("spreadByField");
    if lacks(draft, "spreadByField") && lacks(draft, "spreadByLabel") {
        draft.take(&by, Class::Changed, "empty");
        draft.take(&constraint.field("spreadByLabel"), Class::Changed, "empty");
        draft.fill(&by, BY_CLUSTER.into(), Class::Changed, "filled in, as Karmada's webhook does");
    }
    let min = constraint.field("minGroups");
    if lacks(draft, "minGroups") {
        draft.take(&min, Class::Changed, "0");
        draft.fill(&min, 1.into(), Class::Changed, "filled in, as Karmada's webhook does");
    }
    if lacks(draft, "maxGroups") {
        let note = "absent or 0: Karmada's scheduler then refuses every cluster, and so does profile karmada; set it";
        draft.line(&constraint.field("maxGroups"), Class::Changed, note);
    }
}
