//! Checks FederatedResourceQuotas.

use atoll_api::federated_resource_quota::{FederatedResourceQuotaSpec, counted_resource};
use atoll_api::quantity::Quantity;

use super::Page;

/// Names that a user may have meant by others.
const NEAR: [(&str, &str); 2] =
    [("limits.cpu", "requests.cpu"), ("limits.memory", "requests.memory")];

pub(super) fn check(page: &mut Page, spec: &FederatedResourceQuotaSpec) {
    for (name, amount) in &spec.overall {
        let field = format!("spec.overall[{name}]");
        if counted_resource(name).is_none() {
            let near = NEAR.iter().find(|(wrong, _)| wrong == name).map(|(_, near)| *near);
            let fix = near.map_or_else(
                || "remove it; staticAssignments limit other resources on each member".to_owned(),
                |near| format!("limit {near}"),
            );
            page.warning(field, "decisions do not count this resource, so it limits nothing", fix);
            continue;
        }
        check_amount(page, field, amount, "nothing grows");
    }
    for assignment in &spec.static_assignments {
        let field = format!("spec.staticAssignments[{}].hard", assignment.cluster_name);
        if assignment.hard.is_empty() {
            page.warning(field, "is empty, so the member limits nothing", "give an amount");
            continue;
        }
        for (name, amount) in &assignment.hard {
            check_amount(page, format!("{field}[{name}]"), amount, "the member refuses it");
        }
    }
}

fn check_amount(page: &mut Page, field: String, amount: &Quantity, effect: &str) {
    match amount.milli() {
        Ok(milli) if milli < 0 => {
            page.error(field, format!("{amount} is negative, so {effect}"), "give 0 or more");
        }
        Ok(_) => {}
        Err(error) => page.error(
            field,
            format!("{error}, so {effect}"),
            "write it as in the requests of a container",
        ),
    }
}
