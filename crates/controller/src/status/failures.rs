//! The last failures of users' rules, for the statuses of customizations and of configurations of webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::customization::RuleFailure;
use jiff::SignedDuration;

use crate::index::Index;
use crate::index::rules::{Customization, RuleSource};
use crate::index::webhooks::WebhookConfiguration;
use crate::interpret::{RuleFailed, RuleNews};

/// How long the same failure of other objects is not shown again: a rule may fail for thousands.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// The last failure of each customization and webhook, if it did not change since.
#[derive(Debug, Default)]
pub(crate) struct RuleFailures {
    last: BTreeMap<RuleSource, RuleFailed>,
    /// Webhooks that answered in this leadership, with their hashes.
    reached: BTreeMap<RuleSource, Arc<str>>,
}

/// What is known of the webhooks of a configuration.
#[derive(Debug, Default)]
pub(crate) struct WebhookNews {
    /// The last failure, and the webhook.
    pub(crate) failed: Option<(String, RuleFailed)>,
    /// Webhooks that answered in this leadership.
    pub(crate) reached: BTreeSet<String>,
}

impl RuleFailures {
    /// Stores what became known of a rule. Returns whether the status shows something new.
    pub(crate) fn note(&mut self, index: &Index, news: RuleNews) -> bool {
        match news {
            RuleNews::Failed(failed) => self.failed(index, failed),
            RuleNews::Reached(source, hash) => {
                if index.rules().hash_of(&source) != Some(&hash) {
                    return false;
                }
                if self.last.get(&source).is_some_and(|failed| failed.unreachable) {
                    self.last.remove(&source);
                }
                self.reached.insert(source, hash);
                true
            }
        }
    }

    fn failed(&mut self, index: &Index, failed: RuleFailed) -> bool {
        if index.rules().hash_of(&failed.source) != Some(&failed.hash) {
            return false;
        }
        let repeats = self.last.get(&failed.source).is_some_and(|last| {
            let (before, now) = (&last.failure, &failed.failure);
            let same = match failed.unreachable {
                // The message has the seconds until the next call.
                true => last.unreachable,
                false => (before.operation, &before.message) == (now.operation, &now.message),
            };
            last.hash == failed.hash
                && same
                && now.time.0.duration_since(before.time.0) < REPEAT_AFTER
        });
        if !repeats {
            self.last.insert(failed.source.clone(), failed);
        }
        !repeats
    }

    /// The last failure of a customization as it is now.
    pub(crate) fn last(&self, name: &str, row: &Customization) -> Option<&RuleFailure> {
        let failed = self.last.get(&RuleSource::Customization(name.to_owned()))?;
        (failed.hash == row.hash).then_some(&failed.failure)
    }

    /// What is known of the webhooks of a configuration as they are now.
    pub(crate) fn of_webhooks(&self, row: &WebhookConfiguration) -> WebhookNews {
        let mut news = WebhookNews::default();
        for hook in &row.hooks {
            let source = RuleSource::from(&**hook);
            if self.reached.get(&source) == Some(&hook.hash) {
                news.reached.insert(hook.webhook.name.clone());
            }
            let failed = self.last.get(&source).filter(|failed| failed.hash == hook.hash);
            let newer = |failed: &&RuleFailed| {
                news.failed
                    .as_ref()
                    .is_none_or(|(_, held)| held.failure.time.0 < failed.failure.time.0)
            };
            if let Some(failed) = failed.filter(newer) {
                news.failed = Some((hook.webhook.name.clone(), failed.clone()));
            }
        }
        news
    }

    /// Drops what concerns earlier versions of rules: some changed or were deleted.
    pub(crate) fn forget_old(&mut self, index: &Index) {
        let rules = index.rules();
        self.last.retain(|source, failed| rules.hash_of(source) == Some(&failed.hash));
        self.reached.retain(|source, hash| rules.hash_of(source) == Some(hash));
    }
}
