//! The agent asks for nothing that the manifest of its rights does not give.

use serde_json::{Value, json};

use crate::member::{config, config_path, deployment};
use crate::setup::Setup;

/// What Kubernetes' authorisation sees of a request.
#[derive(Debug)]
struct Asked {
    verb: &'static str,
    group: String,
    resource: String,
    namespace: String,
    name: String,
}

/// Reads a request line; `None` for paths that every service account may read.
fn asked(line: &str) -> Option<Asked> {
    let (method, uri) = line.split_once(' ').unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let group = match parts[0] {
        "api" if parts.len() > 2 => {
            parts.drain(..2);
            String::new()
        }
        "apis" if parts.len() > 3 => {
            let group = parts[1].to_owned();
            parts.drain(..3);
            group
        }
        _ => {
            assert_eq!(method, "GET", "{line}");
            return None;
        }
    };
    let namespace = if parts[0] == "namespaces" && parts.len() > 2 {
        let namespace = parts[1].to_owned();
        parts.drain(..2);
        namespace
    } else {
        String::new()
    };
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
    Some(Asked { verb, group, resource: parts[0].to_owned(), namespace, name })
}

fn allows(rule: &Value, asked: &Asked) -> bool {
    let has = |list: &Value, item: &str| list.as_array().unwrap().contains(&json!(item));
    has(&rule["apiGroups"], &asked.group)
        && has(&rule["resources"], &asked.resource)
        && has(&rule["verbs"], asked.verb)
        && (rule["resourceNames"].is_null() || has(&rule["resourceNames"], &asked.name))
}

#[tokio::test(start_paused = true)]
async fn every_request_is_covered_by_the_rights_that_an_installation_gives() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let web = session.apply(&deployment("web", "h1", 2)).await;
    let settings = session.apply(&config("fresh", "settings", "h1", "a")).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "shop"},
    });
    setup.member.create(crate::member::SHOP, "kubectl-client-side-apply", theirs).await;
    let taken = session.upsert(&config("shop", "theirs", "h1", "a"), true).await;
    session.applied(&taken).await;
    setup.member.edit(&config_path("theirs"), "kubectl", json!({"data": {"key": "b"}})).await;
    session.applied(&taken).await;
    session.remove(&settings, "").await;
    session.applied(&settings).await;
    session.release(&web, "").await;
    session.applied(&web).await;
    agent.stop().await;
    let agent = setup.agent();
    setup.hub.agreed(1).await;
    agent.stop().await;

    let objects: Vec<Value> = serde_saphyr::from_multiple(atoll_agent::RBAC).unwrap();
    let rules = |kind: &'static str| {
        let of_kind = objects.iter().filter(move |object| object["kind"] == kind);
        of_kind.flat_map(|object| object["rules"].as_array().unwrap())
    };
    let requests = setup.member.requests();
    assert!(requests.len() > 20, "{requests:#?}");
    for line in &requests {
        let Some(asked) = asked(line) else { continue };
        let own = asked.namespace == "atoll-system";
        let allowed = rules("ClusterRole").any(|rule| allows(rule, &asked))
            || own && rules("Role").any(|rule| allows(rule, &asked));
        assert!(allowed, "{line}: {asked:?}");
    }
}
