//! Parses request paths.

use crate::ApiError;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and what is below them.
    Health,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/<group>`.
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`.
    Resources {
        /// The group, empty for core.
        group: String,
        /// The version.
        version: String,
    },
    /// `/openapi/v2`.
    Swagger,
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/<the group version's path>`.
    OpenApi(String),
    /// Objects of a kind.
    Object(ObjectPath),
    /// A path that this server does not have.
    Unknown,
}

/// The path of a collection, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPath {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Plural of the kind.
    pub resource: String,
    /// Name; `None` for a collection.
    pub name: Option<String>,
    /// Subresource.
    pub subresource: Option<String>,
    /// The pre-1.0 way to watch: `/api/v1/watch/...`.
    pub watch: bool,
}

impl Target {
    /// Parses a path.
    #[must_use]
    pub fn parse(path: &str) -> Self {
        parse(path)
    }
}

impl ObjectPath {
    /// Whether the path fits a kind's scope.
    ///
    /// # Errors
    /// 404 when a namespace is missing, or given for a cluster-scoped kind.
    pub fn check_scope(&self, namespaced: bool) -> Result<(), ApiError> {
        let fits = match &self.namespace {
            Some(_) => namespaced,
            None => !namespaced || self.name.is_none(),
        };
        if fits { Ok(()) } else { Err(ApiError::no_such_path()) }
    }
}

fn parse(path: &str) -> Target {
    let decoded: Vec<String> =
        path.split('/').filter(|p| !p.is_empty()).map(super::query::decode_path).collect();
    let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["version"] => Target::Version,
        ["healthz" | "livez" | "readyz", ..] => Target::Health,
        ["api"] => Target::CoreVersions,
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).to_owned()),
        ["api", version] => {
            Target::Resources { group: String::new(), version: (*version).to_owned() }
        }
        ["apis", group, version] => {
            Target::Resources { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["openapi", "v2"] => Target::Swagger,
        ["openapi", "v3"] => Target::OpenApiIndex,
        ["openapi", "v3", rest @ ..] => Target::OpenApi(rest.join("/")),
        ["api", version, rest @ ..] => object("", version, rest),
        ["apis", group, version, rest @ ..] => object(group, version, rest),
        _ => Target::Unknown,
    }
}

fn object(group: &str, version: &str, mut rest: &[&str]) -> Target {
    let mut path = ObjectPath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ObjectPath::default()
    };
    if let ["watch", tail @ ..] = rest
        && !tail.is_empty()
    {
        path.watch = true;
        rest = tail;
    }
    // `/namespaces/x/finalize` and `/namespaces/x/status` are subresources of the namespace itself.
    let own = matches!(rest, ["namespaces", _] | ["namespaces", _, "status" | "finalize"]);
    if !(own && group.is_empty())
        && let ["namespaces", namespace, tail @ ..] = rest
        && !tail.is_empty()
    {
        path.namespace = Some((*namespace).to_owned());
        rest = tail;
    }
    let (resource, name, subresource) = match rest {
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(name), None),
        [resource, name, sub] => (resource, Some(name), Some(sub)),
        _ => return Target::Unknown,
    };
    path.resource = (*resource).to_owned();
    path.name = name.map(|s| (*s).to_owned());
    path.subresource = subresource.map(|s| (*s).to_owned());
    Target::Object(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(path: &str) -> String {
        match parse(path) {
            Target::Object(p) => format!(
                "{}/{} ns={} {} {} {}{}",
                p.group,
                p.version,
                p.namespace.as_deref().unwrap_or("-"),
                p.resource,
                p.name.as_deref().unwrap_or("-"),
                p.subresource.as_deref().unwrap_or("-"),
                if p.watch { " watch" } else { "" },
            ),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_are_read_as_upstreams_request_info_resolver_does() {
        for (path, expected) in [
            ("/api/v1/namespaces", "/v1 ns=- namespaces - -"),
            ("/api/v1/namespaces/x", "/v1 ns=- namespaces x -"),
            ("/api/v1/namespaces/x/finalize", "/v1 ns=- namespaces x finalize"),
            ("/api/v1/namespaces/x/pods", "/v1 ns=x pods - -"),
            ("/api/v1/namespaces/x/pods/p/status", "/v1 ns=x pods p status"),
            ("/api/v1/watch/namespaces/x/pods", "/v1 ns=x pods - - watch"),
            ("/apis/apps/v1/deployments", "apps/v1 ns=- deployments - -"),
            ("/apis/apps/v1/namespaces/x/deployments/d/scale", "apps/v1 ns=x deployments d scale"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "rbac.authorization.k8s.io/v1 ns=- clusterroles system:node -",
            ),
            ("/apis/apps", "Group(\"apps\")"),
            ("/readyz/etcd", "Health"),
            ("/openapi/v3/apis/apps/v1", "OpenApi(\"apis/apps/v1\")"),
            ("/", "Unknown"),
            ("/api/v1/a/b/c/d", "Unknown"),
        ] {
            assert_eq!(short(path), expected, "{path}");
        }
    }
}
