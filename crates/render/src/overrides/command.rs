//! `commandOverrider` and `argsOverrider`: append or remove words.

use atoll_api::override_policy::{AddOrRemove, CommandArgsOverrider};
use serde_json::{Value, json};

use super::containers;

/// Changes the words in `field` (`command` or `args`) of the containers with the overrider's name.
pub(super) fn apply(
    manifest: &mut Value,
    field: &str,
    change: &CommandArgsOverrider,
) -> Result<(), String> {
    for container in containers::listed(manifest) {
        if container.get("name").and_then(Value::as_str) != Some(&change.container_name) {
            continue;
        }
        let words = container.entry(field).or_insert(Value::Null);
        if words.is_null() {
            *words = json!([]);
        }
        let Value::Array(words) = words else {
            return Err(format!("{field} of container {:?} is not a list", change.container_name));
        };
        match change.operator {
            AddOrRemove::Add => words.extend(change.value.iter().map(|word| json!(word))),
            AddOrRemove::Remove => {
                words.retain(|word| !change.value.iter().any(|gone| word.as_str() == Some(gone)))
            }
        }
    }
    Ok(())
}
