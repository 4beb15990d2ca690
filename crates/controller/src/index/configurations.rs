//! Configurations of webhooks.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::ResourceInterpreterWebhookConfiguration;
use atoll_api::interpreter_webhook::InterpreterWebhook;
use serde::Deserialize;
use serde_json::Value;

use super::customizations::hash;
use super::rows::RowError;
use super::webhooks::{Hook, WebhookConfiguration, Webhooks};
use super::{Index, Touched};

impl Index {
    /// A configuration of webhooks.
    #[must_use]
    pub fn webhook_configuration(&self, name: &str) -> Option<&Arc<WebhookConfiguration>> {
        self.customizations.webhooks.get(name)
    }

    /// Names of all configurations of webhooks.
    pub fn webhook_configurations(&self) -> impl Iterator<Item = &String> {
        self.customizations.webhooks.keys()
    }

    pub(super) fn put_webhooks(
        &mut self,
        name: &str,
        object: &Value,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let read = ResourceInterpreterWebhookConfiguration::deserialize(object);
        let read = read.map_err(|error| RowError::Shape(error.to_string()))?;
        let configuration: Arc<str> = name.into();
        let hook = |webhook: InterpreterWebhook| -> Result<_, RowError> {
            let hash = hash(&webhook)?.into();
            Ok(Arc::new(Hook { configuration: configuration.clone(), hash, webhook }))
        };
        let row = WebhookConfiguration {
            uid: read.metadata.uid.unwrap_or_default(),
            generation: read.metadata.generation,
            hooks: read.webhooks.into_iter().map(hook).collect::<Result<_, _>>()?,
            status: read.status.unwrap_or_default(),
        };
        self.set_webhooks(name, Some(row), touched);
        Ok(())
    }

    pub(super) fn set_webhooks(
        &mut self,
        name: &str,
        row: Option<WebhookConfiguration>,
        touched: &mut Touched,
    ) {
        let rows = &mut self.customizations.webhooks;
        let row = row.map(Arc::new);
        let before = match &row {
            Some(row) => rows.insert(name.to_owned(), row.clone()),
            None => rows.remove(name),
        };
        let version = |row: &Arc<WebhookConfiguration>| (row.uid.clone(), row.generation);
        let hooks =
            |row: &Option<Arc<WebhookConfiguration>>| row.as_ref().map(|row| row.hooks.clone());
        let same = hooks(&before) == hooks(&row);
        if same && before.as_ref().map(version) == row.as_ref().map(version) {
            return; // only its status or its metadata changed
        }
        touched.interpreters.webhooks.insert(name.to_owned());
        if same {
            return;
        }
        let rules = self.customizations.rules.with_webhooks(&self.customizations.webhooks);
        self.customizations.rules = Arc::new(rules);
        let concerned = Webhooks::of(before.iter().chain(&row));
        let templates = self.templates.rows.values();
        let kinds: BTreeSet<(&str, &str)> = templates
            .map(|template| (template.api_version(), template.key.group_kind().kind))
            .collect();
        let kinds: Vec<(String, String)> = kinds
            .into_iter()
            .filter(|(api_version, kind)| concerned.concern(api_version, kind))
            .map(|(api_version, kind)| (api_version.to_owned(), kind.to_owned()))
            .collect();
        for (api_version, kind) in kinds {
            self.touch_kind(&api_version, &kind, touched);
        }
    }
}
