//! `OverridePolicy` and `ClusterOverridePolicy`. Their fields are Atoll's; some changes mean something else or are refused.

use serde_json::Value;

use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;

/// Ends of the paths that division decides for Divided workloads.
const DIVIDED: [&str; 3] = ["/replicas", "/completions", "/parallelism"];
/// The paths that identify an object.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// Reports the rules that Atoll treats differently. It changes nothing.
pub(super) fn prepare(draft: &mut Draft) {
    let spec = Path::of("spec");
    overriders(draft, &spec.field("overriders"));
    let rules = spec.field("overrideRules");
    for at in 0..draft.len(&rules) {
        overriders(draft, &rules.item(at).field("overriders"));
    }
}

fn overriders(draft: &mut Draft, path: &Path) {
    let plaintext = path.field("plaintext");
    for at in 0..draft.len(&plaintext) {
        plain(draft, &plaintext.item(at));
    }
    let images = path.field("imageOverrider");
    for at in 0..draft.len(&images) {
        let image = images.item(at);
        let is = |name: &str, word: &str| {
            draft.get(&image.field(name)).is_some_and(|value| value == word)
        };
        if is("component", "Repository") && is("operator", "remove") {
            let note = "refused: an image without a repository has no name; set it with `replace`";
            draft.line(&image, Class::NoEquivalent, note);
        }
    }
}

fn plain(draft: &mut Draft, item: &Path) {
    let text = |draft: &Draft, name: &str| {
        draft.get(&item.field(name)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (path, operator) = (text(draft, "path"), text(draft, "operator"));
    if operator != "remove" && draft.get(&item.field("value")).is_none() {
        let note = "refused: without a value Karmada writes null; give a value, or use `remove`";
        draft.line(&item.field("value"), Class::NoEquivalent, note);
    }
    let field = item.field("path");
    if IDENTITY.contains(&path.as_str()) {
        draft.line(
            &field,
            Class::NoEquivalent,
            "refused: an override may not change what identifies the object",
        );
    } else if DIVIDED.iter().any(|end| path.ends_with(end)) {
        let note = "refused for workloads that are Divided, because division decides the number; allowed for Duplicated ones";
        draft.line(&field, Class::Changed, note);
    }
}
