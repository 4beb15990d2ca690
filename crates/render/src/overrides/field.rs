//! `fieldOverrider`: changes JSON or YAML that is the text of a field.

use atoll_api::override_policy::{OverriderOperator, SubPathOperation};
use serde_json::Value;

use super::pointer::Pointer;

/// Longest text that is parsed, in bytes. Objects are at most 3 MiB, ConfigMaps 1 MiB.
const MAX_TEXT: usize = 3 * 1024 * 1024;

/// Changes the text at `path`. Without operations the text becomes empty, as in Karmada; with both kinds of
/// operations, those for JSON are ignored. The error names the operation by list and index, and its problem.
pub(super) fn apply(
    manifest: &mut Value,
    path: &Pointer,
    json: &[SubPathOperation],
    yaml: &[SubPathOperation],
) -> Result<(), (String, String)> {
    let at = |problem| (".fieldPath".to_owned(), problem);
    let field = path.get(manifest).map_err(at)?;
    let Value::String(text) = field else {
        return Err(at("the field is not a text".to_owned()));
    };
    if text.len() > MAX_TEXT {
        return Err(at(format!("the text is longer than {MAX_TEXT} bytes")));
    }
    *text = if !yaml.is_empty() {
        let mut value = serde_saphyr::from_str(text)
            .map_err(|error| at(format!("the text is not YAML: {error}")))?;
        patch(&mut value, yaml, "yaml")?;
        serde_saphyr::to_string(&value)
            .map_err(|error| at(format!("the result cannot be written as YAML: {error}")))?
    } else if !json.is_empty() {
        // As in Karmada, operations on an empty text change nothing.
        if text.is_empty() {
            return Ok(());
        }
        let mut value = serde_json::from_str(text)
            .map_err(|error| at(format!("the text is not JSON: {error}")))?;
        patch(&mut value, json, "json")?;
        value.to_string()
    } else {
        String::new()
    };
    Ok(())
}

fn patch(
    value: &mut Value,
    operations: &[SubPathOperation],
    list: &str,
) -> Result<(), (String, String)> {
    for (index, operation) in operations.iter().enumerate() {
        let given = || operation.value.clone().unwrap_or(Value::Null);
        let done = Pointer::patch(&operation.sub_path).and_then(|path| match operation.operator {
            OverriderOperator::Add => path.add(value, given()),
            OverriderOperator::Replace => path.replace(value, given()),
            OverriderOperator::Remove => path.remove(value),
        });
        done.map_err(|problem| (format!(".{list}[{index}].subPath"), problem))?;
    }
    Ok(())
}
