//! Checks FederatedResourceQuotas.

use atoll_api::federated_resource_quota::{FederatedResourceQuotaSpec, counted_resource};

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
                || "remove it; a ResourceQuota in each member limits other resources".to_owned(),
                |near| format!("limit {near}"),
            );
            page.warning(field, "decisions do not count this resource, so it limits nothing", fix);
            continue;
        }
        match amount.milli() {
            Ok(milli) if milli < 0 => {
                page.error(
                    field,
                    format!("{amount} is negative, so nothing grows"),
                    "give 0 or more",
                );
            }
            Ok(_) => {}
            Err(error) => page.error(
                field,
                format!("{error}, so nothing grows"),
                "write it as in the requests of a container",
            ),
        }
    }
}
