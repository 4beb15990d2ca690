//! Requirements of one replica, parsed once per decision.

use atoll_api::binding::{NodeClaim, ReplicaRequirements};
use atoll_api::quantity::{Quantity, QuantityError, ResourceList};

pub use atoll_decision::Amounts;

/// The resource that counts pods.
pub const PODS: &str = "pods";
const CPU: &str = "cpu";

/// The amount of a quantity in the unit of its resource, saturating at the limits of `i64`.
///
/// # Errors
/// The text is not a quantity.
pub fn amount(resource: &str, quantity: &Quantity) -> Result<i64, QuantityError> {
    let exact = if resource == CPU { quantity.milli()? } else { quantity.units()? };
    Ok(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
}

/// Requests and node claim of one replica.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Needs {
    /// Positive requests. `pods` is left out, because every replica is one pod.
    pub requests: Amounts,
    /// Requirements on the node.
    pub node: Option<NodeClaim>,
    /// Whether any requirements were given.
    pub given: bool,
}

impl Needs {
    /// Reads requirements.
    ///
    /// # Errors
    /// The resource whose request is not a quantity, is negative, or does not fit 64 bits.
    pub fn read(requirements: Option<&ReplicaRequirements>) -> Result<Self, (String, String)> {
        let Some(requirements) = requirements else { return Ok(Self::default()) };
        let mut requests = Amounts::new();
        for (resource, quantity) in &requirements.resource_request {
            let wrong = |problem: String| (resource.clone(), problem);
            let value = amount(resource, quantity).map_err(|error| wrong(error.to_string()))?;
            if value < 0 {
                return Err(wrong(format!("quantity {quantity} is negative")));
            }
            if value == i64::MAX {
                return Err(wrong(format!("quantity {quantity} is too large")));
            }
            if value > 0 && resource != PODS {
                requests.insert(resource.clone(), value);
            }
        }
        Ok(Self { requests, node: requirements.node_claim.clone(), given: true })
    }
}

impl Needs {
    /// Checks that the total for `replicas` replicas does not overflow.
    ///
    /// # Errors
    /// The resource that overflows.
    pub fn countable(&self, replicas: i64) -> Result<(), (String, String)> {
        let beyond = |(_, each): &(&String, &i64)| each.checked_mul(replicas).is_none();
        let Some((resource, each)) = self.requests.iter().find(beyond) else { return Ok(()) };
        let each = if resource == CPU {
            Quantity::from_milli((*each).into())
        } else {
            Quantity::from_units((*each).into())
        };
        let problem = format!("quantity {each} for each of {replicas} replicas is too large");
        Err((resource.clone(), problem))
    }
}

/// Reads a cluster's list of quantities. Unreadable ones are skipped and reported with their field name.
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
