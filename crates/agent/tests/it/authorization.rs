//! Requests as seen by Kubernetes' authorisation, to compare with the roles that an installation grants. The World uses
//! it for the controller's requests.

use serde_json::{Value, json};

/// A request as seen by Kubernetes' authorisation.
#[derive(Debug)]
pub(crate) struct Request {
    verb: &'static str,
    group: String,
    /// Including its subresource.
    resource: String,
    pub(crate) namespace: String,
    name: String,
}

impl Request {
    /// Parses a request line; `None` for paths that every service account may read.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (method, uri) = line.split_once(' ').unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let group = match parts[0] {
            "api" if parts.len() > 2 => {
                parts.drain(..2);
                String::new()
            }
            "apis" if parts.len() > 3 => parts.drain(..3).nth(1).unwrap().to_owned(),
            _ => {
                assert_eq!(method, "GET", "{line}");
                return None;
            }
        };
        let namespaced = parts[0] == "namespaces" && parts.len() > 2;
        let namespace =
            if namespaced { parts.drain(..2).nth(1).unwrap().to_owned() } else { String::new() };
        let name = parts.get(1).copied().unwrap_or_default().to_owned();
        let verb = match method {
            "GET" if query.contains("watch=") => "watch",
            "GET" if name.is_empty() => "list",
            "GET" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            other => panic!("{other}"),
        };
        let resource = match parts.get(2) {
            Some(subresource) => format!("{}/{subresource}", parts[0]),
            None => parts[0].to_owned(),
        };
        Some(Self { verb, group, resource, namespace, name })
    }

    /// Whether a rule of a role allows it.
    pub(crate) fn is_allowed(&self, rule: &Value) -> bool {
        let has = |list: &Value, item: &str| list.as_array().unwrap().contains(&json!(item));
        has(&rule["apiGroups"], &self.group)
            && has(&rule["resources"], &self.resource)
            && has(&rule["verbs"], self.verb)
            && (rule["resourceNames"].is_null() || has(&rule["resourceNames"], &self.name))
    }
}
