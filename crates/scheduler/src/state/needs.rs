//! What one replica needs of a cluster, read once per decision.

use std::collections::BTreeMap;

use atoll_api::binding::{NodeClaim, ReplicaRequirements};
use atoll_api::quantity::{Quantity, QuantityError, ResourceList};

/// Amounts by resource: `cpu` in thousandths, everything else in whole units, as Kubernetes counts them.
pub type Amounts = BTreeMap<String, i64>;

/// The resource that counts pods.
pub const PODS: &str = "pods";
const CPU: &str = "cpu";

/// The amount of a quantity in the unit of its resource, saturating at the ends of `i64`.
///
/// # Errors
/// When the text is no quantity.
pub fn amount(resource: &str, quantity: &Quantity) -> Result<i64, QuantityError> {
    let exact = if resource == CPU { quantity.milli()? } else { quantity.units()? };
    Ok(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
}

/// Requests and node claim of one replica.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Needs {
    /// Positive requests only, `pods` left out: every replica is one pod.
    pub requests: Amounts,
    /// What its node must be like.
    pub node: Option<NodeClaim>,
    /// Whether requirements were given at all.
    pub given: bool,
}

impl Needs {
    /// Reads requirements.
    ///
    /// # Errors
    /// With the name of the resource whose request is no quantity, or is negative.
    pub fn read(requirements: Option<&ReplicaRequirements>) -> Result<Self, (String, String)> {
        let Some(requirements) = requirements else { return Ok(Self::default()) };
        let mut requests = Amounts::new();
        for (resource, quantity) in &requirements.resource_request {
            let value = amount(resource, quantity)
                .map_err(|error| (resource.clone(), error.to_string()))?;
            if value < 0 {
                return Err((resource.clone(), format!("quantity {quantity} is negative")));
            }
            if value > 0 && resource != PODS {
                requests.insert(resource.clone(), value);
            }
        }
        Ok(Self { requests, node: requirements.node_claim.clone(), given: true })
    }
}

/// Reads a list of quantities of a cluster; unreadable ones are left out and reported under the field's name.
pub fn amounts<'a>(
    list: &'a ResourceList,
    field: &str,
    problems: &mut Vec<String>,
    mut take: impl FnMut(&'a String, i64),
) {
    for (resource, quantity) in list {
        match amount(resource, quantity) {
            Ok(value) => take(resource, value),
            Err(error) => problems.push(format!("{field}.{resource}: {error}")),
        }
    }
}
