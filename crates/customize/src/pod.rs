//! What rules ask about pod templates and quantities. The answers are those of `atoll-interpreter` for a Deployment with
//! this template.

use atoll_api::quantity::{Quantity, QuantityError};
use atoll_interpreter::{Operation, interpret};
use serde_json::{Value, json};

/// What one pod of a template requires; null if nothing.
pub(crate) fn requirements(template: &Value) -> Result<Value, String> {
    let object = deployment(template, "");
    let input = json!({ "operation": "GetReplicas", "object": object });
    let mut answer = interpret(Operation::Replicas, &input).map_err(|error| error.to_string())?;
    Ok(answer["requirements"].take())
}

/// The objects that a pod of a template needs; null if there are none, as in Karmada.
pub(crate) fn dependencies(template: &Value, namespace: &str) -> Result<Value, String> {
    let input = json!({ "object": deployment(template, namespace) });
    let mut answer =
        interpret(Operation::Dependencies, &input).map_err(|error| error.to_string())?;
    let dependencies = answer["dependencies"].take();
    let none = dependencies.as_array().is_none_or(Vec::is_empty);
    Ok(if none { Value::Null } else { dependencies })
}

fn deployment(template: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace},
        "spec": {"template": {"spec": template["spec"]}},
    })
}

/// The sum of quantities, in the notation of the first one that is not zero.
pub(crate) fn sum(quantities: &[Quantity]) -> Result<Quantity, QuantityError> {
    let mut milli: i128 = 0;
    let mut notation = "";
    for quantity in quantities {
        let text = quantity.as_str();
        let more = quantity.milli()?;
        if milli == 0 {
            notation = text;
        }
        milli += more;
    }
    if notation.ends_with('i') && milli % 1000 == 0 && milli.abs() >= 1_024_000 {
        return Ok(Quantity::from_bytes(milli / 1000));
    }
    // A suffix `E` means exa, an `e` or `E` with digits an exponent.
    if notation.find(['e', 'E']).is_some_and(|at| at + 1 < notation.len()) {
        return Ok(Quantity::new(format!("{milli}e-3")).canonical());
    }
    Ok(Quantity::from_milli_canonical(milli))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_the_notation_of_its_first_part() {
        for (parts, expected) in [
            (vec!["1Ki", "32Mi"], "32769Ki"),
            (vec!["0", "1.5Gi"], "1536Mi"),
            (vec!["2e9", "1Ki"], "2000001024"),
            (vec!["2e9"], "2e9"),
            (vec!["500m", "250m"], "750m"),
            (vec!["100M", "1"], "100000001"),
            (vec![], "0"),
            (vec!["1Ki", "500m"], "1024500m"),
        ] {
            let quantities: Vec<Quantity> = parts.iter().map(|part| Quantity::new(*part)).collect();
            assert_eq!(sum(&quantities).unwrap().as_str(), expected, "{parts:?}");
        }
        assert!(sum(&[Quantity::new("lots")]).is_err());
    }
}
