//! Metrics of webhooks.

use std::time::Duration;

use atoll_api::customization::Operation;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::index::rules::RuleSource;
use crate::index::webhooks::Hook;

/// Upper bounds of durations, in seconds. A call takes at most 30 s.
const SECONDS: [f64; 9] = [0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

/// A webhook, and what it is asked.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    webhook: Webhook,
    operation: &'static str,
}

impl Labels {
    pub(super) fn of(hook: &Hook, operation: Operation) -> Self {
        let webhook = Webhook {
            configuration: hook.configuration.to_string(),
            webhook: hook.webhook.name.clone(),
        };
        Self { webhook, operation: operation.name() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Webhook {
    configuration: String,
    webhook: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    configuration: String,
    webhook: String,
    operation: &'static str,
    result: &'static str,
}

/// Metrics of webhooks. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct WebhookMetrics {
    calls: Family<Ended, Counter>,
    seconds: Family<Webhook, Histogram, fn() -> Histogram>,
    open: Family<Webhook, Gauge>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> _);
        Self { calls: Family::default(), seconds, open: Family::default() }
    }
}

impl WebhookMetrics {
    /// Registers them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("atoll_interpreter_webhook");
        registry.register(
            "calls",
            "Questions to interpreter webhooks, by result",
            self.calls.clone(),
        );
        registry.register(
            "seconds",
            "How long interpreter webhooks took to answer or to fail",
            self.seconds.clone(),
        );
        registry.register(
            "open",
            "1 while a webhook is not called, because calls in a row failed",
            self.open.clone(),
        );
    }

    /// Gives each family a member.
    #[cfg(test)]
    pub(crate) fn show(&self) {
        let webhook = Webhook { configuration: "apps".to_owned(), webhook: "meaning".to_owned() };
        let labels = Labels { webhook, operation: Operation::InterpretHealth.name() };
        self.ended(labels.clone(), "answered", Some(Duration::ZERO));
        self.open(labels, false);
    }

    /// A question has an answer or none.
    pub(super) fn ended(&self, labels: Labels, result: &'static str, took: Option<Duration>) {
        let Labels { webhook, operation } = labels;
        if let Some(took) = took {
            self.seconds.get_or_create(&webhook).observe(took.as_secs_f64());
        }
        let Webhook { configuration, webhook } = webhook;
        self.calls.get_or_create(&Ended { configuration, webhook, operation, result }).inc();
    }

    /// A webhook changed or was deleted: nothing is said about calls to it.
    pub(super) fn closed(&self, source: &RuleSource) {
        if let RuleSource::Webhook(configuration, webhook) = source {
            let (configuration, webhook) = (configuration.clone(), webhook.clone());
            self.open.remove(&Webhook { configuration, webhook });
        }
    }

    /// Whether a webhook is called.
    pub(super) fn open(&self, labels: Labels, is_open: bool) {
        self.open.get_or_create(&labels.webhook).set(is_open.into());
    }
}
