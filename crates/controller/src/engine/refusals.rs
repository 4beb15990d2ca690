//! Reports what is not processed where users look: bindings that Atoll did not create, rejected policies.

use atoll_api::binding::ObjectReference;
use atoll_api::conditions::{self, ACCEPTED, SCHEDULED};
use atoll_api::policy::PropagationPolicyStatus;
use atoll_api::{POLICY_GROUP, VERSION, WORK_GROUP};

use super::Engine;
use super::outward::binding_ref;
use super::work::Step;
use crate::detect::Refusal;
use crate::events::{self, Note, Severity};
use crate::index::rows::{Binding, Policy};
use crate::queue::Done;
use crate::status::binding::REFUSED;

impl Engine {
    /// A binding that is not processed: its objects on members stay, and the reason is on the binding.
    pub(super) fn refuse(&mut self, binding: &Binding, why: &Refusal) -> Step {
        let message = why.to_string();
        let said = conditions::find(&binding.status.conditions, SCHEDULED)
            .is_some_and(|last| last.reason == REFUSED && last.message == message);
        self.dispatch(&binding.key);
        if !said {
            tracing::warn!(key = %binding.key, why = message, "binding refused");
            let reference = binding_ref(binding);
            let about = ObjectReference {
                api_version: format!("{WORK_GROUP}/{VERSION}"),
                kind: reference.kind,
                namespace: reference.namespace,
                name: reference.name,
                uid: Some(reference.uid),
            };
            self.warn_of(about, REFUSED, message);
            self.mark_status(&binding.key);
        }
        Step::Done(Done::Settled)
    }

    /// Warns of a policy that is rejected, or accepted with a remark, when that changes.
    pub(super) fn warn_of_policy(&self, policy: &Policy, status: &PropagationPolicyStatus) {
        let before = conditions::find(&policy.status.conditions, ACCEPTED);
        let Some(now) = conditions::find(&status.conditions, ACCEPTED) else { return };
        let same = before.is_some_and(|before| {
            (&before.status, &before.reason, &before.message)
                == (&now.status, &now.reason, &now.message)
        });
        if same || (now.status == "True" && now.reason == ACCEPTED) {
            return;
        }
        let about = ObjectReference {
            api_version: format!("{POLICY_GROUP}/{VERSION}"),
            kind: policy.key.kind().to_owned(),
            namespace: policy.key.namespace.clone(),
            name: policy.key.name.clone(),
            uid: Some(policy.uid.clone()),
        };
        self.warn_of(about, &now.reason, now.message.clone());
    }

    fn warn_of(&self, about: ObjectReference, reason: &str, message: String) {
        let uid = about.uid.as_deref().unwrap_or_default();
        // The same warning about the same object is the same Event.
        let id = events::id(&[uid, reason, &message]);
        self.notes.tell(Note {
            about,
            id,
            reason: reason.to_owned(),
            message,
            severity: Severity::Warning,
            at: self.clock.now_seconds(),
            cause: None,
            repeat_after: None,
        });
    }
}
