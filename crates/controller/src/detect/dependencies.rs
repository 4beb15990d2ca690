//! When a binding may be sent to a cluster: once each object that its template refers to is committed there.

use super::{Claim, claim};
use crate::index::Index;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::template::Template;

/// Whether the user keeps an object from following those that refer to it.
#[must_use]
pub(crate) fn stays_home(template: &Template) -> bool {
    let label = template.labels.get(atoll_api::marks::SKIP_DEPENDENCY);
    label.is_some_and(|value| &**value == "true")
}

/// The first object that a binding's template refers to and that has to be committed to a cluster before the binding is
/// sent there.
#[must_use]
pub(crate) fn waits_for<'a>(
    index: &'a Index,
    key: &BindingKey,
    cluster: &str,
) -> Option<&'a TemplateKey> {
    index.needs(key)?.find(|object| lacks(index, object, cluster))
}

/// Whether an object is not committed to a cluster, and will be. An object that the hub does not have, or may not be
/// read, holds nothing back.
#[must_use]
pub(crate) fn lacks(index: &Index, object: &TemplateKey, cluster: &str) -> bool {
    let binding = index.binding(&object.binding()).filter(|binding| !binding.deleting());
    let committed = binding.is_some_and(|binding| {
        let targets = binding.spec.clusters.iter().map(|target| target.name.as_str());
        targets.chain(binding.required_on()).any(|name| name == cluster)
    });
    if committed {
        return false;
    }
    match index.template(object) {
        Some(template) => {
            !stays_home(template)
                && !template.deleting
                && !matches!(claim(index, template, None), Claim::Excluded(_))
        }
        None => !index.is_read(object.group_kind()),
    }
}
