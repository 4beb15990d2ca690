//! What the leader knows about a binding, as input of its status and of its template's.

use super::obstacles::obstacles;
use super::secrets;
use super::{binding, template};
use crate::audit::Outbox;
use crate::detect::{self, Claim};
use crate::guards::{Guards, Held};
use crate::hub_state::HubState;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::placements::Placements;
use crate::placements::observed::Observed;
use crate::queue::BindingQueue;

/// The leader's state, as far as statuses show it.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) hub: &'a HubState,
    pub(crate) placements: &'a Placements,
    pub(crate) queue: &'a BindingQueue,
    pub(crate) outbox: &'a Outbox,
    pub(crate) guards: &'a Guards,
    pub(crate) term: LeaderTerm,
}

/// One binding in it.
pub(crate) struct Facts<'a> {
    sources: Sources<'a>,
    binding: &'a Binding,
}

impl<'a> Sources<'a> {
    /// The facts about this binding.
    pub(crate) fn of(self, binding: &'a Binding) -> Facts<'a> {
        Facts { sources: self, binding }
    }
}

impl binding::Knowledge for Facts<'_> {
    fn observed(&self, cluster: &str) -> Option<&Observed> {
        self.sources.placements.observed(&self.binding.key, cluster)
    }

    fn sent(&self, cluster: &str) -> Option<&str> {
        self.sources.placements.sent(&self.binding.key, cluster).map(|sent| sent.hash.as_str())
    }

    fn refused(&self) -> Option<String> {
        self.sources.hub.index.refusal(self.binding).map(|why| why.to_string())
    }

    fn gated(&self) -> Option<String> {
        self.sources.queue.held(&self.binding.key).map(ToString::to_string)
    }

    fn held(&self) -> Held<'_> {
        self.sources.guards.held(&self.binding.key)
    }

    fn hindrance(&self) -> Option<(&'static str, String)> {
        let index = &self.sources.hub.index;
        let errors = self.sources.placements.render_errors(&self.binding.key);
        let errors: Vec<String> =
            errors.map(|(cluster, why)| format!("{cluster}: {why}")).collect();
        if !errors.is_empty() {
            return Some((binding::CANNOT_RENDER, binding::shorten(&errors)));
        }
        if self.binding.spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching) {
            return Some(("Suspended", "spec.suspension.dispatching is set".to_owned()));
        }
        let (term, ours) = (self.binding.term(), self.sources.term);
        if term.is_out_of_range(ours) {
            return Some((
                "TermOutOfRange",
                format!(
                    "spec.decision.term is {term}, more than 2^32 above the leader's term {ours}: no new decision can be \
                     stored. Restore the binding, or set annotation {} of the controller's Lease to {term}",
                    atoll_api::marks::TERM
                ),
            ));
        }
        let template = &self.binding.template;
        let frozen = || index.frozen(template.group_kind());
        secrets::of_binding(index, template)
            .map(|why| (secrets::NOT_READABLE, why))
            .or_else(|| frozen().map(|why| ("KindUnreadable", why)))
    }

    fn unclaimed(&self) -> Option<(&'static str, String)> {
        let index = &self.sources.hub.index;
        let template = index.template(&self.binding.template)?;
        match detect::claim(index, template, self.binding.policy().as_ref()) {
            Claim::Policy(..) | Claim::Bare => None,
            Claim::Waiting(policy) => Some((
                "PolicyIsLazy",
                format!(
                    "policy {} has activationPreference Lazy and was changed after the object: it takes effect with the \
                     object's next change",
                    policy.key
                ),
            )),
            Claim::None => {
                Some(("NoPolicy", "no policy selects the object; it stays where it is".to_owned()))
            }
            Claim::Excluded(why) => Some(("NoPolicy", format!("{why}; it stays where it is"))),
        }
    }

    fn obstacles(&self) -> Option<(&'static str, Vec<String>)> {
        let found = obstacles(&self.sources.hub.index, self.binding);
        let worst = found.first()?.0.reason();
        Some((worst, found.into_iter().map(|(_, text)| text).collect()))
    }

    fn affinity_violations(&self) -> Option<Vec<String>> {
        let violations = self.sources.hub.tables.affinity_violations(&self.binding.key)?;
        Some(violations.iter().map(ToString::to_string).collect())
    }

    fn unrecorded(&self) -> Option<String> {
        let error = self.sources.hub.history_error.as_ref()?;
        if !self.sources.outbox.awaits(self.binding) {
            return None;
        }
        let decision = self.binding.spec.decision.as_ref()?;
        let earlier: i64 = self.binding.spec.unrecorded.iter().map(|held| held.count).sum();
        Some(format!(
            "decision {} of {} waits for the database, and {earlier} before it: {error}",
            decision.id, decision.at.0
        ))
    }
}

impl template::Knowledge for Facts<'_> {
    fn observed(&self, cluster: &str) -> Option<&Observed> {
        self.sources.placements.observed(&self.binding.key, cluster)
    }

    fn revision(&self, cluster: &str, held: &Observed) -> Option<i64> {
        self.sources.placements.sent(&self.binding.key, cluster)?.revision(&held.hash)
    }
}
