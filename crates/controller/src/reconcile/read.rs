//! Which way a binding goes, from the hub's objects alone.

use super::step::{Step, delete};
use super::subject::Subject;
use crate::detect::{self, Claim};
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::template::Template;
use crate::queue::Done;

/// The next step of a binding; `gated`: it is behind a shut gate.
pub(crate) fn read(index: &Index, key: &BindingKey, gated: bool) -> Step {
    let binding = index.binding(key).cloned();
    if let Some(binding) = &binding
        && binding.deleting()
    {
        return Step::Withdraw(binding.clone());
    }
    if let Some(binding) = &binding
        && let Some(why) = index.refusal(binding)
    {
        return Step::Refused(binding.clone(), why);
    }
    let Some(template_key) = index.template_for(key) else {
        return Step::Done(Done::Settled);
    };
    if index.frozen(template_key.group_kind()).is_some() {
        return Step::UpToDate(Done::Settled); // its source's return adds it again
    }
    let Some(template) = index.template(template_key).cloned() else {
        let Some(binding) = binding else { return Step::Done(Done::Settled) };
        return Step::LookUp(template_key.clone(), binding.spec.resource.version().to_owned());
    };
    let attached = binding.as_ref().is_some_and(|binding| binding.is_attached());
    if let Some(binding) = &binding
        && !attached
        && binding.spec.resource.uid.as_deref().is_some_and(|uid| uid != template.uid)
    {
        // Recreated under the same name: the new one waits until the old one's binding is gone.
        return delete(binding);
    }
    let held = binding.as_ref().and_then(|binding| binding.policy());
    let claim = detect::claim(index, &template, held.as_ref());
    let needed = attached || (binding.is_none() && index.parents(template_key).next().is_some());
    if needed && !claim.holds() && !ends(index, &template) {
        return match (&claim, &binding) {
            (Claim::Excluded(_), None) => Step::Done(Done::Settled),
            (Claim::Excluded(_), Some(binding)) => delete(binding),
            _ if !index.is_interpreted(&template) => Step::Interpret(template),
            _ => Step::Attach(Box::new(Subject { key: key.clone(), claim, template, binding })),
        };
    }
    if binding.is_none() && (!claim.holds() || template.deleting || ends(index, &template)) {
        return Step::Done(Done::Settled);
    }
    if !index.is_interpreted(&template) {
        return Step::Interpret(template);
    }
    let subject = Box::new(Subject { key: key.clone(), claim, template, binding });
    if gated { Step::Upkeep(subject) } else { Step::Decide(subject) }
}

/// Whether the namespace of a template is being deleted: nothing can be created in it.
fn ends(index: &Index, template: &Template) -> bool {
    let namespace = template.key.namespace();
    namespace.and_then(|name| index.namespace(name)).is_some_and(|namespace| namespace.deleting)
}
