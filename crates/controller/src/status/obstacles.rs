//! The objects that a template refers to and that do not go along with it.

use super::secrets;
use crate::detect::dependencies::lacks;
use crate::index::Index;
use crate::index::key::TemplateKey;
use crate::index::rows::Binding;

/// Why an object does not go along. The worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    /// The controller may not read Secrets.
    SecretsNotReadable,
    /// The controller cannot read the kind.
    KindUnreadable,
    /// The hub does not have it.
    NotFound,
    /// It is not committed to every cluster yet.
    Pending,
}

impl Obstacle {
    /// The reason of the condition.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::SecretsNotReadable => secrets::NOT_READABLE,
            Self::KindUnreadable => "KindUnreadable",
            Self::NotFound => "NotFound",
            Self::Pending => "Pending",
        }
    }
}

/// What does not go along with a binding, the worst first.
#[must_use]
pub(crate) fn obstacles(index: &Index, binding: &Binding) -> Vec<(Obstacle, String)> {
    let needs = index.needs(&binding.key).into_iter().flatten();
    let mut found: Vec<_> = needs.filter_map(|object| obstacle(index, binding, object)).collect();
    found.sort();
    found
}

fn obstacle(index: &Index, binding: &Binding, object: &TemplateKey) -> Option<(Obstacle, String)> {
    if index.template(object).is_some() {
        let mut targets = binding.spec.clusters.iter().map(|target| target.name.as_str());
        let cluster = targets.find(|cluster| lacks(index, object, cluster))?;
        return Some((Obstacle::Pending, format!("{object} is not placed on {cluster} yet")));
    }
    if let Some(why) = secrets::of_binding(index, object) {
        return Some((Obstacle::SecretsNotReadable, why));
    }
    match index.frozen(object.group_kind()) {
        None => Some((Obstacle::NotFound, format!("{object} is not on the hub"))),
        Some(why) => Some((Obstacle::KindUnreadable, format!("{object}: {why}"))),
    }
}
