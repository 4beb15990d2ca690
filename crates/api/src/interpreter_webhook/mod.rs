//! `ResourceInterpreterWebhookConfiguration`: servers that say what kinds mean. Karmada's format; `status` is Atoll's.
//!
//! [`InterpreterWebhook::problems`] checks what needs no network.

mod status;

use std::borrow::Cow;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::customization::{Operation, RuleProblem};
pub use status::{WebhookConfigurationStatus, WebhookFailure, WebhookOperation, WebhookUse};

/// Time limit of a call without `timeoutSeconds`.
pub const DEFAULT_TIMEOUT_SECONDS: u32 = 10;
/// Largest `timeoutSeconds`.
pub const MAX_TIMEOUT_SECONDS: u32 = 30;
/// Every group, version, kind or operation.
const ANY: &str = "*";
/// Port of a service without one.
const HTTPS_PORT: u16 = 443;

/// Names servers that say what kinds mean.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhookConfiguration {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The servers.
    pub webhooks: Vec<InterpreterWebhook>,
    /// Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WebhookConfigurationStatus>,
}

impl kube::Resource for ResourceInterpreterWebhookConfiguration {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ResourceInterpreterWebhookConfiguration".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        crate::CONFIG_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        crate::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "resourceinterpreterwebhookconfigurations".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The definition. Karmada's kind has no `spec`, which the derived one needs: its fields are moved up.
pub(crate) mod definition {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::CustomResourceExt;

    use super::{
        CustomResource, Deserialize, InterpreterWebhook, JsonSchema, Serialize,
        WebhookConfigurationStatus,
    };

    /// Names servers that say what kinds mean.
    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "config.atoll.dev",
        version = "v1alpha1",
        kind = "ResourceInterpreterWebhookConfiguration",
        plural = "resourceinterpreterwebhookconfigurations",
        shortname = "riwc",
        category = "atoll",
        status = "WebhookConfigurationStatus",
        printcolumn = r#"{"name":"Webhooks","type":"string","jsonPath":".webhooks[*].name"}"#,
        printcolumn = r#"{"name":"Valid","type":"string","jsonPath":".status.conditions[?(@.type==\"Valid\")].status"}"#,
        printcolumn = r#"{"name":"Failing","type":"string","jsonPath":".status.conditions[?(@.type==\"Failing\")].status"}"#,
        printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
    )]
    pub(crate) struct Fields {
        /// The servers. Of several with a rule for an operation of a kind, the first answers: configurations by name, then
        /// webhooks in this order.
        #[schemars(
            length(max = 32),
            extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
        )]
        pub webhooks: Vec<InterpreterWebhook>,
    }

    /// The CRD.
    pub(crate) fn crd() -> CustomResourceDefinition {
        let mut crd = ResourceInterpreterWebhookConfiguration::crd();
        for version in &mut crd.spec.versions {
            let schema = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
            let Some(schema) = schema else { continue };
            let Some(fields) = &mut schema.properties else { continue };
            let Some(spec) = fields.remove("spec") else { continue };
            fields.extend(spec.properties.unwrap_or_default());
            schema.required = spec.required;
        }
        crd
    }
}

/// A server, and what it is asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterpreterWebhook {
    /// Name, unique in the configuration.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Where the server is.
    pub client_config: WebhookClientConfig,
    /// What it is asked; it is asked what any of the rules names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub rules: Vec<WebhookRule>,
    /// Time limit of one call. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<u32>,
    /// The `apiVersion` of ResourceInterpreterContext that the server understands; the first that Atoll knows is used:
    /// `v1alpha1` or `config.atoll.dev/v1alpha1`, or `config.karmada.io/v1alpha1` for servers written for Karmada.
    #[schemars(length(min = 1, max = 8), extend("items" = {"type": "string", "maxLength": 64}))]
    pub interpreter_context_versions: Vec<String>,
}

/// Where a server is: exactly one of `url` and `service`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.url) != has(self.service)",
    "message": "exactly one of url and service is required"
}]))]
pub struct WebhookClientConfig {
    /// `https://HOST[:PORT][/PATH]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// A Service that the controller's DNS resolves: `https://NAME.NAMESPACE.svc:PORT/PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<WebhookService>,
    /// Certificates in PEM, encoded in base64, one of which must have issued the server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_048_576))]
    pub ca_bundle: Option<String>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookService {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its port. Default: 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

/// Operations of kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookRule {
    /// Names of operations, for example `InterpretReplica`, or `*`.
    #[schemars(length(min = 1, max = 16), extend("items" = {"type": "string", "maxLength": 63}))]
    pub operations: Vec<String>,
    /// Groups, or `*`. The core group is the empty text.
    #[schemars(length(min = 1, max = 16), extend("items" = {"type": "string", "maxLength": 253}))]
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    #[schemars(length(min = 1, max = 16), extend("items" = {"type": "string", "maxLength": 63}))]
    pub api_versions: Vec<String>,
    /// Kinds, or `*`.
    #[schemars(length(min = 1, max = 16), extend("items" = {"type": "string", "maxLength": 63}))]
    pub kinds: Vec<String>,
}

impl WebhookRule {
    /// Whether it names this operation.
    #[must_use]
    pub fn names(&self, operation: Operation) -> bool {
        has(&self.operations, operation.name())
    }

    /// Whether it names this kind.
    #[must_use]
    pub fn selects(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        has(&self.api_groups, group) && has(&self.api_versions, version) && has(&self.kinds, kind)
    }

    /// The kinds, each with its API version; `None` if it has a `*`.
    #[must_use]
    pub fn exact_kinds(&self) -> Option<Vec<(String, String)>> {
        let lists = [&self.api_groups, &self.api_versions, &self.kinds];
        if lists.into_iter().flatten().any(|entry| entry == ANY) {
            return None;
        }
        let mut kinds = Vec::new();
        for group in &self.api_groups {
            for version in &self.api_versions {
                let api_version = match group.as_str() {
                    "" => version.clone(),
                    group => format!("{group}/{version}"),
                };
                kinds.extend(self.kinds.iter().map(|kind| (api_version.clone(), kind.clone())));
            }
        }
        Some(kinds)
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == ANY || entry == wanted)
}

/// Format of the messages to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextVersion {
    /// `config.atoll.dev/v1alpha1`.
    Atoll,
    /// `config.karmada.io/v1alpha1`.
    Karmada,
}

impl ContextVersion {
    /// `apiVersion` of the messages.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Atoll => "config.atoll.dev/v1alpha1",
            Self::Karmada => "config.karmada.io/v1alpha1",
        }
    }
}

impl InterpreterWebhook {
    /// Whether it has a rule for this operation of a kind.
    #[must_use]
    pub fn answers(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.rules.iter().any(|rule| rule.names(operation) && rule.selects(api_version, kind))
    }

    /// Time limit of one call, in seconds.
    #[must_use]
    pub fn timeout_seconds(&self) -> u32 {
        self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, MAX_TIMEOUT_SECONDS)
    }

    /// Format of the messages: the first in the list that Atoll knows.
    #[must_use]
    pub fn context_version(&self) -> Option<ContextVersion> {
        self.interpreter_context_versions.iter().find_map(|version| match version.as_str() {
            "v1alpha1" | "config.atoll.dev/v1alpha1" => Some(ContextVersion::Atoll),
            "config.karmada.io/v1alpha1" => Some(ContextVersion::Karmada),
            _ => None,
        })
    }

    /// Everything that is wrong, with its field. Empty = valid.
    #[must_use]
    pub fn problems(&self) -> Vec<RuleProblem> {
        let mut problems = self.client_config.problems();
        let mut add = |field: &str, problem: &str| {
            problems.push(RuleProblem { field: field.to_owned(), problem: problem.to_owned() });
        };
        if self.rules.is_empty() {
            add("rules", "must name at least one operation of a kind");
        }
        if self.timeout_seconds.is_some_and(|limit| !(1..=MAX_TIMEOUT_SECONDS).contains(&limit)) {
            add("timeoutSeconds", "must be 1 to 30");
        }
        if self.context_version().is_none() {
            let known = "must have v1alpha1 (of config.atoll.dev) or config.karmada.io/v1alpha1";
            add("interpreterContextVersions", known);
        }
        problems
    }
}

impl WebhookClientConfig {
    /// The URL of the server.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn address(&self) -> Result<String, RuleProblem> {
        let problem = |field: &str, problem: String| {
            Err(RuleProblem { field: format!("clientConfig{field}"), problem })
        };
        match (&self.url, &self.service) {
            (Some(url), None) => match url_problem(url) {
                None => Ok(url.clone()),
                Some(why) => problem(".url", format!("{url:?} {why}")),
            },
            (None, Some(service)) => {
                let WebhookService { namespace, name, port, path } = service;
                for (field, text) in [("namespace", namespace), ("name", name)] {
                    if !is_dns_label(text) {
                        let why = format!("{text:?} is no name of a namespace or Service");
                        return problem(&format!(".service.{field}"), why);
                    }
                }
                let path = path.as_deref().unwrap_or_default();
                let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
                let port = port.unwrap_or(HTTPS_PORT);
                let url = format!("https://{name}.{namespace}.svc:{port}{slash}{path}");
                match url_problem(&url) {
                    None => Ok(url),
                    Some(why) => problem(".service.path", format!("{path:?} {why}")),
                }
            }
            _ => problem("", "exactly one of url and service is required".to_owned()),
        }
    }

    /// The certificates, in PEM.
    ///
    /// # Errors
    /// They are missing, or not encoded in base64.
    pub fn authorities(&self) -> Result<Vec<u8>, RuleProblem> {
        let problem = |problem: &str| RuleProblem {
            field: "clientConfig.caBundle".to_owned(),
            problem: problem.to_owned(),
        };
        let text = self.ca_bundle.as_deref().unwrap_or_default();
        if text.is_empty() {
            return Err(problem(
                "is required: the certificate of the authority that issued the server's, in PEM, encoded in base64",
            ));
        }
        let bytes = serde_json::from_value::<ByteString>(text.into());
        bytes.map(|bytes| bytes.0).map_err(|_| problem("is not base64"))
    }

    fn problems(&self) -> Vec<RuleProblem> {
        let wrong = [self.address().err(), self.authorities().err()];
        wrong.into_iter().flatten().collect()
    }
}

fn is_dns_label(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// What is wrong with the URL of a server.
fn url_problem(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Some("does not start with https://");
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return Some("has no host");
    }
    if host.contains('@') {
        return Some("has a user name, which is not sent");
    }
    if rest.contains(['?', '#']) {
        return Some("has a query or a fragment");
    }
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`');
    (!rest.chars().all(fits)).then_some("has characters that a URL cannot have")
}

impl InterpreterWebhook {
    /// What it is used for. `*` stands for everything that webhooks can answer.
    #[must_use]
    pub fn uses(&self) -> Vec<WebhookOperation> {
        let mut uses: Vec<WebhookOperation> = Vec::new();
        for name in self.rules.iter().flat_map(|rule| &rule.operations) {
            let operations: Vec<&str> = match name.as_str() {
                ANY => Operation::ALL.into_iter().map(Operation::name).collect(),
                name => vec![name],
            };
            for operation in operations {
                if !uses.iter().any(|entry| entry.operation == operation) {
                    uses.push(self.use_for(operation));
                }
            }
        }
        uses
    }

    fn use_for(&self, name: &str) -> WebhookOperation {
        let unused = |reason: &str, message: &str| WebhookOperation {
            operation: name.to_owned(),
            used: false,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
        };
        let Some(operation) = Operation::ALL.into_iter().find(|known| known.name() == name) else {
            return unused("UnknownOperation", "Atoll has no operation of this name");
        };
        if operation == Operation::Retain {
            let message = "retention runs on members, which call no webhooks: use a \
                           ResourceInterpreterCustomization";
            return unused("NotSupported", message);
        }
        let on_members = [Operation::InterpretHealth, Operation::InterpretStatus];
        let named = self.rules.iter().filter(|rule| rule.names(operation));
        if on_members.contains(&operation) && named.clone().any(|rule| rule.exact_kinds().is_none())
        {
            let message = "agents need the names of the kinds whose status they send as it is: rules for this \
                           operation cannot have * as apiGroups, apiVersions or kinds";
            return unused("NeedsKinds", message);
        }
        WebhookOperation { operation: name.to_owned(), used: true, ..WebhookOperation::default() }
    }

    /// Whether it is asked about this operation of a kind.
    #[must_use]
    pub fn is_asked(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        self.answers(api_version, kind, operation) && self.use_for(operation.name()).used
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn webhook(change: impl FnOnce(&mut serde_json::Value)) -> InterpreterWebhook {
        let mut webhook = json!({
            "name": "a",
            "clientConfig": {"url": "https://example.com:8443/ask", "caBundle": "cGVt"},
            "rules": [{"operations": ["InterpretReplica"], "apiGroups": ["apps.example.io"],
                "apiVersions": ["v1"], "kinds": ["WebApp"]}],
            "interpreterContextVersions": ["v1alpha1"],
        });
        change(&mut webhook);
        serde_json::from_value(webhook).unwrap()
    }

    #[test]
    fn every_problem_of_a_webhook_names_its_field() {
        assert_eq!(webhook(|_| ()).problems(), []);
        type Change = fn(&mut serde_json::Value);
        let cases: [(Change, &str); 12] = [
            (|w| w["clientConfig"]["url"] = json!("http://example.com"), "clientConfig.url"),
            (|w| w["clientConfig"]["url"] = json!("https://a@example.com"), "clientConfig.url"),
            (|w| w["clientConfig"]["url"] = json!("https://example.com?a=b"), "clientConfig.url"),
            (|w| w["clientConfig"]["url"] = json!("https:///a"), "clientConfig.url"),
            (|w| w["clientConfig"]["url"] = json!(null), "clientConfig"),
            (
                |w| w["clientConfig"]["service"] = json!({"namespace": "a", "name": "b"}),
                "clientConfig",
            ),
            (
                |w| {
                    w["clientConfig"] = json!({"caBundle": "cGVt",
                        "service": {"namespace": "a/b", "name": "b"}});
                },
                "clientConfig.service.namespace",
            ),
            (|w| w["clientConfig"]["caBundle"] = json!(null), "clientConfig.caBundle"),
            (|w| w["clientConfig"]["caBundle"] = json!("-----"), "clientConfig.caBundle"),
            (|w| w["rules"] = json!([]), "rules"),
            (|w| w["timeoutSeconds"] = json!(31), "timeoutSeconds"),
            (|w| w["interpreterContextVersions"] = json!(["v2"]), "interpreterContextVersions"),
        ];
        for (change, field) in cases {
            let problems = webhook(change).problems();
            assert_eq!(problems.len(), 1, "{field}: {problems:?}");
            assert_eq!(problems[0].field, field);
        }
    }

    #[test]
    fn the_example_of_the_documentation_is_valid_and_used() {
        let page = include_str!("../../../../docs/interpreters.md");
        let from = page.find("kind: ResourceInterpreterWebhookConfiguration").unwrap();
        let start = page[..from].rfind("```yaml").unwrap() + "```yaml".len();
        let example = page[start..].split("```").next().unwrap();
        let example: ResourceInterpreterWebhookConfiguration =
            serde_saphyr::from_str(example).unwrap();
        let webhook = &example.webhooks[0];
        assert_eq!(webhook.problems(), []);
        let uses = webhook.uses();
        assert_eq!(uses.len(), 3);
        assert!(uses.iter().all(|entry| entry.used), "{uses:?}");
    }

    #[test]
    fn a_service_is_the_name_that_the_clusters_dns_resolves() {
        let config = |service: serde_json::Value| WebhookClientConfig {
            service: Some(serde_json::from_value(service).unwrap()),
            ..WebhookClientConfig::default()
        };
        let plain = config(json!({"namespace": "ops", "name": "meaning"}));
        assert_eq!(plain.address().unwrap(), "https://meaning.ops.svc:443");
        let full = json!({"namespace": "ops", "name": "meaning", "port": 8443, "path": "v1/ask"});
        assert_eq!(config(full).address().unwrap(), "https://meaning.ops.svc:8443/v1/ask");
    }

    #[test]
    fn rules_select_kinds_and_what_a_webhook_cannot_answer_is_not_asked() {
        let all = webhook(|w| w["rules"][0]["operations"] = json!(["*", "Prune"]));
        let asked = |operation| all.is_asked("apps.example.io/v1", "WebApp", operation);
        assert!(asked(Operation::ReviseReplica) && asked(Operation::InterpretHealth));
        assert!(!asked(Operation::Retain));
        assert!(!all.is_asked("apps.example.io/v2", "WebApp", Operation::ReviseReplica));
        let unused: Vec<_> = all.uses().into_iter().filter(|entry| !entry.used).collect();
        let reasons: Vec<_> =
            unused.iter().map(|e| (&*e.operation, e.reason.as_deref().unwrap())).collect();
        assert_eq!(reasons, [("Retain", "NotSupported"), ("Prune", "UnknownOperation")]);
        let wide = webhook(|w| {
            w["rules"][0]["operations"] = json!(["*"]);
            w["rules"][0]["apiVersions"] = json!(["*"]);
        });
        assert!(wide.is_asked("apps.example.io/v2", "WebApp", Operation::InterpretReplica));
        assert!(!wide.is_asked("apps.example.io/v2", "WebApp", Operation::InterpretHealth));
        let kinds = all.rules[0].exact_kinds().unwrap();
        assert_eq!(kinds, [("apps.example.io/v1".to_owned(), "WebApp".to_owned())]);
    }
}
