//! `SchedulerConfiguration`: profiles, plugins by extension point, weights, args. Errors name the path of the mistake.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// apiVersion of the file.
pub const API_VERSION: &str = "config.atoll.dev/v1alpha1";
/// kind of the file.
pub const KIND: &str = "SchedulerConfiguration";

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ConfigError {
    /// Path of the mistake, for example `profiles[0].plugins.filter.enabled[2].name`.
    pub path: String,
    /// The problem and how to fix it.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

/// The file, in the shape of KubeSchedulerConfiguration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerConfiguration {
    /// `config.atoll.dev/v1alpha1`.
    pub api_version: String,
    /// `SchedulerConfiguration`.
    pub kind: String,
    /// Leader election; used by the controller.
    #[serde(default)]
    pub leader_election: Option<LeaderElection>,
    /// The profiles, in addition to the built-in ones.
    #[serde(default)]
    pub profiles: Vec<ProfileSpec>,
}

/// Leader election.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether to elect a leader. Default true.
    #[serde(default)]
    pub leader_elect: Option<bool>,
    /// Name of the Lease.
    #[serde(default)]
    pub resource_name: Option<String>,
    /// Namespace of the Lease.
    #[serde(default)]
    pub resource_namespace: Option<String>,
}

/// One profile.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileSpec {
    /// The name that policies use. `default` and `karmada` modify the built-in profiles.
    pub scheduler_name: String,
    /// Changes by extension point.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginSet>,
    /// Args by plugin.
    #[serde(default)]
    pub plugin_config: Vec<PluginConfig>,
}

/// Changes at one extension point.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginSet {
    /// Plugins to append. For a plugin that is already enabled, sets the weight.
    #[serde(default)]
    pub enabled: Vec<PluginName>,
    /// Plugins to remove; `*` = all.
    #[serde(default)]
    pub disabled: Vec<PluginName>,
}

/// A plugin in a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginName {
    /// Its name.
    pub name: String,
    /// Weight of its scores, at extension point `score` only. Default 1.
    #[serde(default)]
    pub weight: Option<i64>,
}

/// Args of a plugin.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginConfig {
    /// Its name.
    pub name: String,
    /// Its args.
    #[serde(default)]
    pub args: Option<Value>,
}

impl SchedulerConfiguration {
    /// Reads a YAML or JSON file.
    ///
    /// # Errors
    /// The file does not match the schema.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::new("SchedulerConfiguration", error.to_string()))?;
        if config.api_version != API_VERSION {
            let problem = format!("{:?} must be {API_VERSION}", config.api_version);
            return Err(ConfigError::new("apiVersion", problem));
        }
        if config.kind != KIND {
            return Err(ConfigError::new("kind", format!("{:?} must be {KIND}", config.kind)));
        }
        Ok(config)
    }
}
