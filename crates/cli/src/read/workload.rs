//! Resolves what users type (`deploy/nginx`, `deployment.apps/nginx`) to a kind and a name, by the hub's discovery.

use anyhow::{Context, bail};
use atoll_api::HISTORY_GROUP;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{ApiResource, GroupVersionKind};

use crate::hub::Hub;
use crate::reach::encode;

/// A workload that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    /// Whether the hub serves Decision objects.
    pub(crate) decisions_served: bool,
    /// `None` for cluster-scoped kinds.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// A kind that the hub serves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    plural: String,
    singular: String,
    short_names: Vec<String>,
    namespaced: bool,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind.kind.to_lowercase())?;
        if !self.kind.group.is_empty() {
            write!(f, ".{}", self.kind.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

impl Workload {
    /// Its path on an API server.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.kind.path(self.namespace.as_deref()), encode(&self.name))
    }
}

/// Resolves `TYPE/NAME`, or `TYPE NAME`.
///
/// # Errors
/// When the argument has another form, or the hub serves no such type.
pub(crate) async fn resolve(hub: &Hub, words: &[String]) -> anyhow::Result<Workload> {
    let (type_, name) = split(words)?;
    let kinds = discover(hub).await?;
    let kind = find(&kinds, type_).with_context(|| unknown(hub, type_))?;
    Ok(Workload {
        kind: kind.clone(),
        decisions_served: kinds.iter().any(|kind| kind.group == HISTORY_GROUP),
        namespace: kind.namespaced.then(|| hub.namespace.clone()),
        name: name.to_owned(),
    })
}

impl Kind {
    /// Path of the collection in a namespace, or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// A kind of a test.
    #[cfg(test)]
    pub(crate) fn named(group: &str, version: &str, kind: &str) -> Self {
        let (group, version) = (group.to_owned(), version.to_owned());
        Self { group, version, kind: kind.to_owned(), ..Self::default() }
    }

    /// Group and version.
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// For a client.
    pub(crate) fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }

    /// Whether objects are in namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.namespaced
    }
}

/// The kind that a user names: `pods`, `deploy`, `widgets.example.com`.
///
/// # Errors
/// When the hub serves no such type, or does not answer.
pub(crate) async fn kind(hub: &Hub, type_: &str) -> anyhow::Result<Kind> {
    let kinds = discover(hub).await?;
    find(&kinds, type_).cloned().with_context(|| unknown(hub, type_))
}

fn unknown(hub: &Hub, type_: &str) -> String {
    format!(
        "the hub does not serve resource type {type_:?}; see `kubectl api-resources` ({})",
        hub.found
    )
}

/// Whether the hub serves Decision objects.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn decisions_served(hub: &Hub) -> anyhow::Result<bool> {
    Ok(discover(hub).await?.iter().any(|kind| kind.group == HISTORY_GROUP))
}

fn split(words: &[String]) -> anyhow::Result<(&str, &str)> {
    let parts = match words {
        [one] => one.split_once('/'),
        [type_, name] if !type_.contains('/') && !name.contains('/') => {
            Some((type_.as_str(), name.as_str()))
        }
        _ => None,
    };
    match parts {
        Some((type_, name)) if !type_.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((type_, name))
        }
        _ => bail!(
            "WORKLOAD {:?} must be TYPE/NAME, for example deploy/nginx or deployment.apps/nginx",
            words.join(" ")
        ),
    }
}

/// The kind that `type_` names: plural, singular, kind or short name, optionally with `.GROUP` or `.VERSION.GROUP`. If
/// several match, the first by discovery, which lists core and built-in groups first.
fn find<'a>(kinds: &'a [Kind], type_: &str) -> Option<&'a Kind> {
    let type_ = type_.to_lowercase();
    let (word, rest) = type_.split_once('.').map_or((type_.as_str(), None), |(w, r)| (w, Some(r)));
    kinds.iter().find(|kind| {
        let named = kind.plural == word
            || kind.singular == word
            || kind.kind.to_lowercase() == word
            || kind.short_names.iter().any(|short| short == word);
        named
            && rest.is_none_or(|rest| {
                rest == kind.group || rest == format!("{}.{}", kind.version, kind.group)
            })
    })
}

/// The kinds that the hub serves: two requests with aggregated discovery, otherwise one per group and version.
async fn discover(hub: &Hub) -> anyhow::Result<Vec<Kind>> {
    let doing = "ask which resource types there are";
    let aggregated = async {
        let core = hub.client.list_core_api_versions_aggregated().await?;
        Ok((core, hub.client.list_api_groups_aggregated().await?))
    };
    match hub.call(doing, aggregated).await {
        Ok((core, groups)) => Ok([core, groups].into_iter().flat_map(from_aggregated).collect()),
        // A server older than 1.26 answers in the older format, which does not parse as this one.
        Err(error) if matches!(error.downcast_ref(), Some(kube::Error::SerdeError(_))) => {
            hub.call(doing, one_by_one(&hub.client)).await
        }
        Err(error) => Err(error),
    }
}

fn from_aggregated(list: APIGroupDiscoveryList) -> impl Iterator<Item = Kind> {
    list.items.into_iter().flat_map(|group| {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        group.versions.into_iter().flat_map(move |version| {
            let (group, number) = (name.clone(), version.version.unwrap_or_default());
            // Without a kind only its subresources are served.
            let served = version.resources.into_iter().filter(|r| r.response_kind.is_some());
            served.map(move |resource| Kind {
                group: group.clone(),
                version: number.clone(),
                kind: resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
                plural: resource.resource.unwrap_or_default(),
                singular: resource.singular_resource.unwrap_or_default(),
                short_names: resource.short_names,
                namespaced: resource.scope.as_deref() == Some("Namespaced"),
            })
        })
    })
}

async fn one_by_one(client: &kube::Client) -> kube::Result<Vec<Kind>> {
    let mut lists = Vec::new();
    for version in client.list_core_api_versions().await?.versions {
        lists.push(client.list_core_api_resources(&version).await?);
    }
    for group in client.list_api_groups().await?.groups {
        for version in group.preferred_version.iter().chain(&group.versions) {
            lists.push(client.list_api_group_resources(&version.group_version).await?);
        }
    }
    let kinds = lists.into_iter().flat_map(|list| {
        let (group, version) = match list.group_version.split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), list.group_version.clone()),
        };
        list.resources.into_iter().filter(|resource| !resource.name.contains('/')).map(
            move |resource| Kind {
                group: group.clone(),
                version: version.clone(),
                kind: resource.kind,
                plural: resource.name,
                singular: resource.singular_name,
                short_names: resource.short_names.unwrap_or_default(),
                namespaced: resource.namespaced,
            },
        )
    });
    Ok(kinds.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, kind: &str, short: &str) -> Kind {
        Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
            singular: kind.to_lowercase(),
            short_names: vec![short.to_owned()],
            namespaced: true,
        }
    }

    #[test]
    fn types_are_found_as_kubectl_finds_them() {
        let kinds = [
            kind("", "v1", "Service", "svc"),
            kind("apps", "v1", "Deployment", "deploy"),
            kind("serving.example.io", "v1", "Service", "ksvc"),
        ];
        for (word, group) in [
            ("deploy", "apps"),
            ("Deployment", "apps"),
            ("deployments", "apps"),
            ("deployment.apps", "apps"),
            ("deployment.v1.apps", "apps"),
            ("svc", ""),
            ("services", ""),
            ("service.serving.example.io", "serving.example.io"),
        ] {
            assert_eq!(find(&kinds, word).map(|kind| kind.group.as_str()), Some(group), "{word}");
        }
        for word in ["deployment.batch", "deployment.v2.apps", "pods", ""] {
            assert_eq!(find(&kinds, word), None, "{word}");
        }
    }

    #[test]
    fn workloads_are_type_and_name() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(split(&words(&["deploy/nginx"])).unwrap(), ("deploy", "nginx"));
        assert_eq!(split(&words(&["deploy", "nginx"])).unwrap(), ("deploy", "nginx"));
        for bad in
            [&["nginx"][..], &["deploy/"], &["/nginx"], &["a/b/c"], &["a", "b", "c"], &["a/b", "c"]]
        {
            let error = split(&words(bad)).unwrap_err().to_string();
            assert!(error.contains("TYPE/NAME"), "{error}");
        }
    }
}
