//! Reports what is not processed where users look: bindings that Atoll did not create, rejected policies.

use atoll_api::binding::ObjectReference;
use atoll_api::conditions::{self, ACCEPTED, ASSIGNED, PODS_ADMITTED, SCHEDULED};
use atoll_api::federated_resource_quota::{FederatedResourceQuota, FederatedResourceQuotaStatus};
use atoll_api::policy::PropagationPolicyStatus;
use atoll_api::text::counted;
use atoll_api::{ClusterName, POLICY_GROUP, VERSION, WORK_GROUP};

use atoll_render::RenderError;

use super::binding::{CANNOT_RENDER, REFUSED};
use crate::audit::binding_ref;
use crate::detect::refusal::Refusal;
use crate::env::Env;
use crate::events::{self, Note, Severity};
use crate::index::rows::{Binding, Policy};
use crate::index::template::Template;

/// A binding that is not processed: its objects on members stay. Returns whether that is new.
pub(crate) fn of_refusal(env: &Env, binding: &Binding, why: &Refusal) -> bool {
    let message = why.to_string();
    let known = conditions::find(&binding.status.read().conditions, SCHEDULED)
        .is_some_and(|last| last.reason == REFUSED && last.message == message);
    if known {
        return false;
    }
    tracing::warn!(key = %binding.key, why = message, "binding refused");
    let reference = binding_ref(binding);
    let about = ObjectReference {
        api_version: format!("{WORK_GROUP}/{VERSION}"),
        kind: reference.kind,
        namespace: reference.namespace,
        name: reference.name,
        uid: Some(reference.uid.into()),
    };
    warn(env, about, REFUSED, message);
    true
}

/// Warns of a policy that is rejected, or accepted with a remark, when that changes.
pub(crate) fn of_policy(env: &Env, policy: &Policy, status: &PropagationPolicyStatus) {
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
    warn(env, about, &now.reason, now.message.clone());
}

/// Warns of static assignments that do not hold on a member, and of workloads whose pods it refuses, when that changes.
pub(crate) fn of_quota(
    env: &Env,
    quota: &FederatedResourceQuota,
    status: &FederatedResourceQuotaStatus,
) {
    let before = quota.status.as_ref().map(|status| status.conditions.as_slice());
    for kind in [ASSIGNED, PODS_ADMITTED] {
        let last = before.and_then(|before| conditions::find(before, kind));
        let Some(now) = conditions::find(&status.conditions, kind) else { continue };
        let same =
            last.is_some_and(|last| (&last.reason, &last.message) == (&now.reason, &now.message));
        if same || now.status != "False" || now.reason == "Pending" {
            continue;
        }
        let about = ObjectReference {
            api_version: format!("{POLICY_GROUP}/{VERSION}"),
            kind: "FederatedResourceQuota".to_owned(),
            namespace: quota.metadata.namespace.clone(),
            name: quota.metadata.name.clone().unwrap_or_default(),
            uid: quota.metadata.uid.clone(),
        };
        warn(env, about, &now.reason, now.message.clone());
    }
}

/// A template that cannot be rendered for some members: they keep what they have.
pub(crate) fn of_render<'a>(
    env: &Env,
    template: &Template,
    errors: impl Iterator<Item = (&'a ClusterName, &'a RenderError)>,
) {
    let errors: Vec<String> = errors.map(|(cluster, why)| format!("{cluster}: {why}")).collect();
    let Some(first) = errors.first() else { return };
    let message = match errors.len() {
        1 => first.clone(),
        count => format!("{first}; and {}", counted(count - 1, "more member")),
    };
    warn(env, template.reference(), CANNOT_RENDER, message);
}

fn warn(env: &Env, about: ObjectReference, reason: &str, message: String) {
    let uid = about.uid.as_deref().unwrap_or_default();
    // The same warning about the same object is the same Event.
    let id = events::id(&[uid, reason, &message]);
    env.notes.post(Note {
        about,
        id,
        reason: reason.to_owned(),
        message,
        severity: Severity::Warning,
        at: env.clock.now_seconds(),
        cause: None,
        repeat_after: None,
    });
}
