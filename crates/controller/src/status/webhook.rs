//! The status of configurations of webhooks: whether they can be called, what they are used for, and the last failure.

use atoll_api::conditions::{self, FAILING, Status, VALID};
use atoll_api::customization::RuleFailure;
use atoll_api::interpreter_webhook::{WebhookConfigurationStatus, WebhookFailure, WebhookUse};
use jiff::Timestamp;

use super::binding::shorten;
use super::customization::NO_FAILURE;
use super::failures::WebhookNews;
use crate::index::webhooks::WebhookConfiguration;
use crate::interpret::webhooks::problem;

/// Reason of the condition `Valid` that does not hold.
const INVALID: &str = "InvalidWebhook";
/// Reason of the condition `Failing`: a webhook does not answer.
pub(crate) const UNREACHABLE: &str = "WebhookUnreachable";
/// Reason of the condition `Failing`: a webhook gave an answer that cannot be used, or said that it failed.
pub(crate) const FAILED: &str = "WebhookFailed";

/// The desired status of a configuration. Parses certificates, which takes milliseconds: not for the event loop.
#[must_use]
pub(crate) fn status(
    row: &WebhookConfiguration,
    news: WebhookNews,
    now: Timestamp,
) -> WebhookConfigurationStatus {
    let held = &row.status;
    let generation = row.generation;
    let named = row.hooks.iter().enumerate();
    let problems: Vec<String> = named
        .filter_map(|(at, hook)| Some(format!("webhooks[{at}].{}", problem(&hook.webhook)?)))
        .collect();
    let mut conditions = held.conditions.clone();
    let (valid, reason, message) = match problems.is_empty() {
        true => (Status::True, VALID, String::new()),
        false => (Status::False, INVALID, shorten(&problems)),
    };
    conditions::set(&mut conditions, VALID, valid, reason, &message, generation, now);
    let before = held.last_error.as_ref().filter(|_| held.observed_generation == generation);
    let (failing, reason, message, last_error) = match news.failed {
        Some((webhook, failed)) => {
            let reason = if failed.unreachable { UNREACHABLE } else { FAILED };
            let error = last_error(webhook, failed.failure);
            (Status::True, reason, describe(&error), Some(error))
        }
        None => {
            // An earlier leader may have seen the failure. A webhook that was unreachable then may have answered since.
            let known =
                conditions::find(&conditions, FAILING).filter(|known| known.status == "True");
            let stays = before.zip(known).filter(|(error, known)| {
                known.reason != UNREACHABLE || !news.reached.contains(&error.webhook)
            });
            match stays {
                Some((error, known)) => {
                    let reason = if known.reason == UNREACHABLE { UNREACHABLE } else { FAILED };
                    (Status::True, reason, describe(error), Some(error.clone()))
                }
                None => (Status::False, NO_FAILURE, String::new(), before.cloned()),
            }
        }
    };
    conditions::set(&mut conditions, FAILING, failing, reason, &message, generation, now);
    let uses = row
        .hooks
        .iter()
        .map(|hook| WebhookUse { name: hook.webhook.name.clone(), used_for: hook.webhook.uses() });
    WebhookConfigurationStatus {
        observed_generation: generation,
        conditions,
        webhooks: uses.collect(),
        last_error,
    }
}

fn last_error(webhook: String, failure: RuleFailure) -> WebhookFailure {
    let RuleFailure { operation, namespace, name, cluster, message, time } = failure;
    WebhookFailure { webhook, operation, namespace, name, cluster, message, time }
}

fn describe(error: &WebhookFailure) -> String {
    let namespace = error.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
    format!(
        "webhook {}, {}: {}; object {namespace}{}",
        error.webhook, error.operation, error.message, error.name
    )
}
