//! Which pods of a member belong to what the user named.

use anyhow::bail;
use serde_json::Value;

use crate::hub::Hub;
use crate::reach::{Failure, Member, with_query};
use crate::read::decisions::escape;
use crate::read::workload::{self, Workload};

/// Limit of the pods of one member, and of their containers: more cannot be read at once.
const MOST: usize = 500;

/// Limit of a name in the API, in bytes.
const NAME: usize = 253;

/// What the user named.
#[derive(Debug)]
pub(super) enum Target {
    /// One pod.
    Pod { namespace: String, name: String },
    /// The pods of a workload, by its selector on each member.
    Workload(Workload),
    /// Pods by their labels.
    Selector { namespace: String, labels: String },
}

/// A pod of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Its path on the member.
    pub(super) path: String,
    /// The containers whose logs are read, and what identifies their current run. A container that has not started has
    /// none.
    pub(super) containers: Vec<(String, Option<String>)>,
    /// It has several containers: lines name theirs.
    pub(super) several: bool,
    /// All its containers have ended for good.
    pub(super) finished: bool,
}

impl Target {
    /// # Errors
    /// When the hub does not know the workload's type, or does not answer.
    pub(super) async fn find(
        hub: &Hub,
        target: Option<&str>,
        selector: Option<&str>,
    ) -> anyhow::Result<Self> {
        let namespace = hub.namespace.clone();
        match (target, selector) {
            (Some(target), _) => match target.split_once('/') {
                None => Ok(Self::Pod { namespace, name: target.to_owned() }),
                Some(("pod" | "pods" | "po", name)) if !name.is_empty() => {
                    Ok(Self::Pod { namespace, name: name.to_owned() })
                }
                Some(_) => {
                    let workload = workload::resolve(hub, &[target.to_owned()]).await?;
                    if workload.namespace.is_none() {
                        bail!("{target} is not in a namespace, so it has no pods");
                    }
                    Ok(Self::Workload(workload))
                }
            },
            (None, Some(labels)) => Ok(Self::Selector { namespace, labels: labels.to_owned() }),
            (None, None) => bail!("name a workload (TYPE/NAME), a pod, or labels with --selector"),
        }
    }

    /// What it is, for errors.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Pod { namespace, name } => format!("pod {namespace}/{name}"),
            Self::Workload(workload) => workload.to_string(),
            Self::Selector { namespace, labels } => format!("{labels} in namespace {namespace}"),
        }
    }

    /// Path and query of the list of its pods on a member; `None` if the workload is not there.
    pub(super) async fn list_path(&self, member: &Member) -> Result<Option<String>, Failure> {
        let (namespace, labels, name) = match self {
            Self::Pod { namespace, name } => {
                (namespace, None, Some(format!("metadata.name={}", escape(name))))
            }
            Self::Selector { namespace, labels } => (namespace, Some(labels.clone()), None),
            Self::Workload(workload) => {
                let Some(namespace) = &workload.namespace else { return Ok(None) };
                let object = match member.get(&workload.path(), None).await {
                    Ok(object) => object,
                    Err(failure) if failure.is_not_found() => return Ok(None),
                    Err(failure) => return Err(failure),
                };
                let labels = labels_of(&object["spec"]["selector"]).ok_or_else(|| {
                    Failure::of(format!("{workload} has no label selector: use --selector"))
                })?;
                (namespace, Some(labels), None)
            }
        };
        let limit = Some((MOST + 1).to_string());
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let query = [("labelSelector", labels), ("fieldSelector", name), ("limit", limit)];
        Ok(Some(with_query(&path, &query)))
    }

    /// Its pods on a member.
    pub(super) async fn pods(
        &self,
        member: &Member,
        container: Option<&str>,
    ) -> Result<Vec<Pod>, Failure> {
        let Some(path) = self.list_path(member).await? else { return Ok(Vec::new()) };
        let list = member.get(&path, None).await?;
        let pods = list["items"].as_array().into_iter().flatten();
        let pods: Vec<Pod> = pods.filter_map(|pod| Pod::of(pod, container)).collect();
        if pods.len() > MOST {
            return Err(Failure::of(format!("it has more than {MOST} such pods: use --selector")));
        }
        if pods.iter().map(|pod| pod.containers.len()).sum::<usize>() > MOST {
            let why =
                format!("they have more than {MOST} containers: use --container or --selector");
            return Err(Failure::of(why));
        }
        Ok(pods)
    }
}

impl Pod {
    /// Reads a pod. A name that would change the path of a request is left out.
    pub(super) fn of(pod: &Value, container: Option<&str>) -> Option<Self> {
        let text = |field: &str| pod["metadata"][field].as_str().filter(|name| is_name(name));
        let (namespace, name) = (text("namespace")?, text("name")?);
        let entries = |list: &'static str| pod["spec"][list].as_array().into_iter().flatten();
        let names = |list: &'static str| {
            entries(list).filter_map(|entry| entry["name"].as_str()).filter(|name| is_name(name))
        };
        let main: Vec<&str> = names("containers").collect();
        let wanted: Vec<&str> = match container {
            None => main.clone(),
            Some(only) => {
                let mut all = main.iter().copied().chain(names("initContainers"));
                all.find(|name| *name == only).into_iter().collect()
            }
        };
        let containers = wanted.iter().map(|name| ((*name).to_owned(), run(pod, name))).collect();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            path: format!("/api/v1/namespaces/{namespace}/pods/{name}"),
            containers,
            several: main.len() > 1,
            finished: matches!(phase, "Succeeded" | "Failed"),
        })
    }
}

/// What identifies the current run of a container, if it has started.
fn run(pod: &Value, container: &str) -> Option<String> {
    let status = &pod["status"];
    let of = |list: &str| status[list].as_array().into_iter().flatten();
    let mut all = of("containerStatuses").chain(of("initContainerStatuses"));
    let status = all.find(|status| status["name"] == container)?;
    let state = ["running", "terminated"].iter().find_map(|state| {
        let started = status["state"][state]["startedAt"].as_str()?;
        Some(started)
    });
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let restarts = status["restartCount"].as_i64().unwrap_or_default();
    state.map(|started| format!("{uid} {restarts} {started}"))
}

/// Whether a text is a name of the API, which contains nothing that ends a path segment.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    (1..=NAME).contains(&text.len()) && !text.starts_with('.') && text.chars().all(allowed)
}

/// A label selector of an object as a query; `None` if it has none, or one that selects everything.
fn labels_of(selector: &Value) -> Option<String> {
    let map = selector.as_object()?;
    let is_structured = map.contains_key("matchLabels") || map.contains_key("matchExpressions");
    // Services and ReplicationControllers have plain labels.
    let labels = if is_structured { selector["matchLabels"].as_object() } else { Some(map) };
    let mut parts = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str()?));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str()?;
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match expression["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_of_workloads_become_queries() {
        let structured = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["a", "b"]}, {"key": "x", "operator": "Exists"}]});
        assert_eq!(labels_of(&structured).unwrap(), "app=web,tier notin (a,b),x");
        assert_eq!(labels_of(&json!({"app": "web"})).unwrap(), "app=web");
        assert_eq!(labels_of(&json!({"matchLabels": {}})), None);
        assert_eq!(labels_of(&Value::Null), None);
    }

    #[tokio::test]
    async fn a_member_with_too_many_containers_is_refused() {
        let target = Target::Selector { namespace: "shop".to_owned(), labels: "a=b".to_owned() };
        let read = async |count: usize| {
            let containers: Vec<_> =
                (0..count).map(|at| json!({"name": format!("c{at}")})).collect();
            let pod = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": containers}});
            let list = json!({"items": [pod]}).to_string();
            target.pods(&Member::answering("m1", move |_| (200, list.clone())), None).await
        };
        assert_eq!(read(MOST).await.unwrap()[0].containers.len(), MOST);
        let refused = read(MOST + 1).await.unwrap_err().to_string();
        assert!(refused.contains("--container"), "{refused}");
    }

    #[test]
    fn a_pod_of_a_hostile_member_cannot_change_the_path() {
        let pod = |name: &str| {
            json!({"metadata": {"name": name, "namespace": "shop", "uid": "u"},
                "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
                "status": {"containerStatuses": [{"name": "a", "state": {"running": {"startedAt": "t"}}}]}})
        };
        for name in ["../secrets/x", "a/b", "a?x", "..", "", &"a".repeat(254)] {
            assert_eq!(Pod::of(&pod(name), None), None, "{name}");
        }
        let mut odd = pod("web-0");
        odd["spec"]["containers"] = json!([{"name": "a/b"}, {"name": "a".repeat(254)}, {}, 1]);
        assert!(Pod::of(&odd, None).unwrap().containers.is_empty());
        let read = Pod::of(&pod("web-0"), None).unwrap();
        assert_eq!(read.path, "/api/v1/namespaces/shop/pods/web-0");
        assert_eq!(read.containers, [("a".into(), Some("u 0 t".into())), ("b".into(), None)]);
        assert!(read.several && !read.finished);
        assert_eq!(Pod::of(&pod("web-0"), Some("i")).unwrap().containers[0].0, "i");
        assert!(Pod::of(&pod("web-0"), Some("z")).unwrap().containers.is_empty());
    }
}
