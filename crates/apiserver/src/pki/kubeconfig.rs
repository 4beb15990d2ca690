//! Kubeconfig files. They are written as JSON, which is valid YAML without its escaping rules.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::credentials::Credentials;

/// One context of a kubeconfig, with a cluster and a user of the same name.
#[derive(Clone)]
pub struct Context {
    /// Name of context, cluster and user.
    pub name: String,
    /// `https://host:port`.
    pub server: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// The user's certificate and key.
    pub user: Credentials,
    /// The namespace used when none is given; `None` is `default`.
    pub namespace: Option<String>,
}

/// A kubeconfig with these contexts; `current` is the current context.
pub fn kubeconfig(contexts: &[Context], current: &str) -> String {
    let named = |field: &str, make: &dyn Fn(&Context) -> Value| -> Value {
        contexts.iter().map(|c| json!({"name": c.name, field: make(c)})).collect()
    };
    let clusters = named("cluster", &|c| {
        json!({
            "server": c.server,
            "certificate-authority-data": STANDARD.encode(&c.authority),
        })
    });
    let users = named("user", &|c| {
        json!({
            "client-certificate-data": STANDARD.encode(&c.user.certificate),
            "client-key-data": STANDARD.encode(&c.user.key),
        })
    });
    let all = named("context", &|c| {
        let mut context = json!({"cluster": c.name, "user": c.name});
        if let Some(namespace) = &c.namespace {
            context["namespace"] = namespace.as_str().into();
        }
        context
    });
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": clusters,
        "contexts": all,
        "users": users,
        "preferences": {},
    });
    format!("{config:#}\n")
}
